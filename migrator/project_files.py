"""The files of a new project."""

from __future__ import annotations

from pathlib import Path

from migrator.errors import Failed, Refused
from migrator.settings import FILE

_SETTINGS = """\
# The stores of each environment. Passwords are never written here: ${NAME} is a variable of the
# environment, { file = "..." } and { command = "..." } work too.
default_env = "dev"

[env.dev.stores.docs]
url = "embedded:///docs.db"

# [env.dev.stores.shop]
# url = "postgresql://app@localhost/shop"
# password = "${SHOP_PASSWORD}"
# options = { sslmode = "verify-full", sslrootcert = "ca.pem" }

# [env.production.stores.docs]
# url = "mongodb://db/games"
"""


def init(folder: Path) -> list[Path]:
    """Start a project in a folder; returns what was written.

    Raises Refused where there is a migrator.toml already, Failed where nothing can be written.
    """
    file, scripts = folder / FILE, folder / "migrations"
    if file.exists():
        raise Refused("it is there already; nothing was changed", where=str(file))
    try:
        scripts.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(_SETTINGS)
    except FileExistsError as error:
        raise Refused("it is in the way", where=str(error.filename)) from None
    except OSError as error:
        raise Failed(
            f"it can't be written: {error.strerror}", where=str(error.filename or file)
        ) from None
    return [file, scripts]

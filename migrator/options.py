"""The options that settings give to a store's module, checked in one way for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from migrator.errors import Refused
from migrator.ports import StoreSettings


def checked(
    settings: StoreSettings,
    product: str,
    known: Mapping[str, type],
    files: Iterable[str],
    *,
    least: int | None = None,
    apart: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The options by name, with paths of files from the project's folder.

    ``known`` are the types, ``files`` the options that name a file, ``least`` the lower bound
    of whole numbers; ``apart`` are options that the module looks at by itself. Raises Refused
    for an unknown or ill-typed one, and for a file that is not there.
    """
    where = f"store {settings.name}"
    options = {name: x for name, x in settings.options.items() if name not in apart}
    for name, value in options.items():
        wanted = known.get(name)
        if wanted is None:
            raise Refused(
                f"{where}: {product} has no option {name!r}",
                hint=f"options: {', '.join((*apart, *sorted(known)))}",
            )
        too_small = wanted is int and least is not None and type(value) is int and value < least
        if type(value) is not wanted or too_small:
            raise Refused(f"{where}: option {name} wants {wanted.__name__}, not {value!r}")
    for name in files:
        if name not in options:
            continue
        path = os.path.join(settings.root, str(options[name]))
        if not os.path.isfile(path):
            raise Refused(f"{where}: {name}: there is no file {path}")
        options[name] = path
    return options

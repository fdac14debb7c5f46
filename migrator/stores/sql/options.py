"""The options of a relational store, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from migrator.errors import Refused
from migrator.ports import StoreSettings

Dialect: TypeAlias = Literal["sqlite", "postgresql", "mysql"]
_SCHEMES: Mapping[str, Dialect] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_SSLMODES = ("disable", "prefer", "require", "verify-ca", "verify-full")


@dataclass(frozen=True)
class Options:
    """Checked options, with defaults. Times are seconds; 0 means no time-out."""

    pool_size: int = 8
    connect_timeout: int = 10
    statement_timeout: float = 300
    lock_timeout: float = 30
    application_name: str = "migrator"
    schema: str | None = None
    target_session_attrs: str | None = None
    sslmode: str | None = None
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None


def _whole(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and value.isdigit() else value
        if type(number) is not int or not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return read


def _seconds(value: object) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, str)) else -1.0
    except ValueError:
        number = -1.0
    if isinstance(value, bool) or not 0 <= number <= 86_400:
        raise ValueError("seconds from 0 to 86400")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError("one of " + ", ".join(words))
        return str(value)

    return read


_TLS: dict[str, Callable[[object], object]] = {
    "sslmode": _one_of(*_SSLMODES),
    "sslrootcert": _text,
    "sslcert": _text,
    "sslkey": _text,
}
_COMMON: dict[str, Callable[[object], object]] = {
    "pool_size": _whole(1, 256),
    "lock_timeout": _seconds,
}
_SERVER: dict[str, Callable[[object], object]] = {
    "connect_timeout": _whole(1, 3600),
    "statement_timeout": _seconds,
}
KNOWN: Mapping[Dialect, Mapping[str, Callable[[object], object]]] = {
    "sqlite": _COMMON,
    "mysql": {**_COMMON, **_SERVER, **_TLS},
    "postgresql": {
        **_COMMON,
        **_SERVER,
        **_TLS,
        "application_name": _text,
        "schema": _text,
        "target_session_attrs": _one_of(
            "any", "read-write", "read-only", "primary", "standby", "prefer-standby"
        ),
    },
}
_FILES = ("sslrootcert", "sslcert", "sslkey")


def dialect_of(settings: StoreSettings) -> Dialect:
    """Which of the three families the URL names. Raises Refused for any other."""
    scheme = settings.url.partition(":")[0].partition("+")[0]
    if scheme not in _SCHEMES:
        raise Refused(
            f"{scheme!r} is no relational store",
            where=settings.name,
            hint="write sqlite:///FILE, postgresql://USER@HOST/DATABASE or mariadb://...",
        )
    return _SCHEMES[scheme]


def read_url(settings: StoreSettings) -> URL:
    """The URL with the driver named and a file's path made absolute; without its query."""
    dialect = dialect_of(settings)
    try:
        url = make_url(settings.url)
    except (ArgumentError, ValueError):
        raise Refused(
            "its URL can't be read",
            where=settings.name,
            hint=f"it looks like {dialect}://USER@HOST:PORT/DATABASE; the password goes into "
            "password, or percent-encoded into the URL",
        ) from None
    driver = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
    if not url.database or (dialect == "sqlite" and url.database == ":memory:"):
        raise Refused(
            "its URL names no " + ("file" if dialect == "sqlite" else "database"),
            where=settings.name,
            hint="write sqlite:///FILE" if dialect == "sqlite" else "end the URL in /DATABASE",
        )
    if dialect == "sqlite":
        url = url.set(database=str((Path(settings.root) / url.database).resolve()))
    return url.set(drivername=driver[dialect], query={})


def read_options(settings: StoreSettings) -> Options:
    """The options of settings and of the URL's query. Raises Refused naming the known ones."""
    known = KNOWN[dialect_of(settings)]
    given: dict[str, object] = {**make_url(settings.url).query, **settings.options}
    checked: dict[str, object] = {}
    for name, value in given.items():
        if name not in known:
            raise Refused(
                f"option {name!r} is not known",
                where=settings.name,
                hint="known are: " + ", ".join(sorted(known)),
            )
        try:
            checked[name] = known[name](value)
        except ValueError as error:
            raise Refused(f"option {name} must be {error}", where=settings.name) from None
        if name in _FILES:
            path = Path(settings.root) / str(value)
            if not path.is_file():
                raise Refused(f"option {name}: there is no file {value}", where=settings.name)
            checked[name] = str(path)
    return Options(**checked)  # type: ignore[arg-type]

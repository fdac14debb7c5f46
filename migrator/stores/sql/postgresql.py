"""What psycopg is told, so that nothing it reads is clamped, rounded or refused.

Only this module and ``engine`` know psycopg. Loaders are set for each connection, not for the
process: an application that imports the gateway keeps its own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from psycopg import adapters
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.array import ArrayLoader

from migrator.model import value as v
from migrator.model.value import Value
from migrator.stores.sql import times

_SYSTEM = "postgresql"


def _opaque(kind: str, text: str) -> v.Opaque:
    return v.Opaque(_SYSTEM, kind, text.encode())


class _Text(Loader):
    """A loader that reads the server's text."""

    read: Callable[[str], Value]

    def load(self, data: Buffer) -> Any:
        return type(self).read(bytes(data).decode())


def _date(text: str) -> Value:
    try:
        return dt.date.fromisoformat(text) if len(text) == 10 else times.read_date(text)
    except ValueError:
        return _opaque("date", text)


def _local(text: str) -> Value:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        return times.read_local(text)
    except ValueError:
        return _opaque("timestamp without time zone", text)


def _instant(text: str) -> Value:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        return times.read_instant(text)
    except ValueError:
        return _opaque("timestamp with time zone", text)


def _time(text: str) -> Value:
    return v.time_of_day(times.read_clock(text))


def _interval(text: str) -> Value:
    try:
        return times.read_span(text)
    except ValueError:
        return _opaque("interval", text)


_LOADERS: dict[str, Callable[[str], Value]] = {
    "date": _date,
    "timestamp": _local,
    "timestamptz": _instant,
    "time": _time,
    "timetz": lambda text: _opaque("time with time zone", text),
    "interval": _interval,
}


class _BoundsKept:
    """An array that does not begin at 1 stays the server's text: a list has no such bound."""

    def load(self, data: Buffer) -> Any:
        raw = bytes(data)
        if raw.startswith(b"["):
            return _opaque("array", raw.decode())
        return super().load(data)  # type: ignore[misc]


def _array_loaders() -> list[tuple[int, type[Loader]]]:
    return [
        (
            info.array_oid,
            type(
                f"_{info.name.title()}Array",
                (_BoundsKept, ArrayLoader),
                {"base_oid": info.oid, "delimiter": info.delimiter.encode()},
            ),
        )
        for info in adapters.types
        if info.array_oid
    ]


def _scalar_loaders() -> list[tuple[str, type[Loader]]]:
    return [
        (name, type(f"_{name.title()}", (_Text,), {"read": staticmethod(read)}))
        for name, read in _LOADERS.items()
    ]


_ARRAYS = _array_loaders()
_SCALARS = _scalar_loaders()


def load_exactly(connection: Any) -> None:
    """Give one connection the loaders of this module."""
    for oid, loader in _ARRAYS:
        connection.adapters.register_loader(oid, loader)
    for name, loader in _SCALARS:
        connection.adapters.register_loader(name, loader)


__all__ = ["load_exactly"]

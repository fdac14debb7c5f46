"""Columns of SQLite: values by storage class, changed by a column's affinity only.

A column gives what is stored: text stays text, whole numbers are whole numbers (of 64 bits
where the declared type says BIGINT or INT8). SQLite has no decimals, dates or uuids; a table
made here holds them as text in columns whose declared type says what the text is:
``DECIMAL TEXT``, ``DATE TEXT``, ``TIMESTAMPTZ TEXT`` ... Only these names are read so, and none
of them holds INT, which would make SQLite turn digits into numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from migrator.model import tags
from migrator.model import value as v
from migrator.model.value import Kind, Value, kind_of
from migrator.stores.sql.catalog import Column
from migrator.stores.sql.columns import Codec, Encode, misfit, need_int64, need_text
from migrator.stores.sql.documents import read_column, write_json
from migrator.stores.sql.unfit import Unfit

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")

CARRIED: Mapping[str, tuple[frozenset[Kind], tuple[str, ...]]] = {
    "BIGNUM TEXT": (frozenset({Kind.INTEGER}), ("integer",)),
    "DECIMAL TEXT": (frozenset({Kind.DECIMAL}), ("decimal",)),
    "DATE TEXT": (frozenset({Kind.DATE}), ("date", "date days")),
    "TIME TEXT": (frozenset({Kind.TIME}), ("time", "time ns")),
    "TIMESTAMPTZ TEXT": (frozenset({Kind.TIMESTAMP}), ("timestamp", "timestamp ns")),
    "TIMESTAMP TEXT": (
        frozenset({Kind.LOCAL_TIMESTAMP}),
        ("local timestamp", "local timestamp ns"),
    ),
    "SPAN TEXT": (frozenset({Kind.INTERVAL}), ("interval",)),
    "UUID TEXT": (frozenset({Kind.UUID}), ("uuid",)),
}
BOOLEANS = ("BOOLEAN NUMERIC",)
BIG = ("BIGINT", "INT8", "UNSIGNED BIG INT", "BIGINTEGER")


def affinity(base: str) -> str:
    """SQLite's own rule, in its order."""
    for words, name in (
        (("INT",), "INTEGER"),
        (("CHAR", "CLOB", "TEXT"), "TEXT"),
        (("BLOB",), "BLOB"),
        (("REAL", "FLOA", "DOUB"), "REAL"),
    ):
        if any(word in base for word in words):
            return name
    return "NUMERIC" if base else "BLOB"


def make(column: Column, declared: str | None, *, by_bytes: bool = False) -> Codec:
    """The codec of a column; ``by_bytes``: it has no collation but SQLite's first."""
    from migrator.stores.sql.catalog_sqlite import split_type
    from migrator.stores.sql.schema import split_declared

    said = split_declared(split_type(declared)[0])[0] if declared else ""
    base = split_declared(column.base)[0]
    if said in ("BOOLEAN", "BOOL") or base in BOOLEANS:
        return Codec(column, _bool(column), _read_bool, ordered=True, text=_read_bool)
    if said in ("JSON", "JSONB", "JSON TEXT") or base == "JSON TEXT":
        return Codec(column, write_json, _read_document, json=True, text=_read_document)
    if said in BIG or base in BIG:
        sorts = frozenset((v.Int64,))
        return Codec(column, _big(column), _read_big, family="int", text=_read_big, sorts=sorts)
    carrier = base if base in CARRIED else said
    if carrier in CARRIED:
        return _carried(column, carrier)
    kind = affinity(base)
    encode = _STORAGE[kind](column)
    rowid = kind == "INTEGER" and bool(column.identity)
    return Codec(
        column, encode, ordered=rowid, family=_family(kind, by_bytes),
        sorts=frozenset((int,)),
    )  # fmt: skip


def _family(kind: str, by_bytes: bool) -> str:
    """What tells that two columns are equal where Python says so of what they hold."""
    if kind == "INTEGER":
        return "int"
    return "text" if kind == "TEXT" and by_bytes else ""


def _read_big(raw: Any) -> Value:
    return v.Int64(raw) if type(raw) is int else raw


def _big(column: Column) -> Encode:
    other = _whole(column)
    return lambda value: need_int64(value, column) if isinstance(value, int) else other(value)


def _read_bool(raw: Any) -> Value:
    return bool(raw) if type(raw) is int and raw in (0, 1) else raw


def _bool(column: Column) -> Encode:
    def encode(value: Value) -> Any:
        if type(value) is not bool:
            raise misfit(value, column)
        return int(value)

    return encode


def _read_document(raw: Any) -> Value:
    return read_column(raw, "sqlite") if type(raw) is str else raw


def _carried(column: Column, carrier: str) -> Codec:
    kinds, readers = CARRIED[carrier]

    def encode(value: Value) -> Any:
        if kind_of(value) not in kinds:
            raise misfit(value, column)
        return tags.to_carrier(value)[1]

    def decode(raw: Any) -> Value:
        for reader in readers:
            try:
                return tags.from_carrier(reader, raw)
            except (ValueError, TypeError, ArithmeticError):
                continue
        return raw

    return Codec(column, encode, decode, text=decode)


def _storable(value: Value, column: Column) -> Any:
    """What SQLite stores as it is, whatever the column. Raises Unfit."""
    if type(value) is float and value != value:
        raise Unfit("SQLite turns NaN into NULL")
    if type(value) is float and not value and math.copysign(1, value) < 0:
        raise Unfit("SQLite turns -0.0 into 0.0")
    if type(value) is int and not v.INT64_MIN <= value <= v.INT64_MAX:
        raise Unfit(f"{value} is over 64 bits")
    if type(value) is str:
        return need_text(value, column)
    if type(value) in (int, float, bytes):
        return value
    # A large Int64 and a plain number of the same size are one kind.
    if isinstance(value, v.Int64) and not v.INT32_MIN <= value <= v.INT32_MAX:
        return int(value)
    raise misfit(value, column)


def _no_number(value: Any, column: Column) -> Any:
    if type(value) is str and _NUMBER.fullmatch(value):
        raise Unfit(f"{column.type} would turn the text {value!r} into a number")
    return value


def _whole(column: Column) -> Encode:
    def encode(value: Value) -> Any:
        if type(value) is int and v.INT64_MIN <= value <= v.INT64_MAX:
            return value  # as what follows finds out with more steps
        held = _no_number(_storable(value, column), column)
        if type(held) is float and held.is_integer():
            raise Unfit(f"{column.type} would turn {held!r} into a whole number")
        return held

    return encode


def _real(column: Column) -> Encode:
    def encode(value: Value) -> Any:
        held = _no_number(_storable(value, column), column)
        if type(held) is int:
            raise misfit(value, column)
        return held

    return encode


def _textual(column: Column) -> Encode:
    def encode(value: Value) -> Any:
        if type(value) is str and value.isascii():
            return value  # as above
        held = _storable(value, column)
        if type(held) in (int, float):
            raise misfit(value, column)
        return held

    return encode


_STORAGE: dict[str, Callable[[Column], Encode]] = {
    "INTEGER": _whole,
    "NUMERIC": _whole,
    "REAL": _real,
    "TEXT": _textual,
    "BLOB": lambda column: lambda value: _storable(value, column),
}

__all__ = ["BIG", "CARRIED", "affinity", "make"]

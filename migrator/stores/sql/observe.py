"""The verifier's reader of tables: the server's own text of each value, decoded apart.

It shares the paging and the shape with the copier, and none of the decoding: no loader of a
driver that makes a value, no decoder of the copier (design, section 6: an independent path).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from migrator.model import value as v
from migrator.model.value import Value
from migrator.stores.sql.arrays import read_array
from migrator.stores.sql.columns import Codec, server_cast
from migrator.stores.sql.documents import JSON_NULL
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.rows import Decoding, Reader
from migrator.stores.sql.tables import TablesReading


class TablesObserver(TablesReading):
    """Reads the same aggregates by the server's text."""

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.root, self.dialect, DECODINGS[self.dialect])


def _select_postgresql(codec: Codec, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    made: sa.ColumnElement[Any] = server_cast(column, "text")
    if codec.column.base == "bpchar" and not codec.column.array:  # whose cast drops the blanks
        made = sa.case((column.is_not(None), sa.func.concat(column)))
    return made.label(codec.name)


def _decode_postgresql(codec: Codec) -> Callable[[Any], Value] | None:
    if codec.json:
        return lambda text: _document(text, "postgresql")
    if codec.column.array and codec.text is None:
        return lambda text: read_array(text, str)
    return codec.text


def _select_mysql(codec: Codec, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    base = codec.column.base
    made: sa.ColumnElement[Any]
    if base in _BYTES or base not in _TEXTUAL:
        made = sa.func.hex(column)
    elif base == "bit":
        made = server_cast(column + 0, "char")
    elif base == "float":
        made = server_cast(server_cast(column, "double"), "char")
    elif base in _STRINGS:
        made = column
    else:
        made = server_cast(column, "char")
    return made.label(codec.name)


_STRINGS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TEXTUAL = (
    *_STRINGS,
    *("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "float", "bit"),
    *("year", "date", "datetime", "timestamp", "time", "uuid", "inet4", "inet6"),
)


def _decode_mysql(codec: Codec) -> Callable[[Any], Value] | None:
    base = codec.column.base
    if codec.json:
        return lambda text: _document(text, "mysql")
    if base in _BYTES:
        return bytes.fromhex
    if base not in _TEXTUAL:
        return lambda text: v.Opaque("mysql", base, bytes.fromhex(text))
    return codec.text


def _select_sqlite(codec: Codec, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The storage class by a letter, then the value; a real as it is, since SQLite's own text
    of it has 15 digits."""
    kind = sa.func.typeof(column)
    return sa.case(
        (kind == "integer", sa.literal("i").concat(server_cast(column, "TEXT"))),
        (kind == "text", sa.literal("t").concat(sa.func.hex(server_cast(column, "BLOB")))),
        (kind == "blob", sa.literal("b").concat(sa.func.hex(column))),
        else_=column,
    ).label(codec.name)


def _decode_sqlite(codec: Codec) -> Callable[[Any], Value]:
    after = codec.text

    def decode(held: Any) -> Value:
        stored = _stored(held)
        if codec.json and type(stored) is str:
            return _document(stored, "sqlite")
        return stored if after is None else after(stored)

    return decode


def _stored(held: Any) -> Value:
    if type(held) is not str:
        return held
    letter, text = held[:1], held[1:]
    if letter == "i":
        return int(text)
    data = bytes.fromhex(text)
    if letter == "b":
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return v.Opaque("sqlite", "text", data)


def _document(text: str, system: str) -> Value:
    def fraction(number: str) -> Value:
        return float(number) if repr(float(number)) == number else Decimal(number)

    def pairs(given: list[tuple[str, Value]]) -> dict[str, Value]:
        if len({name for name, _ in given}) < len(given):
            raise ValueError("a name twice")
        return dict(given)

    def constant(word: str) -> Value:
        raise ValueError(word)

    try:
        value = json.loads(
            text,
            parse_float=fraction,
            parse_constant=constant,
            object_pairs_hook=pairs,
            strict=False,
        )
    except ValueError:
        return v.Opaque(system, "json", text.encode("utf-8", "surrogatepass"))
    return JSON_NULL if value is None else value


DECODINGS: dict[Dialect, Decoding] = {
    "postgresql": Decoding(_select_postgresql, _decode_postgresql),
    "mysql": Decoding(_select_mysql, _decode_mysql),
    "sqlite": Decoding(_select_sqlite, _decode_sqlite),
}

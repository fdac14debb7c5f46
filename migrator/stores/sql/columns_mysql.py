"""Columns of MariaDB and MySQL.

DATETIME has no zone and stays without one; TIMESTAMP is a moment, in sessions of UTC. A TIME
within a day is a time of day, any other an interval. Dates that are none (``0000-00-00``,
``2024-00-10``) are opaque and go back as they were (hard case C61). FLOAT is read through
DOUBLE, since its own text has six digits only, and gives the double with the same shortest
digits. ``tinyint(1)`` is a number unless the script declares the column as ``boolean``; BIT is
a number, SET a set of texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from migrator.model import value as v
from migrator.model.value import Kind, Value, kind_of
from migrator.stores.sql import times
from migrator.stores.sql.catalog import Column
from migrator.stores.sql.columns import (
    Codec,
    Decode,
    Encode,
    misfit,
    need_int,
    need_int64,
    need_length,
    need_scale,
    need_single,
    need_text,
    single,
)
from migrator.stores.sql.documents import encoder, names_each_once, read_column, write_json
from migrator.stores.sql.unfit import Unfit

_SYSTEM = "mysql"
_WIDTHS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32}
_TEXT_BYTES = {"tinytext": 255, "text": 65_535, "mediumtext": 2**24 - 1, "longtext": 2**32 - 1}
_BLOB_BYTES = {"tinyblob": 255, "blob": 65_535, "mediumblob": 2**24 - 1, "longblob": 2**32 - 1}
# Windows' code page, and five control characters in the places that it leaves free.
_LATIN1 = frozenset(bytes(range(256)).decode("cp1252", "ignore") + "\x81\x8d\x8f\x90\x9d")
_LONGEST = (838 * 3600 + 59 * 60 + 59) * v.NANOS
_LAST_MOMENT = (2**31 - 1) * v.NANOS + 999_999_000


def _int(column: Column) -> Encode:
    bits = _WIDTHS[column.base]
    low, high = (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda value: need_int(value, column, low, high)


def _bigint(column: Column) -> Encode:
    def encode(value: Value) -> int:
        if column.unsigned and type(value) is int and 2**63 <= value < 2**64:
            return value
        number = need_int64(value, column)
        if column.unsigned and number < 0:
            raise Unfit(f"{number} is below 0, and {column.type} has no sign")
        return number

    return encode


def _read_bigint(raw: int) -> Value:
    return v.Int64(raw) if raw <= v.INT64_MAX else raw


def _decimal(column: Column) -> Encode:
    precision, scale = (*column.args, 0, 0)[:2]

    def encode(value: Value) -> str:
        if type(value) is not Decimal:
            raise misfit(value, column)
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise Unfit(f"{column.type} can't hold {value}")
        if (
            -exponent != scale
            or len(digits) + exponent > precision - scale
            or (sign and not value)
            or (sign and column.unsigned)
        ):
            raise Unfit(f"{column.type} can't hold {value} digit by digit")
        return f"{value:f}"

    return encode


def _finite(value: float, column: Column) -> float:
    if value - value != 0:
        raise Unfit(f"{column.type} can't hold {value!r}")
    if not value and math.copysign(1, value) < 0:
        raise Unfit("the server turns -0.0 into 0")
    if column.unsigned and value < 0:
        raise Unfit(f"{value!r} is below 0, and {column.type} has no sign")
    return value


def _unrounded(value: float, column: Column) -> float:
    """Raises Unfit where a column of so many digits, as DOUBLE(7,2), would round a number."""
    if not column.args:
        return value
    precision, scale = column.args
    if round(value, scale) != value or abs(value) > 10 ** (precision - scale) - 10**-scale:
        raise Unfit(f"{value!r} is not what {column.type} would give back")
    return value


def _double(column: Column) -> Encode:
    def encode(value: Value) -> float:
        if type(value) is not float:
            raise misfit(value, column)
        return _unrounded(_finite(value, column), column)

    return encode


def _float(column: Column) -> Encode:
    def encode(value: Value) -> float:
        held = _finite(need_single(value, column), column)
        return held if not column.args else _unrounded(float(value), column)  # type: ignore[arg-type]

    return encode


def _year(column: Column) -> Encode:
    def encode(value: Value) -> int:
        # The server takes 1 to 99 for years near 2000.
        return need_int(value, column, *((0, 0) if value == 0 else (1901, 2155)))

    return encode


def _beyond(column: Column) -> Callable[[str], str]:
    """What of a text that is not all ASCII the column's character set has no place for: all of
    it, a character, or nothing, where only the server knows."""
    charset = (column.collation or "").split("_")[0]
    if charset in ("utf8", "utf8mb3", "ucs2"):
        return lambda text: max(text) if max(text) > "\uffff" else ""
    if charset == "latin1":
        return lambda text: next((x for x in text if x not in _LATIN1), "")
    if charset == "ascii":
        return lambda text: next(x for x in text if not x.isascii())
    return lambda text: ""


def _text(column: Column) -> Encode:
    most = _TEXT_BYTES.get(column.base)
    beyond = _beyond(column)

    def encode(value: Value) -> str:
        text = need_text(value, column)
        if most is None:
            need_length(text, column)
        elif len(text) > most // 4 and len(text.encode()) > most:
            raise Unfit(f"{len(text.encode())} bytes are more than {column.type} takes")
        if column.base == "char" and text.endswith(" "):
            raise Unfit(f"{column.type} would cut the blanks at the end")
        if not text.isascii() and (odd := beyond(text)):
            raise Unfit(f"a text of {column.collation} has no place for U+{ord(odd):04X}")
        return text

    return encode


def _bytes(column: Column) -> Encode:
    most = _BLOB_BYTES.get(column.base)

    def encode(value: Value) -> bytes:
        if type(value) is not bytes:
            raise misfit(value, column)
        if most is None:
            need_length(value, column)
        elif len(value) > most:
            raise Unfit(f"{len(value)} bytes are more than {column.type} takes")
        if column.base == "binary" and len(value) != (column.args or (1,))[0]:
            raise Unfit(f"{column.type} would fill {len(value)} bytes up with zeros")
        return value

    return encode


def _dated(kind: Kind, write: Callable[[Value, Column], str]) -> Callable[[Column], Encode]:
    def make_encode(column: Column) -> Encode:
        def encode(value: Value) -> str:
            if type(value) is v.Opaque and (value.system, value.kind) == (_SYSTEM, column.base):
                return value.data.decode()
            if kind_of(value) is not kind:
                raise misfit(value, column)
            if type(value) in (v.LongDate, v.LocalTimestamp):
                raise Unfit(f"{column.type} holds the years 1 to 9999, to the microsecond")
            return write(value, column)

        return encode

    return make_encode


def _write_stamp(value: Value, column: Column) -> str:
    nanos = need_scale(v.nanos_of(value), column.args[0], column)
    if column.base == "timestamp" and not v.NANOS <= nanos <= _LAST_MOMENT:
        raise Unfit("timestamp holds 1970-01-01 00:00:01 to 2038-01-19 03:14:07 UTC")
    return times.write_stamp(nanos)


def _time(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is v.Interval and not (value.months or value.days):
            nanos = value.nanos
            if 0 <= nanos < v.DAY_NANOS:
                raise Unfit("time gives back a time of day, not an interval, within a day")
        elif kind_of(value) is Kind.TIME and v.nanos_of(value) < v.DAY_NANOS:
            nanos = v.nanos_of(value)
        else:
            raise misfit(value, column)
        if not -_LONGEST <= nanos <= _LONGEST:
            raise Unfit("time holds -838:59:59 to 838:59:59")
        return times.write_clock(need_scale(nanos, column.args[0], column))

    return encode


def _read_time(text: str) -> Value:
    nanos = times.read_clock(text)
    return v.time_of_day(nanos) if 0 <= nanos < v.DAY_NANOS else v.Interval(nanos=nanos)


def _or_opaque(read: Decode, base: str) -> Decode:
    def decode(text: str) -> Value:
        try:
            if not text.startswith("0000"):  # the server's year 0 is no year of any calendar
                return read(text)
        except ValueError:
            pass
        return v.Opaque(_SYSTEM, base, text.encode())

    return decode


def _bit(column: Column) -> Encode:
    width = (column.args or (1,))[0]

    def encode(value: Value) -> int:
        return need_int(value, column, 0, 2**width - 1)

    return encode


def _read_bit(raw: Any) -> Value:
    return int.from_bytes(raw, "big") if isinstance(raw, bytes) else int(raw)


def _enum(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is not str or value not in column.labels:
            raise Unfit(f"{column.base} has no such label")
        return value

    return encode


def _set(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is not v.Set:
            raise misfit(value, column)
        # What is nothing but the empty label comes back as the empty set.
        if not all(type(item) is str and item and item in column.labels for item in value):
            raise Unfit("set has no such label")
        return ",".join(str(item) for item in value)

    return encode


def _uuid(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is not UUID:
            raise misfit(value, column)
        return str(value)

    return encode


def _json(column: Column) -> Encode:
    """A type of its own on MySQL; on MariaDB a text that has to be valid to a function of it, which
    takes more than JSON (``1.``)."""
    if column.type == "json":
        return encoder("json", names_each_once, deepest=99)
    return encoder(column.type, None, deepest=31)


_ADDRESSES = ("inet4", "inet6")
_STRINGS = ("char", "varchar", *_TEXT_BYTES)
_BINARIES = ("binary", "varbinary", *_BLOB_BYTES)
_ENCODERS: Mapping[str, Callable[[Column], Encode]] = {
    **dict.fromkeys(_WIDTHS, _int),
    **dict.fromkeys(_STRINGS, _text),
    **dict.fromkeys(_BINARIES, _bytes),
    "bigint": _bigint,
    "decimal": _decimal,
    "double": _double,
    "float": _float,
    "date": _dated(Kind.DATE, lambda value, _: times.write_date(v.nanos_of(value))),
    "datetime": _dated(Kind.LOCAL_TIMESTAMP, _write_stamp),
    "timestamp": _dated(Kind.TIMESTAMP, _write_stamp),
    "time": _time,
    "year": _year,
    "bit": _bit,
    "enum": _enum,
    "set": _set,
    "uuid": _uuid,
    "json": _json,
}
_DECODERS: Mapping[str, Decode] = {
    "bigint": _read_bigint,
    "float": single,
    "date": _or_opaque(times.read_date, "date"),
    "datetime": _or_opaque(times.read_local, "datetime"),
    "timestamp": _or_opaque(times.read_instant, "timestamp"),
    "time": _read_time,
    "bit": _read_bit,
    "set": lambda text: v.Set(text.split(",") if text else ()),
    "uuid": UUID,
    "json": lambda text: read_column(text, _SYSTEM),
}
# The observer reads text made by the server, with none of the driver's decoders.
TEXTS: Mapping[str, Decode] = {
    **_DECODERS,
    **dict.fromkeys((*_WIDTHS, "year"), int),
    "bigint": lambda text: _read_bigint(int(text)),
    "decimal": Decimal,
    "double": float,
    "float": lambda text: single(float(text)),
}


def make(column: Column, declared: str | None) -> Codec:
    """The codec of a column."""
    base = column.base
    said = declared.lower().split("(")[0].strip() if declared else ""
    if said in ("boolean", "bool") and base in (*_WIDTHS, "bit"):
        return _boolean(column)
    if said == "json" and base in _STRINGS:
        read = TEXTS["json"]
        # The server does not ask whether the text is JSON.
        return Codec(column, write_json, read, json=True, text=read)
    if base not in _ENCODERS:
        return _other(column)
    ordered = base in (*_WIDTHS, "bigint", "date", "datetime", "timestamp", "year")
    whole = base in (*_WIDTHS, "bigint")
    return Codec(
        column,
        _ENCODERS[base](column),
        _DECODERS.get(base),
        "double" if base == "float" else None,
        ordered=ordered,
        family="int" if whole else "",
        json=base == "json",
        text=TEXTS.get(base),
    )


def _boolean(column: Column) -> Codec:
    def encode(value: Value) -> int:
        if type(value) is not bool:
            raise misfit(value, column)
        return int(value)

    def decode(raw: Any) -> Value:
        number = _read_bit(raw)
        return bool(number) if number in (0, 1) else number

    return Codec(column, encode, decode, text=decode)


def _other(column: Column) -> Codec:
    def encode(value: Value) -> Any:
        if type(value) is v.Opaque and (value.system, value.kind) == (_SYSTEM, column.base):
            return value.data.decode() if column.base in _ADDRESSES else value.data
        raise misfit(value, column)

    def decode(raw: Any) -> Value:
        return v.Opaque(_SYSTEM, column.base, raw if isinstance(raw, bytes) else str(raw).encode())

    return Codec(column, encode, decode, text=decode)


__all__ = ["TEXTS", "make"]

"""Columns of PostgreSQL.

Every value is sent as text and cast to the column's type on the server, so that the text the
server would print is the text it reads. Bounds are checked here, because its casts round and
cut without a word. ``real`` reads as the double with the same shortest digits. Types with no
kind of their own (``inet``, ranges, ``bit`` ...) are opaque, under their name; a script that
declares such a column as ``text`` gets their text.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from uuid import UUID

from migrator.model import value as v
from migrator.model.value import Kind, Value, kind_of
from migrator.stores.sql import times
from migrator.stores.sql.arrays import read_array, write_array
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
    wide,
)
from migrator.stores.sql.documents import encoder, is_json, names_each_once, read_column
from migrator.stores.sql.unfit import Unfit

_SYSTEM = "postgresql"
_FIRST_DAY = times.days_from_civil(-4713, 11, 24)  # the Julian day 0
_LAST_DATE = times.days_from_civil(5_874_897, 12, 31)
_LAST_STAMP = times.days_from_civil(294_276, 12, 31)
_LAST_FIELD = re.compile(r"interval (?:.* )?(year|month|day|hour|minute)(?:\[\])?")
_NUMERIC_DIGITS, _NUMERIC_SCALE = 131_072, 16_383
_NAME_BYTES = 63
_MAX_INTERVAL = 2**63 // 1000 * 1000


def _ints(low: int, high: int) -> Callable[[Column], Encode]:
    return lambda column: lambda value: str(need_int(value, column, low, high))


def _int8(column: Column) -> Encode:
    return lambda value: str(need_int64(value, column))


def _numeric(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is not Decimal:
            raise misfit(value, column)
        if not value.is_finite():
            if value.is_snan() or (value.is_nan() and value.is_signed()):
                raise misfit(value, column)
            if column.args and not value.is_nan():
                raise Unfit(f"{column.type} can't hold {value}")
            return str(value)
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        if exponent > 0 or (sign and not value):
            raise Unfit(f"numeric would write {value} as {value:f}")
        whole = max(len(digits) + exponent, 0)
        if column.args:
            precision, scale = (*column.args, 0)[:2]
            if -exponent != scale or whole > precision - scale:
                raise Unfit(f"{column.type} can't hold {value} digit by digit")
        elif -exponent > _NUMERIC_SCALE or whole > _NUMERIC_DIGITS:
            raise Unfit("numeric has no place for so many digits")
        return f"{value:f}"

    return encode


def _double(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is not float:
            raise misfit(value, column)
        return repr(value)

    return encode


def _text(column: Column) -> Encode:
    def encode(value: Value) -> str:
        text = need_text(value, column)
        if "\0" in text:
            raise Unfit("PostgreSQL's text can't hold U+0000")
        if column.base == "bpchar":
            if column.args and len(text) != column.args[0]:
                raise Unfit(f"{column.type} would change the text's length of {len(text)}")
        elif column.base == "varchar":
            need_length(text, column)
        elif column.base == "name" and len(text.encode()) > _NAME_BYTES:
            raise Unfit(f"{len(text.encode())} bytes are more than name takes")
        return text

    return encode


def _bytes(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is not bytes:
            raise misfit(value, column)
        return "\\x" + value.hex()

    return encode


def _bool(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is not bool:
            raise misfit(value, column)
        return "true" if value else "false"

    return encode


def _opaque(column: Column, kind: str) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is v.Opaque and (value.system, value.kind) == (_SYSTEM, kind):
            return value.data.decode()
        raise misfit(value, column)

    return encode


def _moment(kind: Kind, name: str, zone: str) -> Callable[[Column], Encode]:
    def make_encode(column: Column) -> Encode:
        other = _opaque(column, name)
        digits = column.args[0] if column.args else 6

        def encode(value: Value) -> str:
            if type(value) is v.Opaque:
                return str(other(value))
            if kind_of(value) is not kind:
                raise misfit(value, column)
            # A zone that is far from UTC, or no whole second away, is none to the server.
            if digits == 6 and type(value) is dt.datetime and not value.utcoffset():
                return value.isoformat(" ")
            nanos = need_scale(v.nanos_of(value), digits, column)
            if not _FIRST_DAY <= nanos // v.DAY_NANOS <= _LAST_STAMP:
                raise Unfit(f"{column.type} ends in the year 294276 and begins in 4713 BC")
            return times.write_stamp(nanos, zone=zone, era=True)

        return encode

    return make_encode


def _date(column: Column) -> Encode:
    other = _opaque(column, "date")

    def encode(value: Value) -> str:
        if type(value) is v.Opaque:
            return str(other(value))
        if kind_of(value) is not Kind.DATE:
            raise misfit(value, column)
        days = v.nanos_of(value)
        if not _FIRST_DAY <= days <= _LAST_DATE:
            raise Unfit("date ends in the year 5874897 and begins in 4713 BC")
        return times.write_date(days, era=True)

    return encode


def _time(column: Column) -> Encode:
    digits = column.args[0] if column.args else 6

    def encode(value: Value) -> str:
        if kind_of(value) is not Kind.TIME or (isinstance(value, dt.time) and value.tzinfo):
            raise misfit(value, column)
        return times.write_clock(need_scale(v.nanos_of(value), digits, column))

    return encode


def _is_cut(span: v.Interval, last: str) -> bool:
    """Whether an interval has more than what stands up to a field."""
    if last in ("hour", "minute"):
        return bool(span.nanos % ((3600 if last == "hour" else 60) * v.NANOS))
    if last == "day":
        return bool(span.nanos)
    return bool(span.days or span.nanos or (last == "year" and span.months % 12))


def _interval(column: Column) -> Encode:
    other = _opaque(column, "interval")

    def encode(value: Value) -> str:
        if type(value) is v.Opaque:
            return str(other(value))
        if type(value) is not v.Interval:
            raise misfit(value, column)
        need_scale(value.nanos, column.args[0] if column.args else 6, column)
        if (last := _LAST_FIELD.fullmatch(column.type)) and _is_cut(value, last[1]):
            raise Unfit(f"{column.type} would cut it")
        bounds = ((value.months, 2**31), (value.days, 2**31), (value.nanos, _MAX_INTERVAL))
        if any(not -most <= part < most for part, most in bounds):
            raise Unfit("interval has no place for so long a time")
        return times.write_span(value)

    return encode


def _uuid(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is not UUID:
            raise misfit(value, column)
        return str(value)

    return encode


def _json(column: Column) -> Encode:
    return encoder(column.type, is_json if column.base == "json" else names_each_once)


def _enum(column: Column) -> Encode:
    def encode(value: Value) -> str:
        if type(value) is not str or value not in column.labels:
            raise Unfit(f"{column.type} has no such label")
        return value

    return encode


_ENCODERS: Mapping[str, Callable[[Column], Encode]] = {
    "int2": _ints(-(2**15), 2**15 - 1),
    "int4": _ints(v.INT32_MIN, v.INT32_MAX),
    "oid": _ints(0, 2**32 - 1),
    "int8": _int8,
    "numeric": _numeric,
    "float8": _double,
    "float4": lambda column: lambda value: repr(need_single(value, column)),
    "text": _text,
    "varchar": _text,
    "bpchar": _text,
    "name": _text,
    "citext": _text,
    "bytea": _bytes,
    "bool": _bool,
    "date": _date,
    "timestamp": _moment(Kind.LOCAL_TIMESTAMP, "timestamp without time zone", ""),
    "timestamptz": _moment(Kind.TIMESTAMP, "timestamp with time zone", "+00"),
    "time": _time,
    "interval": _interval,
    "uuid": _uuid,
    "json": _json,
    "jsonb": _json,
    "enum": _enum,
}

# How the observer makes values of the server's text: nothing of psycopg, nothing of the copier.
TEXTS: Mapping[str, Decode] = {
    "int2": int,
    "int4": int,
    "oid": int,
    "int8": lambda text: v.Int64(int(text)),
    "numeric": Decimal,
    "float8": float,
    "float4": float,
    "bytea": lambda text: bytes.fromhex(text[2:]),
    "bool": lambda text: text in ("t", "true"),
    "uuid": UUID,
    "json": lambda text: read_column(text, _SYSTEM),
    "jsonb": lambda text: read_column(text, _SYSTEM),
    "time": lambda text: v.time_of_day(times.read_clock(text)),
}


def _or_opaque(read: Decode, kind: str) -> Decode:
    def decode(text: str) -> Value:
        try:
            return read(text)
        except ValueError:
            return v.Opaque(_SYSTEM, kind, text.encode())

    return decode


_DATED: Mapping[str, Decode] = {
    "date": _or_opaque(times.read_date, "date"),
    "timestamp": _or_opaque(times.read_local, "timestamp without time zone"),
    "timestamptz": _or_opaque(times.read_instant, "timestamp with time zone"),
    "interval": _or_opaque(times.read_span, "interval"),
}
_SAME = ("text", "varchar", "name", "bpchar", "citext", "enum")
_FAMILIES = {"int2": "int", "int4": "int", "int8": "int", "text": "text", "varchar": "text"}
_ORDERED = ("int2", "int4", "int8", "oid", "uuid", "bytea", "bool", "date")


def _int64s(value: Value) -> Value:
    """An array of the driver's plain numbers as one of 64-bit numbers."""
    if type(value) is list:
        return [_int64s(item) for item in value]
    return wide(value) if type(value) is int else value


def make(column: Column, declared: str | None) -> Codec:
    """The codec of a column."""
    base = column.base
    if column.array:
        return _array(column)
    if base not in _ENCODERS:
        return _other(column, declared)
    encode = _ENCODERS[base](column)
    if base in ("json", "jsonb"):
        return Codec(column, encode, TEXTS[base], "text", column.type, json=True, text=TEXTS[base])
    family = "" if column.folds else _FAMILIES.get(base, base if base in _ORDERED else "")
    cast = column.type if base == "enum" else base
    text = TEXTS.get(base) or _DATED.get(base)
    if base == "enum":
        return Codec(column, encode, None, "text", cast)
    decode = wide if base == "int8" else None
    ordered = base in _ORDERED
    return Codec(column, encode, decode, None, cast, ordered, family, text=text)


def _other(column: Column, declared: str | None) -> Codec:
    kind = column.type
    if declared is not None and declared.lower() == "text":
        return Codec(column, lambda value: need_text(value, column), None, "text", kind)

    def decode(text: str) -> Value:
        return v.Opaque(_SYSTEM, kind, text.encode())

    return Codec(column, _opaque(column, kind), decode, "text", kind, text=decode)


def _array(column: Column) -> Codec:
    """An array is a list. One whose bounds a list can't tell, and arrays of json, whose null
    would be two things, stay opaque."""
    base = column.base
    if base not in _ENCODERS or base in ("json", "jsonb"):
        return _other(column, None)
    # The column's own type has the brackets; its elements have the modifiers.
    encode = _ENCODERS[base](column)
    read = TEXTS.get(base) or _DATED.get(base) or str
    other = _opaque(column, "array")

    def write(value: Value) -> str:
        if type(value) is v.Opaque:
            return str(other(value))
        if type(value) is not list:
            raise misfit(value, column)
        return write_array(value, encode)

    def decode(text: str) -> Value:
        if text.startswith("["):
            return v.Opaque(_SYSTEM, "array", text.encode())
        return read_array(text, read)

    if base in ("enum", "interval"):
        return Codec(column, write, decode, "text", column.type, text=decode)
    cast = f"{base}[]"
    return Codec(column, write, _int64s if base == "int8" else None, cast=cast, text=decode)


__all__ = ["TEXTS", "make"]

"""Exact conversions between kinds: a value that would be rounded or cut is refused.

A conversion is defined where the value means the same in both kinds. A double and a decimal
number mean the same where the decimal is the shortest one that names exactly this double.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation

from migrator.model import value as v
from migrator.model.tags import from_carrier, to_carrier
from migrator.model.value import Kind, Value

_WHOLE = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|\+00:00)?", re.ASCII)
_WHOLE_KINDS = (Kind.INT32, Kind.INT64, Kind.INTEGER)
# Longer exponents would build numbers of many megabytes out of a short text.
_LONGEST = 4000


class Inexact(Exception):
    """The value has no equal of the wanted kind; the text says why, without the value."""


def convert(value: Value, to: Kind) -> Value:
    """The same value in another kind. Raises Inexact where there is none.

    ``Kind.INTEGER`` means a whole number of whatever width it needs, and leaves those alone
    that are whole already.
    """
    kind = v.kind_of(value)
    if kind is to or (to is Kind.INTEGER and kind in _WHOLE_KINDS):
        return value
    converter = _CONVERTERS.get(to)
    if converter is None:
        raise Inexact(f"nothing converts to {to}")
    return converter(value)


def _no_way(value: Value, to: Kind) -> Inexact:
    return Inexact(f"is of the kind {v.kind_of(value)}, which does not convert to {to}")


def _whole(value: Value) -> int:
    match value:
        case bool():
            return int(value)
        case int():
            return int(value)
        case float() | Decimal():
            return _whole_of(Decimal(value))
        case str():
            if len(value) > _LONGEST or not _WHOLE.fullmatch(value):
                raise Inexact("is text that is not the plain form of a whole number")
            return int(value)
    raise _no_way(value, Kind.INTEGER)


def _whole_of(number: Decimal) -> int:
    if not number.is_finite():
        raise Inexact("is no finite number")
    if number.is_zero() and number.is_signed():
        raise Inexact("is minus zero, which no whole number is")
    if number.adjusted() > _LONGEST:
        raise Inexact(f"has more than {_LONGEST} digits")
    if number.adjusted() < 0 < abs(number) or number != int(number):
        raise Inexact("is a number that is not whole")
    return int(number)


def _int32(value: Value) -> Value:
    whole = _whole(value)
    if not v.INT32_MIN <= whole <= v.INT32_MAX:
        raise Inexact("does not fit 32 bits")
    return whole


def _int64(value: Value) -> Value:
    whole = _whole(value)
    if not v.INT64_MIN <= whole <= v.INT64_MAX:
        raise Inexact("does not fit 64 bits")
    return v.Int64(whole) if v.kind_of(whole) is Kind.INT32 else whole


def _double(value: Value) -> Value:
    match value:
        case bool():
            raise _no_way(value, Kind.DOUBLE)
        case int():
            try:
                double = float(value)
            except OverflowError:
                raise Inexact("is too large for a double") from None
            if int(double) != value:
                raise Inexact("is a whole number that no double is equal to")
            return double
        case Decimal():
            return _double_of(value)
        case str():
            if value in ("nan", "inf", "-inf"):
                return float(value)
            return _double_of(_number(value))
    raise _no_way(value, Kind.DOUBLE)


def _double_of(number: Decimal) -> float:
    if number.is_nan():
        if not number.is_qnan() or str(number) != "NaN":
            raise Inexact("is a NaN of a kind that no double has")
        return math.nan
    double = float(number)
    if Decimal(repr(double)) != number:
        raise Inexact("has digits that a double would round")
    return double


def _number(text: str) -> Decimal:
    if _NUMBER.fullmatch(text):
        with suppress(InvalidOperation):  # an exponent beyond all bounds
            return Decimal(text)
    raise Inexact("is text that is not the plain form of a number")


def _decimal(value: Value) -> Value:
    match value:
        case bool():
            raise _no_way(value, Kind.DECIMAL)
        case int():
            return Decimal(int(value))
        case float():
            return Decimal("NaN") if math.isnan(value) else Decimal(repr(value))
        case str():
            number = _number(value)
            if str(number) != value:
                raise Inexact("is text that is not the plain form of a decimal number")
            return number
    raise _no_way(value, Kind.DECIMAL)


def _boolean(value: Value) -> Value:
    if value in ("true", "false"):
        return value == "true"
    if type(value) in (int, v.Int64) and value in (0, 1):
        return value == 1
    raise Inexact("is neither true nor false, 1 nor 0")


def _text(value: Value) -> Value:
    kind = v.kind_of(value)
    if kind not in _AS_TEXT:
        raise _no_way(value, Kind.TEXT)
    return to_carrier(value)[1]


def _moment(to: Kind) -> Callable[[Value], Value]:
    def moment(value: Value) -> Value:
        if type(value) is dt.date and to is Kind.LOCAL_TIMESTAMP:
            return dt.datetime(value.year, value.month, value.day)
        if type(value) is not str:
            # Between a zoned and a zone-less time stands a zone that only the user knows.
            raise _no_way(value, to)
        found = _MOMENT.fullmatch(value)
        if found is None or bool(found[4]) != (to is Kind.TIMESTAMP):
            zone = "with Z or +00:00" if to is Kind.TIMESTAMP else "without a zone"
            raise Inexact(f"is text that is not a date and time {zone}, to the nanosecond at most")
        try:
            base = dt.datetime.fromisoformat(f"{found[1]}T{found[2]}")
        except ValueError:
            raise Inexact("is text that names no day or time there is") from None
        nanos = v.nanos_of(base) + int((found[3] or "").ljust(9, "0"))
        return v.instant(nanos) if to is Kind.TIMESTAMP else v.local_timestamp(nanos)

    return moment


def _date(value: Value) -> Value:
    if type(value) is dt.datetime and value.tzinfo is None:
        if value.time() != dt.time():
            raise Inexact("has a time of day, which a date would lose")
        return value.date()
    return _from_text(Kind.DATE, "date")(value)


def _from_text(to: Kind, tag: str) -> Callable[[Value], Value]:
    def read(value: Value) -> Value:
        if type(value) is not str:
            raise _no_way(value, to)
        try:
            found = from_carrier(tag, value)
        except (ValueError, TypeError):
            found = None
        if found is None or to_carrier(found)[1] != value:
            raise Inexact(f"is text that is not the plain form of a value of the kind {to}")
        return found

    return read


_AS_TEXT = {
    Kind.BOOLEAN,
    Kind.INT32,
    Kind.INT64,
    Kind.INTEGER,
    Kind.DOUBLE,
    Kind.DECIMAL,
    Kind.UUID,
    Kind.OBJECT_ID,
    Kind.DATE,
    Kind.TIME,
    Kind.TIMESTAMP,
    Kind.LOCAL_TIMESTAMP,
}
_CONVERTERS: dict[Kind, Callable[[Value], Value]] = {
    Kind.INT32: _int32,
    Kind.INT64: _int64,
    Kind.INTEGER: _whole,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.BOOLEAN: _boolean,
    Kind.TEXT: _text,
    Kind.DATE: _date,
    Kind.TIME: _from_text(Kind.TIME, "time"),
    Kind.TIMESTAMP: _moment(Kind.TIMESTAMP),
    Kind.LOCAL_TIMESTAMP: _moment(Kind.LOCAL_TIMESTAMP),
    Kind.UUID: _from_text(Kind.UUID, "uuid"),
    Kind.OBJECT_ID: _from_text(Kind.OBJECT_ID, "objectid"),
}
CONVERTIBLE = frozenset(_CONVERTERS)

"""CQL's scalar types: the bytes of the native protocol, and the values that they stand for.

Bytes are written and read here and not by the driver: its decoders round far timestamps, raise
on dates after the year 9999 and give None for the empty value of a number. A value that its
column can't say exactly is carried by the nearest bytes, with a mark aside (``marks``): the tag
alone where the column's text carries it, tag and carrier where the bytes are only near. A mark
whose carrier no longer gives the bytes that lie there is ignored.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol, TypeAlias
from uuid import UUID

from migrator.model import value as v
from migrator.model.tags import from_carrier, to_carrier
from migrator.model.value import Kind, Value, has_utf8, kind_of

Mark: TypeAlias = "str | list[str]"
Marks: TypeAlias = dict[str, Mark]

SYSTEM = "cassandra"
EMPTY = "empty"
_MILLI = 1_000_000
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_EPOCH_DATE = 2**31
# A double holds each whole number up to here.
_WHOLE = 2**53


class Unfit(Exception):
    """A value that a column can't hold; ``path`` is where, from the column's own value on."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.path = path


class Codec(Protocol):
    """How the values of one CQL type are written and read.

    ``text`` is the type as CQL writes it, without ``frozen`` around it.
    """

    @property
    def text(self) -> str: ...

    def write(self, value: Value, path: str, marks: Marks) -> bytes:
        """The bytes of a value; what they don't say is marked. Raises Unfit."""

    def read(self, data: bytes, path: str, marks: Marks) -> Value:
        """The value of some bytes with their marks. Raises ValueError for no such bytes."""


Natural: TypeAlias = Callable[[Value], "bytes | None"]


@dataclass(frozen=True)
class Scalar:
    """A scalar type.

    ``natural`` gives the bytes of a value that ``natural_of`` reads back as the same, else
    None; ``near`` those that a plain reader should see for a value that needs a mark. A type
    with ``carries`` holds the carrier of any scalar as text.
    """

    text: str
    natural: Natural
    natural_of: Callable[[bytes], Value]
    near: Natural = lambda value: None
    carries: bool = False

    def write(self, value: Value, path: str, marks: Marks) -> bytes:
        data = self.natural(value)
        if data is not None:
            return data
        if self._may_be_opaque and value == v.Opaque(SYSTEM, self.text, b""):
            return b""
        try:
            tag, carrier = to_carrier(value)
        except TypeError:
            raise self._unfit(value, path) from None
        if type(carrier) is not str:
            raise self._unfit(value, path)
        if self.carries and has_utf8(carrier):
            marks[path] = tag
            return carrier.encode()
        near = self.near(value)
        if near is None:
            raise self._unfit(value, path)
        marks[path] = [tag, carrier]
        return near

    @property
    def _may_be_opaque(self) -> bool:
        """Whether its empty value is no value of its kind."""
        return self.text not in _MAY_BE_EMPTY

    def _unfit(self, value: Value, path: str) -> Unfit:
        kind = kind_of(value)
        if type(value) is str:
            return Unfit(f"this text can't be held by a column of the type {self.text}", path)
        return Unfit(f"{kind} {shown(value)} can't be held by the type {self.text}", path)

    def read(self, data: bytes, path: str, marks: Marks) -> Value:
        mark = marks.get(path) if marks else None
        if mark is not None:
            held = self._marked(data, mark)
            if held is not self:
                return held
        if not data and self._may_be_opaque:
            # Neither null nor a value (hard case C43).
            return v.Opaque(SYSTEM, self.text, b"")
        return self.natural_of(data)

    def _marked(self, data: bytes, mark: Mark) -> Value:
        """What the mark says, or the codec itself where it does not fit the bytes."""
        try:
            if type(mark) is str:
                return from_carrier(mark, data.decode()) if self.carries else self
            held = from_carrier(*mark)
            return held if self.near(held) == data else self
        except (ValueError, TypeError, UnicodeDecodeError):
            return self


_MAY_BE_EMPTY = frozenset({"ascii", "text", "blob"})


def shown(value: Value) -> str:
    """A value in an error, short and in quotes, by which one that is not to be shown is told."""
    text = v.show(value)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


# ---------------------------------------------------------------- numbers


def _fixed(width: int, low: int, high: int) -> Natural:
    def write(value: Value) -> bytes | None:
        if type(value) is int and low <= value <= high:
            return value.to_bytes(width, "big", signed=True)
        return None

    return write


def _near_fixed(width: int, low: int, high: int) -> Natural:
    def write(value: Value) -> bytes | None:
        if type(value) in (int, v.Int64) and low <= value <= high:  # type: ignore[operator]
            return int(value).to_bytes(width, "big", signed=True)  # type: ignore[call-overload,no-any-return]
        return None

    return write


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _sized(width: int) -> Callable[[bytes], int]:
    def read(data: bytes) -> int:
        if len(data) != width:
            raise ValueError(f"{len(data)} bytes instead of {width}")
        return _signed(data)

    return read


def _whole(text: str, width: int) -> Scalar:
    low, high = -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1
    bounds = (width, low, high)
    return Scalar(text, _fixed(*bounds), _sized(width), _near_fixed(*bounds))


def _bigint(value: Value) -> bytes | None:
    if type(value) is v.Int64 or (type(value) is int and kind_of(value) is Kind.INT64):
        return int(value).to_bytes(8, "big", signed=True)
    return None


def _bigint_of(data: bytes) -> Value:
    number = _sized(8)(data)
    return v.Int64(number) if number in _INT32 else number


def varint(number: int) -> bytes:
    """A whole number in as few bytes of two's complement as hold it."""
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _varint_natural(value: Value) -> bytes | None:
    return varint(value) if type(value) is int else None


def _varint_near(value: Value) -> bytes | None:
    return varint(int(value)) if type(value) in (int, v.Int64) else None  # type: ignore[call-overload]


def _decimal(value: Value) -> bytes | None:
    if type(value) is not Decimal or not value.is_finite():
        return None
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if -exponent not in _INT32:
        return None
    unscaled = int(Decimal((0, digits, 0)))  # int() of a text has a limit of digits
    if sign and not unscaled:
        return None  # no big decimal is a negative zero
    return struct.pack(">i", -exponent) + varint(-unscaled if sign else unscaled)


def _decimal_near(value: Value) -> bytes | None:
    if type(value) in (int, v.Int64):
        return _decimal(Decimal(int(value)))  # type: ignore[call-overload]
    if type(value) is Decimal and value.is_zero():
        return _decimal(value.copy_abs())
    return None


def _decimal_of(data: bytes) -> Value:
    if len(data) < 5:
        raise ValueError(f"{len(data)} bytes are no decimal")
    (scale,) = struct.unpack_from(">i", data)
    number = _signed(data[4:])
    return Decimal((int(number < 0), Decimal(abs(number)).as_tuple().digits, -scale))


def _double(value: Value) -> bytes | None:
    return struct.pack(">d", value) if type(value) is float else None


def _number_near(value: Value) -> bytes | None:
    if type(value) in (int, v.Int64) and abs(value) <= _WHOLE:  # type: ignore[arg-type]
        return struct.pack(">d", float(int(value)))  # type: ignore[call-overload]
    return None


def _float(value: Value) -> bytes | None:
    if type(value) is not float:
        return None
    try:
        data = struct.pack(">f", value)
    except OverflowError:
        return None
    same = value != value or struct.unpack(">f", data)[0] == value
    return data if same else None  # never rounded


def _float_near(value: Value) -> bytes | None:
    if type(value) in (int, v.Int64) and abs(value) <= 2**24:  # type: ignore[arg-type]
        return struct.pack(">f", float(int(value)))  # type: ignore[call-overload]
    return None


def _unpack(form: str) -> Callable[[bytes], float]:
    return lambda data: float(_struct(form, data))


def _struct(form: str, data: bytes) -> float:
    try:
        (number,) = struct.unpack(form, data)
    except struct.error as error:
        raise ValueError(str(error)) from None
    return float(number)


# ---------------------------------------------------------------- times


def _date(value: Value) -> bytes | None:
    if type(value) not in (dt.date, v.LongDate):
        return None
    days = v.nanos_of(value) + _EPOCH_DATE
    return days.to_bytes(4, "big") if 0 <= days < 2**32 else None


def _time(value: Value) -> bytes | None:
    if type(value) not in (dt.time, v.TimeOfDay):
        return None
    nanos = v.nanos_of(value)
    return nanos.to_bytes(8, "big", signed=True) if nanos < v.DAY_NANOS else None


def _milliseconds(value: Value, kinds: tuple[Kind, ...], exact: bool) -> bytes | None:
    if type(value) not in (dt.datetime, v.Instant, v.LocalTimestamp):
        return None
    if kind_of(value) not in kinds:
        return None
    millis, rest = divmod(v.nanos_of(value), _MILLI)
    if (rest and exact) or millis not in _INT64:
        return None
    return millis.to_bytes(8, "big", signed=True)


_ZONED, _LOCAL = (Kind.TIMESTAMP,), (Kind.LOCAL_TIMESTAMP,)
_EITHER = (*_ZONED, *_LOCAL)
_millis = _sized(8)

LOCAL = "timestamp local"


def _duration(value: Value) -> bytes | None:
    if type(value) is not v.Interval:
        return None
    parts = (value.months, value.days, value.nanos)
    if any(p > 0 for p in parts) and any(p < 0 for p in parts):
        return None  # CQL's parts have one sign
    if value.months not in _INT32 or value.days not in _INT32 or value.nanos not in _INT64:
        return None
    return b"".join(map(_vint, parts))


def _vint(number: int) -> bytes:
    """A signed number of variable length: zigzag, the first byte's ones count those behind it."""
    zigzag = (number << 1) ^ (number >> 63)
    zigzag &= 2**64 - 1
    extra = next(n for n in range(9) if zigzag.bit_length() <= (7 * (n + 1) if n < 8 else 64))
    if extra == 8:
        return b"\xff" + zigzag.to_bytes(8, "big")
    data = bytearray(zigzag.to_bytes(extra + 1, "big"))
    data[0] |= (0xFF << (8 - extra)) & 0xFF
    return bytes(data)


def _duration_of(data: bytes) -> Value:
    parts, at = [], 0
    for _ in range(3):
        if at >= len(data):
            raise ValueError("a duration has three parts")
        first = data[at]
        extra = 8 - (first ^ 0xFF).bit_length()
        low = first & (0xFF >> extra) if extra < 8 else 0
        number = int.from_bytes(bytes([low]) + data[at + 1 : at + 1 + extra], "big")
        parts.append((number >> 1) ^ -(number & 1))
        at += 1 + extra
    return v.Interval(*parts)


# ---------------------------------------------------------------- texts, bytes, the rest


def _ascii(value: Value) -> bytes | None:
    return value.encode() if type(value) is str and value.isascii() else None


def _text(value: Value) -> bytes | None:
    return value.encode() if type(value) is str and has_utf8(value) else None


def _blob_near(value: Value) -> bytes | None:
    return value.data if isinstance(value, v.Binary | v.ObjectId) else None


def _boolean_of(data: bytes) -> Value:
    return data != b"\0"


def _uuid(value: Value) -> bytes | None:
    return value.bytes if type(value) is UUID else None


def _timeuuid(value: Value) -> bytes | None:
    return value.bytes if type(value) is UUID and value.bytes[6] >> 4 == 1 else None


def _inet(value: Value) -> bytes | None:
    if type(value) is not str:
        return None
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return None
    # The scope of an address (``fe80::1%eth0``) is no part of its bytes.
    return address.packed if str(ipaddress.ip_address(address.packed)) == value else None


_INT = _whole("int", 4)
SCALARS: dict[str, Scalar] = {
    scalar.text: scalar
    for scalar in (
        _INT,
        _whole("smallint", 2),
        _whole("tinyint", 1),
        Scalar("bigint", _bigint, _bigint_of, _near_fixed(8, -(2**63), 2**63 - 1)),
        Scalar("varint", _varint_natural, _signed, _varint_near),
        Scalar("decimal", _decimal, _decimal_of, _decimal_near),
        Scalar("double", _double, _unpack(">d"), _number_near),
        Scalar("float", _float, _unpack(">f"), _float_near),
        Scalar("boolean", lambda x: bytes([x]) if type(x) is bool else None, _boolean_of),
        Scalar("date", _date, lambda data: v.day(int.from_bytes(data, "big") - _EPOCH_DATE)),
        Scalar("time", _time, lambda data: v.time_of_day(_millis(data))),
        Scalar(
            "timestamp",
            lambda x: _milliseconds(x, _ZONED, exact=True),
            lambda data: v.instant(_millis(data) * _MILLI),
            lambda x: _milliseconds(x, _EITHER, exact=False),
        ),
        Scalar(
            LOCAL,
            lambda x: _milliseconds(x, _LOCAL, exact=True),
            lambda data: v.local_timestamp(_millis(data) * _MILLI),
            lambda x: _milliseconds(x, _EITHER, exact=False),
        ),
        Scalar("duration", _duration, _duration_of),
        Scalar("ascii", _ascii, lambda data: data.decode("ascii")),
        Scalar("text", _text, bytes.decode, carries=True),
        Scalar("blob", lambda x: x if type(x) is bytes else None, lambda x: x, _blob_near),
        Scalar("uuid", _uuid, lambda data: UUID(bytes=data)),
        Scalar("timeuuid", _timeuuid, lambda data: UUID(bytes=data)),
        Scalar("inet", _inet, lambda data: str(ipaddress.ip_address(data))),
    )
}

"""The canonical form: one byte encoding, equal exactly where two values are equal.

Diff, verification and shadow reads compare by it; no code that copies data uses it, so an
error of a codec can't hide itself. ``1``, ``1.0``, ``Decimal("1")`` and ``"1"`` differ, record
fields have no order, set members neither. Every piece ends by a length or a terminator, so
no two values share an encoding.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from migrator.model import value as v
from migrator.model.value import Value

_NAN = struct.pack(">d", math.nan)
_TEXT = frozenset((str,))
_pack = msgspec.msgpack.Encoder().encode


def encode(value: Value) -> bytes:
    """The canonical form of a value. Raises TypeError for what is no value of the model."""
    out: list[bytes] = []
    _encode(value, out.append)
    return b"".join(out)


def equal(left: Value, right: Value) -> bool:
    """Whether two values have the same canonical form."""
    try:
        # A fraction of the form's cost, and enough for most: values that Python takes for equal
        # are, where they also pack to the same bytes (which tell 1, 1.0 and True apart). What
        # does not pack, as a subclass of int, is left to the form itself, as are all others.
        if left == right:
            if _pack(left) == _pack(right):
                return True
        elif _differ(left, right):
            return False
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        pass
    return encode(left) == encode(right)


_SIMPLE = frozenset((str, int, bool, type(None), bytes))
"""Of two different kinds of these, or of one kind and not equal to Python, no two values have one
form."""


def _differ(left: Any, right: Any) -> bool:
    """Whether two values are sure to have two forms, which one place tells; no says nothing."""
    kind = type(left)
    if kind is not type(right):
        return kind in _SIMPLE and type(right) in _SIMPLE
    if kind is dict:
        if left.keys() != right.keys():
            return _TEXT.issuperset(map(type, left.keys() ^ right.keys()))
        return any(item != right[n] and _differ(item, right[n]) for n, item in left.items())
    if kind is list:
        if len(left) != len(right):
            return True
        return any(a != b and _differ(a, b) for a, b in zip(left, right, strict=True))
    return kind in _SIMPLE and left != right


def _text(text: str, tag: bytes = b"s") -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"%b%d:%b" % (tag, len(data), data)


def _bytes(data: bytes, tag: bytes = b"b") -> bytes:
    return b"%b%d:%b" % (tag, len(data), data)


def _encode(value: Value, out: Callable[[bytes], None]) -> None:
    kind = type(value)
    if kind is str:
        out(_text(value))  # type: ignore[arg-type]
    elif kind is dict:
        out(b"{")
        record: dict[str, Value] = value  # type: ignore[assignment]
        for name in sorted(record):
            out(_text(name))
            _encode(record[name], out)
        out(b"}")
    elif kind is list:
        out(b"[")
        for item in value:  # type: ignore[attr-defined]
            _encode(item, out)
        out(b"]")
    else:
        writer = _WRITERS.get(kind)
        if writer is None:
            raise TypeError(f"{kind.__name__} is no kind of value")
        out(writer(value))


def _double(value: float) -> bytes:
    # No store keeps the payload of a NaN, hence one form for all of them.
    return b"d" + (_NAN if value != value else struct.pack(">d", value))


def _integer(value: int) -> bytes:
    # Hexadecimal has no limit of digits, and takes linear time.
    return b"%b%x;" % (_INTEGER_TAGS[v.kind_of(value)], value)


def _moment(tag: bytes) -> Callable[[Value], bytes]:
    return lambda value: b"%b%d;" % (tag, v.nanos_of(value))


def _datetime(value: dt.datetime) -> bytes:
    return b"%b%d;" % (b"L" if value.tzinfo is None else b"T", v.nanos_of(value))


_INTEGER_TAGS = {v.Kind.INT32: b"i", v.Kind.INT64: b"l", v.Kind.INTEGER: b"I"}
_WRITERS: dict[type, Callable[..., bytes]] = {
    type(None): lambda value: b"n",
    bool: lambda value: b"t" if value else b"f",
    int: _integer,
    v.Int64: lambda value: b"l%x;" % value,
    float: _double,
    Decimal: lambda value: b"D%b;" % str(value).encode(),
    bytes: _bytes,
    v.Binary: lambda value: b"B%d;%b" % (value.subtype, _bytes(value.data)),
    dt.date: _moment(b"A"),
    v.LongDate: _moment(b"A"),
    dt.time: _moment(b"C"),
    v.TimeOfDay: _moment(b"C"),
    dt.datetime: _datetime,
    v.Instant: _moment(b"T"),
    v.LocalTimestamp: _moment(b"L"),
    v.Interval: lambda value: b"P%d,%d,%d;" % (value.months, value.days, value.nanos),
    UUID: lambda value: b"U" + value.bytes,
    v.ObjectId: lambda value: b"O" + value.data,
    v.BsonTimestamp: lambda value: b"M%d,%d;" % (value.time, value.increment),
    v.Regex: lambda value: b"X" + _text(value.pattern) + _text(value.flags),
    v.Opaque: lambda value: b"Q" + _text(value.system) + _text(value.kind) + _bytes(value.data),
    v.Ref: lambda value: b"R" + _text(value.cls) + encode(value.id),
    v.Set: lambda value: b"<" + b"".join(value.forms) + b">",
}

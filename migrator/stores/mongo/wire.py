"""BSON bytes, read and written element by element.

The driver's C codec turns some types silently into others (symbol into text, undefined into
null, a DBPointer into a record) and can't write them at all. This module is exact and slow; the
codec comes here only with documents that the C codec can't hold.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID

from bson.decimal128 import Decimal128

from migrator.model import value as v
from migrator.model.path import child
from migrator.model.value import Record, Value

MILLI = 1_000_000

_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_STAMP = struct.Struct("<II")

# What only BSON has, by the server's own names of the types.
OPAQUE = {
    0x06: "undefined",
    0x0C: "dbPointer",
    0x0D: "javascript",
    0x0E: "symbol",
    0x0F: "javascriptWithScope",
    0x7F: "maxKey",
    0xFF: "minKey",
}
OPAQUE_TYPES = {name: type_ for type_, name in OPAQUE.items()}
_FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8}
_FIXED |= {0x13: 16, 0x7F: 0, 0xFF: 0}


class Damaged(Exception):
    """A document that is no BSON, or holds what the model can't: path and reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class Unheld(Exception):
    """A value that BSON has no exact form for."""


def document(*elements: bytes) -> bytes:
    """A document of elements."""
    body = b"".join(elements)
    return _INT.pack(len(body) + 5) + body + b"\0"


def element(type_: int, name: bytes, data: bytes) -> bytes:
    """One element."""
    return b"%c%b\0%b" % (type_, name, data)


def first(raw: bytes) -> tuple[int, bytes, bytes]:
    """Type, name and bytes of a document's first element: for stored documents, the ``_id``."""
    type_, name, at, end = next(elements(raw, 0, len(raw), ""))
    return type_, name, raw[at:end]


def id_of(raw: bytes) -> tuple[int, bytes]:
    """Type and bytes of the ``_id`` of a stored document. Raises Damaged for none."""
    if raw[5:9] == b"_id\0":  # servers keep it in front
        width = _width(raw, raw[4], 9, len(raw), "")
        if 0 <= width < len(raw) - 9:
            return raw[4], raw[9 : 9 + width]
    for type_, name, at, end in elements(raw, 0, len(raw), ""):
        if name == b"_id":
            return type_, raw[at:end]
    raise Damaged("", "a document without _id")


def _length(raw: bytes, at: int, end: int, path: str) -> int:
    if at + 4 > end:
        raise Damaged(path, "the document is cut short")
    return int(_INT.unpack_from(raw, at)[0])


def _width(raw: bytes, type_: int, at: int, end: int, path: str) -> int:
    """How many bytes the value of an element takes."""
    width = _FIXED.get(type_)
    if width is not None:
        return width
    if type_ in (0x02, 0x0D, 0x0E):
        return 4 + _length(raw, at, end, path)
    if type_ in (0x03, 0x04, 0x0F):
        return _length(raw, at, end, path)
    if type_ == 0x05:
        return 5 + _length(raw, at, end, path)
    if type_ == 0x0C:
        return 16 + _length(raw, at, end, path)
    if type_ == 0x0B:
        middle = raw.find(b"\0", at, end)
        last = raw.find(b"\0", middle + 1, end)
        if middle >= 0 and last >= 0:
            return last + 1 - at
        raise Damaged(path, "a regular expression without end")
    raise Damaged(path, f"BSON type 0x{type_:02x} is unknown")


def elements(raw: bytes, at: int, end: int, path: str) -> Iterator[tuple[int, bytes, int, int]]:
    """Type, name, start and end of the value of each element. Raises Damaged."""
    if _length(raw, at, end, path) != end - at or end - at < 5 or raw[end - 1]:
        raise Damaged(path, "the length of the document is wrong")
    at += 4
    while raw[at]:
        stop = raw.find(b"\0", at + 1, end)
        if stop < 0:
            raise Damaged(path, "a name without end")
        name, type_ = raw[at + 1 : stop], raw[at]
        at = stop + 1
        width = _width(raw, type_, at, end, path)
        if width < 0 or at + width >= end:
            raise Damaged(path, "the document is cut short")
        yield type_, name, at, at + width
        at += width
    if at != end - 1:
        raise Damaged(path, "bytes after the end of the document")


def read_record(raw: bytes, at: int = 0, end: int | None = None, path: str = "") -> Record:
    """The values of a document, exactly. Raises Damaged with the path of what is not readable."""
    record: Record = {}
    for type_, name_, start, stop in elements(raw, at, len(raw) if end is None else end, path):
        name = _text(name_, path)
        below = child(path, name)
        if name in record:
            # A record can't hold a name twice, and none of the two values may get lost.
            raise Damaged(below, "the field stands there twice")
        record[name] = read_value(raw, type_, start, stop, below)
    return record


def _read_list(raw: bytes, at: int, end: int, path: str) -> list[Value]:
    return [
        read_value(raw, type_, start, stop, f"{path}[{i}]")
        for i, (type_, _, start, stop) in enumerate(elements(raw, at, end, path))
    ]


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Damaged(path, f"text that is not UTF-8: 0x{data[:40].hex()}") from None


def _string(raw: bytes, at: int, end: int, path: str) -> str:
    if raw[end - 1 : end] != b"\0":
        raise Damaged(path, "text without end")
    return _text(raw[at + 4 : end - 1], path)


def read_value(raw: bytes, type_: int, at: int, end: int, path: str) -> Value:
    """One value of the model. Raises Damaged."""
    match type_:
        case 0x01:
            return _DOUBLE.unpack_from(raw, at)[0]
        case 0x02:
            return _string(raw, at, end, path)
        case 0x03:
            return read_record(raw, at, end, path)
        case 0x04:
            return _read_list(raw, at, end, path)
        case 0x05:
            return _binary(raw, at, end, path)
        case 0x07:
            return v.ObjectId(raw[at:end])
        case 0x08:
            return raw[at] != 0
        case 0x09:
            return v.instant(_LONG.unpack_from(raw, at)[0] * MILLI)
        case 0x0A:
            return None
        case 0x0B:
            pattern, flags, _ = raw[at:end].split(b"\0")
            return v.Regex(_text(pattern, path), _text(flags, path))
        case 0x10:
            return _INT.unpack_from(raw, at)[0]
        case 0x11:
            increment, time = _STAMP.unpack_from(raw, at)
            return v.BsonTimestamp(time, increment)
        case 0x12:
            return v.Int64(_LONG.unpack_from(raw, at)[0])
        case 0x13:
            return decimal(raw[at:end])
    return v.Opaque("bson", OPAQUE[type_], raw[at:end])


def _binary(raw: bytes, at: int, end: int, path: str) -> Value:
    subtype, data = raw[at + 4], raw[at + 5 : end]
    if subtype == 0:
        return data
    if subtype == 4 and len(data) == 16:
        return UUID(bytes=data)
    if subtype == 2:
        # The old subtype repeats the length inside.
        if len(data) < 4 or _INT.unpack_from(data)[0] != len(data) - 4:
            raise Damaged(path, "binary of subtype 2 with a wrong inner length")
        data = data[4:]
    return v.Binary(subtype, data)


def decimal(data: bytes) -> Value:
    """A decimal128; one in a non-canonical encoding is carried as it is."""
    held = Decimal128.from_bid(data)
    number = held.to_decimal()
    if Decimal128(number).bid == data:
        return number
    return v.Opaque("bson", "decimal", data)


def decimal_fits(number: Decimal) -> bool:
    """Whether a decimal128 holds a number with all its digits and its exponent."""
    _, digits, exponent = number.as_tuple()
    if isinstance(exponent, str):
        return exponent == "F" or not digits
    return len(digits) <= 34 and -6176 <= exponent <= 6111


def opaque_fits(value: v.Opaque) -> bool:
    """Whether a BSON-only value may be written: broken bytes would break the whole document."""
    if value.system != "bson":
        return False
    if value.kind == "decimal":
        return len(value.data) == 16
    type_ = OPAQUE_TYPES.get(value.kind)
    if type_ is None:
        return False
    try:
        found = read_record(document(element(type_, b"", value.data)))
        _check_scope(type_, value.data)
    except (Damaged, IndexError):
        return False
    return found == {"": value}


def _check_scope(type_: int, data: bytes) -> None:
    """The text and the scope inside the bytes that are carried as they are. Raises Damaged."""
    if type_ in (0x0D, 0x0E):
        _string(data, 0, len(data), "")
    elif type_ == 0x0C:
        _string(data, 0, len(data) - 12, "")
    elif type_ == 0x0F:
        scope = 8 + _length(data, 4, len(data), "")
        _string(data, 4, scope, "")
        read_record(data, scope, len(data))


def write_record(record: Record) -> bytes:
    """A document of native values. Raises Unheld for what BSON has no exact form for."""
    return document(*(write_element(name, value) for name, value in record.items()))


def write_element(name: str, value: Value) -> bytes:
    """One element of a native value. Raises Unheld."""
    type_, data = write_value(value)
    try:
        held = name.encode()
    except UnicodeEncodeError:
        raise Unheld("a name with an unpaired surrogate") from None
    if b"\0" in held:
        raise Unheld("a name with NUL")
    return element(type_, held, data)


def _write_text(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise Unheld("text with an unpaired surrogate") from None
    return b"%b%b\0" % (_INT.pack(len(data) + 1), data)


def _write_binary(subtype: int, data: bytes) -> bytes:
    if subtype == 2:
        data = _INT.pack(len(data)) + data
    return b"%b%c%b" % (_INT.pack(len(data)), subtype, data)


def write_value(value: Value) -> tuple[int, bytes]:
    """BSON type and bytes of a native value. Raises Unheld for what has no exact form."""
    match value:
        case None:
            return 0x0A, b""
        case bool():
            return 0x08, b"\1" if value else b"\0"
        case v.Int64():
            return 0x12, _LONG.pack(value)
        case int():
            return _write_integer(value)
        case float():
            return 0x01, _DOUBLE.pack(value)
        case str():
            return 0x02, _write_text(value)
        case dict():
            return 0x03, write_record(value)
        case list():
            return 0x04, write_record({str(i): item for i, item in enumerate(value)})
        case bytes():
            return 0x05, _write_binary(0, value)
    return _write_tagged(value)


def _write_integer(number: int) -> tuple[int, bytes]:
    if v.INT32_MIN <= number <= v.INT32_MAX:
        return 0x10, _INT.pack(number)
    if v.INT64_MIN <= number <= v.INT64_MAX:
        return 0x12, _LONG.pack(number)
    raise Unheld("a number of more than 64 bits")


def _millis(value: Value) -> int:
    millis, rest = divmod(v.nanos_of(value), MILLI)
    if rest or (type(value) is dt.datetime and value.tzinfo is None):
        raise Unheld("a moment that is no whole number of milliseconds of UTC")
    return millis


def _write_tagged(value: Value) -> tuple[int, bytes]:
    match value:
        case UUID():
            return 0x05, _write_binary(4, value.bytes)
        case v.Binary(subtype, data):
            return 0x05, _write_binary(subtype, data)
        case v.ObjectId(data):
            return 0x07, data
        case dt.datetime() | v.Instant():
            return 0x09, _LONG.pack(_millis(value))
        case v.Regex(pattern, flags):
            return 0x0B, b"%b\0%b\0" % (pattern.encode(), flags.encode())
        case v.BsonTimestamp(time, increment):
            return 0x11, _STAMP.pack(increment, time)
        case Decimal():
            return 0x13, Decimal128(value).bid
        case v.Opaque(_, kind, data):
            return OPAQUE_TYPES.get(kind, 0x13), data
    raise Unheld(f"{type(value).__name__} is no kind that BSON has")

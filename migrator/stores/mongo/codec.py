"""Documents to model values and back, for the kinds that BSON has itself.

The driver's C codec does the work wherever it is exact; ``wire`` does the rest. What BSON has
no form for is ``carry``'s.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import bson
import msgpack
from bson.binary import Binary, UuidRepresentation
from bson.codec_options import (
    CodecOptions,
    DatetimeConversion,
    TypeDecoder,
    TypeEncoder,
    TypeRegistry,
)
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from migrator.model import value as v
from migrator.model.value import Record, Value, has_utf8
from migrator.stores.mongo import wire
from migrator.stores.mongo.wire import MILLI, Damaged, Unheld

_UINT32 = 2**32
_FLAGS = {"i": re.I, "l": re.L, "m": re.M, "s": re.S, "u": re.U, "x": re.X}
_LETTERS = {int(flag): letter for letter, flag in _FLAGS.items()}

# ---------------------------------------------------------------- what BSON holds by itself


def _moment_fits(value: dt.datetime) -> bool:
    # A BSON date counts milliseconds of UTC; anything finer would be cut off.
    return value.tzinfo is not None and value.microsecond % 1000 == 0


def _instant_fits(value: v.Instant) -> bool:
    millis, rest = divmod(value.nanos, MILLI)
    return not rest and v.INT64_MIN <= millis <= v.INT64_MAX


def _binary_fits(value: v.Binary) -> bool:
    # Subtype 0 reads back as bytes and a proper subtype 4 as a UUID, which are other values.
    return 0 < value.subtype < 256 and not (value.subtype == 4 and len(value.data) == 16)


def _regex_fits(value: v.Regex) -> bool:
    return "\0" not in value.pattern + value.flags and has_utf8(value.pattern + value.flags)


_FITS: dict[type, Callable[[Any], bool]] = {
    str: has_utf8,
    int: lambda value: v.INT64_MIN <= value <= v.INT64_MAX,
    dt.datetime: _moment_fits,
    v.Instant: _instant_fits,
    Decimal: wire.decimal_fits,
    v.Binary: _binary_fits,
    v.Regex: _regex_fits,
    v.BsonTimestamp: lambda value: 0 <= value.time < _UINT32 and 0 <= value.increment < _UINT32,
    v.Opaque: wire.opaque_fits,
    **dict.fromkeys((type(None), bool, float, bytes, v.Int64, v.ObjectId, UUID), lambda _: True),
}


def native(value: Value) -> bool:
    """Whether BSON holds a scalar by itself, exactly."""
    fits = _FITS.get(type(value))
    return fits is not None and fits(value)


# ---------------------------------------------------------------- writing


def _encoder(type_: type, write: Callable[[Any], object]) -> TypeEncoder:
    members = {"python_type": type_, "transform_python": staticmethod(write)}
    encoder: TypeEncoder = type("Encoder", (TypeEncoder,), members)()
    return encoder


def _write_flags(flags: str) -> int:
    return sum(int(_FLAGS[letter]) for letter in flags)


_KEYS: dict[str, object] = {"minKey": MinKey(), "maxKey": MaxKey()}
_WRITE: CodecOptions[dict[str, Any]] = CodecOptions(
    uuid_representation=UuidRepresentation.STANDARD,
    type_registry=TypeRegistry(
        [
            _encoder(v.ObjectId, lambda value: ObjectId(value.data)),
            _encoder(v.Binary, lambda value: Binary(value.data, value.subtype)),
            _encoder(v.BsonTimestamp, lambda value: Timestamp(value.time, value.increment)),
            _encoder(v.Regex, lambda value: Regex(value.pattern, _write_flags(value.flags))),
            _encoder(v.Instant, lambda value: DatetimeMS(value.nanos // MILLI)),
            _encoder(v.Opaque, lambda value: _KEYS[value.kind]),
            _encoder(Decimal, Decimal128),
        ]
    ),
)


class _Rare(Exception):
    """A value that only ``wire`` reads or writes exactly."""


def _c_writes(value: Value) -> bool:
    """Whether the C codec writes a native value exactly."""
    if type(value) is v.Regex:
        flags = value.flags
        return set(flags) <= _FLAGS.keys() and "".join(sorted(set(flags))) == flags
    return type(value) is not v.Opaque or value.kind in _KEYS


class _Probe:
    """Sees every value that is not a plain one while msgpack walks a record in C."""

    __slots__ = ("rare", "wide")

    def __init__(self) -> None:
        self.rare = False
        self.wide = False

    def __call__(self, value: Value) -> None:
        if not native(value):
            raise Unheld(f"{type(value).__name__} is not held natively")
        self.rare |= not _c_writes(value)
        self.wide |= type(value) is v.Int64


_DEEP = frozenset((dict, list, v.Int64))
PLAIN_TYPES = frozenset((type(None), bool, float, bytes))
"""Types whose values are always native."""


def _widen(value: Any) -> Any:
    """The value with the driver's 64-bit integers, which alone make the C codec write them."""
    if type(value) is dict:
        return {k: _widen(x) if type(x) in _DEEP else x for k, x in value.items()}
    if type(value) is list:
        return [_widen(x) if type(x) in _DEEP else x for x in value]
    return Int64(value)


def encode(record: Record) -> bytes:
    """A record of native values as BSON. Raises Unheld where something in it is not native."""
    probe = _Probe()
    try:
        # The C codec takes naive datetimes, cuts microseconds off and narrows Int64 without a
        # word. msgpack's strict pass hands every such value to the probe, at C speed.
        msgpack.packb(record, default=probe, strict_types=True)
    except (UnicodeEncodeError, OverflowError, ValueError, TypeError) as error:
        raise Unheld(str(error)) from None
    if probe.rare:
        return wire.write_record(record)
    try:
        return bson.encode(_widen(record) if probe.wide else record, codec_options=_WRITE)
    except (BSONError, UnicodeEncodeError, OverflowError, ValueError):
        # A date whose zone carries it over the edge of Python's years, or what is not held.
        return wire.write_record(record)


def holds(value: Value) -> bool:
    """Whether BSON holds a value, with all that is inside it, by itself."""
    try:
        encode({"": value})
    except (Unheld, RecursionError):
        return False
    return True


# ---------------------------------------------------------------- reading


def _decoder(type_: type, read: Callable[[Any], object]) -> TypeDecoder:
    members = {"bson_type": type_, "transform_bson": staticmethod(read)}
    decoder: TypeDecoder = type("Decoder", (TypeDecoder,), members)()
    return decoder


def _read_regex(value: Regex[Any]) -> v.Regex:
    flags = sorted(letter for flag, letter in _LETTERS.items() if value.flags & flag)
    return v.Regex(value.pattern, "".join(flags))


def _rare(value: object) -> object:
    raise _Rare


PLAIN: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True,
    uuid_representation=UuidRepresentation.STANDARD,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
_READ: CodecOptions[dict[str, Any]] = PLAIN.with_options(
    tzinfo=dt.UTC,
    type_registry=TypeRegistry(
        [
            _decoder(Int64, v.Int64),
            _decoder(ObjectId, lambda value: v.ObjectId(value.binary)),
            _decoder(Decimal128, lambda value: wire.decimal(value.bid)),
            _decoder(DatetimeMS, lambda value: v.instant(int(value) * MILLI)),
            _decoder(Binary, lambda value: v.Binary(value.subtype, bytes(value))),
            _decoder(Timestamp, lambda value: v.BsonTimestamp(value.time, value.inc)),
            _decoder(Regex, _read_regex),
            _decoder(MinKey, lambda _: v.Opaque("bson", "minKey")),
            _decoder(MaxKey, lambda _: v.Opaque("bson", "maxKey")),
            _decoder(bson.Code, _rare),
            _decoder(DBRef, _rare),
        ]
    ),
)


def _exactly(found: Record, raw: bytes) -> bool:
    """Whether the C codec lost nothing: it then writes the same bytes again.

    It turns symbols into text and undefined into null, and of two fields with one name it
    drops the first, all without a word.
    """
    if b"\x12" not in raw:  # there may be an Int64, which needs the driver's own class
        return bson.encode(found, codec_options=_WRITE) == raw
    driver = bson.decode(raw, PLAIN)
    return bson.encode(driver, codec_options=PLAIN) == raw


def decode(raw: bytes) -> Record:
    """The values of a document. Raises Damaged with the path of what can't be read."""
    try:
        found = bson.decode(raw, _READ)
        if _exactly(found, raw):
            return found
    except (BSONError, ValueError, OverflowError, TypeError, KeyError, _Rare):
        pass
    try:
        return wire.read_record(raw)
    except (IndexError, ValueError) as error:
        raise Damaged("", f"no BSON document: {error}") from None
    except RecursionError:
        raise Damaged("", "the document nests too deep") from None

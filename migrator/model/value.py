"""Values: what an aggregate is made of.

A value is a plain Python value, or one of the small set of tagged scalars below for what
Python can't tell apart. Records are ``dict`` with text names, lists are ``list``, sets are
``Set``. A plain ``int`` is of the narrowest kind that holds it (int32, int64, integer);
``Int64`` says that a small number is 64 bits wide all the same, as BSON does.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

Value: TypeAlias = object
Record: TypeAlias = dict[str, Value]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
NANOS = 1_000_000_000
DAY_NANOS = 86_400 * NANOS
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_LOCAL = dt.datetime(1970, 1, 1)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_CLASS = re.compile(r"[^\s/:*\[\]\\]+")


class Kind(StrEnum):
    """The kinds of value; each store states how it holds each of them."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT32 = "int32"
    INT64 = "int64"
    INTEGER = "integer"
    DOUBLE = "double"
    DECIMAL = "decimal"
    TEXT = "text"
    BYTES = "bytes"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    LOCAL_TIMESTAMP = "local timestamp"
    INTERVAL = "interval"
    UUID = "uuid"
    OBJECT_ID = "objectid"
    BSON_TIMESTAMP = "bson timestamp"
    REGEX = "regex"
    OPAQUE = "opaque"
    REFERENCE = "reference"
    SET = "set"
    LIST = "list"
    RECORD = "record"


class Int64(int):
    """A whole number that is 64 bits wide even where fewer would do.

    Raises ValueError outside -2**63 .. 2**63-1.
    """

    __slots__ = ()

    def __new__(cls, value: int) -> Int64:
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError(f"{value} does not fit 64 bits")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Int64({int(self)})"


@dataclass(frozen=True, slots=True)
class ObjectId:
    """A BSON ObjectId: 12 bytes."""

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) != 12:
            raise ValueError(f"an ObjectId has 12 bytes, not {len(self.data)}")

    def __str__(self) -> str:
        return self.data.hex()


@dataclass(frozen=True, slots=True)
class BsonTimestamp:
    """A BSON timestamp: seconds since 1970 and an ordinal, both unsigned 32-bit."""

    time: int
    increment: int


@dataclass(frozen=True, slots=True)
class Regex:
    """A BSON regular expression: pattern and option letters, sorted."""

    pattern: str
    flags: str = ""


@dataclass(frozen=True, slots=True)
class Binary:
    """Bytes with a BSON subtype other than 0 (plain ``bytes`` are subtype 0)."""

    subtype: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Interval:
    """A span of time in three parts that do not convert into each other."""

    months: int = 0
    days: int = 0
    nanos: int = 0


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment that ``datetime`` can't hold: nanoseconds since 1970-01-01T00:00Z.

    Build it with ``instant``, which gives a ``datetime`` wherever that is exact.
    """

    nanos: int


@dataclass(frozen=True, slots=True)
class LocalTimestamp:
    """Date and time without a zone that ``datetime`` can't hold: nanoseconds since 1970-01-01."""

    nanos: int


@dataclass(frozen=True, slots=True)
class LongDate:
    """A day outside the years 1 to 9999: days since 1970-01-01, proleptic Gregorian."""

    days: int


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """A time of day that ``time`` can't hold: nanoseconds since midnight, 24:00 included."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that only one system knows (a MinKey, a zero date), carried as it is.

    ``data`` is that system's own encoding of it; ``kind`` its own name for the type.
    """

    system: str
    kind: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference ``Class:id`` to another aggregate. Raises ValueError for an unusable class."""

    cls: str
    id: Value

    def __post_init__(self) -> None:
        if not _CLASS.fullmatch(self.cls):
            raise ValueError(f"{self.cls!r} can't be the name of a class")

    def __str__(self) -> str:
        return f"{self.cls}:{show(self.id)}"


class Set:
    """A set of values: no order, no value twice (by canonical form, so 1 and 1.0 are two)."""

    __slots__ = ("_by_form",)

    def __init__(self, items: Iterable[Value] = ()) -> None:
        from migrator.model.canonical import encode

        forms = {encode(item): item for item in items}
        self._by_form = {form: forms[form] for form in sorted(forms)}

    def __iter__(self) -> Iterator[Value]:
        return iter(self._by_form.values())

    def __len__(self) -> int:
        return len(self._by_form)

    def __contains__(self, item: Value) -> bool:
        from migrator.model.canonical import encode

        return encode(item) in self._by_form

    @property
    def forms(self) -> Iterable[bytes]:
        """The canonical forms of the members, in order."""
        return self._by_form.keys()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Set) and self._by_form.keys() == other._by_form.keys()

    def __hash__(self) -> int:
        return hash(tuple(self._by_form))

    def __repr__(self) -> str:
        return f"Set({list(self)!r})"


_KINDS: dict[type, Kind] = {
    type(None): Kind.NULL,
    bool: Kind.BOOLEAN,
    Int64: Kind.INT64,
    float: Kind.DOUBLE,
    Decimal: Kind.DECIMAL,
    str: Kind.TEXT,
    bytes: Kind.BYTES,
    Binary: Kind.BINARY,
    dt.date: Kind.DATE,
    LongDate: Kind.DATE,
    dt.time: Kind.TIME,
    TimeOfDay: Kind.TIME,
    Instant: Kind.TIMESTAMP,
    LocalTimestamp: Kind.LOCAL_TIMESTAMP,
    Interval: Kind.INTERVAL,
    UUID: Kind.UUID,
    ObjectId: Kind.OBJECT_ID,
    BsonTimestamp: Kind.BSON_TIMESTAMP,
    Regex: Kind.REGEX,
    Opaque: Kind.OPAQUE,
    Ref: Kind.REFERENCE,
    Set: Kind.SET,
    list: Kind.LIST,
    dict: Kind.RECORD,
}


def kind_of(value: Value) -> Kind:
    """The kind of a value. Raises TypeError for what is no value of the model."""
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if type(value) is int:
        if INT32_MIN <= value <= INT32_MAX:
            return Kind.INT32
        return Kind.INT64 if INT64_MIN <= value <= INT64_MAX else Kind.INTEGER
    if type(value) is dt.datetime:
        return Kind.LOCAL_TIMESTAMP if value.tzinfo is None else Kind.TIMESTAMP
    raise TypeError(f"{type(value).__name__} is no kind of value")


def instant(nanos: int) -> Value:
    """The moment ``nanos`` nanoseconds after 1970-01-01T00:00Z, as ``datetime`` where exact."""
    micros, rest = divmod(nanos, 1000)
    if not rest:
        try:
            return _EPOCH + dt.timedelta(microseconds=micros)
        except OverflowError:
            pass
    return Instant(nanos)


def local_timestamp(nanos: int) -> Value:
    """The zone-less date and time ``nanos`` after 1970-01-01, as ``datetime`` where exact."""
    micros, rest = divmod(nanos, 1000)
    if not rest:
        try:
            return _EPOCH_LOCAL + dt.timedelta(microseconds=micros)
        except OverflowError:
            pass
    return LocalTimestamp(nanos)


def day(days: int) -> Value:
    """The day ``days`` after 1970-01-01, as ``date`` where that holds it."""
    try:
        return dt.date.fromordinal(_EPOCH_DAY + days)
    except (ValueError, OverflowError):
        return LongDate(days)


def time_of_day(nanos: int) -> Value:
    """The time ``nanos`` after midnight (0 to 24 h), as ``time`` where that holds it."""
    micros, rest = divmod(nanos, 1000)
    if rest or nanos >= DAY_NANOS:
        return TimeOfDay(nanos)
    seconds, micros = divmod(micros, 1_000_000)
    return dt.time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)


def _delta_nanos(delta: dt.timedelta) -> int:
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1000


def nanos_of(value: Value) -> int:
    """The number behind a date, time or timestamp: days for dates, nanoseconds for the others."""
    match value:
        case dt.datetime():
            start = _EPOCH_LOCAL if value.tzinfo is None else _EPOCH
            return _delta_nanos(value - start)
        case dt.date():
            return value.toordinal() - _EPOCH_DAY
        case dt.time():
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return (seconds * 1_000_000 + value.microsecond) * 1000
        case Instant(nanos) | LocalTimestamp(nanos) | TimeOfDay(nanos) | LongDate(nanos):
            return nanos
    raise TypeError(f"{type(value).__name__} is no date or time")


def has_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: not where it holds an unpaired surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def walk(value: Value, visit: Callable[[Value], None]) -> None:
    """Call ``visit`` for a value and everything inside it, parents first."""
    visit(value)
    if type(value) is dict:
        for item in value.values():
            walk(item, visit)
    elif type(value) is list or type(value) is Set:
        for item in value:
            walk(item, visit)


def depth(value: Value) -> int:
    """How deep containers nest: 0 for a scalar, 1 for a flat record."""
    if type(value) is dict:
        return 1 + max(map(depth, value.values()), default=0)
    if type(value) is list or type(value) is Set:
        return 1 + max(map(depth, value), default=0)
    return 0


def show(value: Value) -> str:
    """A short text for people: an identifier in a message, a sample in a plan."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        case bytes():
            return f"0x{value.hex()}"
        case list():
            return ",".join(show(item) for item in value)
        case Int64():
            return str(int(value))
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case None | bool() | int() | float() | Decimal() | UUID() | ObjectId() | Ref():
            return str(value)
        case dict():
            return "{" + ",".join(f"{show(k)}:{show(v)}" for k, v in value.items()) + "}"
    return repr(value)

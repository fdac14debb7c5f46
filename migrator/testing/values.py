"""Odd values, names and keys: what a store must carry, and where others lost it.

``ODD_VALUES`` has several values of every kind; ``ODD_NAMES`` are field names that are legal
in an aggregate; ``odd_keys`` gives block keys. The contract suite runs over all of them, and
so may the tests of an outside adapter.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from uuid import UUID

from migrator.model import value as v
from migrator.model.value import Kind, Value

_HALF_PAST = dt.timezone(dt.timedelta(hours=5, minutes=30))
_OID = v.ObjectId(bytes.fromhex("650000000000000000000001"))
_UUID = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")

ODD_VALUES: Mapping[Kind, Sequence[Value]] = {
    Kind.NULL: (None,),
    Kind.BOOLEAN: (True, False),
    Kind.INT32: (0, 1, -1, 2**31 - 1, -(2**31)),
    Kind.INT64: (
        v.Int64(5), v.Int64(0), v.Int64(-1), v.Int64(2**31 - 1), 2**31, -(2**31) - 1,
        2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63),
    ),
    Kind.INTEGER: (2**63, 2**64, 2**64 - 1, -(2**63) - 1, 10**60 + 7),
    Kind.DOUBLE: (
        1.0, 0.0, -0.0, 0.1, 30.4, -1.5, math.nan, math.inf, -math.inf, 5e-324,
        1.7976931348623157e308, float(2**53), 1e22, 0.09793150749791057, float(2**64),
    ),
    Kind.DECIMAL: (
        Decimal("1"), Decimal("1.10"), Decimal("1E+3"), Decimal("0"), Decimal("-0"),
        Decimal("0.00"), Decimal("NaN"), Decimal("Infinity"), Decimal("-Infinity"),
        Decimal("12345678901234567890123456789012345678901234.5"), Decimal("1E-6000"),
        Decimal("30.40"), Decimal("-9.999999999999999999999999999999999E+6144"),
    ),
    Kind.TEXT: (
        "", " ", "a", "A", "1", "null", "'null'", "NaN", "true", "ab\0cd", "\0", "\\u0000x",
        "\\0", "\ud800", "x\udcffy", "\U0001f600", "cafe\u0301", "café", "\ufeff", "\uffff",
        "Game:2345", "2024-01-01", "{\"a\": 1}", "%s ' \" ` ;--", "\r\n\t", "x" * 70_000,
    ),
    Kind.BYTES: (b"", b"\0", b"\xff\xfe", b"text", bytes(range(256)), b"\xc1", b"\x80\x04K"),
    Kind.BINARY: (v.Binary(128, b""), v.Binary(5, b"\0" * 16), v.Binary(255, b"\xff\0")),
    Kind.DATE: (
        dt.date(1, 1, 1), dt.date(9, 12, 4), dt.date(1582, 10, 10), dt.date(1970, 1, 1),
        dt.date(2024, 2, 29), dt.date(9999, 12, 31), v.LongDate(2_932_897), v.LongDate(-719_163),
    ),
    Kind.TIME: (
        dt.time(0), dt.time(23, 59, 59, 999_999), dt.time(12, 30), v.TimeOfDay(1),
        v.TimeOfDay(v.DAY_NANOS), v.TimeOfDay(v.DAY_NANOS - 1),
    ),
    Kind.TIMESTAMP: (
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
        dt.datetime(2024, 7, 1, 12, 0, 0, 123_000, tzinfo=dt.UTC),
        dt.datetime(2024, 7, 1, 12, 0, 0, 123_456, tzinfo=dt.UTC),
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=_HALF_PAST), dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1, 1, 1, tzinfo=_HALF_PAST), dt.datetime(9999, 12, 31, 23, tzinfo=dt.UTC),
        v.Instant(1_700_000_000_123_456_789), v.Instant(253_402_300_800 * v.NANOS),
        v.Instant(-(2**63) * 1_000_000), v.Instant(-1),
    ),
    Kind.LOCAL_TIMESTAMP: (
        dt.datetime(1970, 1, 1), dt.datetime(2024, 10, 27, 2, 30), dt.datetime(1, 1, 1),
        dt.datetime(2024, 7, 1, 12, 0, 0, 123_456), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
        v.LocalTimestamp(1_700_000_000_123_456_789), v.LocalTimestamp(253_402_300_800 * v.NANOS),
        v.LocalTimestamp(-1),
    ),
    Kind.INTERVAL: (
        v.Interval(), v.Interval(1), v.Interval(0, 30), v.Interval(-13, 2, -1),
        v.Interval(0, 0, 86_400 * v.NANOS), v.Interval(1200, -40, 123_456_789),
    ),
    Kind.UUID: (_UUID, UUID(int=0), UUID(int=2**128 - 1)),
    Kind.OBJECT_ID: (_OID, v.ObjectId(bytes(12)), v.ObjectId(b"\xff" * 12)),
    Kind.BSON_TIMESTAMP: (
        v.BsonTimestamp(1_700_000_000, 3), v.BsonTimestamp(0, 1),
        v.BsonTimestamp(2**32 - 1, 2**32 - 1),
    ),
    Kind.REGEX: (v.Regex("^a.*b$", "im"), v.Regex(""), v.Regex("é:/\\d+", "x")),
    Kind.OPAQUE: (
        v.Opaque("mongodb", "minKey"), v.Opaque("mongodb", "javascript", b"f = () => 1"),
        v.Opaque("mysql", "date", b"0000-00-00"), v.Opaque("postgresql", "a:b", b"\0\xff"),
    ),
    Kind.REFERENCE: (
        v.Ref("Player", "ann"), v.Ref("Player", ""), v.Ref("Game", 2345), v.Ref("Game", "2345"),
        v.Ref("Game", v.Int64(2345)), v.Ref("A", "b:c"), v.Ref("Player", "x\0y"),
        v.Ref("Line", [1, "a,b\\", v.Int64(2)]), v.Ref("Line", []),
        v.Ref("Player", "\ud800"), v.Ref("Game", _OID), v.Ref("Game", _UUID), v.Ref("Game", 2**70),
        v.Ref("Game", b"\0\xff"), v.Ref("Game", Decimal("1.10")),
        v.Ref("Game", dt.date(2024, 2, 29)),
    ),
    Kind.SET: (
        v.Set(), v.Set(["a"]), v.Set([1, 1.0, Decimal(1), "1", True, v.Int64(1)]),
        v.Set([v.Set([1]), v.Set(), [], {}, None, ""]),
        v.Set([{"a": v.Set([b"x", _UUID])}, [[1], [2]]]),
    ),
    Kind.LIST: (
        [], [[]], [[], [[]], {}], [None], [1, 1.0, "1", None, True], [[1, 2], [3]],
        [{"a": [{"b": []}]}],
        [v.Int64(1), 2, Decimal("3"), _UUID, v.Set([1])], list(range(1200)),
    ),
    Kind.RECORD: (
        {}, {"a": {}}, {"a": None}, {"": {"": ""}}, {"a": {"b": {"c": [{"d": {}}]}}, "a.b": 1},
        {"0": "list-like", "1": []}, {"b": 1, "a": 2},
        {"t": v.Int64(1), "u": [{"w": v.Set([_OID])}]},
    ),
}  # fmt: skip

ODD_NAMES: Sequence[str] = (
    "", " ", "a", "A", "a.b", "a..b", ".", "a b", "$", "$x", "$set", "$ref", "x$", "[0]", "a[0]",
    "a[*]", "*", "**", "\\", "\\e", "\\0", "/", "0", "-1", "007", "_id", "id", "_type", "__dot__",
    "na!e", "na%e", "userId", "userid", "%2E", "~0", "é", "e\u0301", "ключ", "\U0001f600", "\0",
    "x\0y", "\x01", "\ud800", "\uff0e", "\uff04", "select", "it's", 'quo"te', "`", "\n", "value",
    "entry", "block", "key", "expires", "_migrator", "_migrator_tags", "_tags", "constructor",
    "n" * 300,
)  # fmt: skip


def odd_keys(kind: Kind) -> Sequence[Value]:
    """Keys of one kind that differ in canonical form, those that others took for equal included."""
    more = {
        Kind.TEXT: (
            "", "a", "A", "a ", " a", "ä", "a\u0308", "cafe", "café", "google", "Google", "ß",
            "ss", "1", "01", "a\0", "\0", "\ud800", "\U0001f600", "\uffff", "x:y", "x/y", "%", "_",
            "$x", "a.b", "{1}", "k" * 200,
        ),
        Kind.RECORD: ({"a": 1}, {"a": "1"}, {"a": 1, "b": None}, {"a": 1.0}),
        Kind.LIST: ([1], ["1"], [1, 2], [1, [2]], ["a", 1], ["a", None]),
    }  # fmt: skip
    return more.get(kind, ODD_VALUES[kind])

"""CQL's types as bytes: golden examples, every odd value, and what a column refuses."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.model import value as v
from migrator.model.canonical import equal
from migrator.model.value import Int64, Value
from migrator.stores.cassandra.columns import Marks, Unfit
from migrator.stores.cassandra.columns_nested import UnknownType, codec_of, parse_type
from migrator.stores.cassandra.derived import derived
from migrator.testing.values import ODD_VALUES

TYPES = {"address": {"street": "text", "zip": "int", "tags": "frozen<set<text>>"}}
NAMES = (
    *("int", "bigint", "smallint", "tinyint", "varint", "decimal", "double", "float", "boolean"),
    *("date", "time", "timestamp", "timestamp local", "duration", "ascii", "text", "blob"),
    *("uuid", "timeuuid", "inet", "json", "list<text>", "set<int>", "map<int, text>"),
    *("frozen<list<frozen<map<text, text>>>>", "tuple<int, text>", "frozen<address>"),
)


def codec(name: str, nulls: bool = False):
    return codec_of(parse_type(name), TYPES, nulls)


def there_and_back(name: str, value: Value) -> tuple[Value, Marks]:
    marks: Marks = {}
    data = codec(name).write(value, "", marks)
    return codec(name).read(data, "", json.loads(json.dumps(marks))), marks


# By the native protocol's specification (section 6), not by this package.
GOLDEN = [
    ("int", 5, "00000005"),
    ("bigint", Int64(-1), "ffffffffffffffff"),
    ("smallint", -2, "fffe"),
    ("varint", 128, "0080"),
    ("varint", -129, "ff7f"),
    ("varint", 0, "00"),
    ("decimal", Decimal("-1.10"), "0000000292"),
    ("decimal", Decimal("1E+3"), "fffffffd01"),
    ("double", 0.5, "3fe0000000000000"),
    ("float", 0.5, "3f000000"),
    ("boolean", True, "01"),
    ("date", dt.date(1970, 1, 1), "80000000"),
    ("date", dt.date(1969, 12, 31), "7fffffff"),
    ("time", dt.time(0, 0, 1), "000000003b9aca00"),
    ("timestamp", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "00000000000003e8"),
    ("timestamp", v.Instant(-(2**63) * 1_000_000), "8000000000000000"),
    ("duration", v.Interval(1, 2, 3), "020406"),
    ("duration", v.Interval(-1, -2, -3), "010305"),
    ("duration", v.Interval(0, 0, 128), "00008100"),
    ("text", "é", "c3a9"),
    ("inet", "127.0.0.1", "7f000001"),
    ("list<int>", [1], "000000010000000400000001"),
    ("map<text, int>", {"a": 1}, "0000000100000001610000000400000001"),
    ("tuple<int, text>", [None, "a"], "ffffffff0000000161"),
]


@pytest.mark.parametrize(("name", "value", "expected"), GOLDEN)
def test_bytes_are_those_of_the_protocol(name: str, value: Value, expected: str) -> None:
    marks: Marks = {}
    assert codec(name).write(value, "", marks).hex() == expected
    assert marks == {}
    assert equal(codec(name).read(bytes.fromhex(expected), "", {}), value)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_type_takes_comes_back(name: str) -> None:
    taken = 0
    for values in ODD_VALUES.values():
        for value in values:
            if value is None and name != "json":
                continue  # null is no value of a type: the column stays unset
            try:
                back, _ = there_and_back(name, value)
            except Unfit:
                continue
            assert equal(back, value), value
            taken += 1
    assert taken or name in ("inet", "tuple<int, text>")


@settings(max_examples=150, deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(), st.binary())
def test_numbers_of_any_size(number: Decimal, whole: int, data: bytes) -> None:
    assert equal(there_and_back("decimal", number)[0], number)
    assert equal(there_and_back("varint", whole)[0], whole)
    assert equal(there_and_back("blob", data)[0], data)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_durations_of_any_size(months: int, days: int, nanos: int) -> None:
    for sign in (1, -1):
        span = v.Interval(sign * months, sign * days, sign * nanos)
        assert equal(there_and_back("duration", span)[0], span)


TOLD = [
    ("int", Int64(5), ["int64", "5"]),
    ("bigint", 5, ["integer", "5"]),
    ("double", 3, ["integer", "3"]),
    ("decimal", Decimal("-0.0"), ["decimal", "-0.0"]),
    ("timestamp", dt.datetime(2024, 1, 1), ["local timestamp", "2024-01-01T00:00:00"]),
    ("timestamp", v.Instant(1), ["timestamp ns", "1"]),
    ("text", UUID(int=1), "uuid"),
    ("text", v.Ref("Player", "ann"), "reference"),
    ("list<int>", v.Set([1]), "set"),
    ("blob", v.ObjectId(bytes(12)), ["objectid", "00" * 12]),
]


@pytest.mark.parametrize(("name", "value", "mark"), TOLD)
def test_what_a_column_does_not_say_is_told_aside(name: str, value: Value, mark: object) -> None:
    back, marks = there_and_back(name, value)
    assert equal(back, value)
    assert marks == {"": mark}


def test_a_mark_whose_column_was_changed_is_ignored() -> None:
    marks: Marks = {}
    codec("timestamp").write(v.Instant(1_000_001), "", marks)
    later = codec("timestamp").write(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "", {})
    assert codec("timestamp").read(later, "", marks) == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("int", 2**31, ""),
        ("int", "5", ""),
        ("smallint", 40_000, ""),
        ("float", 0.1, ""),
        ("decimal", Decimal("NaN"), ""),
        ("time", v.TimeOfDay(v.DAY_NANOS), ""),
        ("duration", v.Interval(1, -1), ""),
        ("text", "\ud800", ""),
        ("ascii", "é", ""),
        ("timeuuid", UUID(int=0), ""),
        ("inet", "::0", ""),
        ("inet", "fe80::1%eth0", ""),
        ("varint", v.Opaque("cassandra", "varint", b"\5"), ""),
        ("blob", v.Opaque("cassandra", "blob", b""), ""),
        ("date", v.LongDate(2**31), ""),
        ("list<int>", [1, None], "[1]"),
        ("list<int>", [1, "x"], "[1]"),
        ("set<int>", v.Set([1, Int64(2)]), ""),
        ("map<int, text>", {"01": "x"}, r"01"),
        ("map<text, int>", {"a.b": "x"}, r"a\.b"),
        ("tuple<int, text>", [1], ""),
        ("frozen<address>", {"street": "x", "town": "y"}, "town"),
        ("frozen<address>", {"zip": "x"}, "zip"),
    ],
)
def test_what_does_not_fit_is_named(name: str, value: Value, path: str) -> None:
    with pytest.raises(Unfit) as caught:
        codec(name).write(value, "", {})
    assert caught.value.path == path


@pytest.mark.parametrize("name", ["int", "bigint", "timestamp", "double", "uuid", "decimal"])
def test_c43_the_empty_value_of_a_number_is_neither_null_nor_a_value(name: str) -> None:
    found = codec(name).read(b"", "", {})
    assert found == v.Opaque("cassandra", name, b"")
    assert codec(name).write(found, "", {}) == b""


def test_a_user_type_tells_null_from_absent() -> None:
    given = {"street": None, "zip": 5}
    back, marks = there_and_back("frozen<address>", given)
    assert equal(back, given)
    assert marks == {"street": "null"}
    marks = {}
    data = codec("frozen<address>", nulls=True).write(given, "", marks)
    assert marks == {"tags": "absent"}
    assert equal(codec("frozen<address>", nulls=True).read(data, "", marks), given)


def test_fields_added_to_a_user_type_are_absent_in_old_values() -> None:
    assert codec("frozen<address>").read(b"\0\0\0\x01x", "", {}) == {"street": "x"}


@pytest.mark.parametrize(
    ("text", "cql"),
    [
        ("INT", "int"),
        ("varchar", "text"),
        ("frozen<Tuple<int,text>>", "tuple<int, text>"),
        ("list<frozen<address>>", 'list<frozen<"address">>'),
        ('map<text, frozen<"Odd ""type">>', 'map<text, frozen<"Odd ""type">>'),
        ("timestamp local", "timestamp"),
        ("json", "text"),
    ],
)
def test_types_are_read_as_cql_writes_them(text: str, cql: str) -> None:
    assert parse_type(text).cql == cql


@pytest.mark.parametrize(
    "text",
    ["", "counter", "vector<float, 3>", "list<int", "list<int, int>", "map<int>", "int;",
     "frozen<>", "tuple<>", "list<json>", "list<text> x"],
)  # fmt: skip
def test_types_that_are_none_or_are_refused(text: str) -> None:
    with pytest.raises(UnknownType):
        codec_of(parse_type(text), {}, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year of at", 2024),
        ("month of at", "2024-02"),
        ("day of at", "2024-02-29"),
        ("hour of at", "2024-02-29T23"),
    ],
)
def test_parts_of_a_date(text: str, expected: Value) -> None:
    at = dt.datetime(2024, 3, 1, 0, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert derived(text).value(b"", {"at": at}) == expected


def test_parts_of_early_dates_are_filled_up() -> None:
    assert derived("month of at").value(b"", {"at": dt.date(9, 4, 1)}) == "0009-04"
    for odd in (None, "2024", v.LongDate(10**7)):
        with pytest.raises(Unfit):
            derived("month of at").value(b"", {"at": odd})


@pytest.mark.parametrize("text", ["", "week of at", "bucket 0 of at", "bucket of at", "month of "])
def test_what_can_not_be_derived(text: str) -> None:
    with pytest.raises(ValueError, match="none of"):
        derived(text)

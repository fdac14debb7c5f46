"""The canonical form: equal bytes exactly where two values are equal."""

from __future__ import annotations

import datetime as dt
import itertools
import marshal
import struct
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.model import value as v
from migrator.model.canonical import encode, equal
from migrator.model.value import Set, Value
from migrator.testing import strategies

UTC = dt.UTC
LOOK_ALIKES: list[Value] = [
    None, False, True, "", "null", "None", b"", [], {}, Set(), [None], [[]], {"": None},
    Set([None]),
    0, v.Int64(0), 0.0, -0.0, Decimal("0"), Decimal("-0"), Decimal("0.0"), Decimal("0E+1"), "0",
    b"0",
    1, v.Int64(1), 1.0, Decimal("1"), Decimal("1.0"), "1", "1.0", "i1;", b"1", [1], {"1": 1},
    Set([1]),
    2**31, 2**63, float(2**31), Decimal(2**31), 10**5000, -(10**5000),
    float("nan"), Decimal("NaN"), Decimal("-NaN"), Decimal("sNaN"), Decimal("NaN12"), "nan",
    float("inf"), float("-inf"), Decimal("Infinity"), Decimal("-Infinity"),
    "é", "e\u0301", "\ud83d\ude00", "\U0001f600", "\0", "a\0", "a", "\\0", "ab", ["a", "b"], ["ab"],
    ["a", ["b"]], [["a"], "b"], {"a": "b"}, {"a": {"b": None}}, {"a": None, "b": None},
    {"a.b": None},
    Set(["a", "b"]), Set([Set(["a"]), "b"]), Set([["a", "b"]]),
    v.Binary(1, b""), v.Binary(2, b""), v.Binary(1, b"1"),
    dt.date(1970, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, tzinfo=UTC), dt.time(),
    v.LongDate(10**7), v.Instant(1), v.LocalTimestamp(1), v.TimeOfDay(1), "1970-01-01",
    v.Interval(), v.Interval(1), v.Interval(0, 1), v.Interval(0, 0, 1), v.Interval(12),
    v.Interval(0, 365),
    UUID(int=0), v.ObjectId(bytes(12)), bytes(12), bytes(16), str(UUID(int=0)),
    v.BsonTimestamp(0, 1), v.BsonTimestamp(1, 0), v.Regex("a"), v.Regex("a", "i"), v.Regex("ai"),
    v.Opaque("a", "b"), v.Opaque("ab", ""), v.Opaque("a", "b", b"c"),
    v.Ref("Game", "1"), v.Ref("Game", 1), v.Ref("Gam", "e:1"), "Game:1",
    v.Ref("Game", v.Ref("Game", 1)),
]  # fmt: skip


def test_values_that_look_alike_are_all_different() -> None:
    for left, right in itertools.combinations(LOOK_ALIKES, 2):
        assert encode(left) != encode(right), (left, right)
        assert not equal(left, right)
        assert not equal({"x": [left]}, {"x": [right]})


def test_each_value_equals_itself() -> None:
    for value in LOOK_ALIKES:
        assert equal(value, value)
        assert equal([value], [value])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        (Set([1, "a", 1]), Set(["a", 1])),
        (float("nan"), struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0]),
        (v.Int64(2**40), 2**40),
        (dt.datetime(2024, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        dt.datetime(2024, 1, 1, tzinfo=UTC)),
        (v.Instant(1000), dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (v.LongDate(1), dt.date(1970, 1, 2)),
        (v.TimeOfDay(1000), dt.time(0, 0, 0, 1)),
    ],
)  # fmt: skip
def test_these_are_one_value(left: Value, right: Value) -> None:
    assert equal(left, right)
    assert equal(right, left)
    assert encode([left]) == encode([right])
    assert equal({"a": [left], "b": left}, {"b": right, "a": [right]})
    assert not equal({"a": [left], "b": 1}, {"a": [right], "b": 2})


@settings(max_examples=200, deadline=None)
@given(strategies.values(), strategies.values())
def test_equality_agrees_with_the_form(left: Value, right: Value) -> None:
    assert equal(left, left)
    assert equal(left, right) == (encode(left) == encode(right))


@settings(max_examples=100, deadline=None)
@given(strategies.records(), st.randoms())
def test_the_order_of_fields_does_not_matter(record: dict[str, Value], random: object) -> None:
    items = list(record.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert equal(record, dict(items))


SIMPLE = st.sampled_from(
    [0, 1, True, False, None, 0.0, -0.0, 1.0, float("nan"), "", "a", "1", b"", b"a", b"1", 2**31,
    2**63, -1]
)  # fmt: skip
SMALL = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("a1"), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(SMALL, SMALL)
def test_the_fast_path_never_says_equal_for_values_that_differ(left: Value, right: Value) -> None:
    if marshal.dumps(left, 0) == marshal.dumps(right, 0):
        assert encode(left) == encode(right)


@settings(max_examples=300, deadline=None)
@given(SMALL, SMALL)
def test_no_fast_path_says_other_than_the_form(left: Value, right: Value) -> None:
    """Small ones, of which many differ in one place, or in what Python alone holds to differ."""
    assert equal([left, 1], [right, 1]) == (encode(left) == encode(right))


def test_interned_and_shared_objects_make_no_difference() -> None:
    text = "".join(["ab", "c"])
    shared = ["abc"]
    assert equal({"abc": ["abc", shared, shared]}, {text: [text, ["abc"], ["abc"]]})


def test_values_nested_200_deep_have_a_form() -> None:
    value: Value = Decimal(1)
    for i in range(200):
        value = [value] if i % 3 else {"a": value} if i % 2 else Set([value])
    assert equal(value, value)
    assert encode(value)


@pytest.mark.parametrize(
    "value", [(1,), {1}, object(), bytearray(b"x"), 1j, type("Text", (str,), {})()]
)
def test_what_is_no_value_has_no_form(value: object) -> None:
    with pytest.raises(TypeError, match="no kind of value"):
        encode([value])

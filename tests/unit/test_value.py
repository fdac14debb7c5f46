"""Values: kinds, the tagged scalars, and what a datetime can't hold."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.model import value as v
from migrator.model.value import Kind, Value, kind_of
from migrator.testing import strategies


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, Kind.NULL),
        (True, Kind.BOOLEAN),
        (2**31 - 1, Kind.INT32),
        (-(2**31), Kind.INT32),
        (2**31, Kind.INT64),
        (v.Int64(1), Kind.INT64),
        (-(2**63), Kind.INT64),
        (2**63, Kind.INTEGER),
        (1.0, Kind.DOUBLE),
        (Decimal(1), Kind.DECIMAL),
        (b"", Kind.BYTES),
        (dt.date(1, 1, 1), Kind.DATE),
        (dt.datetime(1, 1, 1), Kind.LOCAL_TIMESTAMP),
        (dt.datetime(1, 1, 1, tzinfo=dt.UTC), Kind.TIMESTAMP),
        (v.Ref("Game", 1), Kind.REFERENCE),
        (v.Set(), Kind.SET),
        ([], Kind.LIST),
        ({}, Kind.RECORD),
    ],
)
def test_each_value_has_its_kind(value: Value, kind: Kind) -> None:
    assert kind_of(value) is kind


@pytest.mark.parametrize("value", [(), set(), object(), type("Number", (int,), {})(1)])
def test_what_is_no_value_has_no_kind(value: object) -> None:
    with pytest.raises(TypeError, match="no kind of value"):
        kind_of(value)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.integers(-(10**21), 10**21), st.integers(-(10**19), 10**19).map(lambda n: n * 1000)
    )
)
def test_moments_keep_every_nanosecond(nanos: int) -> None:
    for moment in (v.instant(nanos), v.local_timestamp(nanos)):
        assert v.nanos_of(moment) == nanos
    assert type(v.instant(nanos)) in (dt.datetime, v.Instant)


@given(st.integers(-4_000_000, 4_000_000), st.integers(0, v.DAY_NANOS))
def test_days_and_times_of_day_come_back(days: int, nanos: int) -> None:
    assert v.nanos_of(v.day(days)) == days
    assert v.nanos_of(v.time_of_day(nanos)) == nanos


def test_a_moment_is_a_datetime_wherever_that_is_exact() -> None:
    for moment in (
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    ):
        assert v.instant(v.nanos_of(moment)) == moment
    assert v.instant(1) == v.Instant(1)
    assert v.instant(253_402_300_800 * v.NANOS) == v.Instant(253_402_300_800 * v.NANOS)


def test_a_zoned_time_at_the_edge_of_the_calendar_has_its_nanoseconds() -> None:
    early = dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))
    assert v.nanos_of(early) == v.nanos_of(early.replace(tzinfo=dt.UTC)) - 5 * 3600 * v.NANOS


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_int64_refuses_what_does_not_fit(number: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        v.Int64(number)


@pytest.mark.parametrize("cls", ["", "a b", "a:b", "a/b", "*", "a[0]"])
def test_a_reference_refuses_an_unusable_class(cls: str) -> None:
    with pytest.raises(ValueError, match="name of a class"):
        v.Ref(cls, 1)


def test_a_set_holds_a_value_once_by_its_form() -> None:
    members = v.Set([1, 1.0, v.Int64(1), True, "1", 1, [1], [1], float("nan"), float("nan")])
    assert len(members) == 7
    assert 1.0 in members
    assert Decimal(1) not in members
    assert v.Set([1, [2]]) == v.Set([[2], 1])
    assert hash(v.Set([1, 2])) == hash(v.Set([2, 1]))


@settings(max_examples=100, deadline=None)
@given(strategies.values())
def test_every_value_can_be_shown_and_walked(value: Value) -> None:
    v.show(value).encode()
    seen: list[Value] = []
    v.walk(value, seen.append)
    assert seen[0] is value
    assert v.depth(value) >= 0


def test_depth_and_walk_go_200_deep() -> None:
    value: Value = 1
    for _ in range(200):
        value = [value]
    assert v.depth(value) == 200
    seen: list[Value] = []
    v.walk(value, seen.append)
    assert len(seen) == 201
    assert len(v.show(value)) > 0

"""Which keys ``_id``s of a change stream stand for, also of documents that have gone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pytest

from migrator.model import value as v
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.stores.mongo import carry, keys
from migrator.stores.mongo.carry import Pairs
from migrator.stores.mongo.named import Named

DAY = dt.date(2026, 1, 3)
FINE = dt.datetime(2026, 1, 3, 4, 5, 6, 789123, tzinfo=dt.UTC)
CARRIED: list[Value] = [DAY, FINE, FINE.replace(tzinfo=None), dt.time(4, 5), [1, 2], [7, DAY],
                        [v.Int64(7), DAY, "a"], 2**70]  # fmt: skip
PLAIN: list[Value] = ["2026-01-03", "anna", 7, {"0": 1, "1": 2}, {"a": 1}, b"x", None]


def _noted(found: Sequence[Value]) -> dict[keys.Key, Pairs]:
    return {keys.key_of(one): carry.hold_id(one)[1] for one in found}


@pytest.mark.parametrize("key", [*CARRIED, *PLAIN], ids=repr)
def test_a_document_that_is_there_says_its_key(key: Value) -> None:
    noted = _noted([key])
    named = Named(lambda asked: {one: noted[one] for one in asked})
    assert named.of(noted) == {keys.key_of(key): [key]}


@pytest.mark.parametrize("key", CARRIED, ids=repr)
@pytest.mark.parametrize("known", [True, False])
def test_the_key_of_one_that_has_gone_is_among_what_it_may_have_been(
    key: Value, known: bool
) -> None:
    named = Named(lambda asked: {})
    if known:
        named.learn(carry.hold_id(key)[1])
    (may,) = named.of(_noted([key])).values()
    assert key in may
    assert len(may) == 1 or not known


@pytest.mark.parametrize("key", PLAIN, ids=repr)
def test_where_others_are_not_carried_one_that_has_gone_was_not(key: Value) -> None:
    named = Named(lambda asked: {})
    named.learn([])
    assert named.of(_noted([key])) == {keys.key_of(key): [key]}


WHOLE = FINE.replace(microsecond=0)


@pytest.mark.parametrize(
    ("key", "other"),
    [
        (FINE, WHOLE),
        (2**70, 7),
        ([7, FINE], [7, WHOLE]),
        ([7, WHOLE], [7, FINE]),
        ([2**70, "a", DAY], [7, "a", DAY]),
        ([7, None], [7, DAY]),
    ],
    ids=repr,
)
def test_one_that_has_gone_may_have_been_carried_by_more_or_less_than_those_met(
    key: Value, other: Value
) -> None:
    """BSON has kinds for dates of milliseconds and numbers of 64 bits, and none for finer ones."""
    named = Named(lambda asked: {})
    named.learn(carry.hold_id(other)[1])
    (may,) = named.of(_noted([key])).values()
    assert [encode(one) for one in may].count(encode(key)) == 1

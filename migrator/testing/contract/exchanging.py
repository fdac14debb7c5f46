"""Promises of stores that change a block on condition that it is still what was read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from migrator.exchange import Amending, Exchanging
from migrator.model.block import Patch
from migrator.model.rules import assemble
from migrator.model.value import LongDate, Ref, Set, Value
from migrator.testing.contract.case import by_capability
from migrator.testing.contract.harness import (
    Harness,
    Make,
    Place,
    assert_holds,
    difference,
    insist,
    same,
)


class ExchangePromises(Harness):
    """Changes on condition."""

    @pytest.fixture(params=["EAO", "ROUNDS"])
    def guarded(self, request: pytest.FixtureRequest, make: Make) -> tuple[Place, Exchanging]:
        """A fresh collection of a store that exchanges."""
        if (case := request.getfixturevalue("case")).excluded(f"representation {request.param}"):
            by_capability(f"no representation {request.param}: {case}")
        place = make(request.param)
        if not isinstance(place.collection, Exchanging):
            by_capability("it does not change blocks on condition")
        return place, place.collection

    def test_exchange_on_condition(self, guarded: tuple[Place, Exchanging]) -> None:
        place, collection = guarded
        key = place.case.key(1)
        small, large, other = (place.block(key, rounds=n) for n in (2, 3, 4))
        beside = place.block(place.case.key(2))
        place.collection.write([beside])
        assert collection.exchange(key, None, None)
        assert not collection.exchange(key, small, large)
        assert not collection.exchange(key, small, None)
        assert collection.exchange(key, None, small)
        assert not collection.exchange(key, None, other)
        assert not collection.exchange(key, None, None)
        assert_holds(place.collection, [small, beside])
        assert not collection.exchange(key, other, large)
        assert not collection.exchange(key, other, None)
        assert collection.exchange(key, small, Patch(key, *difference(small, large)))
        assert not collection.exchange(key, small, Patch(key, *difference(small, other)))
        assert_holds(place.collection, [large, beside])
        assert collection.exchange(key, large, small)
        assert_holds(place.collection, [small, beside])
        assert collection.exchange(key, small, None)
        assert_holds(place.collection, [beside])

    def test_amend_changes_fields_where_they_lie(self, guarded: tuple[Place, Exchanging]) -> None:
        place, collection = guarded
        if not isinstance(collection, Amending):
            by_capability("it does not change fields where they lie")
        key = place.case.key(1)
        start, longer = place.case.game(key, 2), place.case.game(key, 3)
        held = place.cut(key, start)
        place.collection.write([held])
        assert collection.amend(place.case.key(2), {"note": "x"}, {}) is None
        assert collection.amend(key, {"note": "x"}, {"note": 1, "absent": 1}) is None
        assert collection.amend(key, {}, {"firstPlayer": 1}) is None
        assert_holds(place.collection, [held])
        rounds = longer["rounds"]
        assert isinstance(rounds, list)
        wanted = place.cut(key, {**start, "note": {"x": [1]}, "rounds": rounds})
        after = collection.amend(key, {"note": {"x": [1]}}, {"rounds": rounds[2]})
        if after is None:
            assert_holds(place.collection, [held])  # it takes more here, and nothing was done
        else:
            assert same(after, wanted)
            assert_holds(place.collection, [wanted])
        odd: list[Value] = [LongDate(10**7), Ref("Game", 1), {"$set": 1}, {"a.b": Set([1])}]
        names = "a[b*", "a%41", "\ud800", "", "$x", "_migrator"
        for name, item in (*(("note", each) for each in odd), *((name, 1) for name in names)):
            (before,) = place.collection.read([key])
            assert before is not None
            after = collection.amend(key, {name: item}, {})
            value = {**assemble(before.entries), name: item}
            expected = before if after is None else place.cut(key, value)
            assert_holds(place.collection, [expected])

    def test_one_of_several_exchanges_takes_place(self, guarded: tuple[Place, Exchanging]) -> None:
        place, collection = guarded
        key = place.case.key(1)
        steps = [place.block(key, rounds=n) for n in range(1, 7)]

        def take(number: int) -> bool:
            before = steps[number - 1] if number else None
            return insist(lambda: collection.exchange(key, before, steps[number]))

        with ThreadPoolExecutor(4) as pool:
            for number in range(len(steps)):
                taken = list(pool.map(take, [number] * 4))
                # Sent again after a doubtful answer one may find its own work done.
                assert taken.count(True) <= 1
                (found,) = place.collection.read([key])
                assert found is not None
                assert found.entries == steps[number].entries

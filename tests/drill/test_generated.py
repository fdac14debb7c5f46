"""Traffic that is made up: as much of which call, and on which keys, as was chosen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from migrator.drill import DrillTerms
from migrator.drill.calls import Call, Place
from migrator.drill.generated import LONGEST_LIST, Generated
from migrator.drill.history import Act
from migrator.drill.making import Shape, maker, shape
from migrator.model.block import Aggregate
from migrator.model.value import Record

GAME: Record = {"id": 1, "player": "mary", "rounds": ["a", "b"]}
ALL: Mapping[Act, float] = dict.fromkeys(Act, 1.0)
CALLS = 6_000


def games() -> Shape:
    found = [Aggregate(GAME["id"], GAME)]
    return shape("Game", found, lambda id: maker(id, "0000002a", 42, "Game"))


def made(mix: Mapping[Act, float], skew: float) -> list[tuple[Place, Call]]:
    """Calls that were all carried out, on ten keys."""
    places = [Place(games(), 0, number) for number in range(10)]
    traffic = Generated(places, mix, 0.02, skew, random.Random(7))
    calls: list[tuple[Place, Call]] = []
    for number in range(CALLS):
        after, place = traffic.next()
        assert after == traffic.late == 0.02
        for call in traffic.calls(place, lambda number=number: number + 1):  # type: ignore[misc]
            place.value = call.after(place)
            calls.append((place, call))
    return calls


def test_each_call_has_its_part_of_the_mix() -> None:
    mix = {Act.PUT: 1.0, Act.UPDATE: 2.0, Act.GET: 4.0, Act.ENTRIES: 3.0, Act.DELETE: 0.0}
    acts = Counter(call.act for _, call in made(mix, 1.0))
    assert acts.keys() == {Act.PUT, Act.UPDATE, Act.GET, Act.ENTRIES}
    for act, part in mix.items():
        assert acts[act] == pytest.approx(CALLS * part / 10, abs=CALLS * 0.03)


def test_the_skew_says_how_much_more_some_keys_are_wanted() -> None:
    def most(skew: float) -> list[int]:
        keys = Counter(place.number for place, _ in made(ALL, skew))
        return [number for _, number in keys.most_common()]

    alike, zipf, steep = most(0.0), most(1.0), most(3.0)
    assert len(alike) == len(zipf) == 10
    assert alike[0] < 1.3 * alike[-1]
    # By Zipf's law the second key is wanted half as much as the first, the tenth a tenth.
    assert zipf[0] == pytest.approx(CALLS / 2.93, rel=0.1)
    assert zipf[1] == pytest.approx(zipf[0] / 2, rel=0.15)
    assert steep[0] > 0.8 * CALLS


def test_only_what_is_there_is_changed_and_lists_stay_short() -> None:
    held: dict[int, int] = {}
    for place, call in made({Act.PUT: 0.1, Act.APPEND: 9.0, Act.DELETE: 0.1}, 0.0):
        if call.act is Act.APPEND:
            assert held[place.number] < LONGEST_LIST
            held[place.number] += 1
        elif call.act is Act.PUT:
            held[place.number] = 2
        else:
            held.pop(place.number, None)
    assert max(held.values()) > 2


def test_each_kind_that_was_asked_for_is_wanted() -> None:
    terms = DrillTerms(mix={Act.PUT: 1.0, Act.APPEND: 2.0, Act.GET: 0.0}, minimum=7)
    assert terms.wanted(lists=True) == {Act.PUT: 7, Act.APPEND: 7}
    assert terms.wanted(lists=False) == {Act.PUT: 7}
    assert terms.between == 5.0
    assert DrillTerms(seconds=0.5).between == 0.5

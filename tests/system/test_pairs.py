"""Every system to every other, and back: equal in canonical form. Each layout has its turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, groupby

import pytest

from tests.system import kit
from tests.system.kit import PLACES, Odd, Place, Shop


def _system(place: Place) -> str:
    return place.name.partition("-")[0] if place.layout != "entries" else place.name


def pairs() -> Iterator[tuple[Place, Place]]:
    """All pairs of systems, there and back, so that two in one order try both ways.

    Which of a system's layouts takes part goes round; within one system it is two of them.
    """
    systems = [list(places) for _, places in groupby(PLACES, _system)]
    for (i, one), (j, other) in combinations_with_replacement(enumerate(systems), 2):
        yield one[j % len(one)], other[(i + (i == j)) % len(other)]


def test_each_layout_has_its_turn() -> None:
    assert {place for pair in pairs() for place in pair} == set(PLACES)


@pytest.mark.parametrize(("source", "target"), list(pairs()), ids=str)
def test_a_class_moves_there_and_back(source: Place, target: Place, shop: Shop, odd: Odd) -> None:
    there, away, back = kit.fresh("there"), kit.fresh("away"), kit.fresh("back")
    shop.script(f"move = {kit.move('Game', source.script(there), target.script(away, kit.ROUNDS))}")
    shop.script(f"move = {kit.move('Game', target.script(away, kit.ROUNDS), source.script(back))}")
    with shop.open() as project:
        old, new = project.stores.get(source.store), project.stores.get(target.store)
        origin = old.collection("Game", source.at(there))
        middle = new.collection("Game", target.at(away, kit.ROUNDS))
        ends = (old, origin), (new, middle)
        games = odd.held_by(*ends).games() + odd.keyed(*ends)
        kit.fill(origin, games)
    expected = kit.by_key(games)
    for revision in shop.revisions:
        (found,) = kit.carry(shop, revision)
        assert found.equal == len(games)
    with shop.open() as project:
        middle = project.stores.get(target.store).collection("Game", target.at(away, kit.ROUNDS))
        kit.assert_equal(kit.contents(middle), expected)
        final = project.stores.get(source.store).collection("Game", source.at(back))
        kit.assert_equal(kit.contents(final), expected)

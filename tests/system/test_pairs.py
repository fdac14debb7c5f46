"""Every store and layout to every other, and back: equal in canonical form."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from tests.system import kit
from tests.system.kit import PLACES, Odd, Place, Shop


# There and back: two places in one order try both ways.
@pytest.mark.parametrize(
    ("source", "target"), list(combinations_with_replacement(PLACES, 2)), ids=str
)
def test_a_class_moves_there_and_back(source: Place, target: Place, shop: Shop, odd: Odd) -> None:
    there, away, back = kit.fresh("there"), kit.fresh("away"), kit.fresh("back")
    shop.script(f"move = {kit.move('Game', source.script(there), target.script(away, kit.ROUNDS))}")
    shop.script(f"move = {kit.move('Game', target.script(away, kit.ROUNDS), source.script(back))}")
    with shop.open() as project:
        old, new = project.stores.get(source.store), project.stores.get(target.store)
        origin = old.collection("Game", source.at(there))
        middle = new.collection("Game", target.at(away, kit.ROUNDS))
        keyed = odd.keyed((old, origin), (new, middle))
        games = odd.games() + keyed
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

"""EAO to ROUNDS to ETF to EAV and back, in every store: equal at the end."""

from __future__ import annotations

import pytest

from migrator.model.value import Record, Ref, Value
from tests.system import kit
from tests.system.kit import PLACES, Odd, Place, Shop

CHAIN = (kit.ROUNDS, kit.ETF, kit.EAV, kit.EAO)


# What is made of two layouts cuts blocks as these do.
CUT = [place for place in PLACES if not place.whole and place.layout != "item-split"]


@pytest.mark.parametrize("place", CUT, ids=str)
def test_the_representations_of_a_class_follow_one_another(
    place: Place, shop: Shop, odd: Odd
) -> None:
    name = kit.fresh("chain")
    games: list[tuple[Value, Record]] = [
        (
            f"plain {n}",
            {"id": n, "by": Ref("Player", n), "rounds": [{"n": i} for i in range(n % 9)]},
        )
        for n in range(40)
    ]
    source = place.script(f"{name}_0", kit.EAO)
    for step, rules in enumerate(CHAIN, 1):
        target = place.script(f"{name}_{step}", rules)
        shop.script(f"move = {kit.move('Game', source, target)}")
        source = target
    with shop.open() as project:
        store = project.stores.get(place.store)
        first = store.collection("Game", place.at(f"{name}_0"))
        games += odd.held_by((store, first)).games() + odd.keyed((store, first))
        kit.fill(first, games)
    expected = kit.by_key(games)
    for step, (revision, rules) in enumerate(zip(shop.revisions, CHAIN, strict=True), 1):
        (found,) = kit.carry(shop, revision)
        assert found.equal == len(games)
        with shop.open() as project:
            at = place.at(f"{name}_{step}", rules)
            collection = project.stores.get(place.store).collection("Game", at)
            kit.assert_equal(kit.contents(collection), expected)
            for block in kit.blocks(collection):
                wanted = at.rules("Game").partition(expected[kit.encode(block.id)][1])
                assert block.entries.keys() == wanted.keys()

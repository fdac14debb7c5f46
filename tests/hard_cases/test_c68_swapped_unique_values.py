"""C68: writes back to a side with a unique key arrive in whatever order, and all of them."""

from __future__ import annotations

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.engine.access import Access
from migrator.errors import Waiting
from migrator.model.block import Address, Block
from migrator.model.phase import Phase
from migrator.ports import Collection
from tests.hard_cases.bench import Bench
from tests.system import kit

_STORES = pytest.mark.parametrize("store", ["pg", "maria", "lite"])


@_STORES
@pytest.mark.parametrize(
    "now",
    [
        {1: "b", 2: "a", 3: "c"},  # swapped
        {1: "b", 2: "c", 3: "a"},  # each the next one's
        {1: "d", 2: "a", 3: "b"},  # a chain
        {2: "a", 3: "b"},  # the holder is gone
    ],
)
def test_unique_values_that_change_hands_are_carried_back(
    bench: Bench, now: dict[int, str], store: str
) -> None:
    assert _carried_back(bench, store, now) == now


@_STORES
def test_key_by_key_swapped_values_are_never_carried_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    """The rule taken out: nothing is written with another, and nothing makes way."""

    def key_by_key(self: Access, side: Collection, writes: list[Block]) -> object:
        self.written_to(side).sends(writes)
        return self._one_by_one(side, writes)

    monkeypatch.setattr(Access, "write", key_by_key)
    with pytest.raises(Waiting, match="2 blocks are not written back: Thing:1, Thing:2"):
        _carried_back(bench, store, {1: "b", 2: "a", 3: "c"})


def _carried_back(bench: Bench, store: str, now: dict[int, str]) -> object:
    """What the old side holds after a rollback of what was written to the new one."""
    table = kit.fresh("c68")
    bench.sql(store, f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, u VARCHAR(9) UNIQUE)")
    bench.sql(store, f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    shop = bench.shop((f"At({store!r}, tables({table!r}))", f"At('emb', {table!r})"))
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        swap = SwapTerms(gateways=True, bound=60, lag=60)
        assert plan.errors == []
        commands.apply(project, plan, terms=commands.Terms(swap=swap))
        (route,) = project.routes("0001")
        for key, value in now.items():
            rules = route.move.target.rules("Thing")
            route.target.write([kit.block(key, {"id": key, "u": value}, rules)])
        route.target.delete([Address(key) for key in {1, 2, 3} - now.keys()])
        done = commands.rollback(project, "0001", swap=swap)
        assert done.phase == Phase.SHADOW_READ.value
        commands.abort(project, "0001", drop_target=True)
    return dict(bench.sql(store, f"SELECT id, u FROM {table}"))

"""Keys that one side of a live move takes for one, and the other tells apart (R3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migrator import commands
from migrator.commands import SwapTerms, Terms
from migrator.errors import Waiting
from migrator.model.block import Address, Aggregate, cut, join
from migrator.model.layouts import item
from migrator.model.move import At, tables
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.ports import Collection
from tests.contract import servers
from tests.system import kit
from tests.system.application import mirroring
from tests.system.kit import Shop, Urls
from tests.system.test_live import until

# The embedded store has a fence; who else writes, is this test.
SWAP = SwapTerms(bound=60, lag=20, gateways=True)


@dataclass
class Sides:
    """A live move between the embedded store and one that compares numbers by their value."""

    project: commands.Project
    exact: Collection
    blurred: Collection

    def put(self, side: Collection, *keys: Value) -> None:
        rules = side.at.rules("Game")
        side.write([cut(Aggregate(key, {"id": key, "is": repr(key)}), rules) for key in keys])

    def holds(self, side: Collection, key: Value) -> Any:
        (block,) = side.read([key])
        return None if block is None else join(block).value["is"]

    def apply(self) -> None:
        plan = commands.plan(self.project, "0001", live=True)
        assert plan.errors == []
        accepted = Terms(accept=[finding.code for finding in plan.findings], swap=SWAP)
        commands.apply(self.project, plan, until=Phase.SHADOW_READ, terms=accepted)

    def aside(self) -> set[str]:
        return {each.shown for each in commands.quarantine(self.project, "0001")}

    def ledger(self) -> int:
        (status,) = commands.status(self.project)
        assert status.live is not None
        return status.live.ledger


@pytest.fixture(params=["mongodb", "dynamodb"])
def begun(
    request: pytest.FixtureRequest, tmp_path: Path, urls: Urls
) -> Iterator[Callable[[str], tuple[Shop, Sides]]]:
    made: list[commands.Project] = []
    name = kit.fresh("alike")
    url = urls("mongodb", "") if request.param == "mongodb" else servers.dynamodb()
    layout = item("id:N") if request.param == "dynamodb" else None
    exact, blurred = At("old", name), At("new", name, layout=layout)

    def begin(source: str) -> tuple[Shop, Sides]:
        shop = Shop(tmp_path, {"old": "embedded:///old.db", "new": url})
        here, there = (exact, blurred) if source == "exact" else (blurred, exact)
        shop.script(f"move = Move('Game', source={_told(here)}, target={_told(there)})")
        made.append(project := shop.open())
        sides = [project.stores.get(at.store).collection("Game", at) for at in (exact, blurred)]
        found = Sides(project, *sides)
        first = found.exact if source == "exact" else found.blurred
        first.create()
        found.put(first, 100, 101)
        return shop, found

    yield begin
    for project in made:
        project.stores.get("new").collection("Game", blurred).drop()
        project.close()


def _told(at: At) -> str:
    return f"At({at.store!r}, {at.collection!r}, layout={at.layout!r})"


def test_a_key_that_the_mirror_takes_for_another_is_set_aside_and_no_write_is_lost(
    begun: Callable[[str], tuple[Shop, Sides]],
) -> None:
    shop, sides = begun("exact")
    sides.apply()
    with mirroring(shop):
        sides.put(sides.exact, 1, 1.0)  # in one batch
        until(lambda: sides.aside() or None)
        (first,) = sides.aside()
        held, other = (1, 1.0) if first == "Game:1.0" else (1.0, 1)
        assert sides.holds(sides.blurred, held) == repr(held)
        sides.put(sides.exact, 2)
        until(lambda: sides.holds(sides.blurred, 2))
        sides.put(sides.exact, Decimal(2))
        until(lambda: len(sides.aside()) == 2 or None)
        assert sides.holds(sides.blurred, 2) == "2"
        with pytest.raises(Waiting, match="2 blocks are in quarantine"):
            commands.cutover(sides.project, "0001", swap=SWAP)

        sides.exact.delete([Address(Decimal(2))])  # which the mirror must not take for 2
        until(lambda: len(sides.aside()) == 1 or None)
        assert sides.holds(sides.blurred, 2) == "2"
        sides.exact.delete([Address(held)])  # which makes way
        until(lambda: sides.holds(sides.blurred, other) == repr(other) or None)
        until(lambda: not sides.aside() or None)
        (found,) = commands.verify_run(sides.project, "0001")
        assert found.clean, found.told
        assert commands.cutover(sides.project, "0001", swap=SWAP).primary == "target"
        commands.finish(sides.project, "0001", keep_source=True)


def test_nor_is_one_that_was_written_after_the_cut_over(
    begun: Callable[[str], tuple[Shop, Sides]],
) -> None:
    shop, sides = begun("blurred")
    sides.apply()
    sides.blurred.delete([Address(100)])  # in one batch
    sides.put(sides.blurred, 100.0)
    with mirroring(shop):
        sides.put(sides.blurred, 1)
        until(lambda: sides.holds(sides.exact, 1))
        assert sides.exact.read([100]) == [None]
        assert sides.holds(sides.exact, 100.0) == "100.0"
        commands.cutover(sides.project, "0001", swap=SWAP)
        sides.put(sides.exact, 1.0, Decimal("3.0"), 3)
        until(lambda: sides.ledger() == 2 or None)
        assert sides.holds(sides.blurred, 1) == "1"
        sides.exact.delete([Address(1.0)])
        sides.exact.delete([Address(3)])
        sides.exact.delete([Address(Decimal("3.0"))])
        until(lambda: sides.ledger() == 0 or None)
        assert sides.holds(sides.blurred, 1) == "1"
        until(lambda: sides.holds(sides.blurred, 3) is None or None)
        commands.finish(sides.project, "0001", keep_source=True)


def test_several_pairs_of_texts_that_the_mirror_takes_for_one_lose_no_block(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "new.db") as c:
        c.execute('CREATE TABLE game (id text COLLATE NOCASE PRIMARY KEY NOT NULL, "is" text)')
    c.close()
    shop = Shop(tmp_path, {"old": "embedded:///old.db", "new": "sqlite:///new.db"})
    shop.script("move = Move('Game', source=At('old', 'g'), target=At('new', tables('game')))")
    project = shop.open()
    exact = project.stores.get("old").collection("Game", At("old", "g"))
    blurred = project.stores.get("new").collection("Game", At("new", tables("game")))
    sides, keys = Sides(project, exact, blurred), ["a", "A", "b", "B"]
    exact.create()
    sides.put(exact, "z")
    sides.apply()
    with mirroring(shop):
        sides.put(exact, *keys)  # in one batch
        until(lambda: len(sides.aside()) == 2 or None)
        there = {f"Game:{key}" for key in keys if sides.holds(exact, key) == repr(key)}
        lies = {f"Game:{b.id}" for b in blurred.read(keys) if b is not None}
        assert lies | sides.aside() == there
    project.close()

"""Blocks that are put together by the feeds of other stores: rounds in days, and back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import cast

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.model.block import Address, Aggregate, cut
from migrator.model.phase import Phase
from migrator.model.value import Record
from migrator.ports import Collection
from tests.system import kit
from tests.system.application import mirroring
from tests.system.kit import PLACES, Shop, Urls

_PLACES = {place.name: place for place in PLACES}
_PAIRS = [("entries-sqlite", "redis-hash"), ("mongo-document", "entries-postgresql")]
_DAYS = 3


class _Writer:
    """One that writes rounds on either side, and knows what must lie there."""

    def __init__(self, sides: dict[str, Collection]) -> None:
        self._sides = sides
        self._chosen = random.Random(1)
        self.rows: dict[str, Record] = {}

    def put(self, id: str, row: Record) -> None:
        """A round, on the source."""
        self.rows[id] = row
        self._write("source", id, row)

    def write(self, side: str, times: int) -> None:
        """Put, change, move and delete rounds, or change nothing but the days that they are of."""
        for turn in range(times):
            id, what = f"r{self._chosen.randrange(12):02}", self._chosen.randrange(4)
            old = self.rows.pop(id, None)
            row: Record = {"day": f"d{self._chosen.randrange(_DAYS)}", "n": turn}
            if what == 0 and old is not None:
                row["n"] = old["n"]
            if what != 1:
                self.rows[id] = row
            if side == "target":
                # In the new day first, as an application does that loses nothing.
                for day in dict.fromkeys(each["day"] for each in (row, old) if each is not None):
                    self._day(str(day))
            elif what != 1:
                self._write(side, id, row)
            elif old is not None:
                self._sides[side].delete([Address(id)])

    def _day(self, day: str) -> None:
        rounds = [
            {"id": id, "n": row["n"]} for id, row in sorted(self.rows.items()) if row["day"] == day
        ]
        if rounds:
            self._write("target", day, {"day": day, "rounds": rounds})
        else:
            self._sides["target"].delete([Address(day)])

    def _write(self, side: str, id: str, value: Record) -> None:
        there = self._sides[side]
        there.write([cut(Aggregate(id, value), there.at.rules(there.cls))])

    def assert_held(self) -> None:
        held = dict(kit.contents(self._sides["source"]).values())
        assert held == self.rows
        lying = {
            each["id"]: {"day": day, "n": each["n"]}
            for day, value in kit.contents(self._sides["target"]).values()
            for each in cast("list[Record]", value["rounds"])
        }
        assert lying == self.rows


@pytest.mark.parametrize(("source", "target"), _PAIRS)
def test_rounds_become_days_and_come_back(
    source: str, target: str, tmp_path: Path, urls: Urls
) -> None:
    old, new = _PLACES[source], _PLACES[target]
    name = kit.fresh("pair")
    shop = Shop(tmp_path, {p.store: urls(p.server, p.name) for p in (old, new)})
    here = old.script(f"{name}_row", ["/Row/*"])
    there = new.script(f"{name}_day", ["/Day/*"])
    shop.script(f"""move = Move(
    "Day", of="Row", source={here}, target={there},
    evolve=[Bucket("rounds", by={{"day": "day"}}, keep="id")],
)""")
    with shop.open() as project:
        (route,) = project.routes("0001")
        route = route.followed
        route.source.create()
        writer = _Writer({"source": route.source, "target": route.target})
        for n in range(9):
            writer.put(f"r{n:02}", {"day": f"d{n % 2}", "n": n})
        plan = commands.plan(project, "0001", live=True)
        assert [finding.text for finding in plan.errors] == []
        swap = SwapTerms(gateways=True, bound=60, lag=20)
        terms = commands.Terms(accept=[f.code for f in plan.to_accept], swap=swap)
        done = commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        assert all(found.clean for found in done.verified)
        with mirroring(shop):
            writer.write("source", 30)
            commands.cutover(project, "0001", swap=swap)
            writer.write("target", 30)
            commands.rollback(project, "0001", swap=swap)
            writer.write("source", 30)
            for found in commands.verify_run(project, "0001"):
                assert found.clean, found.told
            commands.cutover(project, "0001", swap=swap)
        writer.assert_held()
        assert "foreign write" not in [event["event"] for event in commands.events(project, "0001")]
        commands.finish(project, "0001", keep_source=True)

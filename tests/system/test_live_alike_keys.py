"""Keys that the mirror of a live move takes for one, where they are made anew of what blocks hold:
moves that change keys, spread or gather (R3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migrator import commands
from migrator.commands import SwapTerms, Terms
from migrator.errors import Waiting
from migrator.model.block import Address, Aggregate, cut, join
from migrator.model.move import At, tables
from migrator.model.phase import Phase
from migrator.model.value import Record, Value
from migrator.ports import Collection
from tests.system import kit, servers
from tests.system.application import mirroring
from tests.system.kit import Shop, Urls
from tests.system.test_live import until

# The embedded store has a fence; who else writes, is this test.
SWAP = SwapTerms(bound=60, lag=20, gateways=True)

_LISTED = 'by={"game": "game"}, keep="id"'


@dataclass(frozen=True)
class Kind:
    """A move, and what its blocks are where the primary's ``who`` leads to the mirror's ``key``."""

    cls: str  # on the primary
    mirrored: str
    evolve: str
    made: Callable[[str, Value], Record]
    who: Callable[[Any], str]  # of a block of the mirror


def _placed(who: str, key: Value) -> Record:
    return {"id": who, "place": key}


def _listing(who: str, key: Value) -> Record:
    return {"game": who, "rounds": [{"id": key}]}


def _listed(who: str, key: Value) -> Record:
    return {"game": key, "who": who}


def _first_round(game: Any) -> str:
    return str(game["rounds"][0]["id"])


THERE = {
    "rekeyed": Kind("Game", "Game", "ChangeId('place', stays='id')", _placed,
                    lambda game: str(game["id"])),
    "spread": Kind("Game", "Round", f"SplitOut('rounds', {_LISTED})", _listing,
                   lambda round_: str(round_["game"])),
    "gathered": Kind("Round", "Game", f"Bucket('rounds', {_LISTED})", _listed, _first_round),
}  # fmt: skip
# After the cut-over, so that the mirror is the source of the move.
BACK = {
    "rekeyed": Kind("Game", "Game", "ChangeId('id', stays='place')", _placed,
                    lambda game: str(game["id"])),
    "spread": Kind("Round", "Game", f"SplitOut('rounds', {_LISTED})", _listed, _first_round),
    "gathered": Kind("Game", "Round", f"Bucket('rounds', {_LISTED})", _listing,
                     lambda round_: str(round_["game"])),
}  # fmt: skip


@dataclass
class Pair:
    """A live move between a store that tells all keys apart and one that does not."""

    shop: Shop
    project: commands.Project
    kind: Kind
    exact: Collection
    blurred: Collection

    def lead(self, **keys: Value) -> None:
        """Have keys of the exact side lead to these of the other, in one batch."""
        made = [Aggregate(who, self.kind.made(who, key)) for who, key in keys.items()]
        self.exact.write([cut(each, self.exact.at.rules(self.kind.cls)) for each in made])

    def delete(self, who: str) -> None:
        self.exact.delete([Address(who)])

    def holds(self) -> dict[str, str]:
        """Whose block lies under each key of the blurred side."""
        position, found = None, {}
        for range_ in self.blurred.split(1):
            page = self.blurred.page(range_, position, 100)
            for block in page.blocks:
                found[repr(block.id)] = self.kind.who(join(block).value)
        return found

    def comes(self, **keys: Value) -> None:
        """Until the blurred side holds these blocks, under these keys."""
        want = {repr(key): who for who, key in keys.items()}
        until(lambda: self.holds() == want or None)

    def apply(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        plan = commands.plan(self.project, "0001", live=True)
        assert plan.errors == []
        meanwhile()
        accepted = Terms(accept=[finding.code for finding in plan.findings], swap=SWAP)
        commands.apply(self.project, plan, until=Phase.SHADOW_READ, terms=accepted)

    def aside(self) -> dict[str, str]:
        found = commands.quarantine(self.project, "0001")
        return {each.shown.partition(":")[2]: each.reason for each in found}

    def waits(self, *names: str) -> None:
        until(lambda: set(self.aside()) == set(names) or None)

    def ledger(self, count: int) -> None:
        def look() -> bool | None:
            (status,) = commands.status(self.project)
            assert status.live is not None
            return status.live.ledger == count or None

        until(look)

    def clean(self) -> None:
        (found,) = commands.verify_run(self.project, "0001")
        assert found.clean, found.told


def _told(at: At) -> str:
    if at.tables is not None:
        return f"At({at.store!r}, tables({at.collection!r}))"
    return f"At({at.store!r}, {at.collection!r})"


def _at(server: str, name: str, url: str) -> At:
    """A place for blocks whose keys the server does not tell apart."""
    if server != "mariadb":
        return At("new", name)
    with closing(servers.connect_mariadb(url)) as there:
        text = "varchar(20) COLLATE utf8mb4_general_ci NOT NULL"
        there.cursor().execute(f"CREATE TABLE {name} (id {text}, place {text} PRIMARY KEY)")
    return At("new", tables(name))


Begin = Callable[[Kind, str], Pair]


@pytest.fixture
def begin(tmp_path: Path, urls: Urls) -> Iterator[Begin]:
    made: list[Pair] = []

    def do(kind: Kind, server: str = "mongodb", *, back: bool = False) -> Pair:
        name = kit.fresh("alike")
        url = urls(server, "")
        exact, blurred = At("old", name), _at(server, name, url)
        shop = Shop(tmp_path, {"old": "embedded:///old.db", "new": url})
        here, there = (blurred, exact) if back else (exact, blurred)
        cls, of = (kind.cls, kind.mirrored) if back else (kind.mirrored, kind.cls)
        shop.script(
            f"move = Move({cls!r}, of={of!r}, source={_told(here)}, target={_told(there)}, "
            f"evolve=[{kind.evolve}])"
        )
        project = shop.open()
        stores = project.stores
        pair = Pair(
            shop, project, kind,
            stores.get("old").collection(kind.cls, exact),
            stores.get("new").collection(kind.mirrored, blurred),
        )  # fmt: skip
        (pair.blurred if back else pair.exact).create()
        made.append(pair)
        return pair

    yield do
    for pair in made:
        kit.end(pair.project)
        pair.blurred.drop()
        pair.project.close()


# Keys that a server takes for one: three, and two; and two others.
NUMBERS: list[Value] = [1, 1.0, Decimal(1), 7, 7.0, 2, 3]
TEXTS: list[Value] = ["o", "O", "Ó", "a", "A", "x", "y"]


@pytest.mark.parametrize(
    ("kind", "server", "keys"),
    [
        ("rekeyed", "mongodb", NUMBERS),
        ("rekeyed", "mariadb", TEXTS),
        ("spread", "mongodb", NUMBERS),
        ("gathered", "mongodb", NUMBERS),
    ],
)
def test_one_of_two_keys_waits_until_the_other_has_gone(
    kind: str, server: str, keys: list[Value], begin: Begin
) -> None:
    pair = begin(THERE[kind], server)
    one, other, third, seven, like_seven, two, three = keys
    pair.apply(lambda: pair.lead(p=seven, q=like_seven))  # which the copy meets
    with mirroring(pair.shop):
        ((left, reason),) = pair.aside().items()
        first = ("p", seven) if left == "q" else ("q", like_seven)
        assert pair.holds() == {repr(first[1]): first[0]}
        assert {str(first[1])} < _words(reason)
        pair.delete("p")
        pair.delete("q")
        pair.comes()
        pair.waits()

        pair.lead(x=one)
        pair.comes(x=one)
        pair.lead(a=other)  # of two that want one key the smaller one has it, but here
        pair.waits("a")
        named = {str(one), str(other)} if server == "mongodb" else {str(one)}
        assert named < _words(pair.aside()["a"])
        pair.lead(a=other)
        pair.lead(x=one, y=two)
        pair.comes(x=one, y=two)
        pair.delete("a")
        pair.waits()
        pair.comes(x=one, y=two)
        pair.lead(a=third)
        pair.waits("a")
        pair.delete("x")  # which makes way
        pair.waits()
        pair.comes(a=third, y=two)
        pair.lead(x=one)
        pair.waits("x")
        pair.lead(x=three)
        pair.waits()
        pair.comes(a=third, y=two, x=three)
        pair.clean()


def _words(reason: str) -> set[str]:
    return set(re.split("[ ,:]", reason))


@pytest.mark.parametrize("kind", BACK)
def test_nor_is_one_written_over_for_the_other_after_the_cut_over(kind: str, begin: Begin) -> None:
    pair = begin(BACK[kind], back=True)
    pair.apply()
    with mirroring(pair.shop):
        commands.cutover(pair.project, "0001", swap=SWAP)
        pair.lead(x=1)
        pair.comes(x=1)
        pair.lead(a=1.0)
        pair.ledger(1)
        pair.lead(x=1, y=2)
        pair.comes(x=1, y=2)
        pair.delete("a")
        pair.ledger(0)
        pair.lead(a=Decimal(1))
        pair.ledger(1)
        pair.comes(x=1, y=2)
        with pytest.raises(Waiting, match="1 blocks are not written back"):
            commands.rollback(pair.project, "0001", swap=SwapTerms(bound=1, lag=20, gateways=True))
        pair.delete("x")  # which makes way
        pair.ledger(0)
        pair.comes(a=Decimal(1), y=2)
        pair.lead(x=1)
        pair.ledger(1)
        pair.lead(x=3)
        pair.ledger(0)
        pair.lead(p=7, q=7.0)  # in one batch
        pair.ledger(1)
        pair.delete("p")
        pair.comes(a=Decimal(1), y=2, x=3, q=7.0)
        pair.ledger(0)
        assert commands.rollback(pair.project, "0001", swap=SWAP).primary == "source"

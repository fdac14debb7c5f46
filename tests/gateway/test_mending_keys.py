"""``verify --mend`` of live moves that change keys, spread or gather, whichever side mirrors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.engine import pairs
from migrator.model.block import Address, Aggregate, cut
from migrator.model.value import Record
from migrator.ports import Collection
from migrator.route import Route
from tests.gateway.kit import unseen
from tests.gateway.test_live import begin, held, mirroring
from tests.system.kit import ENV, Shop

# Nobody writes but the test.
SWAP = SwapTerms(gateways=True, bound=60, lag=60)

Blocks = Mapping[str, Record]


def _placed(id: str, place: str, n: int) -> Record:
    return {"id": id, "place": place, "n": n}


def _part(game: str, n: int) -> Record:
    return {"game": game, "n": n}


def _whole(game: str, **rounds: int) -> Record:
    return {"game": game, "rounds": [{"id": id, "n": n} for id, n in rounds.items()]}


@dataclass(frozen=True)
class Shape:
    """What lies on a side, and what somebody puts there; under a key without anything, nothing."""

    cls: str
    there: Blocks
    spoiled: Mapping[str, Record | None]


OLD = Shape(
    "Game",
    {"a": _placed("a", "1", 1), "b": _placed("b", "2", 2), "c": _placed("c", "3", 3)},
    # One that differs, one that is missing, one that is extra, and one that leads elsewhere.
    {"a": _placed("a", "1", 9), "b": None, "x": _placed("x", "7", 9), "c": _placed("c", "8", 3)},
)
NEW = Shape(
    "Game",
    {"1": _placed("a", "1", 1), "2": _placed("b", "2", 2), "3": _placed("c", "3", 3)},
    {"1": _placed("a", "1", 9), "2": None, "7": _placed("c", "7", 3), "3": _placed("d", "3", 3)},
)
WHOLES = Shape(
    "Game",
    {"a": _whole("a", a1=1, a2=2), "b": _whole("b", b1=3, b2=4), "c": _whole("c", c1=5)},
    # One with a part that differs, one that lacks a part, one with a part of another, and one
    # that is extra.
    {"a": _whole("a", a1=9), "b": None, "c": _whole("c", a2=2, c1=5), "x": _whole("x", x1=9)},
)
PARTS = Shape(
    "Round",
    {
        "a1": _part("a", 1), "a2": _part("a", 2), "b1": _part("b", 3), "b2": _part("b", 4),
        "c1": _part("c", 5),
    },
    {
        "a1": _part("a", 9), "a3": _part("a", 9), "b1": None, "b2": None, "c1": _part("a", 5),
        "x1": _part("x", 9),
    },
)  # fmt: skip
KINDS: dict[str, tuple[Shape, Shape, str]] = {
    "rekeyed": (OLD, NEW, "ChangeId('place', stays='id')"),
    "spread": (WHOLES, PARTS, "SplitOut('rounds', by={'game': 'game'}, keep='id')"),
    "gathered": (PARTS, WHOLES, "Bucket('rounds', by={'game': 'game'}, keep='id')"),
}


@dataclass
class Live:
    """A live move of embedded stores that was compared."""

    shop: Shop
    project: commands.Project
    route: Route
    shapes: Mapping[str, Shape]

    def side(self, side: str) -> Collection:
        return self.route.source if side == "source" else self.route.target

    def put(self, side: str, blocks: Mapping[str, Record | None]) -> None:
        collection, cls = self.side(side), self.shapes[side].cls
        rules = collection.at.rules(cls)
        for key, value in blocks.items():
            if value is None:
                collection.delete([Address(key)])
            else:
                collection.write([cut(Aggregate(key, value), rules)])

    def unseen(self, side: str) -> AbstractContextManager[None]:
        """What is written to a side within shows in no feed."""
        return unseen(self.shop.root / ("old.db" if side == "source" else "new.db"))

    def all_is_there(self) -> bool:
        return all(held(self.side(s)) == shape.there for s, shape in self.shapes.items())


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Live]]:
    monkeypatch.setattr(pairs, "RECHECKS", 3)  # nobody writes what is looked at
    shop = Shop(tmp_path, {"old": "embedded:///old.db", "new": "embedded:///new.db"})
    opened: list[commands.Project] = []

    def do(kind: str) -> Live:
        old, new, evolve = KINDS[kind]
        shop.script(
            f"move = Move({new.cls!r}, of={old.cls!r}, source=At('old', 'games'), "
            f"target=At('new', 'games'), evolve=[{evolve}])"
        )
        opened.append(project := commands.Project(shop.config, ENV))
        route = project.routes("0001")[0].followed
        made = Live(shop, project, route, {"source": old, "target": new})
        route.source.create()
        made.put("source", old.there)
        begin(project)
        assert made.all_is_there()
        return made

    yield do
    for project in opened:
        project.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_differs_is_reconciled(kind: str, live: Callable[[str], Live]) -> None:
    move = live(kind)
    with _spoiled(move, "target"):
        _is_mended(move, "target")
        commands.cutover(move.project, "0001", swap=SWAP)
    with _spoiled(move, "source"):
        _is_mended(move, "source")


@contextmanager
def _spoiled(move: Live, mirror: str) -> Iterator[None]:
    """Somebody wrote to a side while nobody mirrored."""
    with move.unseen(mirror):
        move.put(mirror, move.shapes[mirror].spoiled)
    assert not move.all_is_there()
    with mirroring(move.shop.config):
        yield


def _is_mended(move: Live, mirror: str) -> None:
    before = len(commands.events(move.project, "0001"))
    (found,) = commands.verify_run(move.project, "0001", mend=True)
    assert found.clean, found.told
    assert found.mended >= 3
    assert move.all_is_there()
    events = [each["event"] for each in commands.events(move.project, "0001")]
    # Each key of the mirror is told with what it held.
    assert events[before:].count("reconciled") == len(move.shapes[mirror].spoiled)

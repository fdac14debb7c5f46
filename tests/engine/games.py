"""A small project on embedded stores for tests of the engine: games, EAO to ROUNDS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from migrator import commands
from migrator.model.block import Aggregate, Block, cut, join
from migrator.model.canonical import equal
from migrator.model.move import At
from migrator.model.value import Int64, Record, Ref, Value
from migrator.ports import Collection
from migrator.stores.sqlite.store import CAPABILITIES, EmbeddedStore

RULES = ["/Game/*/rounds[*]", "/Game/*"]
SOURCE = At("old", "games")
TARGET = At("new", "games_by_round", RULES)

SETTINGS = """
[env.test.stores.old]
url = "embedded:///old.db"
[env.test.stores.new]
url = "embedded:///new.db"
"""

SCRIPT = '''"""Each round an entry of its own."""

from migrator import At, Move

revision, down_revision = "0001", None

move = Move(
    "Game",
    source=At("old", "games"),
    target=At("new", "games_by_round", representation=["/Game/*/rounds[*]", "/Game/*"]),
    oversize="{oversize}",
)
'''


def game(number: int, rounds: int = 3) -> Record:
    """A game with values of several kinds."""
    return {
        "id": str(number),
        "firstPlayer": Ref("Player", "mary"),
        "score": Int64(number),
        "rounds": [{"moves": [f"q{i}", number], "spell": None} for i in range(rounds)],
    }


def make_project(root: Path, *, oversize: str = "refuse") -> Path:
    """Write settings and script; returns the settings file."""
    (root / "migrations").mkdir(parents=True, exist_ok=True)
    (root / "migrations" / "0001_rounds.py").write_text(SCRIPT.format(oversize=oversize))
    (root / "migrator.toml").write_text(SETTINGS)
    return root / "migrator.toml"


def read_through(patch: pytest.MonkeyPatch) -> None:
    """Let the embedded store state that it is read through sooner than by its keys."""
    stated = replace(CAPABILITIES, reads_through=True)
    patch.setattr(EmbeddedStore, "capabilities", stated)


def fill(collection: Collection, games: Iterable[tuple[Value, Record]]) -> None:
    """Put games into a collection, which is created."""
    collection.create()
    rules = collection.at.rules("Game")
    batch: list[Block] = [cut(Aggregate(id, value), rules) for id, value in games]
    for start in range(0, len(batch), 500):
        collection.write(batch[start : start + 500])


def source(project: commands.Project) -> Collection:
    return project.stores.get("old").collection("Game", SOURCE)


def target(project: commands.Project) -> Collection:
    return project.stores.get("new").collection("Game", TARGET)


def contents(collection: Collection) -> dict[Value, Record]:
    """All aggregates of a collection, read by the observer."""
    found: dict[Value, Record] = {}
    for range_ in collection.split(3):
        position = None
        while True:
            page = collection.observer().page(range_, position, 400)
            assert not page.damaged
            found.update((block.id, join(block).value) for block in page.blocks)
            position = page.next
            if position is None:
                break
    return found


def assert_equal(left: dict[Value, Record], right: dict[Value, Record]) -> None:
    """Both hold the same keys with equal values."""
    assert left.keys() == right.keys()
    assert [key for key in left if not equal(left[key], right[key])] == []

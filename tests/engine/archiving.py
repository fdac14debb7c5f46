"""A project on embedded stores with an archive: scores that are no numbers, notes left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from migrator import commands
from migrator.model.block import Aggregate, cut
from migrator.model.move import At
from migrator.model.value import Record, Value
from migrator.ports import Collection

SETTINGS = """
[env.test.stores.old]
url = "embedded:///old.db"
[env.test.stores.new]
url = "embedded:///new.db"
[env.test.stores.cold]
url = "embedded:///cold.db"
"""

SCRIPT = '''"""Scores become numbers, notes stay behind."""

from migrator import At, Bucket, Convert, Drop, Integer, Move, ReKey, SplitOut, tables

revision, down_revision = "0001", None

move = Move(
    "Game",
    source=At("old", "games"),
    target=At("new", "games", ["/Game/*/*"]),
    {more},
)
'''
BOTH = (
    'evolve=[Convert("score", Integer), Drop("notes[*].text", archive=True)], '
    'oversize="archive", archive=At("cold", "left", ["/Game/*/notes[*]", "/Game/*"])'
)
WHOLE = 'evolve=[Convert("score", Integer)], oversize="archive", archive=At("cold", "left")'
SOURCE = At("old", "games")
TARGET = At("new", "games", ["/Game/*/*"])
LEFT = At("cold", "left", ["/Game/*/notes[*]", "/Game/*"])
EVERY = 10


def write_project(root: Path, more: str = BOTH) -> Path:
    """Write settings and script; returns the settings file."""
    (root / "migrations").mkdir(parents=True, exist_ok=True)
    (root / "migrations" / "0001_it.py").write_text(SCRIPT.format(more=more))
    (root / "migrator.toml").write_text(SETTINGS)
    return root / "migrator.toml"


def fits(number: int) -> bool:
    return number % EVERY != 3


def game(number: int) -> Record:
    """A game; one in ten has a score that is no number, one in four no notes."""
    notes = [{"by": "mary", "text": f"note {i} of {number}"} for i in range(number % 4)]
    score = str(number) if fits(number) else f"about {number}"
    return {"id": str(number), "score": score, "notes": notes}


def moved(number: int) -> Record:
    """What the target gets of a game that fits."""
    notes = [{"by": "mary"} for _ in range(number % 4)]
    return {"id": str(number), "score": number, "notes": notes}


def kept(number: int) -> Record:
    """What the archive gets of a game that fits and has notes."""
    texts = {f"notes[{i}].text": f"note {i} of {number}" for i in range(number % 4)}
    return {"_dropped": {"1": texts}}


def collection(project: commands.Project, at: At) -> Collection:
    return project.stores.get(at.store).collection("Game", at)


def put(collection: Collection, records: Mapping[Value, Record]) -> None:
    """Put games into a collection, which is created."""
    collection.create()
    rules = collection.at.rules("Game")
    blocks = [cut(Aggregate(id, value), rules) for id, value in records.items()]
    for start in range(0, len(blocks), 500):
        collection.write(blocks[start : start + 500])


def expected(games: int) -> tuple[dict[Value, Record], dict[Value, Record]]:
    """What target and archive hold once so many games were moved."""
    target: dict[Value, Record] = {str(n): moved(n) for n in range(games) if fits(n)}
    archive: dict[Value, Record] = {str(n): game(n) for n in range(games) if not fits(n)}
    archive |= {str(n): kept(n) for n in range(games) if fits(n) and n % 4}
    return target, archive

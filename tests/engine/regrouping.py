"""Projects on embedded stores whose revisions split, merge, bucket and make keys anew."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from migrator import commands
from migrator.model.block import Address, Aggregate, cut, join
from migrator.model.canonical import encode, equal
from migrator.model.move import At
from migrator.model.plan import Plan
from migrator.model.value import Record, Ref, Value
from migrator.ports import Collection
from tests.engine.games import SETTINGS

HEAD = '''"""{message}"""

from migrator import (
    At, Bucket, Day, Drop, Id, Keep, MergeIn, Move, ReKey, Rename, Shard, SplitOut, Template
)

revision, down_revision = "{id}", {down}

'''

SPLIT = """
moves = [
    Move("Round", of="Game", source=At("old", "games"), target=At("new", "rounds"),
         evolve=[SplitOut("rounds", back="game", place="number", key="{game}-{number}")],
         oversize="OVERSIZE"),
    Move("Game", source=At("old", "games"), target=At("new", "games"), evolve=[Drop("rounds")]),
]
"""

MERGE = """
move = Move(
    "Game", target=At("old", "whole_games", ["/Game/*/rounds[*]", "/Game/*"]),
    evolve=[MergeIn("rounds", of="Round", back="game", place="number", key="{game}-{number}")],
    oversize="OVERSIZE",
)
"""

BUCKET = """
move = Move(
    "Day", of="Reading", source=At("old", "readings"), target=At("new", "days"),
    evolve=[
        Bucket("readings", by={"sensor": "sensor", "day": Day("at")}, order_by="at", keep="id"),
    ],
    oversize="OVERSIZE",
)
"""

APART = """
move = Move(
    "Reading", of="Day", target=At("old", "readings_again"),
    evolve=[
        SplitOut("readings", by={"sensor": "sensor", "day": Day("at")}, order_by="at", keep="id"),
    ],
)
"""


def write_project(root: Path, *scripts: str, oversize: str = "refuse") -> Path:
    """Write settings and scripts 0001, 0002 ...; returns the settings file."""
    (root / "migrations").mkdir(parents=True, exist_ok=True)
    for number, script in enumerate(scripts, 1):
        down = f'"{number - 1:04}"' if number > 1 else None
        head = HEAD.format(message="It regroups.", id=f"{number:04}", down=down)
        text = head + script.replace("OVERSIZE", oversize)
        (root / "migrations" / f"{number:04}_it.py").write_text(text)
    (root / "migrator.toml").write_text(SETTINGS)
    return root / "migrator.toml"


def collection(project: commands.Project, store: str, cls: str, *at: object) -> Collection:
    return project.stores.get(store).collection(cls, At(store, *at))  # type: ignore[arg-type]


def put(collection: Collection, aggregates: Mapping[Value, Record]) -> None:
    """Put aggregates into a collection, which is created."""
    collection.create()
    rules = collection.at.rules(collection.cls)
    blocks = [cut(Aggregate(id, value), rules) for id, value in aggregates.items()]
    for start in range(0, len(blocks), 500):
        collection.write(blocks[start : start + 500])


def delete(collection: Collection, *ids: Value) -> None:
    collection.delete([Address(id) for id in ids])


def held(collection: Collection) -> dict[bytes, Record]:
    """What a collection holds, by canonical form: keys may be lists."""
    found: dict[bytes, Record] = {}
    for range_ in collection.split(2):
        position = None
        while True:
            page = collection.observer().page(range_, position, 400)
            found.update((encode(block.id), join(block).value) for block in page.blocks)
            position = page.next
            if position is None:
                break
    return found


def assert_holds(collection: Collection, expected: Mapping[Value, Record]) -> None:
    found = held(collection)
    wanted = {encode(id): value for id, value in expected.items()}
    assert found.keys() == wanted.keys()
    assert [f for f in wanted if not equal(found[f], wanted[f])] == []


def assert_done_as_planned(project: commands.Project, plan: Plan) -> None:
    """What was done is what the plan counted, move by move."""
    events = [e["detail"] for e in commands.events(project, plan.revision)]
    kinds = [e["event"] for e in commands.events(project, plan.revision)]
    copied = [d for kind, d in zip(kinds, events, strict=True) if kind == "copied"]
    assert "not as planned" not in kinds
    for move, done in zip(plan.moves, copied[-len(plan.moves) :], strict=True):
        assert isinstance(done, dict)
        assert {n: done[n] for n in ("create", "change", "delete", "leave")} == {
            n: getattr(move, n) for n in ("create", "change", "delete", "leave")
        }


def game(number: int, rounds: int) -> Record:
    return {
        "name": f"game {number}",
        "player": Ref("Player", "mary"),
        "rounds": [{"moves": [f"q{i}", number], "spell": None} for i in range(rounds)],
    }


def rounds_of(id: str, value: Record) -> dict[Value, Record]:
    rounds: list[Record] = value["rounds"]  # type: ignore[assignment]
    return {
        f"{id}-{i}": {**each, "game": Ref("Game", id), "number": i} for i, each in enumerate(rounds)
    }


def without_rounds(value: Record) -> Record:
    return {name: item for name, item in value.items() if name != "rounds"}


def reading(n: int) -> Record:
    """Readings of 3 sensors, one an hour."""
    start = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    return {"sensor": f"s{n % 3}", "at": start + dt.timedelta(hours=n), "value": n / 4}


def day_key(value: Record) -> tuple[str, dt.date]:
    return str(value["sensor"]), value["at"].date()  # type: ignore[union-attr]


def days_of(readings: Mapping[Value, Record]) -> dict[bytes, Record]:
    """The buckets of readings, by the canonical form of their keys."""
    found: dict[bytes, Record] = {}
    for id, value in sorted(readings.items(), key=lambda item: item[1]["at"]):  # type: ignore[arg-type,return-value]
        sensor, day = day_key(value)
        form = encode([sensor, day])
        bucket = found.setdefault(form, {"sensor": sensor, "day": day, "readings": []})
        element = {"id": id, **{n: x for n, x in value.items() if n != "sensor"}}
        bucket["readings"].append(element)  # type: ignore[union-attr]
    return found

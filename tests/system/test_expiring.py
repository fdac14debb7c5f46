"""Blocks that expire while they are moved are neither lost nor different, in every system that
knows deadlines."""

from __future__ import annotations

import time

import pytest

from migrator import commands
from migrator.engine import points
from migrator.model.canonical import encode
from migrator.model.value import Value
from tests.system import kit
from tests.system.kit import PLACES, Place, Shop

NAMED = {place.name: place for place in PLACES}
# Between the copy's read and its write, and between the verifier's two reads; each system is a
# source and a target, and none of the emulators of DynamoDB sweeps what has expired.
WAYS = [
    ("dynamodb-item", "cassandra-table", "backfill.read"),
    ("cassandra-partition", "dynamodb-collection", "verify.listed"),
    ("cassandra-table", "redis-keys", "backfill.read"),
    ("redis-hash", "dynamodb-split", "verify.listed"),
    ("mongo-document", "cassandra-row", "verify.listed"),
]
SECONDS = 4
LASTING = [f"g{n}" for n in range(12)]
ENDING = [f"ending {n}" for n in range(4)]


@pytest.mark.parametrize(
    ("source", "target", "point"),
    [(NAMED[one], NAMED[other], point) for one, other, point in WAYS],
    ids=str,
)
def test_blocks_that_expire_during_the_move(
    source: Place, target: Place, point: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = kit.fresh("ends")
    comes, arrives = source.at(name, source.rules), target.at(f"{name}_t", target.rules)
    shop.script(
        "move = "
        + kit.move(
            "Game", source.script(name, source.rules), target.script(f"{name}_t", target.rules)
        )
    )
    deadline = 0

    def expires(id: Value) -> int | None:
        return deadline if id in ENDING else None

    games: list[kit.Game] = [(id, {"id": id, "n": n}) for n, id in enumerate(LASTING + ENDING)]
    with shop.open() as project:
        old = project.stores.get(source.store).collection("Game", comes)
        old.create()
        deadline = (int(time.time()) + SECONDS) * 1000
        kit.fill(old, games, expires)
        plan = commands.plan(project, "0001")
        assert plan.errors == []
        waited: list[str] = []

        def wait(reached: str) -> None:
            if reached == point and not waited:
                waited.append(reached)
                time.sleep(max(0.0, deadline / 1000 - time.time() + 0.1))

        monkeypatch.setattr(points, "hook", wait)
        applied = commands.apply(project, plan)
        assert waited
        (verified,) = applied.verified
        assert verified.clean, verified.told
        assert verified.quarantined == 0
        new = project.stores.get(target.store).collection("Game", arrives)
        found = kit.deadlines(new)
    # What was copied before it ended may still lie there, with its deadline, until it is swept.
    assert {form for form, ends in found.items() if ends is None} == set(map(encode, LASTING))
    assert {ends for ends in found.values() if ends is not None} <= {deadline}

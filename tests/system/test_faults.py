"""A run under faults ends complete and verified: throttled, timed out, cut off, left undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from migrator import commands
from migrator.model.value import Record
from migrator.ports import ServerInfo, Store
from migrator.testing.faults import Fault, Faults
from tests.system import kit
from tests.system.kit import PLACES, Place, Shop

# Where many blocks share a request it takes more of them for each kind of fault to happen.
GAMES = {"redis": 1_000, "rediscluster": 1_000, "dynalite": 150, "cassandra": 80}
CLUSTER = Place("redis-cluster", "rediscluster", "hash")


def game(number: int) -> Record:
    return {
        "id": str(number),
        "by": "mary",
        "score": number,
        "rounds": [{"moves": [f"q{i}", number], "spell": None} for i in range(number % 3)],
    }


def _redis(faults: Faults, store: Any) -> None:
    wire = store._wire
    wire.close()
    wire.servers = replace(wire.servers, connection=faults.redis(wire.servers.connection))


HOOKS: dict[str, Callable[[Faults, Any], None]] = {
    "redis": _redis,
    "rediscluster": _redis,
    "dynalite": lambda faults, store: faults.on_botocore(store._wire.client),
    "cassandra": lambda faults, store: faults.on_cassandra(store.wire._session),
}


def hook(faults: Faults, store: Store, server: str | None) -> None:
    """Faults at the edge of a store's driver; but not on its first greeting, where a store that
    does not answer is told at once."""
    HOOKS[server or ""](faults, store)
    ping = store.ping

    def greet() -> ServerInfo:
        with faults.calm():
            return ping()

    store.ping = greet  # type: ignore[method-assign]


def ring() -> Iterator[tuple[Place, Place]]:
    """Each place to the next, where faults can happen: each is a source and a target."""
    all_places = [place for place in (*PLACES, CLUSTER) if place.server in HOOKS]
    # What is made of two layouts sends what these send.
    places = [place for place in all_places if place.layout != "item-split"]
    # In steps, so that most go to another system.
    order = [place for start in range(3) for place in places[start::3]]
    yield from pairwise((*order, order[0]))


@pytest.mark.parametrize(("source", "target"), list(ring()), ids=str)
def test_a_run_under_faults_ends_complete(source: Place, target: Place, shop: Shop) -> None:
    name = kit.fresh("faults")
    comes, arrives = source.at(name, source.rules), target.at(f"{name}_t", target.rules)
    script = kit.move(
        "Game", source.script(name, source.rules), target.script(arrives.collection, target.rules)
    )
    shop.script(f"move = {script}")
    count = min(GAMES[place.server or ""] for place in (source, target))
    games = [(str(n), game(n)) for n in range(count)]
    with shop.open() as project:
        kit.fill(project.stores.get(source.store).collection("Game", comes), games)
    # Seeds that bring each kind of fault early, for some places take few requests.
    faults = {source: Faults(63, unprocessed=0.5), target: Faults(120, unprocessed=0.5)}
    with shop.open() as project, ExitStack() as stack:
        for place in (source, target):
            hook(faults[place], project.stores.get(place.store), place.server)
            stack.enter_context(faults[place])
        logs = stack.enter_context(capture_logs())
        plan = commands.plan(project, "0001")
        applied = commands.apply(project, plan)
        stack.close()
        (verified,) = applied.verified
        assert verified.clean, verified.told
        assert (verified.equal, verified.quarantined) == (count, 0)
        kit.assert_as_planned(project, "0001")
    for place in (source, target):
        batches = place is target and place.server == "dynalite"
        wanted = {*Fault} - (set() if batches else {Fault.UNPROCESSED})
        for fault in wanted:
            assert faults[place].injected[fault], f"nothing was {fault} at {place}"
    repeated = [line for line in logs if line["event"] == "retry"]
    assert len(repeated) >= sum(each.to_repeat for each in faults.values())
    with shop.open() as project:
        collection = project.stores.get(target.store).collection("Game", arrives)
        kit.assert_equal(kit.contents(collection), kit.by_key(games))

"""A run under faults ends complete and verified: throttled, timed out, cut off, left undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from migrator import commands
from migrator.model.value import Int64, Record, Ref
from migrator.planning import planner, survey
from migrator.ports import ServerInfo, Store
from migrator.testing.faults import Fault, Faults
from tests.system import kit
from tests.system.kit import PLACES, Place, Shop

GAMES = 300
# On Cassandra a page that fails in one of several requests goes again whole, after longer waits.
FEWER = 30
EMBEDDED = next(place for place in PLACES if place.name == "embedded")
# Where a page takes a request for each of its blocks, all of them have to succeed at once.
PAGE = {"redis-hash": 10, "dynamodb-item": 2, "cassandra-partition": 1}


def game(number: int) -> Record:
    return {
        "id": str(number),
        "by": Ref("Player", "mary"),
        "score": Int64(number),
        "rounds": [{"moves": [f"q{i}", number], "spell": None} for i in range(number % 3)],
    }


def _redis(faults: Faults, store: Any) -> None:
    wire = store._wire
    wire.close()
    wire.servers = replace(wire.servers, connection=faults.redis(wire.servers.connection))


HOOKS: dict[str, Callable[[Faults, Any], None]] = {
    "redis": _redis,
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


def pairs() -> Iterator[tuple[Place, Place]]:
    for place in PLACES:
        if place.name in PAGE:
            yield EMBEDDED, place
            yield place, EMBEDDED


@pytest.mark.parametrize(("source", "target"), list(pairs()), ids=str)
def test_a_run_under_faults_ends_complete(
    source: Place, target: Place, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (planner, survey):
        monkeypatch.setattr(module, "PAGE", PAGE.get(source.name) or PAGE[target.name])
    name = kit.fresh("faults")
    arrives = target.at(f"{name}_t", kit.ROUNDS)
    script = kit.move("Game", source.script(name), target.script(arrives.collection, kit.ROUNDS))
    shop.script(f"move = {script}")
    count = FEWER if "cassandra" in (source.server, target.server) else GAMES
    games = [(str(n), game(n)) for n in range(count)]
    with shop.open() as project:
        kit.fill(project.stores.get(source.store).collection("Game", source.at(name)), games)
    faults = Faults(seed=4)
    with shop.open() as project:
        for place in (source, target):
            if place is not EMBEDDED:
                hook(faults, project.stores.get(place.store), place.server)
        with capture_logs() as logs, faults:
            plan = commands.plan(project, "0001")
            applied = commands.apply(project, plan)
        (verified,) = applied.verified
        assert verified.clean, verified.told
        assert (verified.equal, verified.quarantined) == (count, 0)
        kit.assert_as_planned(project, "0001")
    wanted = {*Fault} if target.server == "dynalite" else {*Fault} - {Fault.UNPROCESSED}
    for fault in wanted:
        assert faults.injected[fault], f"nothing was {fault}"
    repeated = [line for line in logs if line["event"] == "retry"]
    assert len(repeated) >= faults.to_repeat
    with shop.open() as project:
        collection = project.stores.get(target.store).collection("Game", arrives)
        kit.assert_equal(kit.contents(collection), kit.by_key(games))

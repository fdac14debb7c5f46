"""C16: a write whose end is unknown is made again as a whole state, by values of the client."""

from __future__ import annotations

import pytest

from migrator import cassandra_table
from migrator.model.block import Block, Patch
from migrator.model.move import At
from migrator.model.value import Record
from migrator.retry import Retry
from migrator.testing.faults import Fault, Faults
from tests.hard_cases.cassandra_bench import CassandraBench, cassandra_bench
from tests.system import kit

__all__ = ["cassandra_bench"]
KEYS = range(40)


def thing(key: int, *moves: str) -> Block:
    record: Record = {"id": key, "moves": list(moves), "first": moves[0]}
    return Block(key, {"": record})


def test_what_was_carried_out_is_not_appended_twice(
    cassandra_bench: CassandraBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.retry.LONGEST_WAIT_SECONDS", 0.01)
    name = kit.fresh("c16")
    at = At("wide", name, ["/Thing/*"], cassandra_table(
        key="id", columns={"id": "int", "moves": "list<text>", "first": "text"}
    ))  # fmt: skip
    faults, retry = Faults(seed=1, throttled=0, cut=0, lost=0.4), Retry()
    with cassandra_bench.shop().open() as project:
        collection = cassandra_bench.collection(project, at)
        collection.create()
        faults.on_cassandra(project.stores.get("wide").wire._session)
        with faults:
            retry(collection.write, [thing(key, "a", "b") for key in KEYS])
            retry(collection.write, [thing(key, "b", "c") for key in KEYS[:20]])
            change = {"moves": ["a", "d"]}
            retry(
                collection.patch,
                [Patch(key, {"": {"id": key, "first": "a", **change}}) for key in KEYS[20:]],
            )
    assert faults.injected[Fault.LOST] == retry.repeated > 20
    found = {row.id: row.moves for row in cassandra_bench.plain.execute(f"SELECT * FROM {name}")}
    assert found == {key: ["b", "c"] if key < 20 else ["a", "d"] for key in KEYS}

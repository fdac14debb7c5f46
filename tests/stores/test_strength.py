"""R7: reads are as strong as a store can, and writes as durable, whatever is usual there.

On one node all reads are alike, so that what is asked for is looked at, and not what comes of it.
MongoDB's and the replicas of Redis are in their stores' own tests.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from cassandra import ConsistencyLevel
from sqlalchemy.engine import make_url

from migrator import commands
from migrator.model.block import Block, Patch
from migrator.model.move import At, Layout
from migrator.ports import Collection, StoreSettings
from migrator.stores import cassandra, dynamodb, sql, sqlite
from migrator.testing.contract.harness import scan
from tests.contract import servers
from tests.engine.games import make_project

RULES = ["/Game/*/rounds[*]", "/Game/*"]
HELD = Block("1", {"": {"id": "1", "n": 1}, "rounds[0]": "a"})


def every_read(collection: Collection) -> None:
    """Read in each of the ways there are."""
    ranges = collection.split(2)
    assert len(list(scan(collection, ranges, 5))) == 1
    for range_ in ranges:
        collection.keys(range_, None, 5)
        collection.observer().page(range_, None, 5)
    collection.read(["1", "2"])
    collection.read_entries("1", ["rounds[0]"])
    collection.observer().read(["1", "2"])
    collection.sample(3)
    collection.count()


LAYOUTS: dict[str, dict[str, object]] = {
    "item": {"key": "id"},
    "item-collection": {"pk": "GAME#{id}", "entries": {"rounds[*]": "ROUND#{index:05}"}},
    "item-split": {"key": "id", "most": 700},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_reads_of_dynamodb_are_consistent(layout: str) -> None:
    store: Any = dynamodb.open_store(StoreSettings("docs", servers.dynamodb()))
    name = f"{servers.namespace()}strength_{layout.replace('-', '_')}"
    collection = store.collection("Game", At("docs", name, RULES, Layout(layout, LAYOUTS[layout])))
    asked: list[tuple[str, bool]] = []

    def note(request: Any, **_: object) -> None:
        # What botocore was told is not what is sent: the body is the store's own.
        target = request.headers["X-Amz-Target"]
        name = (target.decode() if isinstance(target, bytes) else target).partition(".")[2]
        body = json.loads(request.body)
        if name in ("GetItem", "Query", "Scan"):
            asked.append((name, body.get("ConsistentRead", False)))
        elif name == "BatchGetItem":
            for keys in body["RequestItems"].values():
                asked.append((name, keys.get("ConsistentRead", False)))

    with closing(store):
        collection.create()
        store._wire.client.meta.events.register("before-send.dynamodb", note)
        collection.write([HELD])
        every_read(collection)
        assert collection.exchange("1", HELD, Patch("1", {"": {"id": "1", "n": 2}}))
        collection.drop()
    assert {name for name, _ in asked} >= {"Scan"}
    assert len(asked) > 8
    assert [name for name, consistent in asked if not consistent] == []


@contextmanager
def levels(store: Any) -> Iterator[set[str]]:
    """The consistencies that requests to Cassandra ask for within."""
    found: set[str] = set()

    def note(future: Any) -> None:
        found.add(ConsistencyLevel.value_to_name[future.message.consistency_level])

    session = store.wire._session
    session.add_request_init_listener(note)
    yield found
    session.remove_request_init_listener(note)


def test_cassandra_is_read_and_written_at_a_quorum_and_settled_at_all() -> None:
    store: Any = cassandra.open_store(StoreSettings("wide", servers.cassandra()))
    at = At("wide", f"{servers.namespace()}strength", RULES, Layout("partition"))
    with closing(store):
        collection = store.collection("Game", at)
        collection.create()
        with levels(store) as plain:
            collection.write([HELD])
            every_read(collection)
        with levels(store) as changed:
            assert collection.exchange("1", HELD, Patch("1", {"": {"id": "1", "n": 2}}))
        with levels(store) as settled:
            collection.journal("run").settle("1")
        collection.drop()
    assert plain == {"LOCAL_QUORUM"}
    assert changed <= {"LOCAL_QUORUM", "SERIAL"}
    # The end of a transaction that nobody knows of, and what few replicas hold.
    assert settled >= {"SERIAL", "ALL"}


def test_postgresql_commits_to_the_disk_also_where_its_database_need_not() -> None:
    url = servers.database("postgresql")
    with psycopg.connect(url, autocommit=True) as admin:
        do: Callable[..., object] = admin.execute
        name = make_url(url).database
        do(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        try:
            store: Any = sql.open_store(StoreSettings("store", url))
            with closing(store), store.database.writing("here") as session:
                found = session.exec_driver_sql("SHOW synchronous_commit").scalar()
        finally:
            do(f'ALTER DATABASE "{name}" RESET synchronous_commit')
    assert found == "on"


def test_files_of_sqlite_are_written_to_the_disk(tmp_path: Path) -> None:
    full = 2
    store: Any = sqlite.open_store(StoreSettings("a", "embedded:///a.db", root=str(tmp_path)))
    with closing(store), store._connection() as embedded:
        assert cast("sqlite3.Connection", embedded).execute("PRAGMA synchronous").fetchone() == (
            full,
        )
    sqlite3.connect(tmp_path / "b.db").close()
    store = sql.open_store(StoreSettings("b", "sqlite:///b.db", root=str(tmp_path)))
    with closing(store), store.database.writing("here") as session:
        assert session.exec_driver_sql("PRAGMA synchronous").scalar() == full
    with (
        commands.Project(make_project(tmp_path), "test") as project,
        project.control.transaction() as control,
    ):
        assert control.exec_driver_sql("PRAGMA synchronous").scalar() == full

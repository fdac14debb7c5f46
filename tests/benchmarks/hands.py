"""What an application does by hand on SQLite and DynamoDB, for ``tests.benchmarks.gateway``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from boto3.dynamodb.types import TypeDeserializer

from migrator.model.value import Record
from tests.contract.feeds_dynamodb import client
from tests.system.test_live_dynamodb import Items
from tests.system.test_live_feeds import on_sqlite

TABLE = "game"
SPELLS = ["spell"] * 6


@dataclass
class Hand:
    """What an application has without a gateway."""

    get: Callable[[str], object]
    put: Callable[[str, int], object]


@contextmanager
def of_sqlite(file: Path, games: int) -> Iterator[Hand]:
    """As durable as the store writes: a log ahead, and each commit on the disk."""
    tables = on_sqlite(file, TABLE)
    tables.do("PRAGMA journal_mode = WAL")
    tables.do("PRAGMA synchronous = FULL")
    tables.make()
    for number in range(games):
        tables.put(f"game-{number}", number, SPELLS)
    writer: sqlite3.Connection = tables.session
    reader = sqlite3.connect(file, isolation_level=None)

    def get(key: str) -> Record | None:
        reader.execute("BEGIN")
        row = reader.execute(f"SELECT id, n FROM {TABLE} WHERE id = ?", (key,)).fetchone()
        rounds = reader.execute(
            f"SELECT pos, spell FROM {TABLE}_round WHERE game = ? ORDER BY pos", (key,)
        ).fetchall()
        reader.execute("COMMIT")
        if row is None:
            return None
        return {
            "id": row[0], "n": row[1],
            "rounds": [{"pos": place, "spell": spell} for place, spell in rounds],
        }  # fmt: skip

    def put(key: str, number: int) -> None:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(
            f"INSERT INTO {TABLE} (id, n) VALUES (?, ?) "
            "ON CONFLICT (id) DO UPDATE SET n = excluded.n", (key, number),
        )  # fmt: skip
        writer.execute(f"DELETE FROM {TABLE}_round WHERE game = ?", (key,))
        rows = [(key, place, spell) for place, spell in enumerate(SPELLS)]
        writer.executemany(f"INSERT INTO {TABLE}_round VALUES (?, ?, ?)", rows)
        writer.execute("COMMIT")

    yield Hand(get, put)
    reader.close()
    writer.close()


@contextmanager
def of_dynamodb(name: str, games: int) -> Iterator[Hand]:
    """One consistent read of the item, and one put of it."""
    items, plain, made = Items(name), TypeDeserializer(), client()
    made.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for number in range(games):
        items.put(f"game-{number}", number, SPELLS)

    def get(key: str) -> object:
        found = made.get_item(TableName=name, Key={"id": {"S": key}}, ConsistentRead=True)
        return {word: plain.deserialize(held) for word, held in found.get("Item", {}).items()}

    try:
        yield Hand(get, lambda key, number: items.put(key, number, SPELLS))
    finally:
        made.delete_table(TableName=name)
        made.close()
        items.close()

"""What a gateway costs an application: ``python -m tests.benchmarks.gateway --help``.

Reads and writes of one game by the gateway and by the plain driver in turn, on the same server at
the same time, while a real mirror follows. By hand is what an application would write with the
driver and no needless request: a read of tables in one snapshot, a write in one transaction with
its rows in one batch, on Cassandra two reads and a lightweight transaction between two halves of a
bracket. The figures are of single calls, one after another.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from cassandra import ConsistencyLevel
from psycopg import IsolationLevel

from migrator import commands
from migrator.commands import frozen_plan
from migrator.gateway import Behind, Gateway
from migrator.model.block import Aggregate, cut, join
from migrator.model.phase import Phase
from migrator.model.value import Record
from tests.benchmarks import clients, machine
from tests.benchmarks.hands import SPELLS, TABLE, Hand, of_dynamodb, of_sqlite
from tests.benchmarks.pairs import databases
from tests.benchmarks.sides import Side
from tests.contract import servers as contract
from tests.contract.own_redis import Own
from tests.system import servers
from tests.system.application import Documents, Tables, mirroring
from tests.system.kit import ENV, Shop
from tests.system.servers import connect_postgresql
from tests.system.test_live_feeds import on_mariadb
from tests.system.test_live_redis import Keys, keys_at


def game(key: str, number: int) -> Record:
    rounds = [{"pos": place, "spell": spell} for place, spell in enumerate(SPELLS)]
    return {"id": key, "n": number, "rounds": rounds}


@dataclass
class Times:
    """Seconds of single calls, by who made them."""

    by_hand: list[float] = field(default_factory=list)
    store: list[float] = field(default_factory=list)
    gateway: list[float] = field(default_factory=list)

    def line(self, what: str) -> str:
        told = []
        for name, of in (("median", statistics.median), ("best", min)):
            hand, store, gateway = (of(x) * 1e6 for x in (self.by_hand, self.store, self.gateway))
            told.append(
                f"{name}: by hand {hand:,.0f} us, store {store:,.0f}, gateway {gateway:,.0f}: "
                f"{gateway / hand:.2f} of by hand, {gateway / store:.2f} of the store"
            )
        return f"   {what}  {told[0]}\n   {' ' * len(what)}  {told[1]}"


Call = Callable[[int], object]


def in_turn(by_hand: Call, store: Call, gateway: Call, calls: int) -> Times:
    """Each call by hand, by the store that the gateway has, and by the gateway, in turn."""
    times = Times()
    sides = [(by_hand, times.by_hand), (store, times.store), (gateway, times.gateway)]
    before = calls // 10  # what comes first opens connections
    for number in range(calls + before):
        for do, took in sides:
            began = time.perf_counter()
            do(number)
            seconds = time.perf_counter() - began
            if number >= before:
                took.append(seconds)
        sides = [*sides[1:], sides[0]]
    return times


def settled(gateway: Gateway) -> None:
    """Wait until the mirror holds what is written."""
    until = time.monotonic() + 60
    while True:
        try:
            gateway.put("settled", game("settled", 0), wait=True)
            return
        except Behind:
            if time.monotonic() > until:
                raise


def measure(name: str, shop: Shop, hand: Hand, calls: int, games: int) -> None:
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        accept = commands.Terms(accept=[finding.code for finding in plan.findings])
        commands.apply(project, plan, until=Phase.SHADOW_READ, terms=accept)
    with (
        mirroring(shop),
        shop.open() as project,
        Gateway.open("Game", shop.config, ENV) as gateway,
    ):
        (route,) = project.routes("0001", frozen_plan(project.control.run("0001")))
        rules = route.source.at.rules("Game")
        settled(gateway)
        print(name, flush=True)

        def key(number: int) -> str:
            return f"game-{number % games}"

        reads = in_turn(
            lambda n: hand.get(key(n)),
            lambda n: [join(block) for block in route.source.read([key(n)]) if block],
            lambda n: gateway.get(key(n)),
            calls,
        )
        print(reads.line("read"), flush=True)

        def put(n: int) -> None:
            block = cut(Aggregate(key(n), game(key(n), 3 * n + 1)), rules)
            route.source.write([block])

        writes = in_turn(
            lambda n: hand.put(key(n), 3 * n),
            put,
            lambda n: gateway.put(key(n), game(key(n), 3 * n + 2)),
            calls,
        )
        print(writes.line("write"), flush=True)
    with shop.open() as project:
        commands.abort(project, "0001", drop_target=True)


# ---------------------------------------------------------------------- by hand


@contextmanager
def of_tables(url: str, games: int) -> Iterator[Hand]:
    tables = Tables(url, TABLE)
    tables.make()
    session = tables.session
    with session.transaction():
        for number in range(games):
            tables.put(f"game-{number}", number, SPELLS)
    reader = connect_postgresql(url)
    reader.isolation_level, reader.read_only = IsolationLevel.REPEATABLE_READ, True

    def get(key: str) -> Record | None:
        with reader.transaction():
            row = reader.execute(f"SELECT id, n FROM {TABLE} WHERE id = %s", (key,)).fetchone()
            rounds = reader.execute(
                f"SELECT pos, spell FROM {TABLE}_round WHERE game = %s ORDER BY pos", (key,)
            ).fetchall()
        if row is None:
            return None
        return {
            "id": row[0], "n": row[1],
            "rounds": [{"pos": place, "spell": spell} for place, spell in rounds],
        }  # fmt: skip

    def put(key: str, number: int) -> None:
        with session.transaction(), session.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {TABLE} (id, n) VALUES (%s, %s) "
                "ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n", (key, number),
            )  # fmt: skip
            cursor.execute(f"DELETE FROM {TABLE}_round WHERE game = %s", (key,))
            rows = [(key, place, spell) for place, spell in enumerate(SPELLS)]
            cursor.executemany(f"INSERT INTO {TABLE}_round VALUES (%s, %s, %s)", rows)

    yield Hand(get, put)
    reader.close()
    tables.close()


@contextmanager
def of_mariadb(url: str, games: int) -> Iterator[Hand]:
    tables = on_mariadb(url, TABLE)
    tables.make()
    for number in range(games):
        tables.put(f"game-{number}", number, SPELLS)
    reader, writer = servers.connect_mariadb(url), tables.session

    def get(key: str) -> Record | None:
        with reader.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            cursor.execute(f"SELECT id, n FROM {TABLE} WHERE id = %s", (key,))
            row = cursor.fetchone()
            cursor.execute(
                f"SELECT pos, spell FROM {TABLE}_round WHERE game = %s ORDER BY pos", (key,)
            )
            rounds = cursor.fetchall()
            cursor.execute("COMMIT")
        if row is None:
            return None
        return {
            "id": row[0], "n": row[1],
            "rounds": [{"pos": place, "spell": spell} for place, spell in rounds],
        }  # fmt: skip

    def put(key: str, number: int) -> None:
        with writer.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(
                f"INSERT INTO {TABLE} (id, n) VALUES (%s, %s) "
                "ON DUPLICATE KEY UPDATE n = VALUES(n)", (key, number),
            )  # fmt: skip
            cursor.execute(f"DELETE FROM {TABLE}_round WHERE game = %s", (key,))
            rows = [(key, place, spell) for place, spell in enumerate(SPELLS)]
            cursor.executemany(f"INSERT INTO {TABLE}_round VALUES (%s, %s, %s)", rows)
            cursor.execute("COMMIT")

    yield Hand(get, put)
    reader.close()
    tables.close()


@contextmanager
def of_redis(own: Own, games: int) -> Iterator[Hand]:
    keys = Keys(own, TABLE)
    client = keys.client
    for number in range(games):
        keys.put(f"game-{number}", number, SPELLS)

    def get(key: str) -> Record:
        with client.pipeline(transaction=True) as step:
            step.hgetall(f"{TABLE}:{key}")
            step.lrange(f"{TABLE}:{key}:rounds", 0, -1)
            fields, rounds = step.execute()
        value: Record = {name.decode(): json.loads(text) for name, text in fields.items()}
        return {**value, "rounds": [json.loads(each) for each in rounds]}

    yield Hand(get, lambda key, number: keys.put(key, number, SPELLS))
    keys.client.close()


@contextmanager
def of_documents(url: str, games: int) -> Iterator[Hand]:
    documents = Documents(url, TABLE)
    for number in range(games):
        documents.put(f"game-{number}", number, SPELLS)
    yield Hand(
        lambda key: documents.games.find_one({"_id": key}),
        lambda key, number: documents.put(key, number, SPELLS),
    )
    documents.close()


@contextmanager
def of_cassandra(games: int) -> Iterator[Hand]:
    """The same five requests: a row beside the data, what lies there, twice, the data by a
    lightweight transaction, the row once more."""
    session: Any = clients.connect_cassandra()
    session.set_keyspace(clients.KEYSPACE)
    session.execute(
        'CREATE TABLE by_hand (block text PRIMARY KEY, "entries" map<text, text>, version bigint)'
    )
    session.execute(
        "CREATE TABLE by_hand_bracket (bucket bigint, id blob, key text, state text, "
        "deleted boolean, PRIMARY KEY (bucket, id))"
    )

    def prepared(text: str) -> Any:
        made = session.prepare(text)
        made.consistency_level = ConsistencyLevel.LOCAL_QUORUM
        return made

    insert = prepared('INSERT INTO by_hand (block, "entries") VALUES (?, ?)')
    select = prepared('SELECT block, "entries" FROM by_hand WHERE block = ?')
    versioned = prepared('SELECT block, "entries", version FROM by_hand WHERE block = ?')
    change = prepared(
        'UPDATE by_hand SET version = ?, "entries" = "entries" + ? WHERE block = ? IF version = ?'
    )
    opens = prepared(
        "INSERT INTO by_hand_bracket (bucket, id, key, state, deleted) VALUES (?, ?, ?, 'o', false)"
    )
    closes = prepared("UPDATE by_hand_bracket SET state = 'c' WHERE bucket = ? AND id = ?")

    def cells(key: str, number: int) -> dict[str, str]:
        return {name: json.dumps(item) for name, item in game(key, number).items()}

    def put(key: str, number: int) -> None:
        now = time.time_ns()
        bucket, id = now // 10**9, now.to_bytes(16)
        session.execute(opens, (bucket, id, key))
        get(key)
        _, _, version = session.execute(versioned, (key,)).one()
        session.execute(change, ((version or 0) + 1, cells(key, number), key, version))
        session.execute(closes, (bucket, id))

    def get(key: str) -> object:
        row = session.execute(select, (key,)).one()
        return row and {name: json.loads(text) for name, text in row[1].items()}

    for number in range(games):
        session.execute(insert, (f"game-{number}", cells(f"game-{number}", number)))
    yield Hand(get, put)
    session.cluster.shutdown()


# ---------------------------------------------------------------------- the pairs


def from_postgresql(root: Path, calls: int, games: int) -> None:
    with databases("postgresql", "mongodb") as (sql, docs), of_tables(sql, games) as hand:
        shop = Shop(root, {"sql": sql, "docs": docs})
        shop.script(
            f"move = Move('Game', target=At('docs', '{TABLE}'), source=At('sql', tables('{TABLE}', "
            f"rounds=tables('{TABLE}_round', order_by='pos'))))"
        )
        measure("PostgreSQL (tables) to MongoDB", shop, hand, calls, games)


def from_mariadb(root: Path, calls: int, games: int) -> None:
    with databases("mariadb") as (sql,), of_mariadb(sql, games) as hand:
        shop = Shop(root, {"sql": sql, "file": "embedded:///new.db"})
        shop.script(
            f"move = Move('Game', target=At('file', 'games'), source=At('sql', tables('{TABLE}', "
            f"rounds=tables('{TABLE}_round', order_by='pos'))))"
        )
        measure("MariaDB (tables) to embedded", shop, hand, calls, games)


def from_redis(root: Path, calls: int, games: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = Own(folder, "--appendonly", "yes")
        try:
            with of_redis(own, games) as hand:
                shop = Shop(root, {"cache": own.url, "file": "embedded:///new.db"})
                shop.script(
                    f"move = Move('Game', source={keys_at(TABLE)}, target=At('file', 'games'))"
                )
                measure("Redis (hash and list) to embedded", shop, hand, calls, games)
        finally:
            own.stop()


def from_mongodb(root: Path, calls: int, games: int) -> None:
    with databases("mongodb") as (docs,), of_documents(docs, games) as hand:
        shop = Shop(root, {"docs": docs, "file": "embedded:///new.db"})
        shop.script(
            f"move = Move('Game', target=At('file', 'games'), source=At('docs', '{TABLE}', "
            "representation=['/Game/*']))"
        )
        measure("MongoDB (document) to embedded", shop, hand, calls, games)


def from_cassandra(root: Path, calls: int, games: int) -> None:
    with clients.keyspace() as url, of_cassandra(games) as hand:
        shop = Shop(root, {"rows": url, "file": "embedded:///new.db"})
        shop.script(
            "move = Move('Game', target=At('file', 'games'), source=At('rows', 'games', "
            "representation=['/Game/*/*'], layout='row'))"
        )
        with shop.open() as project:
            (route,) = project.routes("0001")
            route.source.create()
        with Gateway.open("Game", shop.config, ENV) as gateway:
            for number in range(games):
                gateway.put(f"game-{number}", game(f"game-{number}", number))
        measure("Cassandra (row, brackets) to embedded", shop, hand, calls, games)


def from_sqlite(root: Path, calls: int, games: int) -> None:
    with of_sqlite(root / "sql.db", games) as hand:
        shop = Shop(root, {"sql": "sqlite:///sql.db", "file": "embedded:///new.db"})
        shop.script(
            f"move = Move('Game', target=At('file', 'games'), source=At('sql', tables('{TABLE}', "
            f"rounds=tables('{TABLE}_round', order_by='pos'))))"
        )
        measure("SQLite (tables, outbox) to embedded", shop, hand, calls, games)


def from_dynamodb(root: Path, calls: int, games: int) -> None:
    name = contract.namespace() + TABLE
    with of_dynamodb(name, games) as hand:
        shop = Shop(root, {"items": contract.dynamodb(), "file": "embedded:///new.db"})
        shop.script(
            "move = Move('Game', target=At('file', 'games'), "
            f"source=At('items', '{name}', ['/Game/*/*'], item('id')))"
        )
        measure("DynamoDB (item, moto) to embedded", shop, hand, calls, games)


PAIRS = {
    "postgresql": from_postgresql,
    "mariadb": from_mariadb,
    "sqlite": from_sqlite,
    "mongodb": from_mongodb,
    "dynamodb": from_dynamodb,
    "redis": from_redis,
    "cassandra": from_cassandra,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pair", choices=PAIRS, action="append")
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--games", type=int, default=500)
    chosen = parser.parse_args()
    sides = {Side("postgresql", "tables"), Side("mongodb", "document"), Side("cassandra", "row")}
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for name, text in machine.describe(sides).items():
        print(f"{name}: {text}")
    for pair in chosen.pair or PAIRS:
        with tempfile.TemporaryDirectory() as root:
            PAIRS[pair](Path(root), chosen.calls, chosen.games)


if __name__ == "__main__":
    main()

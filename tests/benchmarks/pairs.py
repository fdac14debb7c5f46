"""The moves that ``tests.benchmarks.live`` measures: one for each feed, with its application.

A pair has what is needed of both sides: how games are written by the plain driver, or on Cassandra
by the gateway, which is what leaves a journal there; and how to see that a game has arrived.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from migrator.commands import SwapTerms
from migrator.gateway import Gateway, Terms
from tests.benchmarks import clients
from tests.benchmarks.sides import Side as Store
from tests.benchmarks.targets import NAME, TABLE, Target, at_tables, databases, game, row, texts
from tests.contract import servers as contract
from tests.contract.own_redis import Own
from tests.gateway.kit import opened
from tests.system.application import Documents, Held, Rounds, Side, Tables
from tests.system.kit import ENV, Shop
from tests.system.servers import connect_postgresql
from tests.system.test_live_dynamodb import Items
from tests.system.test_live_feeds import SqlTables, on_mariadb, on_sqlite
from tests.system.test_live_redis import Keys, keys_at

# Short leases: before each swap all are waited for.
_TERMS = Terms(lease=2.0, bound=60.0, request_life=5.0)


def _none(writes: int) -> dict[str, float] | None:
    """The drivers' own requests for such a burst were not written for this pair."""
    return None


@dataclass
class Pair:
    """A move and its application. ``number`` is that of a game at the target, None for no game;
    ``many`` writes so many games ``burst-N``; ``by_hand`` gives the seconds that the drivers' own
    requests take to carry them over, by what they are for."""

    shop: Shop
    stores: set[Store]
    source: Callable[[], Side]
    target: Callable[[], Side]
    number: Callable[[str], int | None]
    many: Callable[[int], None]
    by_hand: Callable[[int], dict[str, float] | None] = _none
    words: tuple[str, ...] = ("put", "append", "append", "delete")
    swap: SwapTerms = field(default_factory=SwapTerms)


def games(source: str, target: str) -> str:
    return f"move = Move('Game', source={source}, target={target})"


_TABLES = at_tables(TABLE)


# ---------------------------------------------------------------------- PostgreSQL


@contextmanager
def postgresql(root: Path, target: Target) -> Iterator[Pair]:
    """Logical decoding."""
    with databases("postgresql") as (sql,):
        tables = Tables(sql, TABLE)
        tables.make()
        yield _from_postgresql(root, sql, sql, target, tables)
        tables.close()


@contextmanager
def outbox(root: Path, target: Target) -> Iterator[Pair]:
    """A trigger outbox, by a role without the right to replicate."""
    role = NAME + "_plain"
    with databases("postgresql") as (sql,):
        url = make_url(sql)
        admin = connect_postgresql(sql)
        admin.execute(f"DROP ROLE IF EXISTS {role}")
        password = secrets.token_hex(8)
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
        admin.execute(f"ALTER DATABASE {NAME} OWNER TO {role}")
        plain = url.set(username=role, password=password).render_as_string(hide_password=False)
        admin.execute(f"GRANT ALL ON SCHEMA public TO {role}")
        tables = Tables(plain, TABLE)
        tables.make()
        # The application is another role, which the fence is to stop.
        admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {url.username}")
        yield _from_postgresql(root, plain, sql, target, Tables(sql, TABLE))
        tables.close()
        admin.execute(f"REASSIGN OWNED BY {role} TO {url.username}")
        admin.execute(f"DROP OWNED BY {role}")
        admin.execute(f"DROP ROLE {role}")
        admin.close()


def _from_postgresql(root: Path, ours: str, sql: str, target: Target, tables: Tables) -> Pair:
    shop = Shop(root, {"sql": ours, target.name: target.url})
    shop.script(games(_TABLES, target.at))

    def many(writes: int) -> None:
        statement = f"INSERT INTO {TABLE} SELECT 'burst-' || i, i FROM generate_series(1, %s) AS i"
        tables.session.execute(statement, (writes,))

    def select(keys: list[str]) -> dict[str, int]:
        do = tables.session.execute
        found = do(f"SELECT id, n FROM {TABLE} WHERE id = ANY(%s)", (keys,)).fetchall()
        do(f"SELECT * FROM {TABLE}_round WHERE game = ANY(%s)", (keys,)).fetchall()
        return dict(found)

    return Pair(
        shop,
        {Store("postgresql", "tables"), target.store},
        lambda: Tables(sql, TABLE),
        target.side,
        target.number,
        many,
        lambda writes: target.by_hand(writes, select),
    )


# ---------------------------------------------------------------------- MariaDB, SQLite


def _from_tables(root: Path, url: str, target: Target, made: Callable[[], SqlTables]) -> Pair:
    tables = made()
    tables.make()
    shop = Shop(root, {"sql": url, target.name: target.url})
    shop.script(games(_TABLES, target.at))
    mark, at_once = tables.mark, 1_000

    def many(writes: int) -> None:
        tables.do("BEGIN")
        for start in range(1, writes + 1, at_once):
            rows = [(f"burst-{i}", i) for i in range(start, min(start + at_once, writes + 1))]
            text = ", ".join([f"({mark}, {mark})"] * len(rows))
            values = [value for row in rows for value in row]
            tables.do(f"INSERT INTO {TABLE} (id, n) VALUES {text}", *values)
        tables.do("COMMIT")

    def select(keys: list[str]) -> dict[str, int]:
        among = ", ".join([mark] * len(keys))
        found = tables.do(f"SELECT id, n FROM {TABLE} WHERE id IN ({among})", *keys)
        tables.do(f"SELECT * FROM {TABLE}_round WHERE game IN ({among})", *keys)
        return dict(found)

    return Pair(
        shop,
        {target.store},
        made,
        target.side,
        target.number,
        many,
        lambda writes: target.by_hand(writes, select),
    )


@contextmanager
def mariadb(root: Path, target: Target) -> Iterator[Pair]:
    """The binary log of MariaDB."""
    with databases("mariadb") as (sql,):
        yield _from_tables(root, sql, target, lambda: on_mariadb(sql, TABLE))


@contextmanager
def sqlite(root: Path, target: Target) -> Iterator[Pair]:
    """The outbox of a SQLite file."""
    yield _from_tables(root, "sqlite:///sql.db", target, lambda: on_sqlite(root / "sql.db", TABLE))


# ---------------------------------------------------------------------- MongoDB


@contextmanager
def mongodb(root: Path) -> Iterator[Pair]:
    """A change stream, to tables of PostgreSQL."""
    with databases("mongodb", "postgresql") as (docs, sql):
        documents, tables = Documents(docs, TABLE), Tables(sql, TABLE)
        tables.make()
        shop = Shop(root, {"docs": docs, "sql": sql})
        shop.script(games(f"At('docs', '{TABLE}', ['/Game/*'])", _TABLES))

        def many(writes: int) -> None:
            told = [
                {"_id": f"burst-{i}", **game(f"burst-{i}", i, [])} for i in range(1, writes + 1)
            ]
            documents.games.insert_many(told, ordered=False)

        yield Pair(
            shop,
            {Store("mongodb", "document"), Store("postgresql", "tables")},
            lambda: Documents(docs, TABLE),
            lambda: Tables(sql, TABLE),
            row(tables),
            many,
            lambda writes: _to_tables(documents, tables, writes),
        )
        tables.close()
        documents.close()


def _to_tables(documents: Documents, tables: Tables, writes: int) -> dict[str, float]:
    """What the keys hold, whether the target has them, and all of them in one transaction."""
    took = {"read": 0.0, "look": 0.0, "write": 0.0}
    session = tables.session
    session.execute("CREATE TABLE by_hand (id text PRIMARY KEY, n int NOT NULL)")
    for start in range(0, writes, 500):
        keys = [f"burst-{i}" for i in range(start + 1, start + 501)]
        began = time.perf_counter()
        found = []
        for i in range(0, len(keys), 100):
            found += list(documents.games.find({"_id": {"$in": keys[i : i + 100]}}))
        read = time.perf_counter()
        session.execute("SELECT id, n FROM by_hand WHERE id = ANY(%s)", (keys,)).fetchall()
        session.execute(f"SELECT * FROM {TABLE}_round WHERE game = ANY(%s)", (keys,)).fetchall()
        looked = time.perf_counter()
        with session.transaction(), session.cursor() as cursor:
            rows = [(each["_id"], each["n"]) for each in found]
            cursor.executemany("INSERT INTO by_hand VALUES (%s, %s)", rows)
        ends = time.perf_counter()
        for word, seconds in zip(took, (read - began, looked - read, ends - looked), strict=True):
            took[word] += seconds
    session.execute("DROP TABLE by_hand")
    return took


# ---------------------------------------------------------------------- Redis


@contextmanager
def from_redis(root: Path, feed: str = "replication") -> Iterator[Pair]:
    """The replication stream, or what servers tell of written keys; from a hash and a list to a
    string on another server."""
    # A server of its own, whose stream nobody else fills.
    with tempfile.TemporaryDirectory() as folder, texts() as target:
        old = Own(folder, "--appendonly", "yes")
        keys = Keys(old, TABLE)
        shop = Shop(root, {"cache": old.url, target.name: target.url})
        with shop.config.open("a") as settings:
            settings.write(f'[env.{ENV}.stores.cache.options]\nfeed = "{feed}"\n')
        shop.script(games(keys_at(TABLE), target.at))

        def many(writes: int) -> None:
            with keys.client.pipeline(transaction=False) as all_:
                for i in range(1, writes + 1):
                    told = {"id": json.dumps(f"burst-{i}"), "n": i}
                    all_.hset(f"{TABLE}:burst-{i}", mapping=told)  # type: ignore[arg-type]
                all_.execute()

        try:
            yield Pair(
                shop,
                {Store("redis", "native"), target.store},
                lambda: Keys(old, TABLE),
                target.side,
                target.number,
                many,
            )
        finally:
            old.stop()


# ---------------------------------------------------------------------- DynamoDB


@contextmanager
def dynamodb(root: Path) -> Iterator[Pair]:
    """The stream of a table of moto, to tables of PostgreSQL."""
    with databases("postgresql") as (sql,):
        name = contract.namespace() + TABLE
        items, tables = Items(name), Tables(sql, TABLE)
        tables.make()
        items.client.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        shop = Shop(root, {"items": contract.dynamodb(), "sql": sql})
        shop.script(games(f"At('items', '{name}', ['/Game/*/*'], item('id'))", _TABLES))

        def many(writes: int) -> None:
            for start in range(1, writes + 1, 25):
                put = [
                    {"PutRequest": {"Item": {
                        "id": {"S": f"burst-{i}"}, "n": {"N": str(i)}, "rounds": {"L": []},
                    }}}
                    for i in range(start, min(start + 25, writes + 1))
                ]  # fmt: skip
                items.client.batch_write_item(RequestItems={name: put})

        try:
            yield Pair(
                shop,
                {Store("postgresql", "tables")},
                lambda: Items(name),
                lambda: Tables(sql, TABLE),
                row(tables),
                many,
                swap=SwapTerms(bound=60, lag=20),
            )
        finally:
            with suppress(Exception):
                items.client.delete_table(TableName=name)
            tables.close()


# ---------------------------------------------------------------------- Cassandra


class _Gated:
    """Games by the gateway, which follows the primary by itself."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        self.gateway.put(key, game(key, number, rounds))

    def append(self, key: str, place: int, spell: str) -> None:
        self.gateway.append(key, "rounds", {"pos": place, "spell": spell})

    def delete(self, key: str) -> None:
        self.gateway.delete(key)

    def held(self) -> dict[str, Held]:
        return {}  # what is there is looked at by tests

    def close(self) -> None:
        """The gateway is shared."""


@contextmanager
def cassandra(root: Path) -> Iterator[Pair]:
    """The journal of the gateway on Cassandra, to tables of PostgreSQL."""
    with databases("postgresql") as (sql,), clients.keyspace() as url:
        tables = Tables(sql, TABLE)
        tables.make()
        shop = Shop(root, {"rows": url, "sql": sql})
        source = f"At('rows', '{TABLE}', representation=['/Game/*/*'], layout='row')"
        shop.script(games(source, _TABLES))
        with shop.open() as project:
            (route,) = project.routes("0001")
            route.source.create()
        gateway = opened(shop.config, _TERMS)

        def many(writes: int) -> None:
            with ThreadPoolExecutor(4) as pool:
                for _ in pool.map(
                    lambda i: gateway.put(f"burst-{i}", game(f"burst-{i}", i, [])),
                    range(1, writes + 1),
                ):
                    pass

        def side() -> Side:
            return _Gated(gateway)

        try:
            yield Pair(
                shop,
                {Store("cassandra", "row"), Store("postgresql", "tables")},
                side,
                side,
                row(tables),
                many,
                swap=SwapTerms(gateways=True),
            )
        finally:
            gateway.close()
            tables.close()


PAIRS: dict[str, Callable[[Path], Any]] = {
    "mongodb": mongodb,
    "redis": from_redis,
    "tracking": partial(from_redis, feed="tracking"),
    "cassandra": cassandra,
    "dynamodb": dynamodb,
}
# These go to whatever target is chosen.
ANYWHERE: dict[str, Callable[[Path, Target], Any]] = {
    "postgresql": postgresql,
    "outbox": outbox,
    "mariadb": mariadb,
    "sqlite": sqlite,
}
__all__ = ["ANYWHERE", "PAIRS", "Pair", "databases"]

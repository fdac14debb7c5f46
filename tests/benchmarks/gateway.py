"""What a gateway costs an application: ``python -m tests.benchmarks.gateway --help``.

Reads and writes of one game by the gateway and by the plain driver in turn, on the same server at
the same time, while a real mirror follows. By hand is what an application would write with the
driver and no needless request, for the same result (``hands``, ``hands_sql``, ``hands_nosql``);
bare is a change alone, which tells nothing of what is there; its requests are what the gateway
sends, by the driver alone, where that is not what is done by hand. The figures are of single calls,
one after another.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from migrator import commands
from migrator.commands import frozen_plan
from migrator.exchange import Amending, Exchanging
from migrator.gateway import Behind, Gateway, changes
from migrator.model.block import Aggregate, cut, join
from migrator.model.phase import Phase
from migrator.model.value import Record
from migrator.ports import Collection
from tests.benchmarks import clients, machine
from tests.benchmarks.hands import TABLE, Hand, game, round_
from tests.benchmarks.hands_nosql import of_cassandra, of_documents, of_dynamodb, of_redis
from tests.benchmarks.hands_sql import of_mariadb, of_sqlite, of_tables
from tests.benchmarks.pairs import databases
from tests.benchmarks.sides import Side
from tests.contract import servers as contract
from tests.contract.own_redis import Own
from tests.system.application import mirroring
from tests.system.kit import ENV, Shop
from tests.system.test_live_redis import keys_at


@dataclass
class Times:
    """Seconds of single calls, by who made them."""

    by_hand: list[float] = field(default_factory=list)
    store: list[float] = field(default_factory=list)
    gateway: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)

    def line(self, what: str) -> str:
        told = []
        for name, of in (("median", statistics.median), ("best", min)):
            hand, store, gateway = (of(x) * 1e6 for x in (self.by_hand, self.store, self.gateway))
            line = (
                f"{name}: by hand {hand:,.0f} us, store {store:,.0f}, gateway {gateway:,.0f}: "
                f"{gateway / hand:.2f} of by hand, {gateway / store:.2f} of the store"
            )
            for other, took in (("bare by hand", self.bare), ("its requests", self.requests)):
                if took:
                    alone = of(took) * 1e6
                    line += f"; {other} {alone:,.0f}: {gateway / alone:.2f}"
            told.append(line)
        return f"   {what}  {told[0]}\n   {' ' * len(what)}  {told[1]}"


Call = Callable[[int], object]
_SIDES = 5  # by hand, the store, the gateway, bare by hand, its requests


def in_turn(
    by_hand: Call,
    store: Call,
    gateway: Call,
    calls: int,
    *,
    bare: Call | None = None,
    requests: Call | None = None,
) -> Times:
    """Each call by hand, by the store that the gateway has, and by the gateway, in turn; the
    numbers that they take all differ."""
    times = Times()
    sides = [(by_hand, times.by_hand), (store, times.store), (gateway, times.gateway)]
    others = [(bare, times.bare), (requests, times.requests)]
    sides += [(do, took) for do, took in others if do is not None]
    before = calls // 10  # what comes first opens connections
    for number in range(calls + before):
        for place, (do, took) in enumerate(sides):
            given = _SIDES * number + place
            began = time.perf_counter()
            do(given)
            seconds = time.perf_counter() - began
            if number >= before:
                took.append(seconds)
        sides = [*sides[1:], sides[0]]
    return times


def amended(at: Collection, id: str, set: Record, append: Record) -> object:
    """A change by the store alone: in one request where it has such, else read and exchanged."""
    if isinstance(at, Amending):
        block = at.amend(id, set, append)
        assert block is not None
        return join(block)
    (held,) = at.read([id])
    assert held is not None
    assert isinstance(at, Exchanging)
    value = changes.updated(join(held).value, set, (), id)
    for path, item in append.items():
        value = changes.appended(value, path, item, id)
    block = cut(Aggregate(id, value), at.at.rules("Game"))
    assert at.exchange(id, held, changes.change_of(held, block, apart=True))
    return value


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

        source = route.source
        begun = 0  # each kind of call begins with numbers of its own

        def key(number: int) -> str:
            return f"game-{number // _SIDES % games}"  # all take the same game in turn

        def by_hand(do: Callable[[str, int], object]) -> Call:
            return lambda n: do(key(n), begun + n)

        def sent(what: str) -> Call | None:
            return by_hand(hand.sent[what]) if what in hand.sent else None

        def told(what: str, times: Times) -> None:
            nonlocal begun
            begun += _SIDES * (calls + calls // 10)
            print(times.line(what), flush=True)

        told("read", in_turn(
            lambda n: hand.get(key(n)),
            lambda n: [join(block) for block in source.read([key(n)]) if block],
            lambda n: gateway.get(key(n)),
            calls,
        ))  # fmt: skip

        def put(n: int) -> None:
            source.write([cut(Aggregate(key(n), game(key(n), begun + n)), rules)])

        told("put", in_turn(
            by_hand(hand.put), put, lambda n: gateway.put(key(n), game(key(n), begun + n)), calls,
            requests=sent("put"),
        ))  # fmt: skip
        told("update", in_turn(
            by_hand(hand.update),
            lambda n: amended(source, key(n), {"n": begun + n}, {}),
            lambda n: gateway.update(key(n), {"n": begun + n}),
            calls,
            bare=hand.bare_update and by_hand(hand.bare_update),
            requests=sent("update"),
        ))  # fmt: skip
        told("append", in_turn(
            by_hand(hand.append),
            lambda n: amended(source, key(n), {}, {"rounds": round_(begun + n)}),
            lambda n: gateway.append(key(n), "rounds", round_(begun + n)),
            calls,
            bare=hand.bare_append and by_hand(hand.bare_append),
            requests=sent("append"),
        ))  # fmt: skip
    with shop.open() as project:
        commands.abort(project, "0001", drop_target=True)


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

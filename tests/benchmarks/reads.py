"""What a read costs that the mirror answers: ``python -m tests.benchmarks.reads --help``.

Reads of one game by the plain drivers of both sides and by a gateway, in turn, on the same servers
at the same time, while a real mirror follows and answers none, half, and all of the keys. The
figures are of single calls, one after another.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog
from boto3.dynamodb.types import TypeDeserializer

from migrator import commands
from migrator.errors import Waiting
from migrator.gateway import Gateway
from migrator.model.phase import Phase
from tests.benchmarks import clients, machine
from tests.benchmarks.gateway import Call, settled
from tests.benchmarks.hands import TABLE, game
from tests.benchmarks.hands_nosql import of_cassandra
from tests.benchmarks.hands_sql import of_tables
from tests.benchmarks.pairs import databases
from tests.benchmarks.sides import Side
from tests.contract import servers
from tests.contract.feeds_dynamodb import client
from tests.system.application import Documents, mirroring
from tests.system.kit import ENV, Shop, fresh

SHARES = (0.0, 0.5, 1.0)
_PATIENCE = 120.0


def in_turn(calls: int, *sides: Call) -> list[list[float]]:
    """The seconds of each call, by who made it."""
    took: list[list[float]] = [[] for _ in sides]
    before = calls // 10  # what comes first opens connections
    turn = list(range(len(sides)))
    for number in range(calls + before):
        for which in turn:
            began = time.perf_counter()
            sides[which](number)
            seconds = time.perf_counter() - began
            if number >= before:
                took[which].append(seconds)
        turn = [*turn[1:], turn[0]]
    return took


def obeyed(project: commands.Project, gateway: Gateway, share: float, keys: list[str]) -> None:
    """Wait until the gateway asks the mirror for its share, and knows what that holds."""
    until = time.monotonic() + _PATIENCE
    reading = gateway._here.mirrored
    while time.monotonic() < until:
        with suppress(Waiting):
            if reading.share != share:
                commands.reads(project, "0001", share)
        before = reading._tally.counts.get("served", 0)
        for key in keys:
            gateway.get(key)
        served = reading._tally.counts.get("served", 0) - before
        if reading.share == share and (served > 0.8 * share * len(keys) or not share):
            return
        time.sleep(0.1)
    raise SystemExit(f"the mirror does not answer {share:.0%} of the reads")


def measure(
    name: str, shop: Shop, by_hand: tuple[Callable[[str], object], Callable[[str], object]],
    calls: int, games: int,
) -> None:  # fmt: skip
    keys = [f"game-{number}" for number in range(games)]
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        accept = commands.Terms(accept=[finding.code for finding in plan.findings])
        commands.apply(project, plan, until=Phase.SHADOW_READ, terms=accept)
    with (
        mirroring(shop),
        shop.open() as project,
        Gateway.open("Game", shop.config, ENV) as gateway,
    ):
        settled(gateway)
        print(name, flush=True)
        for share in SHARES:
            obeyed(project, gateway, share, keys)
            counts = gateway._here.mirrored._tally.counts
            before = counts.get("served", 0)
            primary, mirror, given = in_turn(
                calls,
                *(lambda n, get=get: get(keys[n % games]) for get in (*by_hand, gateway.get)),
            )
            served = (counts.get("served", 0) - before) / (calls + calls // 10)
            told: list[tuple[str, Callable[[list[float]], float]]] = [("mean", statistics.fmean)]
            if share in (0.0, 1.0):  # of two kinds of reads these would tell of one
                told += [("median", statistics.median), ("best", min)]
            for word, of in told:
                old, new, ours = (of(times) * 1e6 for times in (primary, mirror, given))
                asked = (1 - served) * old + served * new
                print(
                    f"   share {share:.0%}, served {served:.0%}, {word}: drivers {old:,.0f} and "
                    f"{new:,.0f} us, gateway {ours:,.0f}: {ours / asked:.2f} of those it asks",
                    flush=True,
                )
    with shop.open() as project:
        commands.abort(project, "0001", drop_target=True)


def from_postgresql(root: Path, calls: int, games: int) -> None:
    with databases("postgresql", "mongodb") as (sql, docs), of_tables(sql, games) as hand:
        shop = Shop(root, {"sql": sql, "docs": docs})
        shop.script(
            f"move = Move('Game', target=At('docs', '{TABLE}'), source=At('sql', tables('{TABLE}', "
            f"rounds=tables('{TABLE}_round', order_by='pos'))))"
        )
        documents = Documents(docs, TABLE)
        by_hand = hand.get, lambda key: documents.games.find_one({"_id": key})
        measure("PostgreSQL (tables) to MongoDB", shop, by_hand, calls, games)
        documents.close()


def from_cassandra(root: Path, calls: int, games: int) -> None:
    items, table, plain = client(), fresh("reads"), TypeDeserializer()

    def get(key: str) -> object:
        found = items.get_item(TableName=table, Key={"id": {"S": key}}, ConsistentRead=True)
        return {name: plain.deserialize(held) for name, held in found.get("Item", {}).items()}

    with clients.keyspace() as url, of_cassandra(games) as hand:
        shop = Shop(root, {"rows": url, "items": servers.dynamodb()})
        shop.script(
            f"move = Move('Game', target=At('items', '{table}', ['/Game/*/*'], item('id')), "
            "source=At('rows', 'games', representation=['/Game/*/*'], layout='row'))"
        )
        with shop.open() as project:
            (route,) = project.routes("0001")
            route.source.create()
        with Gateway.open("Game", shop.config, ENV) as gateway:
            for number in range(games):
                gateway.put(f"game-{number}", game(f"game-{number}", number))
        measure("Cassandra (row) to DynamoDB (moto)", shop, (hand.get, get), calls, games)
    items.close()


PAIRS = {"postgresql": from_postgresql, "cassandra": from_cassandra}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pair", choices=PAIRS, action="append")
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--games", type=int, default=100)
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

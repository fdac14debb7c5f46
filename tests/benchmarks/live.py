"""What a live move costs an application: ``python -m tests.benchmarks.live --help``.

Games go from tables of PostgreSQL to documents of MongoDB under writers that follow the primary
by a hook. The pause of a swap is taken at the writers: the longest time that one of them waited
from one acknowledged write to its next.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

from pymongo import WriteConcern

from migrator import commands
from migrator.commands import SwapTerms
from migrator.model.phase import Phase
from tests.benchmarks import machine
from tests.benchmarks.sides import Side
from tests.conftest import server_url
from tests.system import servers
from tests.system.application import Application, Documents, Hooked, Tables, mirroring
from tests.system.kit import Shop

NAME = "migrator_bench_live"
TABLE = "game"
T = TypeVar("T")


@contextmanager
def databases() -> Iterator[tuple[str, str]]:
    """An empty database on each server; both go at the end."""
    made = {}
    for server in ("postgresql", "mongodb"):
        url = server_url(server)
        servers.drop(server, url, NAME)
        servers.create(server, url, NAME)
        made[server] = _named(url)
    try:
        yield made["postgresql"], made["mongodb"]
    finally:
        for server in made:
            servers.drop(server, server_url(server), NAME)


@contextmanager
def _timed(took: dict[str, float], word: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    took[word] = took.get(word, 0.0) + time.perf_counter() - began


def _named(url: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{NAME}"))


class Live:
    """The move, carried as far as ``shadow_read``."""

    def __init__(self, root: Path, sql: str, docs: str, games: int) -> None:
        self.tables, self.documents = Tables(sql, TABLE), Documents(docs, TABLE)
        self.tables.make()
        with self.tables.session.transaction():
            for number in range(games):
                self.tables.put(f"old-{number}", number, ["a", "b"])
        self.shop = Shop(root, {"sql": sql, "docs": docs})
        self.shop.script(
            f"move = Move('Game', target=At('docs', '{TABLE}'), source=At('sql', tables('{TABLE}', "
            f"rounds=tables('{TABLE}_round', order_by='pos'))))"
        )
        self.application = Application(
            {"source": lambda: Tables(sql, TABLE), "target": lambda: Documents(docs, TABLE)}
        )

    def begin(self) -> None:
        with self.shop.open() as project:
            plan = commands.plan(project, "0001", live=True)
            commands.apply(project, plan, until=Phase.SHADOW_READ)

    def swaps(self, times: int, hook: str) -> None:
        """Cut over and roll back so many times, and print what it took."""
        pauses: dict[str, list[float]] = {"cut-over": [], "rollback": []}
        terms, application = SwapTerms(hook=hook), self.application
        with application, self.shop.open() as project:
            for _ in range(times):
                for word, swap in (("cut-over", commands.cutover), ("rollback", commands.rollback)):
                    application.go_on_for(0.5)
                    application.longest = 0.0
                    swap(project, "0001", swap=terms)
                    application.go_on_for(0.3)
                    pauses[word].append(application.longest * 1000)
        for word, took in pauses.items():
            middle, most = statistics.median(took), max(took)
            print(f"   {word}: pause at 4 writers, {len(took)} times: ", end="")
            print(f"median {middle:.0f} ms, most {most:.0f} ms", flush=True)

    def lag(self, times: int) -> None:
        """How long one write takes to be on both sides."""
        took = []
        for number in range(times):
            began = time.perf_counter()
            self.tables.put("lag", number, [])
            while (self.documents.games.find_one({"_id": "lag"}) or {}).get("n") != number:
                time.sleep(0.0005)
            took.append((time.perf_counter() - began) * 1000)
        print(
            f"   lag of a write, {times} times: median {statistics.median(took):.0f} ms, ", end=""
        )
        print(f"most {max(took):.0f} ms", flush=True)

    def burst(self, writes: int) -> None:
        """How fast keys are mirrored that were all written at once."""
        statement = f"INSERT INTO {TABLE} SELECT 'burst-' || i, i FROM generate_series(1, %s) AS i"
        self.tables.session.execute(statement, (writes,))
        began = time.perf_counter()
        games = self.documents.games
        # Counting reads through the collection, for which the mirror would wait: the last first.
        while games.find_one({"_id": f"burst-{writes}"}) is None:
            time.sleep(0.02)
        while games.count_documents({"_id": {"$regex": "^burst-"}}) < writes:
            time.sleep(0.1)
        took = time.perf_counter() - began
        print(f"   a burst of {writes:,} keys: {writes / took:,.0f}/s", flush=True)

    def by_hand(self, writes: int) -> None:
        """What the servers take for the requests of such a burst, by the drivers alone: what the
        keys hold, whether the target has them, and all of them at once."""
        session, name = self.tables.session, self.tables.name
        # Beside the target, where the mirror would take them for writes by somebody else.
        games = self.documents.games.database.get_collection(
            "by_hand", write_concern=WriteConcern("majority", j=True)
        )
        took: dict[str, float] = {}
        for start in range(0, writes, 500):
            keys = [f"burst-{i}" for i in range(start + 1, start + 501)]
            with _timed(took, "read"):
                found = session.execute(f"SELECT id, n FROM {name} WHERE id = ANY(%s)", (keys,))
                numbers = dict(found.fetchall())
                session.execute(f"SELECT * FROM {name}_round WHERE game = ANY(%s)", (keys,))
            with _timed(took, "look"):
                for i in range(0, len(keys), 100):
                    list(games.find({"_id": {"$in": keys[i : i + 100]}}))
            told = [{"_id": key, "id": key, "n": numbers[key], "rounds": []} for key in keys]
            with _timed(took, "write"):
                games.insert_many(told, ordered=False)
        games.drop()
        parts = ", ".join(f"{word} {took[word] / writes * 1e6:,.0f} us" for word in took)
        rate = writes / sum(took.values())
        print(f"   its requests by the drivers alone: {rate:,.0f}/s ({parts} a key)", flush=True)


def measure(
    about: str,
    sides: set[Side],
    opened: Callable[[], AbstractContextManager[tuple[T, T]]],
    made: Callable[[Path, T, T, int], Live],
) -> None:
    """Print what a move between two servers costs, by the options of a command about it."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--games", type=int, default=2_000, help="what is there before")
    parser.add_argument("--swaps", type=int, default=20)
    parser.add_argument("--burst", type=int, default=20_000)
    chosen = parser.parse_args()
    for name, text in machine.describe(sides).items():
        print(f"{name}: {text}")
    with opened() as (old, new), tempfile.TemporaryDirectory() as root:
        live = made(Path(root), old, new, chosen.games)
        live.begin()
        with mirroring(live.shop), Hooked(live.application, Path(root)) as hooked:
            live.lag(50)
            live.burst(chosen.burst)
            live.by_hand(min(chosen.burst, 5_000))
            live.swaps(chosen.swaps, hooked.command)
        with live.shop.open() as project:
            commands.abort(project, "0001", drop_target=True)


if __name__ == "__main__":
    measure(__doc__, {Side("postgresql", "tables"), Side("mongodb", "document")}, databases, Live)

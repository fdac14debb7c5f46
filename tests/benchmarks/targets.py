"""Where the moves of ``tests.benchmarks.live`` may go, as an application meets it there."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis
from pymongo import WriteConcern

from migrator.model.value import Record
from tests.benchmarks.sides import Side as Store
from tests.contract import servers as contract
from tests.contract.own_redis import Own
from tests.system import servers
from tests.system.application import Documents, Held, Rounds, Side, Tables

NAME = "migrator_bench_live"
TABLE = "game"


Select = Callable[[list[str]], dict[str, int]]


def _none(writes: int, select: Select) -> dict[str, float] | None:
    """The drivers' own requests were not written for this target."""
    return None


@dataclass
class Target:
    """A store's name and URL, where the games lie there in the words of a script, and the same by
    the plain driver. ``number`` is that of a game, None for no game; ``by_hand`` takes what the
    drivers' own requests for so many keys take, by what they are for."""

    name: str
    url: str
    at: str
    store: Store
    side: Callable[[], Side]
    number: Callable[[str], int | None]
    by_hand: Callable[[int, Select], dict[str, float] | None] = _none


@contextmanager
def databases(*kinds: str, name: str = NAME) -> Iterator[list[str]]:
    """An empty database on each server; they go at the end."""
    made = [_server(kind) for kind in kinds]
    for kind, url in zip(kinds, made, strict=True):
        servers.drop(kind, url, name)
        servers.create(kind, url, name)
    try:
        yield [urlunsplit(urlsplit(url)._replace(path=f"/{name}")) for url in made]
    finally:
        for kind, url in zip(kinds, made, strict=True):
            servers.drop(kind, url, name)


def _server(kind: str) -> str:
    """MongoDB's stand-in keeps 10,000 writes for half an hour that a driver may repeat, and looks
    through all of them for each such write: what that takes depends on what it has served before.
    Migrator's driver repeats none (R6)."""
    url = contract.server_url(kind)
    if kind != "mongodb":
        return url
    return f"{url}{'&' if urlsplit(url).query else '?'}retryWrites=false"


def at_tables(name: str, store: str = "sql") -> str:
    """Tables of a store, in the words of a script."""
    return f"At('{store}', tables('{name}', rounds=tables('{name}_round', order_by='pos')))"


def game(key: str, number: int, rounds: Rounds) -> Record:
    told: list[Any] = [{"pos": place, "spell": spell} for place, spell in enumerate(rounds)]
    return {"id": key, "n": number, "rounds": told}


# ---------------------------------------------------------------------- MongoDB


@contextmanager
def documents() -> Iterator[Target]:
    """Documents of MongoDB, the stand-in where no other is there."""
    with databases("mongodb") as (docs,):
        yield Target(
            "docs", docs, f"At('docs', '{TABLE}')", Store("mongodb", "document"),
            lambda: Documents(docs, TABLE), _document(docs),
            lambda writes, select: _to_documents(docs, writes, select),
        )  # fmt: skip


def _document(docs: str) -> Callable[[str], int | None]:
    games_ = Documents(docs, TABLE).games

    def number(key: str) -> int | None:
        found = games_.find_one({"_id": key}, {"n": 1})
        return None if found is None else int(found["n"])

    return number


def _to_documents(docs: str, writes: int, select: Select) -> dict[str, float]:
    """What the keys hold, whether the target has them, and all of them at once."""
    # Beside the target, where the mirror would take them for writes by somebody else.
    there = Documents(docs, "by_hand").games.with_options(
        write_concern=WriteConcern("majority", j=True)
    )
    took = {"read": 0.0, "look": 0.0, "write": 0.0}

    @contextmanager
    def timed(word: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        took[word] += time.perf_counter() - began

    for start in range(0, writes, 500):
        keys = [f"burst-{i}" for i in range(start + 1, start + 501)]
        with timed("read"):
            numbers = select(keys)
        with timed("look"):
            for i in range(0, len(keys), 100):
                list(there.find({"_id": {"$in": keys[i : i + 100]}}))
        told = [{"_id": key, "id": key, "n": numbers[key], "rounds": []} for key in keys]
        with timed("write"):
            there.insert_many(told, ordered=False)
    there.drop()
    return took


# ---------------------------------------------------------------------- PostgreSQL


@contextmanager
def tables() -> Iterator[Target]:
    """Tables of PostgreSQL, in a database of their own."""
    with databases("postgresql", name=NAME + "_new") as (sql,):
        made = Tables(sql, TABLE)
        made.make()
        yield Target(
            "new", sql, at_tables(TABLE, "new"), Store("postgresql", "tables"),
            lambda: Tables(sql, TABLE), row(made),
        )  # fmt: skip
        made.close()


def row(tables: Tables) -> Callable[[str], int | None]:
    def number(key: str) -> int | None:
        select = f"SELECT n FROM {TABLE} WHERE id = %s"
        found = tables.session.execute(select, (key,)).fetchone()
        return None if found is None else int(found[0])

    return number


# ---------------------------------------------------------------------- Redis


@contextmanager
def texts() -> Iterator[Target]:
    """Strings of Redis, on a server whose stream nobody else fills."""
    with tempfile.TemporaryDirectory() as folder:
        new = Own(folder, "--appendonly", "yes")
        reader = Texts(new)

        def number(key: str) -> int | None:
            found = reader.client.get(f"{TABLE}:{key}")
            return None if found is None else int(json.loads(found)["n"])

        at = f"At('new', '{TABLE}', ['/Game/*'], 'string')"
        try:
            store = Store("redis", "string")
            yield Target("new", new.url, at, store, lambda: Texts(new), number)
        finally:
            new.stop()


class Texts:
    """Games as JSON, each in one string of Redis."""

    def __init__(self, own: Own) -> None:
        self.client = redis.Redis(port=own.port)

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        self.client.set(f"{TABLE}:{key}", json.dumps(game(key, number, rounds)))

    def append(self, key: str, place: int, spell: str) -> None:
        found = json.loads(self.client.get(f"{TABLE}:{key}") or "{}")
        found["rounds"].append({"pos": place, "spell": spell})
        self.client.set(f"{TABLE}:{key}", json.dumps(found))

    def delete(self, key: str) -> None:
        self.client.delete(f"{TABLE}:{key}")

    def held(self) -> dict[str, Held]:
        return {}  # what is there is looked at by tests

    def close(self) -> None:
        self.client.close()


TARGETS: dict[str, Callable[[], Any]] = {
    "mongodb": documents,
    "postgresql": tables,
    "redis": texts,
}
__all__ = ["NAME", "TABLE", "TARGETS", "Target", "at_tables", "databases", "game", "row", "texts"]

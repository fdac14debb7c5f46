"""What an application does by hand on PostgreSQL, MariaDB and SQLite.

A write is one transaction whose first statement takes the game's own row, so that another of the
same game waits and no two are mixed: by the upsert of it, by its update, or by a lock. The rows of
one table go as one batch. A read is one snapshot.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psycopg import IsolationLevel

from migrator.model.value import Record
from tests.benchmarks.hands import SPELLS, TABLE, Hand, must, round_
from tests.system import servers
from tests.system.application import Tables
from tests.system.servers import connect_postgresql
from tests.system.test_live_feeds import on_mariadb, on_sqlite

_GAME = f"SELECT id, n FROM {TABLE} WHERE id = %s"
_ROUNDS = f"SELECT pos, spell FROM {TABLE}_round WHERE game = %s ORDER BY pos"
_NUMBER = f"UPDATE {TABLE} SET n = %s WHERE id = %s"
_CLEAR = f"DELETE FROM {TABLE}_round WHERE game = %s"
_ROUND = f"INSERT INTO {TABLE}_round VALUES (%s, %s, %s)"
_PUT = f"INSERT INTO {TABLE} (id, n) VALUES (%s, %s) "


def _made(game: Sequence[Any] | None, rounds: Sequence[Sequence[Any]]) -> Record | None:
    if game is None:
        return None
    key, number = game
    return {"id": key, "n": number, "rounds": [round_(place, spell) for place, spell in rounds]}


def _rows(key: str) -> list[tuple[str, int, str]]:
    return [(key, place, spell) for place, spell in enumerate(SPELLS)]


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
            row = reader.execute(_GAME, (key,)).fetchone()
            return _made(row, reader.execute(_ROUNDS, (key,)).fetchall())

    def put(key: str, number: int) -> None:
        with session.transaction(), session.cursor() as cursor:
            cursor.execute(f"{_PUT} ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n", (key, number))
            cursor.execute(_CLEAR, (key,))
            cursor.executemany(_ROUND, _rows(key))

    def update(key: str, number: int) -> Record | None:
        with session.transaction():
            row = session.execute(f"{_NUMBER} RETURNING id, n", (number, key)).fetchone()
            must(row)
            return _made(row, session.execute(_ROUNDS, (key,)).fetchall())

    def append(key: str, place: int) -> Record | None:
        with session.transaction():
            row = session.execute(f"{_GAME} FOR UPDATE", (key,)).fetchone()
            must(row)
            rounds = session.execute(_ROUNDS, (key,)).fetchall()
            session.execute(_ROUND, (key, place, "more"))
        return _made(row, [*rounds, (place, "more")])

    yield Hand(
        get, put, update, append,
        lambda key, number: must(session.execute(_NUMBER, (number, key)).rowcount),
        lambda key, place: session.execute(_ROUND, (key, place, "more")),
    )  # fmt: skip
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
            cursor.execute(_GAME, (key,))
            row = cursor.fetchone()
            cursor.execute(_ROUNDS, (key,))
            rounds = cursor.fetchall()
            cursor.execute("COMMIT")
        return _made(row, rounds)

    def put(key: str, number: int) -> None:
        with writer.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"{_PUT} ON DUPLICATE KEY UPDATE n = VALUES(n)", (key, number))
            cursor.execute(_CLEAR, (key,))
            cursor.executemany(_ROUND, _rows(key))
            cursor.execute("COMMIT")

    def update(key: str, number: int) -> Record | None:
        with writer.cursor() as cursor:
            cursor.execute("BEGIN")
            must(cursor.execute(_NUMBER, (number, key)))
            cursor.execute(_ROUNDS, (key,))
            rounds = cursor.fetchall()
            cursor.execute("COMMIT")
        return _made((key, number), rounds)

    def append(key: str, place: int) -> Record | None:
        with writer.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"{_GAME} FOR UPDATE", (key,))
            row = cursor.fetchone()
            must(row)
            cursor.execute(_ROUNDS, (key,))
            rounds = cursor.fetchall()
            cursor.execute(_ROUND, (key, place, "more"))
            cursor.execute("COMMIT")
        return _made(row, [*rounds, (place, "more")])

    def alone(text: str, *given: object) -> None:
        with writer.cursor() as cursor:
            must(cursor.execute(text, given))

    yield Hand(
        get, put, update, append,
        lambda key, number: alone(_NUMBER, number, key),
        lambda key, place: alone(_ROUND, key, place, "more"),
    )  # fmt: skip
    reader.close()
    tables.close()


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
    # One each, as store and gateway have: who did not write last reads the pages anew.
    alone, bare = on_sqlite(file, TABLE).session, on_sqlite(file, TABLE).session
    game, rounds_, number_, clear, round_text, put_text = (
        text.replace("%s", "?") for text in (_GAME, _ROUNDS, _NUMBER, _CLEAR, _ROUND, _PUT)
    )

    def get(key: str) -> Record | None:
        reader.execute("BEGIN")
        row = reader.execute(game, (key,)).fetchone()
        rounds = reader.execute(rounds_, (key,)).fetchall()
        reader.execute("COMMIT")
        return _made(row, rounds)

    def put(key: str, number: int) -> None:
        writer.execute("BEGIN IMMEDIATE")
        upsert = f"{put_text} ON CONFLICT (id) DO UPDATE SET n = excluded.n"
        writer.execute(upsert, (key, number))
        writer.execute(clear, (key,))
        writer.executemany(round_text, _rows(key))
        writer.execute("COMMIT")

    def update(key: str, number: int) -> Record | None:
        writer.execute("BEGIN IMMEDIATE")
        must(writer.execute(number_, (number, key)).rowcount)
        rounds = writer.execute(rounds_, (key,)).fetchall()
        writer.execute("COMMIT")
        return _made((key, number), rounds)

    def append(key: str, place: int) -> Record | None:
        writer.execute("BEGIN IMMEDIATE")
        row = writer.execute(game, (key,)).fetchone()
        must(row)
        rounds = writer.execute(rounds_, (key,)).fetchall()
        writer.execute(round_text, (key, place, "more"))
        writer.execute("COMMIT")
        return _made(row, [*rounds, (place, "more")])

    def sent(change: str, given: Callable[[str, int], Sequence[Any]]) -> Callable[..., None]:
        def send(key: str, number: int) -> None:
            bare.execute("BEGIN IMMEDIATE")
            bare.execute(game, (key,)).fetchall()
            bare.execute(rounds_, (key,)).fetchall()
            bare.execute(change, given(key, number))
            bare.execute("COMMIT")

        return send

    number_sent = sent(number_, lambda key, number: (number, key))
    yield Hand(
        get, put, update, append,
        lambda key, number: must(alone.execute(number_, (number, key)).rowcount),
        lambda key, place: alone.execute(round_text, (key, place, "more")),
        {
            "put": number_sent,  # of what is put here one row differs
            "update": number_sent,
            "append": sent(round_text, lambda key, place: (key, place, "more")),
        },
    )  # fmt: skip
    for session in (reader, writer, alone, bare):
        session.close()

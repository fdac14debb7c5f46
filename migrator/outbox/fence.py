"""The fence of a SQLite file: triggers that refuse all writes but Migrator's own.

A file has one writer at a time. So making the triggers waits for every open write transaction,
and whoever writes later meets them (R16). Migrator's transactions say in the file that they pass
and take it back before they end: nobody else can ever see that.
"""

# ruff: noqa: S608 - every name is quoted, every value a parameter
from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from migrator.outbox.journal import File, mark
from migrator.outbox.triggers import outbox, quoted

_PASSES = "migrator_passes"
_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"


@contextmanager
def passing(c: sqlite3.Connection) -> Iterator[None]:
    """Let the writes of this transaction pass the fences; as the last thing around it."""
    let_pass(c, on=True)
    yield
    let_pass(c, on=False)


def let_pass(c: sqlite3.Connection, *, on: bool) -> None:
    """Begin, or end, what ``passing`` does within a transaction."""
    if c.execute(_THERE, [_PASSES]).fetchone() is not None:
        c.execute(f"UPDATE {_PASSES} SET passes = {int(on)}")


class OutboxFence:
    """Three triggers on each table of a collection."""

    def __init__(self, file: File, run: str, tables: Callable[[], list[str]]) -> None:
        self.file = file
        self.run = run
        self._tables = tables
        self._prefix = f"{run}_fence_"

    def raise_(self, mark_: str, seconds: float) -> None:
        tables = self._tables()
        with self.file.writing(seconds) as c:
            self._remove(c)
            c.execute(f"CREATE TABLE IF NOT EXISTS {_PASSES} (run TEXT, passes INTEGER)")
            c.execute(f"INSERT INTO {_PASSES} VALUES (?, 1)", [self.run])
            for number, table in enumerate(tables):
                for event in ("INSERT", "UPDATE", "DELETE"):
                    c.execute(self._trigger(number, table, event))
            if c.execute(_THERE, [outbox(self.run)]).fetchone() is not None:
                mark(c, self.run, mark_)

    def _trigger(self, number: int, table: str, event: str) -> str:
        name = quoted(f"{self._prefix}{number}_{event.lower()}")
        text = f"writes to {table} are stopped: Migrator moves it".replace("'", "''")
        return (
            f"CREATE TRIGGER {name} BEFORE {event} ON {quoted(table)} "
            f"WHEN NOT (SELECT passes FROM {_PASSES} LIMIT 1) "
            f"BEGIN SELECT RAISE(ABORT, '{text}'); END"
        )

    def is_up(self) -> bool:
        tables = self._tables()
        query = (
            "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, "
            f"length(?1)) = ?1 AND tbl_name COLLATE NOCASE IN ({', '.join('?' for _ in tables)})"
        )
        with self.file.reading() as c:
            # On what the names stand for: a table that is renamed takes its triggers along.
            (found,) = c.execute(query.replace("?1", "?"), [self._prefix] * 2 + tables).fetchone()
            return bool(found == 3 * len(tables))

    def lower(self) -> None:
        with self.file.writing() as c:
            self._remove(c)

    def _found(self, c: sqlite3.Connection) -> list[str]:
        query = (
            "SELECT name FROM sqlite_master WHERE type = 'trigger' "
            "AND substr(name, 1, length(?1)) = ?1"
        )
        return [row[0] for row in c.execute(query, [self._prefix]).fetchall()]

    def _remove(self, c: sqlite3.Connection) -> None:
        for name in self._found(c):
            c.execute(f"DROP TRIGGER {quoted(name)}")
        if c.execute(_THERE, [_PASSES]).fetchone() is None:
            return
        c.execute(f"DELETE FROM {_PASSES} WHERE run = ?", [self.run])
        if c.execute(f"SELECT 1 FROM {_PASSES}").fetchone() is None:
            c.execute(f"DROP TABLE {_PASSES}")

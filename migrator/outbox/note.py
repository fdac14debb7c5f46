"""A note in a SQLite file: a table with one row."""

# ruff: noqa: S608 - every name is quoted, every value a parameter
from __future__ import annotations

import sqlite3

from migrator.outbox.journal import File
from migrator.outbox.triggers import quoted

_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"


class FileNote:
    """A file has one writer at a time, so what was read is what is changed."""

    def __init__(self, file: File, name: str) -> None:
        self._file = file
        self._name = name
        self._table = quoted(name)

    def read(self) -> str | None:
        with self._file.reading() as c:
            return self._held(c)

    def _held(self, c: sqlite3.Connection) -> str | None:
        if c.execute(_THERE, [self._name]).fetchone() is None:
            return None
        row = c.execute(f"SELECT text FROM {self._table}").fetchone()
        return None if row is None else str(row[0])

    def change(self, old: str | None, new: str | None) -> bool:
        with self._file.writing() as c:
            if self._held(c) != old:
                return False
            c.execute(f"DROP TABLE IF EXISTS {self._table}")
            if new is not None:
                c.execute(f"CREATE TABLE {self._table} (text TEXT NOT NULL)")
                c.execute(f"INSERT INTO {self._table} VALUES (?)", [new])
            return True

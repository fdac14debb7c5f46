"""An outbox as a journal."""

# ruff: noqa: S608 - every name is quoted, every value a parameter
from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from migrator.errors import FeedLost
from migrator.journal import Kept, Touch, Touches
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.outbox import triggers
from migrator.outbox.triggers import DELETED, Table, Unique, quoted
from migrator.ports import Json

_AT_ONCE = 2_000
_LOOK_EVERY = 0.01
_TIDY_EVERY = 1.0
_EPOCH_1970 = 2_440_587.5  # as a Julian day
_MANY = 20_000
_ROW = 40  # bytes of a row without its key, in its table and in the index


class File(Protocol):
    """A SQLite file as its store opens it; errors come out translated."""

    where: str

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection whose reads see one snapshot."""

    def writing(self, seconds: float | None = None) -> AbstractContextManager[sqlite3.Connection]:
        """A write transaction, which waits for other writers so long at most."""


def _may_be_written(file: str) -> bool:
    """Whether this process may write a file, and others beside it, as SQLite does."""
    places = (file, os.path.dirname(file))
    return all(os.access(place, os.W_OK, effective_ids=True) for place in places)


@dataclass(frozen=True)
class Watched:
    """The tables of a collection, the root first, and how a key is made of its columns."""

    tables: Sequence[Table]
    decode: Callable[[tuple[Any, ...]], Value]

    @property
    def width(self) -> int:
        return len(self.tables[0].key)


class OutboxJournal:
    """The outbox of one run."""

    rounds = 1

    def __init__(self, file: File, run: str, watched: Callable[[], Watched]) -> None:
        self.file = file
        self.run = run
        self._watched = watched
        self.outbox = quoted(triggers.outbox(run))

    def watched(self) -> Watched:
        """What is followed, as the file has it now."""
        return self._watched()

    def describe(self) -> str:
        count = len(self.watched().tables)
        return f"trigger outbox of {count} table{'s' if count > 1 else ''}"

    def findings(self) -> Iterable[tuple[str, str, str]]:
        names = ", ".join(table.name for table in self.watched().tables)
        with self.file.reading() as c:
            (mode,) = c.execute("PRAGMA journal_mode").fetchone()
            files = [row[2] for row in c.execute("PRAGMA database_list") if row[2]]
        if not all(map(_may_be_written, files)):
            yield (
                "error", "read-only",
                "its file or the folder of that may not be written, and the keys of what changes "
                "are noted in the file itself; give the user who runs migrator the right to write "
                "both, or move it at rest",
            )  # fmt: skip
        if mode != "wal":
            yield "note", "journal-mode", f"the file's journal mode becomes WAL; it is {mode}"
        yield (
            "note", "trigger-outbox",
            f"while the move lasts, triggers on {names} write the keys of what changes to the "
            f"table {triggers.outbox(self.run)}, in the same transaction",
        )  # fmt: skip

    def prepare(self) -> Json:
        watched = self.watched()
        with self.file.writing() as c:
            wanted = self.wanted(c, watched)
            if not self.whole(c, wanted):
                # Made anew, and under another name: what was written meanwhile is not known.
                self._remove(c)
                for statement in triggers.table(self.run, watched.width):
                    c.execute(statement)
                name = uuid.uuid4().hex
                c.execute(f"INSERT INTO {self.outbox} (seq, mark) VALUES (0, ?)", [name])
                for statement in wanted.values():
                    c.execute(statement)
            return {"outbox": self.name(c), "seq": 0}

    def wanted(self, c: sqlite3.Connection, watched: Watched) -> dict[str, str]:
        """The triggers that have to be there, by name."""
        tables = [replace(t, uniques=() if t.many else _uniques(c, t)) for t in watched.tables]
        return triggers.triggers(self.run, tables)

    def whole(self, c: sqlite3.Connection, wanted: dict[str, str]) -> bool:
        """Whether the outbox and its triggers are there as they were made."""
        found = dict(
            c.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' "
                "AND substr(name, 1, length(?1)) = ?1",
                [f"{triggers.outbox(self.run)}_"],
            ).fetchall()
        )
        return found == wanted and self.name(c) is not None

    def name(self, c: sqlite3.Connection) -> str | None:
        """What tells this outbox from all others; None where there is none."""
        there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        if c.execute(there, [triggers.outbox(self.run)]).fetchone() is None:
            return None
        row = c.execute(f"SELECT mark FROM {self.outbox} WHERE seq = 0").fetchone()
        return None if row is None else str(row[0])

    def drop(self) -> None:
        with self.file.writing() as c:
            self._remove(c)

    def _remove(self, c: sqlite3.Connection) -> None:
        found = c.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' "
            "AND substr(name, 1, length(?1)) = ?1",
            [f"{triggers.outbox(self.run)}_"],
        ).fetchall()
        for (name,) in found:
            c.execute(f"DROP TRIGGER {quoted(name)}")
        c.execute(f"DROP TABLE IF EXISTS {self.outbox}")

    def kept(self) -> Kept | None:
        """What rows of the outbox take, by the newest of them."""
        keys = " + ".join(f"length({key})" for key in triggers.key_columns(self.watched().width))
        with self.file.reading() as c:
            if self.name(c) is None:
                return None
            first, last = c.execute(
                f"SELECT min(seq), max(seq) FROM {self.outbox} WHERE seq > 0"
            ).fetchone()
            newest = f"SELECT {keys} AS size FROM {self.outbox} ORDER BY seq DESC LIMIT 100"
            (each,) = c.execute(f"SELECT coalesce(max(size), 0) FROM ({newest})").fetchone()
        rows = 0 if first is None else last - first + 1
        return Kept(rows * (each + _ROW))

    def mark(self, name: str) -> None:
        with self.file.writing() as c:
            mark(c, self.run, name)

    def open(self, position: Json) -> OutboxFeed:
        return OutboxFeed(self, position if isinstance(position, dict) else {})


class OutboxFeed:
    """An outbox being read."""

    def __init__(self, journal: OutboxJournal, position: dict[str, Json]) -> None:
        self._journal = journal
        self._file = journal.file
        self._watched = journal.watched()
        self._width = self._watched.width
        self._version: int | None = None
        self._made: list[Any] = []
        self._seq = int(str(position.get("seq", 0)))
        self._at = position.get("at")
        self._confirmed = self._deleted = 0
        self._tidied = time.monotonic()
        with self._file.reading() as c:
            self._name = journal.name(c)
            if self._name is None or position.get("outbox") not in (None, self._name):
                raise self._lost("the outbox was removed")
            self._look(c)
            self._check(c)

    def _check(self, c: sqlite3.Connection) -> None:
        """Raises FeedLost where what was read last is not there: somebody restored an older file,
        whose next rows take numbers that were read already."""
        query = f"SELECT at FROM {self._journal.outbox} WHERE seq = ?"
        row = c.execute(query, [self._seq]).fetchone()
        if row is None or self._at not in (None, row[0]):
            raise self._lost("the file is older than what was read of its outbox")

    def _lost(self, why: str) -> FeedLost:
        return FeedLost(why, where=self._file.where, hint="both sides are scanned anew")

    def _look(self, c: sqlite3.Connection) -> bool:
        """Whether the tables were altered. Raises FeedLost where a trigger is not as it was."""
        (version,) = c.execute("PRAGMA schema_version").fetchone()
        if version == self._version:
            return False
        if not self._journal.whole(c, self._journal.wanted(c, self._watched)):
            raise self._lost("a trigger of the outbox was removed, or its table made anew")
        names = [table.name for table in self._watched.tables]
        made = [
            c.execute("SELECT sql FROM sqlite_master WHERE name = ?", [n]).fetchone() for n in names
        ]
        altered = self._version is not None and made != self._made
        self._version, self._made = version, made
        return altered

    def poll(self, seconds: float) -> Touches | None:
        end = time.monotonic() + seconds
        while True:
            if (given := self._take()) is not None:
                return given
            left = end - time.monotonic()
            if left <= 0:
                self._tidy(_TIDY_EVERY)
                return None
            time.sleep(min(_LOOK_EVERY, left))

    def _take(self) -> Touches | None:
        keys = ", ".join(triggers.key_columns(self._width))
        query = (
            f"SELECT seq, at, deleted, mark, {keys} FROM {self._journal.outbox} "
            f"WHERE seq > ? ORDER BY seq LIMIT {_AT_ONCE}"
        )
        with self._file.reading() as c:
            altered = self._look(c)
            self._check(c)
            rows = c.execute(query, [self._seq]).fetchall()
        if not rows and not altered:
            return None
        touches: dict[bytes, Touch] = {}
        for _, _, deleted, mark, *key in rows:
            if mark is None and None not in key:
                _add(touches, self._watched.decode(tuple(key)), deleted == DELETED)
        if rows:
            self._seq, self._at = rows[-1][:2]
        return Touches(
            list(touches.values()),
            {"outbox": self._name, "seq": self._seq, "at": self._at},
            altered,
            [row[3] for row in rows if row[3] is not None],
            max(0.0, time.time() - (rows[0][1] - _EPOCH_1970) * 86_400) if rows else 0.0,
        )

    def acknowledge(self, position: Json) -> None:
        assert isinstance(position, dict)
        self._confirmed = max(self._confirmed, int(str(position["seq"])))
        # Each time would be one more write transaction beside the application's.
        if self._confirmed - self._deleted >= _MANY:
            self._tidy(0)
        else:
            self._tidy(_TIDY_EVERY)

    def _tidy(self, seconds: float) -> None:
        """Delete what was acknowledged, but for the last row of it: by that the next feed knows the
        file again, and the next row's number is higher."""
        if self._confirmed <= self._deleted or time.monotonic() - self._tidied < seconds:
            return
        self._tidied = time.monotonic()
        outbox = self._journal.outbox
        with self._file.writing() as c:
            if self._journal.name(c) != self._name:
                return  # it was removed meanwhile, as the next look tells
            c.execute(f"DELETE FROM {outbox} WHERE seq > 0 AND seq < ?", [self._confirmed])
        self._deleted = self._confirmed

    def close(self) -> None:
        """The outbox stays; what was acknowledged and still lies there goes with the next feed."""


def mark(c: sqlite3.Connection, run: str, name: str) -> None:
    """Write a marker in the connection's transaction."""
    c.execute(f"INSERT INTO {quoted(triggers.outbox(run))} (mark) VALUES (?)", [name])


def _add(touches: dict[bytes, Touch], key: Value, deleted: bool) -> None:
    form = encode(key)
    before = touches.pop(form, None)
    touches[form] = Touch(key, deleted or (before is not None and before.deleted))


def _uniques(c: sqlite3.Connection, table: Table) -> list[Unique]:
    """What REPLACE goes by; an index over expressions can't be asked like that."""
    found: list[Unique] = []
    indexes = c.execute(
        'SELECT name, partial, origin FROM pragma_index_list(?) WHERE "unique" ORDER BY name',
        [table.name],
    ).fetchall()
    for name, partial, _ in indexes:
        parts = c.execute(
            "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno", [name]
        ).fetchall()
        if all(column is not None for column, _ in parts):
            found.append(Unique(tuple((column, coll) for column, coll in parts), bool(partial)))
    key = c.execute(
        "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", [table.name]
    ).fetchall()
    if len(key) == 1 and not any(origin == "pk" for *_, origin in indexes):
        found.append(Unique(((key[0][0], "BINARY"),)))  # it is the row's number
    return found

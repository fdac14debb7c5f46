"""The fence of MariaDB and MySQL: triggers that refuse all writes but Migrator's own.

Making triggers takes a while. So they are made first and refuse nothing as long as a table of the
run's own is empty; its row is written under one lock of all tables, which waits for every open
transaction that has used them. The marker is written in the same transaction: so all that was
acknowledged lies before it (R16). They read that row with a lock, since a transaction of an old
snapshot would not see it.

A transaction that holds one of the tables and asks for another meanwhile may be ended by the
server as a deadlock's. TRUNCATE and ALTER TABLE pass triggers; the journal shows them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy.engine import Connection

from migrator.stores.sql.catalog_mysql import quote
from migrator.stores.sql.journal_mysql import MysqlJournal, mark

# Every session of Migrator's has it (engine.py); an application has no reason to set it.
WRITER = "@migrator_writer"
_EVENTS = ("INSERT", "UPDATE", "DELETE")
# Seconds. Who is cut off under its locks holds up every writer: the server ends that session by
# itself (R6).
_IDLE = 2
_THERE = (
    "SELECT count(*) FROM information_schema.tables "
    "WHERE table_schema = database() AND table_name = %s"
)

_STANDS = (
    "SELECT count(*) FROM information_schema.triggers WHERE trigger_schema = database() "
    "AND left(trigger_name, %s) = %s AND event_object_schema = database() "
    "AND event_object_table IN ({})"
)


class MysqlFence:
    """Three triggers on each table of a collection, and the table that says whether they refuse."""

    def __init__(self, journal: MysqlJournal, tables: Callable[[], Sequence[str]]) -> None:
        self.journal = journal
        self._tables = tables
        self._prefix = f"{journal.run}_fence_"
        self._name = f"{journal.run}_fence"
        self._raised = quote(self._name)

    def raise_(self, mark_: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self.journal.session() as c:
            marked = self.journal.begun(c) is not None
            try:
                with _patient(c, end):
                    self._make(c)
                with _patient(c, end):
                    self._close(c, self.journal.marks if marked else None, mark_)
            except BaseException:
                self._remove(c)
                raise

    def prepare(self, seconds: float) -> None:
        with self.journal.session() as c:
            try:
                with _patient(c, time.monotonic() + seconds):
                    self._make(c)
            except BaseException:
                self._remove(c)
                raise

    def open(self) -> None:
        with self.journal.session() as c:
            self._open(c)

    def _open(self, c: Connection) -> None:
        if c.exec_driver_sql(_THERE, (self._name,)).scalar():
            _do(c, f"DELETE FROM {self._raised}")  # noqa: S608 - writes go on from here

    def _make(self, c: Connection) -> None:
        """The triggers, which let everything pass so far."""
        _do(c, f"CREATE TABLE IF NOT EXISTS {self._raised} (up INT PRIMARY KEY) ENGINE=InnoDB")
        found = self._found(c)
        for number, table in enumerate(self._tables()):
            for event in _EVENTS:
                name = f"{self._prefix}{number}_{event.lower()}"
                if name in found:
                    continue
                closed = f"EXISTS (SELECT 1 FROM {self._raised} LOCK IN SHARE MODE)"  # noqa: S608
                _do(
                    c,
                    f"CREATE TRIGGER {quote(name)} BEFORE {event} ON {quote(table)} FOR EACH ROW "
                    f"BEGIN IF {WRITER} IS NULL AND {closed} THEN SIGNAL SQLSTATE '45000' "
                    "SET MESSAGE_TEXT = 'writes to this table are stopped: Migrator moves it'; "
                    "END IF; END",
                )

    def _close(self, c: Connection, marks: str | None, mark_: str) -> None:
        """Let them refuse, from a moment when nobody has anything open."""
        locked = [*map(quote, self._tables()), self._raised, *([quote(marks)] if marks else [])]
        _do(c, f"LOCK TABLES {', '.join(f'{table} WRITE' for table in locked)}")
        try:
            _do(c, "SET autocommit = 0")
            _do(c, f"INSERT IGNORE INTO {self._raised} VALUES (1)")  # noqa: S608
            if marks:
                mark(c, marks, mark_)
            _do(c, "COMMIT")
        finally:
            _do(c, "SET autocommit = 1")
            _do(c, "UNLOCK TABLES")

    def is_up(self) -> bool:
        with self.journal.session() as c:
            if not c.exec_driver_sql(_THERE, (self._name,)).scalar():
                return False
            found = c.exec_driver_sql(f"SELECT 1 FROM {self._raised}".replace("%", "%%"))  # noqa: S608
            return found.first() is not None and self._stands(c)

    def _stands(self, c: Connection) -> bool:
        """On what the names stand for: a table that is renamed takes its triggers along."""
        tables = list(self._tables())
        query = _STANDS.format(", ".join(["%s"] * len(tables)))
        asked = (len(self._prefix), self._prefix, *tables)
        return c.exec_driver_sql(query, asked).scalar() == len(_EVENTS) * len(tables)

    @contextmanager
    def steady(self, seconds: float) -> Iterator[bool]:
        """A transaction that has opened a table keeps out only who changes or renames it."""
        with self.journal.session() as c, _patient(c, time.monotonic() + seconds):
            _do(c, "START TRANSACTION")
            try:
                tables = ", ".join(map(quote, self._tables()))
                _do(c, f"SELECT 1 FROM {tables} LIMIT 0")  # noqa: S608
                yield self._stands(c)
            finally:
                _do(c, "ROLLBACK")

    def lower(self) -> None:
        with self.journal.session() as c:
            self._remove(c)

    def _found(self, c: Connection) -> list[str]:
        query = (
            "SELECT trigger_name FROM information_schema.triggers "
            "WHERE trigger_schema = database() AND left(trigger_name, %s) = %s"
        )
        return list(c.exec_driver_sql(query, (len(self._prefix), self._prefix)).scalars())

    def _remove(self, c: Connection) -> None:
        self._open(c)
        for name in self._found(c):
            _do(c, f"DROP TRIGGER {quote(name)}")
        _do(c, f"DROP TABLE IF EXISTS {self._raised}")


def _do(c: Connection, statement: str) -> None:
    c.exec_driver_sql(statement.replace("%", "%%"))


@contextmanager
def _patient(c: Connection, end: float) -> Iterator[None]:
    """Wait for locks until then, to the second, and hold none of one that is cut off."""
    before = c.exec_driver_sql("SELECT @@lock_wait_timeout, @@wait_timeout").one()
    _limit(c, max(1, math.ceil(end - time.monotonic())), _IDLE)
    try:
        yield
    finally:
        _limit(c, *before)


def _limit(c: Connection, locks: int, idle: int) -> None:
    """For how many seconds this session waits for locks, and for its next statement."""
    _do(c, f"SET SESSION lock_wait_timeout = {locks}, SESSION wait_timeout = {idle}")

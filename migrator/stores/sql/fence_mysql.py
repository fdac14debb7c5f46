"""The fence of MariaDB and MySQL: triggers that refuse all writes but Migrator's own.

They are made under one lock of all tables, which waits for every open transaction that has used
these, and the marker is written before the lock is given back: so all that was acknowledged lies
before it (R16). A transaction that holds one of the tables and asks for another meanwhile may be
ended by the server as a deadlock's. TRUNCATE and what changes tables pass triggers; the journal
shows them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sqlalchemy.engine import Connection

from migrator.stores.sql.catalog_mysql import quote
from migrator.stores.sql.journal_mysql import MysqlJournal, mark

# Every session of Migrator's has it (engine.py); an application has no reason to set it.
WRITER = "@migrator_writer"
_EVENTS = ("INSERT", "UPDATE", "DELETE")


class MysqlFence:
    """Three triggers on each table of a collection."""

    def __init__(self, journal: MysqlJournal, tables: Callable[[], Sequence[str]]) -> None:
        self.journal = journal
        self._tables = tables
        self._prefix = f"{journal.run}_fence_"

    def raise_(self, mark_: str, seconds: float) -> None:
        tables, marks = self._tables(), self.journal.marks
        with self.journal.session() as c:
            marked = self.journal.begun(c) is not None
            locked = [*tables, *([marks] if marked else [])]
            before = c.exec_driver_sql("SELECT @@lock_wait_timeout").scalar()
            c.exec_driver_sql(f"SET SESSION lock_wait_timeout = {max(1, math.ceil(seconds))}")
            try:
                c.exec_driver_sql(
                    f"LOCK TABLES {', '.join(f'{quote(t)} WRITE' for t in locked)}".replace(
                        "%", "%%"
                    )
                )
                try:
                    self._make(c, tables)
                    if marked:
                        mark(c, marks, mark_)
                except BaseException:
                    self._remove(c)
                    raise
            finally:
                c.exec_driver_sql("UNLOCK TABLES")
                c.exec_driver_sql(f"SET SESSION lock_wait_timeout = {before}")

    def _make(self, c: Connection, tables: Sequence[str]) -> None:
        self._remove(c)
        for number, table in enumerate(tables):
            for event in _EVENTS:
                name = quote(f"{self._prefix}{number}_{event.lower()}")
                statement = (
                    f"CREATE TRIGGER {name} BEFORE {event} ON {quote(table)} FOR EACH ROW BEGIN "
                    f"IF {WRITER} IS NULL THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = "
                    "'writes to this table are stopped: Migrator moves it'; END IF; END"
                )
                c.exec_driver_sql(statement.replace("%", "%%"))

    def is_up(self) -> bool:
        with self.journal.session() as c:
            return len(self._found(c)) == len(_EVENTS) * len(self._tables())

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
        for name in self._found(c):
            c.exec_driver_sql(f"DROP TRIGGER {quote(name)}".replace("%", "%%"))

"""The fence of PostgreSQL: a trigger that refuses all writes but Migrator's own.

The lock under which it is made waits for every open transaction that has written these tables,
and whoever writes later meets the trigger: so all that was acknowledged lies before the marker,
which is written in the same transaction, and nothing after it (R16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeAlias

from sqlalchemy.engine import Connection

from migrator.stores.sql.errors import edge
from migrator.stores.sql.journal_postgresql import Followed, left, one, places
from migrator.stores.sql.locks_postgresql import at_once, lock, locked
from migrator.stores.sql.shape import Node

# Every session of Migrator's has it (engine.py); an application has no reason to set it.
WRITER = "migrator.writer"


Emit: TypeAlias = Callable[[Connection, str], None]


class PostgresqlFence:
    """One trigger on each table of an aggregate, partitions too, and its function."""

    def __init__(self, followed: Followed, name: str, emit: Emit) -> None:
        self.database = followed.database
        self.where = followed.where
        self._emit = emit
        self.name = f"{name}_fence"
        self._followed = followed

    @cached_property
    def _tables(self) -> list[str]:
        return _all(self._followed.root.walk())

    def raise_(self, mark: str, seconds: float) -> None:
        def fence(c: Connection) -> None:
            at_once(c, self._function(), *self._triggers())
            self._emit(c, mark)

        locked(self.database, self.where, self._tables, "SHARE ROW EXCLUSIVE", fence, seconds)

    def _triggers(self) -> Iterator[str]:
        for table in self._tables:
            yield f'DROP TRIGGER IF EXISTS "{self.name}" ON {table}'
            yield (
                f'CREATE TRIGGER "{self.name}" BEFORE INSERT OR UPDATE OR DELETE OR '
                f'TRUNCATE ON {table} EXECUTE FUNCTION "{self.name}"()'
            )
            # Also where an application has set session_replication_role.
            yield f'ALTER TABLE {table} ENABLE ALWAYS TRIGGER "{self.name}"'

    def _function(self) -> str:
        return f"""
            CREATE OR REPLACE FUNCTION "{self.name}"() RETURNS trigger LANGUAGE plpgsql AS $fence$
            BEGIN
                IF current_setting('{WRITER}', true) = 'on' THEN RETURN NULL; END IF;
                RAISE EXCEPTION 'writes to % are stopped: Migrator moves it', TG_TABLE_NAME
                USING ERRCODE = 'read_only_sql_transaction',
                      HINT = 'ask Migrator which side is primary: migrator status';
            END $fence$"""

    def is_up(self) -> bool:
        with self.database.reading(self.where) as c:
            return self._is_up(c)

    def _is_up(self, c: Connection) -> bool:
        """On what the names stand for: a table that is renamed takes its triggers along."""
        query = (
            "SELECT count(*) FROM pg_trigger WHERE tgname = :n AND tgenabled = 'A' AND tgrelid IN "
            "(SELECT to_regclass(t) FROM unnest(CAST(:t AS text[])) t)"
        )
        return int(one(c, query, n=self.name, t=self._tables)) == len(self._tables)

    @contextmanager
    def steady(self, seconds: float) -> Iterator[bool]:
        """ACCESS SHARE keeps out only who needs a table for himself, as a RENAME or a DROP does."""
        with edge(self.where), self.database.engine.connect() as c, c.begin() as begun:
            lock(c, self._tables, "ACCESS SHARE", seconds)
            up = self._is_up(c)
            try:
                yield up
            finally:
                begun.rollback()

    def lower(self) -> None:
        with self.database.writing(self.where) as c:
            # Also where a table is gone; CASCADE, where one is no part of them any more, or has
            # another name by now: its trigger goes along.
            there = _all(left(self._followed))
            triggers = [f'DROP TRIGGER IF EXISTS "{self.name}" ON {t}' for t in there]
            at_once(c, *triggers, f'DROP FUNCTION IF EXISTS "{self.name}"() CASCADE')


def _all(nodes: Iterable[Node]) -> list[str]:
    """These tables and their partitions; parents first, as transactions mostly write them."""
    return list(dict.fromkeys(each for node in nodes for each in places(node)))

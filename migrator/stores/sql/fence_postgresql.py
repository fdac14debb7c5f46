"""The fence of PostgreSQL: a trigger that refuses all writes but Migrator's own.

The lock under which it is made waits for every open transaction that has written these tables,
and whoever writes later meets the trigger: so all that was acknowledged lies before the marker,
which is written in the same transaction, and nothing after it (R16).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

from sqlalchemy.engine import Connection

from migrator.errors import Transient
from migrator.stores.sql.journal_postgresql import Followed, one, quoted

# Every session of Migrator's has it (engine.py); an application has no reason to set it.
WRITER = "migrator.writer"
# Who writes a child first and waits for the root holds what we wait for: we let go of it before
# the server looks for a deadlock (after 1 s), whose victim might be the application.
_BELOW = 0.2
_BETWEEN = 0.02
# Who is cut off under its lock holds up every writer: the server ends that session by itself (R6).
_IDLE = 2.0


Emit: TypeAlias = Callable[[Connection, str], None]


class PostgresqlFence:
    """One trigger on each table of an aggregate, and its function."""

    def __init__(self, followed: Followed, name: str, emit: Emit) -> None:
        self.database = followed.database
        self.where = followed.where
        self._emit = emit
        self.name = f"{name}_fence"
        self._followed = followed

    @cached_property
    def _tables(self) -> list[str]:
        """Parents first, as transactions mostly write them."""
        return list(dict.fromkeys(quoted(node) for node in self._followed.root.walk()))

    def raise_(self, mark: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                self._attempt(mark, end - time.monotonic())
            except Transient as error:
                if error.unknown or time.monotonic() >= end:
                    raise
                time.sleep(_BETWEEN)
            else:
                return

    def _attempt(self, mark: str, seconds: float) -> None:
        root, *below = self._tables
        with self.database.writing(self.where) as c:
            _at_once(
                c,
                f"SET LOCAL lock_timeout = {max(1, int(seconds * 1000))}",
                f"SET LOCAL idle_in_transaction_session_timeout = {int(_IDLE * 1000)}",
                f"LOCK TABLE {root} IN SHARE ROW EXCLUSIVE MODE",
            )
            if below:
                most = max(0.001, min(seconds, _BELOW))
                _at_once(
                    c,
                    f"SET LOCAL lock_timeout = {int(most * 1000)}",
                    f"LOCK TABLE {', '.join(below)} IN SHARE ROW EXCLUSIVE MODE",
                )
            _at_once(c, self._function(), *self._triggers())
            self._emit(c, mark)

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
        query = (
            "SELECT count(DISTINCT tgrelid) FROM pg_trigger WHERE tgname = :n AND tgenabled = 'A'"
        )
        with self.database.reading(self.where) as c:
            return int(one(c, query, n=self.name)) == len(self._tables)

    def lower(self) -> None:
        with self.database.writing(self.where) as c:
            # Also where a table is gone.
            triggers = [f'DROP TRIGGER IF EXISTS "{self.name}" ON {t}' for t in self._tables]
            _at_once(c, *triggers, f'DROP FUNCTION IF EXISTS "{self.name}"()')


def _at_once(c: Connection, *statements: str) -> None:
    """Send them as one message: under a fence each way to the server and back counts."""
    driver: Any = c.connection.driver_connection
    # Several can't be prepared, which the driver would do from the sixth time on.
    driver.execute("; ".join(statements), prepare=False)

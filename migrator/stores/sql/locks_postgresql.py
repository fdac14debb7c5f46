"""Locks on the tables of an aggregate of PostgreSQL, taken while applications write them.

Who writes a child first and waits for the root holds what is waited for here, and waits for what
is held here. The server looks for such a deadlock after 1 s, and its victim might be the
application: so all is let go of before that, and tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy.engine import Connection

from migrator.errors import Transient
from migrator.stores.sql.engine import Database

T = TypeVar("T")

_BELOW = 0.2
_BETWEEN = 0.02
# Who is cut off under its lock holds up every writer: the server ends that session by itself (R6).
_IDLE = 2.0


def locked(
    database: Database,
    where: str,
    tables: Sequence[str],
    mode: str,
    work: Callable[[Connection], T],
    seconds: float | None = None,
) -> T:
    """Carry out ``work`` in one transaction that holds these tables in this mode.

    They are waited for so many seconds, by default as many as ``lock_timeout`` says. ``tables``
    are quoted, parents first, as transactions mostly write them. Raises Transient.
    """
    end = time.monotonic() + (database.options.lock_timeout if seconds is None else seconds)
    while True:
        try:
            with database.writing(where) as c:
                lock(c, tables, mode, end - time.monotonic())
                return work(c)
        except Transient as error:
            if error.unknown or time.monotonic() >= end:
                raise
        time.sleep(_BETWEEN)


def lock(c: Connection, tables: Sequence[str], mode: str, seconds: float) -> None:
    """Hold these tables for the rest of a transaction, which the server ends after a while."""
    if not tables:
        return
    first, *below = dict.fromkeys(tables)
    at_once(
        c,
        f"SET LOCAL lock_timeout = {max(1, int(seconds * 1000))}",
        f"SET LOCAL idle_in_transaction_session_timeout = {int(_IDLE * 1000)}",
        f"LOCK TABLE {first} IN {mode} MODE",
    )
    if below:
        most = max(0.001, min(seconds, _BELOW))
        at_once(
            c,
            f"SET LOCAL lock_timeout = {int(most * 1000)}",
            f"LOCK TABLE {', '.join(below)} IN {mode} MODE",
        )


def at_once(c: Connection, *statements: str) -> None:
    """Send them as one message: under a fence each way to the server and back counts."""
    driver: Any = c.connection.driver_connection
    # Several can't be prepared, which the driver would do from the sixth time on.
    driver.execute("; ".join(statements), prepare=False)


__all__ = ["at_once", "lock", "locked"]

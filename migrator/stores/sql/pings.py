"""Asking a pooled connection whether its server is still there, without asking each time.

A ping costs three round trips on PostgreSQL. A session that was ended says so: its socket has
something to read while nothing was asked. Only one that lay idle for longer is pinged as well, as
a network in between may have forgotten it.
"""

from __future__ import annotations

import select
import time
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.engine import Engine

FRESH = 1.0
"""Seconds for which a connection that was used needs no ping."""


def ping_seldom(engine: Engine) -> None:
    """Let the pool of an engine ping only where that may tell something new."""
    used: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
    dialect: Any = engine.dialect
    ask = dialect.do_ping

    def ping(connection: Any) -> bool:
        if time.monotonic() - used.get(connection, 0.0) < FRESH and is_silent(connection):
            return True
        return bool(ask(connection))

    def returned(connection: Any, _record: object) -> None:
        if connection is not None:
            used[connection] = time.monotonic()

    dialect.do_ping = ping
    event.listen(engine, "checkin", returned)


def is_silent(connection: Any) -> bool:
    """Whether a driver's connection has nothing to read: neither a farewell nor an end."""
    number = connection.fileno() if hasattr(connection, "fileno") else connection._sock.fileno()
    looking = select.poll()
    looking.register(number, select.POLLIN)
    return not looking.poll(0)

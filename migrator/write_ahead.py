"""The one place where a file of SQLite is switched to write-ahead logging."""

from __future__ import annotations

import sqlite3
import time

_PAUSE = 0.02


def write_ahead(connection: sqlite3.Connection, seconds: float) -> None:
    """Switch a file to WAL, and wait for others who write to it or do the same; SQLite itself
    does not, whatever its timeout is. Raises OperationalError where it takes longer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return

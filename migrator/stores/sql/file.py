"""Connections to a file of SQLite, for reads and writes of single aggregates.

Within a process a statement takes less time than a pool does to lend a connection, and a request
may be two statements; so these are kept by the file itself.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable

from migrator.outbox import let_pass
from migrator.stores.sql.errors import Edge
from migrator.write_ahead import write_ahead


class File:
    """Keeps so many connections that are idle; ``patience`` is how many seconds are waited for
    others, where the file is to be switched to a log ahead."""

    def __init__(self, open_: Callable[[], sqlite3.Connection], most: int, patience: float) -> None:
        self._open = open_
        self._most = most
        self._patience = patience
        self._logs_ahead = False
        self._pid = os.getpid()
        self._idle: list[sqlite3.Connection] = []
        self._of_parents: list[list[sqlite3.Connection]] = []

    def lend(self) -> sqlite3.Connection:
        """A connection for this thread alone."""
        if self._pid != os.getpid():
            # To use a connection in a forked child, and to close it there, can corrupt the file.
            self._of_parents.append(self._idle)
            self._idle, self._pid = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def give_back(self, connection: sqlite3.Connection) -> None:
        """A connection that has no transaction open."""
        if self._pid != os.getpid():
            self._of_parents.append([connection])
        elif len(self._idle) < self._most:
            self._idle.append(connection)
        else:
            connection.close()

    def log_ahead(self, connection: sqlite3.Connection) -> None:
        """Have the file written to a log ahead; switched once, before the first write."""
        if not self._logs_ahead:
            write_ahead(connection, self._patience)
            self._logs_ahead = True

    def close(self) -> None:
        """Close what is idle, unless it is a parent's."""
        if self._pid != os.getpid():
            return
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class Asking(Edge):
    """A connection whose statements see one snapshot; driver errors come out translated."""

    __slots__ = ("_file", "_raw")

    def __init__(self, file: File, where: str, *, writing: bool = False) -> None:
        # As of Edge, without a call more: one is made for each read.
        self._where, self._writing, self._by_key = where, writing, not writing
        self._file = file
        self._raw: sqlite3.Connection | None = None

    def __enter__(self) -> sqlite3.Connection:  # type: ignore[override]
        try:
            raw = self._raw = self._file.lend()
            self._opens(raw)
        except BaseException as error:
            self._undo()
            super().__exit__(type(error), error, None)
            raise
        return raw

    def _opens(self, raw: sqlite3.Connection) -> None:
        raw.execute("BEGIN")

    def _ends(self, raw: sqlite3.Connection) -> None:
        raw.execute("COMMIT")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        raw = self._raw
        if error is None and raw is not None:
            try:
                self._ends(raw)
            except BaseException as late:
                self._undo()
                super().__exit__(type(late), late, None)
                raise
            self._file.give_back(raw)
            return
        self._undo()
        super().__exit__(kind, error, trace)

    def _undo(self) -> None:
        """Give the connection back without what was begun; one that can't be undone is closed."""
        raw, self._raw = self._raw, None
        if raw is None:
            return
        try:
            raw.rollback()
        except sqlite3.Error:
            raw.close()
        else:
            self._file.give_back(raw)


class Changing(Asking):
    """A connection in one transaction that writes: durable at the end, undone by an error."""

    __slots__ = ("_passes",)

    def __init__(self, file: File, where: str, passes: bool) -> None:
        super().__init__(file, where, writing=True)
        self._passes = passes

    def _opens(self, raw: sqlite3.Connection) -> None:
        self._file.log_ahead(raw)
        raw.execute("BEGIN IMMEDIATE")
        if self._passes:
            let_pass(raw, on=True)

    def _ends(self, raw: sqlite3.Connection) -> None:
        if self._passes:
            let_pass(raw, on=False)
        raw.execute("COMMIT")

"""The embedded store itself: one file, WAL, a table for each collection."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import unquote, urlsplit

from migrator.errors import Failed, Refused, Terminal, Transient
from migrator.model.move import At
from migrator.model.value import Kind
from migrator.outbox import passing
from migrator.ports import (
    Capabilities,
    Cost,
    Held,
    How,
    LayoutFacts,
    Limits,
    ServerInfo,
    StoreSettings,
)
from migrator.stores.sqlite.codec import LENGTH, NESTING
from migrator.stores.sqlite.collection import EntriesCollection
from migrator.write_ahead import write_ahead

FORMAT = 1
_APPLICATION_ID = 0x4D494752
_PLAIN = {
    Kind.NULL, Kind.BOOLEAN, Kind.INT32, Kind.DOUBLE, Kind.TEXT, Kind.BYTES, Kind.LIST, Kind.RECORD
}  # fmt: skip
_BUSY_SECONDS = 30
# In KB, below zero as SQLite wants it. Pages are read in order and need little; a batch that is
# written should not spill before its end.
_READ_CACHE, _WRITE_CACHE = -4_096, -8_192

CAPABILITIES = Capabilities(
    layouts={
        "entries": LayoutFacts(
            effective=True,
            unit="transaction",
            version="none is kept: a transaction compares the entries themselves",
            costs={
                "get": Cost(1, "the block"),
                "get_entries": Cost(1, "the entries asked for"),
                "put": Cost(1, "the block"),
                "update": Cost(1, "the entries changed"),
                "append": Cost(1, "the new entry"),
                "exchange": Cost(2, "the entries changed, in one transaction"),
                "delete": Cost(1, "the key"),
            },
        )
    },
    default_layout="entries",
    kinds={kind: Held(How.NATIVE, "msgpack" if kind in _PLAIN else "msgpack ext") for kind in Kind},
    key_kinds=frozenset(Kind),
    key_order="numbers, then text by UTF-8 bytes, then other kinds by their encoding",
    limits=Limits(block_bytes=None, entry_bytes=LENGTH, key_bytes=LENGTH, nesting=NESTING),
    expiry=True,
    transactions=True,
    in_process=True,
)


class EmbeddedStore:
    """An open embedded store; usable from several threads and processes at once."""

    capabilities = CAPABILITIES

    def __init__(self, name: str, path: Path, application: bool = False) -> None:
        self.name = name
        self._application = application
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lent = threading.local()
        self._idle: list[sqlite3.Connection] = []
        self._open: list[sqlite3.Connection] = []
        self._closing: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._writer = threading.RLock()

    def ping(self) -> ServerInfo:
        with self.reading() as connection:
            connection.execute("SELECT count(*) FROM collections").fetchone()
        return ServerInfo("embedded (SQLite)", sqlite3.sqlite_version)

    def collection(self, cls: str, at: At) -> EntriesCollection:
        layout = at.layout
        if layout is not None and (layout.name != "entries" or layout.options):
            raise Refused(
                f"the embedded store has the layout entries without options, not {layout.name}",
                where=str(at),
            )
        return EntriesCollection(self, cls, at)

    def close(self) -> None:
        """Close all connections; one that a thread still has in use when it gives it back."""
        self._mind_forks()
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._closing += [c for c in self._open if c not in self._idle]
            self._idle, self._open = [], []

    @contextmanager
    def reading(self, where: str = "") -> Iterator[sqlite3.Connection]:
        """A connection for this thread alone; driver errors come out translated."""
        try:
            with self._connection() as connection:
                yield connection
        except sqlite3.Error as error:
            raise translate(error, where or self.name, self.path) from error

    @contextmanager
    def snapshot(self, where: str = "") -> Iterator[sqlite3.Connection]:
        """As ``reading``, for several statements that see one state."""
        with self.reading(where) as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def writing(
        self, where: str = "", patience: float | None = None
    ) -> Iterator[sqlite3.Connection]:
        """A write transaction: durable when the block ends, undone when it raises.

        ``patience`` is how many seconds it waits for writers of other processes.
        """
        patience = _BUSY_SECONDS if patience is None else patience
        with self._turn(), self.reading(where) as connection:
            connection.execute(f"PRAGMA cache_size = {_WRITE_CACHE}")
            connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                with nullcontext() if self._application else passing(connection):
                    yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
                # Connections take turns to write: each would keep a writer's cache.
                connection.execute(f"PRAGMA cache_size = {_READ_CACHE}")

    def _turn(self) -> threading.RLock:
        """The turn to write among the threads of this process: SQLite's own waiting sleeps."""
        self._mind_forks()
        return self._writer

    def _mind_forks(self) -> None:
        if self._pid != os.getpid():
            # A connection carried over a fork would corrupt the file, and so would closing it
            # here: a child keeps its parent's and opens its own.
            self._of_parent = (self._open, self._closing, self._lent)
            self._begin()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """The connection that this thread has in use, or an idle one, or a new one.

        They are lent and not kept for a thread: each has a cache of megabytes, and threads end.
        """
        self._mind_forks()
        mine: sqlite3.Connection | None = getattr(self._lent, "connection", None)
        if mine is not None:
            yield mine
            return
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        connection = idle or self._opened()
        self._lent.connection = connection
        try:
            yield connection
        finally:
            self._lent.connection = None
            with self._lock:
                if connection in self._closing:
                    self._closing.remove(connection)
                    connection.close()
                else:
                    self._idle.append(connection)

    def _opened(self) -> sqlite3.Connection:
        connection = _connect(self.path)
        try:
            _prepare(connection, self.path, self.name)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._open.append(connection)
        return connection


def _connect(path: Path) -> sqlite3.Connection:
    if not path.parent.is_dir():
        try:
            path.parent.mkdir(parents=True)
        except OSError as error:
            raise Terminal(f"the folder {path.parent} can't be made: {error.strerror}") from None
    connection = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA page_size = 8192")
    connection.execute(f"PRAGMA cache_size = {_READ_CACHE}")
    # 32 MB: each checkpoint writes and syncs the file itself, which batches should not wait for.
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, name: str) -> None:
    # One transaction, so that a file in the making by another process is seen before or after.
    connection.execute("BEGIN")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    mine = connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION_ID
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    connection.execute("COMMIT")
    if not mine and (tables or version):
        raise Refused(
            f"{path} is a SQLite database of somebody else's, no embedded store",
            where=name,
            hint="for its tables use a URL that begins with sqlite://",
        )
    if version > FORMAT:
        raise Refused(
            f"{path} has format {version}; this version reads {FORMAT}",
            where=name,
            hint="use the version of migrator that wrote it, or a newer one",
        )
    if not mine:
        write_ahead(connection, _BUSY_SECONDS)
        # AUTOINCREMENT: the number of a dropped collection must not name another one.
        connection.executescript(
            f"BEGIN IMMEDIATE;"
            f"CREATE TABLE IF NOT EXISTS collections "
            f"(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);"
            f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
            f"COMMIT;"
        )
    # A checkpoint lies in another file: after a power cut it must not be ahead of the data.
    connection.execute("PRAGMA synchronous = FULL")


def translate(error: sqlite3.Error, where: str, path: Path) -> Failed:
    """A driver error as one of ours."""
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Transient(f"{path.name} is locked by another process", where=where)
    hints = {
        "SQLITE_FULL": "free disk space, then run the same command again",
        "SQLITE_READONLY": f"give this user the right to write {path} and its folder",
        "SQLITE_CANTOPEN": f"check that {path} exists and may be read and written",
        "SQLITE_NOTADB": f"{path} is no SQLite file; check the URL",
        "SQLITE_CORRUPT": f"run PRAGMA integrity_check on {path} and restore it",
        "SQLITE_IOERR": "check the disk, then run the same command again",
    }
    hint = next((text for name, text in hints.items() if code.startswith(name)), "")
    return Terminal(str(error), where=where, hint=hint)


def open_store(settings: StoreSettings) -> EmbeddedStore:
    """Open (and where needed create) the file that the URL names."""
    if settings.options:
        raise Refused(
            f"the embedded store has no options (found: {', '.join(sorted(settings.options))})",
            where=settings.name,
        )
    path = unquote(urlsplit(settings.url).path).removeprefix("/")
    if not path:
        raise Refused("the URL names no file: write embedded:///FILE", where=settings.name)
    return EmbeddedStore(settings.name, Path(settings.root, path), settings.application)

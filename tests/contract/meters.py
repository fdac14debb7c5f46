"""What goes over the wire, counted at the driver's own edge: requests, and the bytes they carry."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
import pymongo.monitoring
import pymysql
import sqlalchemy
from bson import encode

from migrator.ports import Store
from migrator.stores.sql import answers_mysql, pipeline
from migrator.testing.contract import Traffic

Hook = Callable[[Any, Callable[[int], None]], None]


def size(value: object) -> int:
    """The bytes of what is bound to a statement; all but texts and bytes count as a number."""
    match value:
        case str():
            return len(value.encode("utf-8", "surrogatepass"))
        case bytes() | bytearray() | memoryview():
            return len(value)
        case list() | tuple() | set() | frozenset():
            return sum(map(size, value))
        case dict():
            return sum(map(size, value.values()))
    return 8


class Meter:
    """Counts what a store sends while it is asked to; hooks into a driver once for each store.

    A hook takes the store, and what is to be told of each request: its bytes.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._hooked: dict[int, Store] = {}
        self._traffic: Traffic | None = None

    def __call__(self, store: Store) -> AbstractContextManager[Traffic]:
        if id(store) not in self._hooked:
            self._hooked[id(store)] = store
            self._hook(store, self._sent)
        return self._count()

    def _sent(self, bytes_: int) -> None:
        if self._traffic is not None:
            self._traffic.requests += 1
            self._traffic.sent += bytes_

    @contextmanager
    def _count(self) -> Iterator[Traffic]:
        self._traffic = Traffic()
        try:
            yield self._traffic
        finally:
            self._traffic = None


# What goes past the drivers' cursors, several statements in one message, by connection.
_TOLD: WeakKeyDictionary[Any, Callable[[int], None]] = WeakKeyDictionary()
_send, _ask = pipeline.send, answers_mysql.ask


def _counted_send(raw: Any, asked: Any, meanwhile: Any = None) -> Any:
    if raw in _TOLD:
        _TOLD[raw](sum(size(given) for _, given in asked if given is not None))
    return _send(raw, asked, meanwhile)


def _counted_ask(raw: Any, text: str, meanwhile: Any = None) -> Any:
    if raw in _TOLD:
        _TOLD[raw](size(text))
    return _ask(raw, text, meanwhile)


pipeline.send = _counted_send
answers_mysql.ask = _counted_ask


def _sql(store: Any, sent: Callable[[int], None]) -> None:
    """Statements; what begins a transaction goes with them on a server, and is none. Nor is what
    asks whether a connection is alive that lay idle for a second, as on a busy machine."""

    def statement(_c: object, _u: object, text: str, parameters: object, *_: object) -> None:
        alone = ";" not in text  # not where others follow it in the same text
        if not (alone and text.startswith(("BEGIN", "START TRANSACTION"))) and text[:1] != ";":
            sent(size(parameters))

    def told(connection: Any, *_: object) -> None:
        _TOLD[connection] = sent

    if store.database.dialect == "sqlite":
        _kept(store.database, statement)
    if store.database.dialect != "postgresql":
        sqlalchemy.event.listen(store.database.engine, "before_cursor_execute", statement)
        _beside_sqlalchemy(store.database.engine, store.database.dialect, statement)
        if store.database.dialect == "mysql":
            sqlalchemy.event.listen(store.database.engine, "checkout", told)
        return

    class Counting(psycopg.Cursor[Any]):  # some statements go past SQLAlchemy
        def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
            statement(None, None, query, params)
            return super().execute(query, params, **more)

        def executemany(self, query: Any, params_seq: Any, **more: Any) -> None:
            params = list(params_seq)  # one after another without waiting: one round trip
            statement(None, None, query, params)
            super().executemany(query, params, **more)

    def lent(connection: Any, *_: object) -> None:
        connection.cursor_factory = Counting
        told(connection)

    sqlalchemy.event.listen(store.database.engine, "checkout", lent)


def _beside_sqlalchemy(engine: Any, dialect: str, statement: Callable[..., None]) -> None:
    """Count also what goes past SQLAlchemy: to PyMySQL by cursors of its connections, to SQLite
    what is asked there, but for whether there is a fence to pass."""
    inside = False

    def begins(*_: object) -> None:
        nonlocal inside
        inside = True

    def ended(*_: object) -> None:
        nonlocal inside
        inside = False

    class Counting(pymysql.cursors.Cursor):
        def execute(self, query: Any, args: Any = None) -> Any:
            if not inside:
                # Rows that it puts together go as one statement, and stand in its text.
                text = query if isinstance(query, str) else bytes(query).decode()
                statement(None, None, text, text if args is None else args)
            return super().execute(query, args)

    def traced(text: str) -> None:
        if not inside and text.startswith("SELECT") and "sqlite_master" not in text:
            statement(None, None, text, text)

    def lent(connection: Any, *_: object) -> None:
        ended()  # whatever failed before
        if dialect == "sqlite":
            connection.set_trace_callback(traced)
        else:
            connection.cursorclass = Counting

    sqlalchemy.event.listen(engine, "before_cursor_execute", begins)
    sqlalchemy.event.listen(engine, "after_cursor_execute", ended)
    sqlalchemy.event.listen(engine, "checkout", lent)


def _kept(database: Any, statement: Callable[..., None]) -> None:
    """Count what is sent by connections that a file of SQLite keeps beside SQLAlchemy's."""

    def sent(text: str, given: object) -> None:
        if not text.startswith(("BEGIN", "COMMIT", "PRAGMA")) and "sqlite_master" not in text:
            statement(None, None, text, given)

    class Counting(sqlite3.Connection):
        def execute(self, text: str, given: Any = ()) -> sqlite3.Cursor:
            sent(text, given)
            return super().execute(text, given)

        def executemany(self, text: str, given: Any) -> sqlite3.Cursor:
            sent(text, given)
            return super().executemany(text, given)

    def open_() -> sqlite3.Connection:
        made = sqlite3.connect(
            database.file, factory=Counting, isolation_level=None, check_same_thread=False
        )
        made.execute("PRAGMA foreign_keys = ON")
        return made

    database._kept.close()
    database._kept._open = open_


def _embedded(store: Any, sent: Callable[[int], None]) -> None:
    """There is no server: each time that a connection is taken counts, and what is inserted."""
    lent = store._connection

    @contextmanager
    def connection() -> Iterator[sqlite3.Connection]:
        with lent() as taken:
            written = 0

            def trace(statement: str) -> None:
                nonlocal written
                written += len(statement) if statement.startswith("INSERT") else 0

            taken.set_trace_callback(trace)
            try:
                yield taken
            finally:
                taken.set_trace_callback(None)
                sent(written)

    store._connection = connection


class _Listener(pymongo.monitoring.CommandListener):
    """Tells the one that listens now: a client has the listeners it was made with."""

    sent: Callable[[int], None] | None = None

    def started(self, event: pymongo.monitoring.CommandStartedEvent) -> None:
        if self.sent is not None:
            self.sent(len(encode(event.command)))

    def succeeded(self, event: pymongo.monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: pymongo.monitoring.CommandFailedEvent) -> None: ...


listener = _Listener()


def _mongo(_: object, sent: Callable[[int], None]) -> None:
    listener.sent = sent  # type: ignore[method-assign]


@contextmanager
def listened() -> Iterator[None]:
    """Clients of MongoDB that are made inside can be measured."""
    pymongo.monitoring.register(listener)
    yield
    pymongo.monitoring._LISTENERS.command_listeners.remove(listener)


def _redis(store: Any, sent: Callable[[int], None]) -> None:
    """Commands that are sent before an answer is read are one request."""
    base: Any = store._wire.servers.connection

    class Metered(base):  # type: ignore[misc]
        _ready = False
        _bytes: int | None = None

        def connect(self, *args: Any, **kwargs: Any) -> Any:
            if self.is_connected:
                return super().connect(*args, **kwargs)
            self._ready = False
            done = super().connect(*args, **kwargs)
            self._ready = True
            return done

        def send_packed_command(self, command: Any, *args: Any, **kwargs: Any) -> Any:
            if self._ready:
                parts = [command] if isinstance(command, (bytes, str)) else list(command)
                command = parts
                self._bytes = (self._bytes or 0) + size(parts)
            return super().send_packed_command(command, *args, **kwargs)

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            if self._ready and self._bytes is not None:
                sent(self._bytes)
                self._bytes = None
            return super().read_response(*args, **kwargs)

    store._wire.close()
    store._wire.servers = replace(store._wire.servers, connection=Metered)


def _dynamodb(store: Any, sent: Callable[[int], None]) -> None:
    """Requests of HTTP as the client sends them, those that it repeats included."""
    meta = store._wire.client.meta
    service = meta.service_model.service_id.hyphenize()

    def request(request: Any, **_: object) -> None:
        sent(size(request.body))

    meta.events.register(f"before-send.{service}", request)


def _cassandra(store: Any, sent: Callable[[int], None]) -> None:
    """Queries, and the batches that go as one; what prepares a statement goes past this."""

    def request(future: Any) -> None:
        message = future.message
        batch = getattr(message, "queries", None)
        sent(size(message.query_params if batch is None else [values for *_, values in batch]))

    store.wire._session.add_request_init_listener(request)


SQL = Meter(_sql)
EMBEDDED = Meter(_embedded)
MONGO = Meter(_mongo)
REDIS = Meter(_redis)
DYNAMODB = Meter(_dynamodb)
CASSANDRA = Meter(_cassandra)

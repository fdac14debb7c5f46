"""Connections: one pool per store, each session set up the same way, each password fresh.

Every session runs in UTC and UTF-8 and strict modes, so that what one path reads another path
writes alike (hard case C25). ``reading`` gives one snapshot, ``writing`` one transaction; both
translate the driver's errors, and the outcome of a lost commit is marked as unknown.
"""

from __future__ import annotations

import sqlite3
import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.interfaces import IsolationLevel

from migrator.errors import Terminal
from migrator.outbox import passing
from migrator.ports import StoreSettings
from migrator.stores.sql.errors import edge, may_go_on, note_tables
from migrator.stores.sql.file import Asking, Changing, File
from migrator.stores.sql.options import Dialect, Options, dialect_of, read_options, read_url
from migrator.stores.sql.pings import ping_seldom
from migrator.stores.sql.together import prepare, undone
from migrator.write_ahead import write_ahead

_MYSQL_MODE = (
    "STRICT_TRANS_TABLES,STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,"
    # Without it a key of 0 would be replaced by the next generated number.
    "NO_AUTO_VALUE_ON_ZERO"
)

# A write reads what lies there after it holds the root's row: it must not keep a snapshot that
# began while it waited for that. MariaDB's begins with the first read that takes no lock.
_ISOLATION: dict[Dialect, IsolationLevel] = {
    "postgresql": "READ COMMITTED",
    "mysql": "REPEATABLE READ",
}

# Seconds for which a transaction of a gateway may wait for its next statement. Its host may be gone
# without a word: then the server itself ends it, or it would hold its rows, and keep a fence
# waiting, for as long as TCP takes to notice (two hours, mostly). No longer than a lease.
IDLE = 10


class Database:
    """One relational database: its engine, dialect and options."""

    def __init__(self, settings: StoreSettings) -> None:
        self.name = settings.name
        self.dialect: Dialect = dialect_of(settings)
        self.options = read_options(settings)
        url = read_url(settings)
        self.file = Path(url.database or "") if self.dialect == "sqlite" else None
        # A source that is not there must stay so; only ``create`` may make the file.
        self.may_create = False
        # Of a statement of MariaDB or MySQL, in bytes; as of the server once there is a session.
        self.longest = 16 * 1024 * 1024
        self._application = settings.application
        self._wal = False
        self.engine = self._engine(url, settings)
        self._kept = self._keeper()

    def _engine(self, url: sa.URL, settings: StoreSettings) -> Engine:
        args: dict[str, Any] = {}
        if self.dialect == "sqlite":
            args["creator"] = self._open_file
        else:
            args["connect_args"] = connect_args(self.dialect, self.options)
            # Whatever the server's own default is, and also after a session had another.
            args["isolation_level"] = _ISOLATION[self.dialect]
            args["pool_pre_ping"] = True
            args["pool_recycle"] = 1800
        engine = sa.create_engine(
            url,
            pool_size=self.options.pool_size,
            max_overflow=0,
            poolclass=sa.QueuePool,
            pool_timeout=60,
            hide_parameters=True,  # values may be secret, and messages reach logs
            **args,
        )
        if settings.secret is not None and self.dialect != "sqlite":
            secret = settings.secret

            @event.listens_for(engine, "do_connect")
            def fresh_password(_d: Any, _r: Any, _args: Any, params: dict[str, Any]) -> None:
                params["password"] = secret()

        if self.dialect != "sqlite":
            ping_seldom(engine)
        if self.dialect == "mysql":
            from migrator.stores.sql.mysql import undo_seldom

            undo_seldom(engine)
        event.listen(engine, "handle_error", note_tables)
        event.listen(engine, "connect", self._set_up)
        event.listen(engine, "begin", self._begin)
        return engine

    @property
    def absent(self) -> bool:
        """Whether this is a file that does not exist yet."""
        return self.file is not None and not self.file.exists()

    def _open_file(self) -> sqlite3.Connection:
        if self.file is None or (self.absent and not self.may_create):
            raise Terminal(
                f"there is no file {self.file}",
                where=self.name,
                hint="check the path in the store's url; it is relative to migrator.toml",
            )
        mode = "rwc" if self.may_create else "rw"
        return sqlite3.connect(
            f"{self.file.as_uri()}?mode={mode}",
            uri=True,
            timeout=self.options.lock_timeout,
            check_same_thread=False,
            isolation_level=None,
        )

    def _keeper(self) -> File | None:
        if self.file is None:
            return None
        return File(self._opened, self.options.pool_size, self.options.lock_timeout)

    def _opened(self) -> sqlite3.Connection:
        """A connection that the pool has set up, and lets go."""
        lent = self.engine.raw_connection()
        connection = lent.driver_connection
        lent.detach()
        assert isinstance(connection, sqlite3.Connection)
        return connection

    def _set_up(self, connection: Any, _record: Any) -> None:
        if self.dialect == "sqlite":
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")
        elif self.dialect == "postgresql":
            from migrator.stores.sql.postgresql import load_exactly

            load_exactly(connection)
            connection.autocommit = True
            connection.execute(_postgresql_session(self.options))
            if self._application:
                connection.execute("SET migrator.writer = 'off'")
                connection.execute(_POSTGRESQL_IDLE, [str(IDLE * 1000), IDLE * 1000])
            connection.autocommit = False
        else:
            connection.autocommit(True)  # which SQLAlchemy ends where it sets the isolation
            with connection.cursor() as cursor:
                for statement in _mysql_session(self.options, connection.server_version):
                    cursor.execute(statement)
                cursor.execute("SELECT @@max_allowed_packet")
                (self.longest,) = cursor.fetchone()
                if self._application:
                    cursor.execute("SET @migrator_writer = NULL")
                    _limit_idle_mysql(cursor)

    def _begin(self, connection: Connection) -> None:
        """SQLite's driver would begin only at the first change: reads were no snapshot. MySQL's
        sessions commit by themselves, so that one statement needs nothing around it."""
        options = connection.get_execution_options()
        if self.dialect == "sqlite":
            write = options.get("migrator_write")
            connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
        elif self.dialect == "mysql" and options.get("isolation_level") != "AUTOCOMMIT":
            raw: Any = connection.connection.driver_connection
            raw.begin()

    @contextmanager
    def reading(self, where: str = "", *, by_key: bool = False) -> Iterator[Connection]:
        """A connection whose reads see one snapshot; ``by_key`` as in ``edge``."""
        with edge(where or self.name, by_key=by_key), self.engine.connect() as connection:
            if self.dialect == "postgresql":
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with connection.begin():
                yield connection

    def asking(self, where: str = "", *, snapshot: bool = False) -> AbstractContextManager[Any]:
        """The driver's own connection, where each statement is a snapshot of its own, a round trip,
        and no transaction around it; ``snapshot``: one around all of them, not on PostgreSQL, and
        always on SQLite. For blocks that are asked for by their keys."""
        if self._kept is not None:
            return Asking(self._kept, where or self.name)
        return self._asking_server(where, snapshot)

    @contextmanager
    def _asking_server(self, where: str, snapshot: bool) -> Iterator[Any]:
        with edge(where or self.name, by_key=True):
            lent = self.engine.raw_connection()
            try:
                raw: Any = lent.driver_connection
                if self.dialect == "mysql":
                    if not raw.get_autocommit():  # as a session of a journal leaves it behind
                        raw.autocommit(True)
                    if snapshot:
                        with raw.cursor() as cursor:
                            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                    yield raw
                else:
                    raw.autocommit = True
                    try:
                        yield raw
                    finally:
                        raw.autocommit = False
            except BaseException:
                lent.invalidate()
                raise
            finally:
                lent.close()

    @contextmanager
    def sending(self, where: str = "") -> Iterator[Any]:
        """The driver's own connection, for a transaction that what is sent by it begins and ends
        (``together``); undone where that has not ended it. Not on SQLite."""
        with edge(where or self.name, writing=True):
            lent = self.engine.raw_connection()
            raw: Any = lent.driver_connection
            try:
                prepare(raw, self.dialect)
                yield raw
            except BaseException as error:
                if not may_go_on(error) or not undone(raw, self.dialect):
                    lent.invalidate()
                raise
            else:
                if not undone(raw, self.dialect):
                    lent.invalidate()
            finally:
                lent.close()

    @contextmanager
    def writing(
        self, where: str = "", *, foreign_keys: bool = True, patience: float | None = None
    ) -> Iterator[Connection]:
        """A connection in one transaction, committed durably at the end.

        ``foreign_keys=False`` puts off SQLite's checks, for tables that refer to others not
        filled yet; other systems ignore it. ``patience`` is how many seconds SQLite waits for
        other writers.
        """
        with edge(where or self.name, writing=True), self.engine.connect() as connection:
            if self.dialect != "sqlite":
                with connection.begin():
                    yield connection
                return
            connection = connection.execution_options(migrator_write=True)
            raw: Any = connection.connection.driver_connection
            if patience is not None:
                raw.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
            if not self._wal:
                write_ahead(raw, self.options.lock_timeout if patience is None else patience)
                self._wal = True
            if not foreign_keys:
                raw.execute("PRAGMA foreign_keys = OFF")
            try:
                passes = nullcontext() if self._application else passing(raw)
                with connection.begin(), passes:
                    yield connection
            finally:
                if not connection.closed and not foreign_keys:
                    raw.execute("PRAGMA foreign_keys = ON")
                if not connection.closed and patience is not None:
                    raw.execute(f"PRAGMA busy_timeout = {int(self.options.lock_timeout * 1000)}")

    def changing(self, where: str) -> AbstractContextManager[sqlite3.Connection]:
        """As ``writing``, on a file of SQLite: the driver's own connection."""
        assert self._kept is not None
        return Changing(self._kept, where, passes=not self._application)

    def close(self) -> None:
        """Give back all connections."""
        self.engine.dispose()
        if self._kept is not None:
            self._kept.close()


def connect_args(dialect: Dialect, options: Options) -> dict[str, Any]:
    """What the driver's ``connect`` takes beside address and user."""
    if dialect == "postgresql":
        tls = {
            name: getattr(options, name)
            for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs")
            if getattr(options, name) is not None
        }
        return {
            "connect_timeout": options.connect_timeout,
            "application_name": options.application_name,
            "client_encoding": "utf8",
            "keepalives_idle": 30,
            **tls,
        }
    from migrator.stores.sql.mysql import CONVERSIONS, FLAGS

    args: dict[str, Any] = {
        "charset": "utf8mb4",
        "connect_timeout": options.connect_timeout,
        "conv": CONVERSIONS,
        "client_flag": FLAGS,
    }
    # A request must end some time after the server gave it up (R6: request life is enforced).
    if options.statement_timeout:
        args["read_timeout"] = int(options.statement_timeout) + 30
        args["write_timeout"] = int(options.statement_timeout) + 30
    args.update(_mysql_tls(options))
    return args


def _mysql_tls(options: Options) -> dict[str, Any]:
    if options.sslmode in (None, "prefer") and options.sslrootcert is None:
        return {}
    if options.sslmode == "disable":
        return {"ssl_disabled": True}
    context = ssl.create_default_context(cafile=options.sslrootcert)
    context.check_hostname = options.sslmode in (None, "prefer", "verify-full")
    if options.sslmode == "require" and options.sslrootcert is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.sslcert:
        context.load_cert_chain(options.sslcert, options.sslkey)
    return {"ssl": context}


def _postgresql_session(options: Options) -> str:
    settings = [
        "SET TimeZone = 'UTC'",
        "SET DateStyle = 'ISO, YMD'",
        "SET IntervalStyle = 'iso_8601'",
        "SET extra_float_digits = 1",
        "SET bytea_output = 'hex'",
        "SET standard_conforming_strings = on",
        # For statements that are sent at once without a BEGIN (``together``).
        "SET default_transaction_isolation = 'read committed'",
        # Rows that a policy hides from this role are refused, not passed over.
        "SET row_security = off",
        f"SET statement_timeout = {int(options.statement_timeout * 1000)}",
        f"SET lock_timeout = {int(options.lock_timeout * 1000)}",
        # A host that is gone amid a transaction holds its rows for half a minute, not two hours.
        "SET tcp_keepalives_idle = 15",
        "SET tcp_keepalives_interval = 5",
        "SET tcp_keepalives_count = 3",
        # The fence lets these sessions pass (fence_postgresql).
        "SET migrator.writer = 'on'",
        # Our writes are acknowledged by what is durable, whatever the database's default.
        "SELECT set_config('synchronous_commit', 'on', false)"
        " WHERE current_setting('synchronous_commit') = 'off'",
    ]
    if options.schema:
        quoted = options.schema.replace('"', '""')
        settings.append(f'SET search_path = "{quoted}"')
    return "; ".join(settings)


# What is set for the role, or by the server, may be less.
_POSTGRESQL_IDLE = (
    "SELECT set_config(name, %s, false) FROM pg_settings "
    "WHERE name = 'idle_in_transaction_session_timeout' AND setting::int NOT BETWEEN 1 AND %s"
)


def _limit_idle_mysql(cursor: Any) -> None:
    """As on PostgreSQL, where the server can: MySQL limits idle sessions alone."""
    cursor.execute("SHOW SESSION VARIABLES LIKE 'idle_transaction_timeout'")
    if (found := cursor.fetchone()) is not None and not 1 <= int(found[1]) <= IDLE:
        cursor.execute(f"SET SESSION idle_transaction_timeout = {IDLE}")


def _mysql_session(options: Options, server: object) -> list[str]:
    mariadb = "mariadb" in str(server).lower()
    statements = [
        "SET NAMES utf8mb4",
        # The fence lets these sessions pass (fence_mysql).
        "SET @migrator_writer = 1",
        "SET SESSION time_zone = '+00:00'",
        # A server may have a limit for sessions that say nothing: all else would look absent.
        "SET SESSION sql_select_limit = 18446744073709551615",
        f"SET SESSION sql_mode = '{_MYSQL_MODE}'",
        f"SET SESSION innodb_lock_wait_timeout = {max(1, int(options.lock_timeout))}",
        f"SET SESSION lock_wait_timeout = {max(1, int(options.lock_timeout))}",
    ]
    if options.statement_timeout:
        if mariadb:
            statements.append(f"SET SESSION max_statement_time = {options.statement_timeout}")
        else:
            millis = int(options.statement_timeout * 1000)
            statements.append(f"SET SESSION max_execution_time = {millis}")
    return statements

"""The journal of MariaDB and MySQL: the binary log.

A commit may show in the log before a read can see it; a locking read of a row that it changed
waits for it (design, "What a feed shows and what a read sees"). Markers are rows of a table of
the run's own, which also says where its feed began.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from migrator.errors import FeedLost, Refused
from migrator.journal import Kept, Touch, Touches
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.outbox import Table
from migrator.ports import Json, StoreSettings
from migrator.stores.sql.binlog import At, Binlog, Row
from migrator.stores.sql.catalog_mysql import quote
from migrator.stores.sql.engine import Database, connect_args
from migrator.stores.sql.errors import edge
from migrator.stores.sql.options import read_url
from migrator.stores.sql.parts import Part

_AT_ONCE = 2_000
_IN = 500
# Types of which the log's own form is the column's, so that a key of a row that has gone is known.
_FOLLOWED = re.compile(
    r"(tiny|small|medium|big)?int|decimal|(var)?char|(var)?binary|(tiny|medium|long)?(text|blob)"
    r"|date|datetime"
)
_WANTED = {
    "log_bin": ("1", "set log_bin in the server's configuration and restart it"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = ROW, and let sessions connect anew"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = FULL"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = FULL"),
}
_ALL = "ALL PRIVILEGES ON *.*"
_RIGHT = (
    "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO this user "
    "(MySQL: REPLICATION SLAVE, REPLICATION CLIENT)"
)


@dataclass(frozen=True)
class Watched:
    """The tables of a collection, the root first.

    ``rows`` are the columns that tell a row of each table; ``bases`` and ``sizes`` the types of
    the root's key columns. ``decode`` makes a key of what the driver gives for its columns.
    ``unseen`` says which rows change without a word in the log.
    """

    tables: Sequence[Table]
    rows: dict[str, tuple[str, ...]]
    bases: Sequence[str]
    sizes: Sequence[int]
    decode: Callable[[tuple[Any, ...]], Value]
    unseen: Sequence[str] = ()

    def raw(self, row: dict[str, Any]) -> tuple[Any, ...] | None:
        """The key of a root's row in the log, as the driver would read it; None for none."""
        found = []
        columns = zip(self.tables[0].key, self.bases, self.sizes, strict=True)
        for name, base, size in columns:
            value = row[name]
            if value is None:
                return None
            if base == "binary":
                value = value.ljust(size, b"\0")  # the log leaves zeros at the end out
            elif isinstance(value, dt.datetime):
                value = value.isoformat(" ")
            elif isinstance(value, dt.date):
                value = value.isoformat()
            found.append(value)
        return tuple(found)


class MysqlJournal:
    """The binary log, read for one run."""

    rounds = 1

    def __init__(
        self, database: Database, settings: StoreSettings, where: str, run: str,
        watched: Callable[[], Watched],
    ) -> None:  # fmt: skip
        self.database = database
        self.settings = settings
        self.where = where
        self.run = run
        self.watched = watched
        self.marks = f"{run}_marks"

    def describe(self) -> str:
        count = len(self.watched().tables)
        return f"binary log of {count} table{'s' if count > 1 else ''}"

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """A connection without a transaction."""
        with edge(self.where, writing=True), self.database.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    @cached_property
    def folds(self) -> bool:
        """Whether the server takes names of tables for equal in any case."""
        with self.session() as c:
            return bool(c.exec_driver_sql("SELECT @@lower_case_table_names").scalar())

    # ------------------------------------------------------------ made and removed

    def findings(self) -> Iterable[tuple[str, str, str]]:
        # The server first: the tables of a target may still have to be made.
        with self.session() as c:
            for severity, code, text, hint in _lacking(c):
                yield severity, code, f"{text}; {hint}"
            yield from _no_fence(c)
        yield from self._untold()

    def _untold(self) -> Iterator[tuple[str, str, str]]:
        """Keys that the log does not tell as they are."""
        watched = self.watched()
        for name, base in zip(watched.tables[0].key, watched.bases, strict=True):
            if not _FOLLOWED.fullmatch(base):
                yield (
                    "error", "key-type",
                    f"a key of type {base} ({name}) can't be followed in the binary log",
                )  # fmt: skip

    def prepare(self) -> Json:
        with self.session() as c:
            for _, _, text, hint in _lacking(c):
                raise Refused(text, where=self.where, hint=hint)
        for _, _, text in self._untold():
            raise Refused(text, where=self.where)
        with self.session() as c:
            c.exec_driver_sql(
                f"CREATE TABLE IF NOT EXISTS {quote(self.marks)} (id BIGINT AUTO_INCREMENT "
                "PRIMARY KEY, mark VARCHAR(500) CHARACTER SET utf8mb4, begun TEXT) ENGINE=InnoDB"
            )
            if (begun := self.begun(c)) is not None:
                return begun
            file, place = _end(c)
        stream = self.stream(file, place)
        stream.close()
        at = self.position(At(file, place, stream.born), uuid.uuid4().hex)
        with self.session() as c:
            c.exec_driver_sql(
                f"INSERT INTO {quote(self.marks)} (begun) VALUES (%s)",  # noqa: S608
                (json.dumps(at),),
            )
        return at

    def begun(self, c: Connection) -> dict[str, Json] | None:
        """Where the feed of this run began; None where it was not prepared."""
        there = (
            "SELECT count(*) FROM information_schema.tables "
            "WHERE table_schema = database() AND table_name = %s"
        )
        if not c.exec_driver_sql(there, (self.marks,)).scalar():
            return None
        query = f"SELECT begun FROM {quote(self.marks)} WHERE begun IS NOT NULL"  # noqa: S608
        found = c.exec_driver_sql(query).scalar()
        begun: dict[str, Json] | None = None if found is None else json.loads(found)
        return begun

    def position(self, at: At, feed: Json) -> dict[str, Json]:
        """A place in the log as a checkpoint keeps it."""
        return {"feed": feed, "file": at.file, "place": at.place, "born": at.born}

    def drop(self) -> None:
        with self.session() as c:
            c.exec_driver_sql(f"DROP TABLE IF EXISTS {quote(self.marks)}")

    def kept(self) -> Kept | None:
        """The log is the server's own and goes by its age, read or not."""
        with self.session() as c:
            if self.begun(c) is None:
                return None
            shown = c.exec_driver_sql(
                "SHOW GLOBAL VARIABLES WHERE variable_name IN "
                "('binlog_expire_logs_seconds', 'expire_logs_days')"
            )
            found = {str(name).lower(): float(value) for name, value in shown.all()}
        days = found.get("expire_logs_days", 0.0) * 86_400
        return Kept(window=found.get("binlog_expire_logs_seconds") or days or None)

    def mark(self, name: str) -> None:
        with self.database.writing(self.where) as c:
            mark(c, self.marks, name)

    # ------------------------------------------------------------ reading

    def open(self, position: Json) -> MysqlFeed:
        for text in self.watched().unseen:  # it came after the plan, which refuses it
            raise Refused(
                text,
                where=self.where,
                hint="drop that constraint: ALTER TABLE ... DROP FOREIGN KEY ...",
            )
        with self.session() as c:
            begun = self.begun(c)
            at = {**begun, **position} if begun and isinstance(position, dict) else begun
            if begun is None or at is None or at["feed"] != begun["feed"]:
                raise FeedLost("what the feed stood on was removed", where=self.where)
            file, place = str(at["file"]), int(str(at["place"]))
            files = {row[0]: int(row[1]) for row in c.exec_driver_sql("SHOW BINARY LOGS").all()}
        if files.get(file, -1) < place:
            raise FeedLost(
                f"the server no longer has its log {file} up to {place:,}",
                where=self.where,
                hint="raise binlog_expire_logs_seconds; both sides are scanned anew",
            )
        stream = self.stream(file, place)
        if stream.born != at["born"]:
            stream.close()
            raise FeedLost(f"the log {file} is another one of this name", where=self.where)
        return MysqlFeed(self, stream, at["feed"])

    def stream(self, file: str, place: int) -> Binlog:
        """The log from a place on."""
        parts = read_url(self.settings).translate_connect_args(username="user")
        if self.settings.secret is not None:
            parts["password"] = self.settings.secret()
        given = connect_args("mysql", self.database.options)
        settings = {k: v for k, v in given.items() if k.startswith(("ssl", "connect_", "charset"))}
        tables = [table.name for table in self.watched().tables]
        with edge(self.where):
            return Binlog(
                {**parts, **settings}, self.run, tables, self.marks, file, place, self.where,
                folds=self.folds,
            )  # fmt: skip


class MysqlFeed:
    """The log being read."""

    def __init__(self, journal: MysqlJournal, stream: Binlog, feed: Json) -> None:
        self._journal = journal
        self._stream = stream
        self._feed = feed
        self._watched = journal.watched()
        fold: Callable[[str], str] = str.lower if journal.folds else str
        self._tables = {fold(table.name): table for table in self._watched.tables}

    def poll(self, seconds: float) -> Touches | None:
        parts = self._stream.parts.take(seconds, _AT_ONCE)
        if not parts:
            return None
        rows = [row for part in parts for row in part.rows]
        keys: dict[tuple[Any, ...], bool] = {}
        whole = any(part.whole for part in parts)
        if rows:
            with self._journal.session() as c:
                self._wait_for(c, rows[-1])
                whole = self._gather(c, rows, keys) or whole
        return self._given(parts, keys, whole)

    def _wait_for(self, c: Connection, row: Row) -> None:
        """Until the last of the transactions can be read, and so those before it: they become
        visible in the log's order."""
        _, name, columns = row
        table = self._tables[name]
        told = [n for n in self._watched.rows[table.name] if columns[n] is not None]
        of, *named = (quote(name).replace("%", "%%") for name in (table.name, *told))
        condition = " AND ".join(f"{name} = %s" for name in named)
        query = f"SELECT 1 FROM {of} WHERE {condition} LOCK IN SHARE MODE"  # noqa: S608
        c.exec_driver_sql(query, tuple(columns[n] for n in told))

    def _gather(
        self, c: Connection, rows: Sequence[Row], keys: dict[tuple[Any, ...], bool]
    ) -> bool:
        """The keys of some rows; True where the log does not tell one."""
        untold = False
        below: dict[str, dict[tuple[Any, ...], None]] = {}
        before: tuple[Any, ...] | None = None
        for kind, name, columns in rows:
            table = self._tables[name]
            if table.links:
                link = tuple(columns[n] for n in table.links[0].columns)
                if None not in link:
                    below.setdefault(name, {})[link] = None
                continue
            if (key := self._watched.raw(columns)) is None:
                untold = True
                continue
            if kind == "N" and before not in (None, key):
                keys[before] = True  # the row took another key
            keys[key] = keys.pop(key, False) or kind == "D"
            before = key if kind == "O" else None
        for name, links in below.items():
            for key in self._roots(c, self._tables[name], list(links)):
                keys.setdefault(key, False)
        return untold

    def _roots(
        self, c: Connection, table: Table, links: list[tuple[Any, ...]]
    ) -> Iterator[tuple[Any, ...]]:
        """The keys that rows with these links belong to, as they are now: where a row in between
        has gone or moved, it was touched itself."""
        root = f"u{len(table.links) - 1}"
        joins = [f"{quote(table.links[0].up)} AS u0"]
        for level, link in enumerate(table.links[1:], 1):
            pairs = zip(link.columns, link.refs, strict=True)
            on = " AND ".join(f"u{level}.{quote(b)} = u{level - 1}.{quote(a)}" for a, b in pairs)
            joins.append(f"JOIN {quote(link.up)} AS u{level} ON {on}")
        wanted = ", ".join(f"{root}.{quote(name)}" for name in self._watched.tables[0].key)
        refs = ", ".join(f"u0.{quote(name)}" for name in table.links[0].refs)
        query = f"SELECT DISTINCT {wanted} FROM {' '.join(joins)} WHERE ({refs}) IN "  # noqa: S608
        one = f"({', '.join(['%s'] * len(table.links[0].refs))})"
        for start in range(0, len(links), _IN):
            chunk = links[start : start + _IN]
            values = tuple(value for link in chunk for value in link)
            asked = f"{query.replace('%', '%%')}({', '.join([one] * len(chunk))})"
            yield from map(tuple, c.exec_driver_sql(asked, values).all())

    def _given(
        self, parts: Sequence[Part[Row, At]], keys: dict[tuple[Any, ...], bool], whole: bool
    ) -> Touches:
        touches: dict[bytes, Touch] = {}
        for raw, deleted in keys.items():
            key = self._watched.decode(raw)
            form = encode(key)
            touches[form] = Touch(key, deleted or (form in touches and touches[form].deleted))
        ends = [part.end for part in parts if part.end is not None]
        return Touches(
            list(touches.values()),
            self._journal.position(ends[-1], self._feed) if ends else None,
            whole,
            [mark for part in parts for mark in part.marks],
            max(0.0, time.time() - min(part.committed for part in parts) - 1.0),
        )

    def acknowledge(self, position: Json) -> None:
        """The server keeps no positions: the control database's is the one."""

    def close(self) -> None:
        self._stream.close()


def mark(c: Connection, table: str, name: str) -> None:
    """Write a marker in the connection's transaction."""
    c.exec_driver_sql(f"INSERT INTO {quote(table)} (mark) VALUES (%s)", (name,))  # noqa: S608


def _end(c: Connection) -> tuple[str, int]:
    """Where the log ends now."""
    version = str(c.exec_driver_sql("SELECT version()").scalar())
    new = "mariadb" not in version.lower() and int(version.split(".")[0]) >= 9
    found = c.exec_driver_sql(f"SHOW {'BINARY LOG' if new else 'MASTER'} STATUS").one()
    return str(found[0]), int(found[1])


def _replicates(c: Connection) -> Iterator[str]:
    """Of which server this one is a replica: what comes from there passes all triggers."""
    # Shown, it is OFF on all servers; by @@ it is 0 on most, and a word on newer ones of MariaDB.
    shown = c.exec_driver_sql("SHOW GLOBAL VARIABLES LIKE 'read_only'").one()
    if str(shown[1]).upper() != "OFF":
        yield "the server is read_only, as replicas are: what is written, is written elsewhere"
        return
    for asked in ("SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS"):  # MariaDB, and MySQL
        with suppress(DBAPIError):  # the other one; or nobody may ask who has no right
            for row in c.exec_driver_sql(asked).mappings():
                host = row.get("Master_Host", row.get("Source_Host"))
                yield f"the server is a replica of {host}, whose writes no fence here stops"
            return


def _lacking(c: Connection) -> Iterator[tuple[str, str, str, str]]:
    """What stands in the way of the binary log and of a fence, and what to do about it."""
    for text in _replicates(c):
        yield "error", "replica", text, "name the server that applications write to"
    shown = c.exec_driver_sql("SHOW GLOBAL VARIABLES WHERE variable_name LIKE 'binlog_row%%'")
    found = {str(name).lower(): str(value) for name, value in shown.all()}
    found["log_bin"] = str(c.exec_driver_sql("SELECT @@log_bin").scalar())
    found["binlog_format"] = str(c.exec_driver_sql("SELECT @@global.binlog_format").scalar())
    for name, (wanted, hint) in _WANTED.items():
        if (value := found.get(name, "not known to this server")).upper() != wanted:
            yield "error", name.replace("_", "-"), f"{name} is {value}, not {wanted}", hint
    grants = _grants(c)
    if _ALL in grants:
        return
    looks = "BINLOG MONITOR" in grants or "REPLICATION CLIENT" in grants
    if "REPLICATION SLAVE" not in grants or not looks:
        yield "error", "replication-right", "this user may not read the binary log", _RIGHT


def _no_fence(c: Connection) -> Iterator[tuple[str, str, str]]:
    """What stands in the way of the fence of a swap, whose triggers the server lets few make."""
    grants = _grants(c)
    trusted = c.exec_driver_sql("SELECT NOT @@log_bin OR @@log_bin_trust_function_creators")
    if _ALL in grants or "SUPER" in grants or trusted.scalar():
        return
    yield (
        "warning", "fence-right",
        "this user may not make triggers while the server keeps a binary log, so a swap can't stop "
        "writes; SET GLOBAL log_bin_trust_function_creators = ON, or GRANT SUPER ON *.* TO this "
        "user",
    )  # fmt: skip


def _grants(c: Connection) -> str:
    return " ".join(str(row[0]) for row in c.exec_driver_sql("SHOW GRANTS").all()).upper()

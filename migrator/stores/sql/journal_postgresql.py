"""The journal of PostgreSQL: a logical replication slot over the tables of an aggregate.

A commit may show in the stream before a read can see it; touches are handed on only once a
snapshot holds their transaction (design, "What a feed shows and what a read sees").
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import sqlalchemy as sa
from psycopg.conninfo import make_conninfo
from sqlalchemy.engine import Connection

from migrator.errors import FeedLost, Refused, Terminal
from migrator.journal import Kept, Touch, Touches
from migrator.model.value import Value
from migrator.ports import Json, StoreSettings
from migrator.stores.sql.engine import Database, connect_args
from migrator.stores.sql.locks_postgresql import locked
from migrator.stores.sql.options import read_url
from migrator.stores.sql.pgoutput import Relation
from migrator.stores.sql.shape import Node
from migrator.stores.sql.stream_postgresql import Changes, Stream, lsn_number, lsn_text, marks_of
from migrator.stores.sql.touched import Touched

_PUBLICATION = "SELECT 1 FROM pg_publication WHERE pubname = :n"
_SLOT = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = :n"
_AT_ONCE = 2_000  # rows turned into touches with one question to the server
# The stream sends texts as this session prints them, and they are read back as others print them.
_SESSION = (
    "-c DateStyle=ISO,YMD -c IntervalStyle=iso_8601 -c TimeZone=UTC -c extra_float_digits=1 "
    "-c bytea_output=hex -c statement_timeout=0"
)


class Followed(Protocol):
    """A collection as its feed and its fence see it: tables, and how the root's key is read."""

    database: Database
    settings: StoreSettings
    where: str

    @property
    def root(self) -> Node: ...

    def key(self, value: Value) -> Value: ...


class PostgresqlJournal:
    """One slot and one publication, both of the same name."""

    rounds = 1

    def __init__(self, followed: Followed, name: str) -> None:
        self.followed = followed
        self.database = followed.database
        self.name = name
        self.where = followed.where

    def describe(self) -> str:
        count = len(self._nodes)
        return f"logical decoding of {count} table{'s' if count > 1 else ''}"

    @property
    def _nodes(self) -> list[Node]:
        return list(self.followed.root.walk())

    @contextmanager
    def _session(self, *, dropped: bool = False) -> Iterator[Connection]:
        """A connection without a transaction: a slot can't be made in one that has written.
        ``dropped``: the tables may be gone, and are not asked for."""
        from migrator.stores.sql.errors import edge

        if not dropped:
            _ = self._nodes
        with edge(self.where, writing=True), self.database.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    # ------------------------------------------------------------ made and removed

    def findings(self) -> Iterable[tuple[str, str, str]]:
        # The server first: the tables of a target may still have to be made.
        with self.database.reading(self.where) as c:
            yield from lacking(c)
            if one(c, "SHOW max_slot_wal_keep_size") == "-1":
                yield (
                    "warning", "wal-keep",
                    "max_slot_wal_keep_size is -1: while no mirror runs, nothing keeps the slot "
                    "from filling the server's disk; SET it to what the disk can spare",
                )  # fmt: skip
        with self._session() as c:
            yield from (("error", code, text) for code, text in unfollowed(c, self._nodes))
            yield from not_owned(c, self._nodes)
            for node in self._nodes:
                if any(not _leads(c, node, each) for each in places(node)):
                    yield (
                        "note", "replica-identity",
                        f"{node.info.name} gets REPLICA IDENTITY FULL while the move lasts: its "
                        "primary key does not tell which aggregate a row belongs to",
                    )  # fmt: skip

    def prepare(self) -> Json:
        with self._session() as c:
            if one(c, _PUBLICATION, n=self.name) is None or one(c, _SLOT, n=self.name) is None:
                for _, code, text in lacking(c):
                    raise Refused(text, where=self.where, hint=HINTS[code])
            for code, text in unfollowed(c, self._nodes):
                raise Refused(text, where=self.where, hint=HINTS[code])
        self._publish()
        with self._session() as c:
            if (at := one(c, _SLOT, n=self.name)) is None:
                make = "SELECT lsn FROM pg_create_logical_replication_slot(:n, 'pgoutput')"
                at = one(c, make, n=self.name)
            system = one(c, "SELECT system_identifier FROM pg_control_system()")
            return {"lsn": str(at), "system": str(system)}

    def _publish(self) -> None:
        """Publish the tables with old rows that show which aggregate they belonged to. What their
        replica identities were is kept with the publication, in the same transaction."""
        nodes = self._nodes
        with self.database.reading(self.where) as c:
            if one(c, _PUBLICATION, n=self.name) is not None:
                return
            named = [(node, table) for node in nodes for table in places(node)]
            before = {t: _identity(c, t) for node, t in named if not _leads(c, node, t)}

        def publish(c: Connection) -> None:
            if one(c, _PUBLICATION, n=self.name) is not None:
                return  # somebody was faster
            for table in before:
                c.execute(ddl(f"ALTER TABLE {table} REPLICA IDENTITY FULL"))
            c.execute(
                ddl(f'CREATE PUBLICATION "{self.name}" FOR TABLE {", ".join(map(quoted, nodes))}')
            )
            kept = json.dumps(before).replace("'", "''")
            c.execute(ddl(f"COMMENT ON PUBLICATION \"{self.name}\" IS '{kept}'"))

        locked(self.database, self.where, list(before), "ACCESS EXCLUSIVE", publish)

    def drop(self) -> None:
        with self._session(dropped=True) as c:
            self._drop_slot(c)
            said = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication"
            kept = json.loads(one(c, f"{said} WHERE pubname = :n", n=self.name) or "{}")
            there = [t for t in kept if one(c, "SELECT to_regclass(:t)", t=t) is not None]

        def remove(c: Connection) -> None:
            for table in there:
                c.execute(ddl(f"ALTER TABLE {table} REPLICA IDENTITY {kept[table]}"))
            c.execute(ddl(f'DROP PUBLICATION IF EXISTS "{self.name}"'))

        locked(self.database, self.where, there, "ACCESS EXCLUSIVE", remove)

    def kept(self) -> Kept | None:
        """The WAL from the slot's restart position on, which no other slot's may be beyond."""
        query = (
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), safe_wal_size "
            "FROM pg_replication_slots WHERE slot_name = :n AND restart_lsn IS NOT NULL"
        )
        with self.database.reading(self.where) as c:
            found = c.execute(sa.text(query), {"n": self.name}).first()
        if found is None:
            return None
        return Kept(int(found[0]), None if found[1] is None else int(found[1]))

    def _drop_slot(self, c: Connection) -> None:
        """Drop the slot, once whoever reads it has been sent away."""
        reader = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
        one(c, f"{reader} WHERE slot_name = :n AND active", n=self.name)
        active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = :n AND active"
        for _ in range(200):
            if one(c, active, n=self.name) is None:
                break
            time.sleep(0.05)
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        one(c, f"{drop} WHERE slot_name = :n", n=self.name)

    def mark(self, name: str) -> None:
        with self.database.writing(self.where) as c:
            self.emit(c, name)

    def emit(self, c: Connection, mark: str) -> None:
        """Write a marker in the connection's transaction."""
        statement = sa.text("SELECT pg_logical_emit_message(true, :prefix, :mark)")
        c.execute(statement, {"prefix": marks_of(self.name), "mark": mark})

    # ------------------------------------------------------------ reading

    def open(self, position: Json) -> PostgresqlFeed:
        at = position if isinstance(position, dict) else {}
        touched = Touched(self.followed.root, self.followed.key)

        def check(relation: Relation) -> None:
            if not touched.leads(relation):
                raise FeedLost(
                    f"the replica identity of {relation.name} was changed: whose its old rows were "
                    "is not told",
                    where=self.where,
                )

        stream = Stream(
            self._conninfo(), self.name, self.name, lsn_number(str(at.get("lsn", "0/0"))),
            self.where, check,
        )  # fmt: skip
        if at.get("system") not in (None, stream.system):
            stream.close()
            raise FeedLost(
                f"this is server {stream.system}, the feed was read from {at['system']}",
                where=self.where,
            )
        return PostgresqlFeed(self, stream, touched)

    def _conninfo(self) -> str:
        settings = self.followed.settings
        parts = read_url(settings).translate_connect_args(username="user", database="dbname")
        if settings.secret is not None:
            parts["password"] = settings.secret()
        options = {**connect_args("postgresql", self.database.options), **parts}
        options |= {"application_name": "migrator feed", "options": _SESSION}
        return make_conninfo("", replication="database", **options)


class PostgresqlFeed:
    """A slot being read."""

    def __init__(self, journal: PostgresqlJournal, stream: Stream, touched: Touched) -> None:
        self._journal = journal
        self._stream = stream
        self._touched = touched
        self._ahead: list[Changes] = []

    def poll(self, seconds: float) -> Touches | None:
        if not self._ahead:
            self._ahead = self._stream.parts.take(seconds, _AT_ONCE)
        if not self._ahead:
            return None
        with self._journal.database.reading(self._journal.where) as connection:
            if not _visible(connection, {part.xid for part in self._ahead}):
                time.sleep(0.001)
                return None
            touches = self._touched.touches(connection, [r for p in self._ahead for r in p.rows])
        parts, self._ahead = self._ahead, []
        return self._given(parts, touches)

    def _given(self, parts: Sequence[Changes], touches: list[Touch]) -> Touches:
        ends = [part.end for part in parts if part.end is not None]
        return Touches(
            touches,
            None if not ends else {"lsn": lsn_text(ends[-1]), "system": self._stream.system},
            any(part.whole for part in parts),
            [mark for part in parts for mark in part.marks],
            max(0.0, time.time() - min(part.committed for part in parts)),
        )

    def acknowledge(self, position: Json) -> None:
        assert isinstance(position, dict)
        self._stream.confirm(lsn_number(position["lsn"]))

    def close(self) -> None:
        self._stream.close()


def _visible(connection: Connection, xids: set[int]) -> bool:
    """Whether this snapshot, and so every later one, holds these transactions.

    The stream gives 32 bits of their numbers; the epoch is the one that puts them nearest to the
    snapshot's end.
    """
    row = connection.execute(
        sa.text("SELECT pg_snapshot_xmax(pg_current_snapshot())\\:\\:text\\:\\:numeric")
    )
    top = int(row.scalar_one())
    full = [str(widened(xid, top)) for xid in xids]
    seen = sa.text(
        "SELECT bool_and(pg_visible_in_snapshot(x\\:\\:xid8, pg_current_snapshot())) "
        "FROM unnest(CAST(:xids AS text[])) AS x"
    )
    return bool(connection.execute(seen, {"xids": full}).scalar_one())


def widened(xid: int, near: int) -> int:
    """A transaction's whole number, of which the low 32 bits are known: the nearest one."""
    base = (near & ~0xFFFFFFFF) | xid
    found = min((base - 2**32, base, base + 2**32), key=lambda one: abs(one - near))
    return found if found >= 0 else base


def one(connection: Connection, statement: str, **values: Any) -> Any:
    return connection.execute(sa.text(statement), values).scalar()


def left(followed: Followed) -> list[Node]:
    """The tables that are followed; none where they were dropped, as by a finish. What was made on
    them went along."""
    try:
        return list(followed.root.walk())
    except (Refused, Terminal):
        return []


def quoted(node: Node) -> str:
    return _quoted(node.info.schema, node.info.name)


def _quoted(schema: str | None, name: str) -> str:
    parts = [schema, name] if schema else [name]
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def places(node: Node) -> list[str]:
    """A table and its partitions, quoted: who writes one of these by its own name passes what was
    made for the table alone."""
    below = [_quoted(schema, name) for schema, name, _ in node.info.members]
    return [quoted(node), *below]


def unfollowed(
    c: Connection, nodes: Sequence[Node], *, logged: bool = True
) -> Iterator[tuple[str, str]]:
    """What of some tables can't be followed, or not fenced; ``logged`` by the server's log."""
    if one(c, "SELECT pg_is_in_recovery()"):
        yield "replica", "this server is a replica: what is written, is written on another one"
        return
    query = (
        "SELECT relkind = 'f', relpersistence <> 'p' FROM pg_class WHERE oid = CAST(:t AS regclass)"
    )
    for table in dict.fromkeys(each for node in nodes for each in places(node)):
        # The server applies such changes without the triggers of statements.
        for (name,) in c.execute(sa.text(_SUBSCRIBED), {"t": table}):
            yield "subscribed", f"{table} is written by the subscription {name}, past every fence"
        foreign, unlogged = c.execute(sa.text(query), {"t": table}).one()
        if foreign:
            yield "foreign-table", f"{table} lies on another server, whose writes show nowhere here"
        elif unlogged and logged:
            yield "not-logged", f"{table} is UNLOGGED: the server's log does not show its writes"
    for node in nodes:
        heirs = [_quoted(s, n) for s, n, partition in node.info.members if not partition]
        if heirs:
            yield (
                "inherited",
                f"{quoted(node)} shows the rows of {', '.join(heirs)}, which inherits from it: "
                "nothing could be written back there",
            )


def _identity(c: Connection, table: str) -> str:
    """The replica identity of a table, quoted, as ALTER TABLE takes it."""
    query = "SELECT relreplident\\:\\:text FROM pg_class WHERE oid = CAST(:t AS regclass)"
    found = one(c, query, t=table)
    if found != "i":
        return {"d": "DEFAULT", "f": "FULL", "n": "NOTHING"}[found]
    index = (
        "SELECT quote_ident(relname) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE indrelid = CAST(:t AS regclass) AND indisreplident"
    )
    # One whose index was dropped tells nothing.
    return f"USING INDEX {name}" if (name := one(c, index, t=table)) else "NOTHING"


def ddl(statement: str) -> sa.TextClause:
    return sa.text(statement.replace(":", "\\:"))


def not_owned(c: Connection, nodes: Sequence[Node]) -> Iterator[tuple[str, str, str]]:
    """Tables that this role may not give a trigger or a replica identity."""
    right = (
        "SELECT quote_ident(pg_get_userbyid(relowner)), quote_ident(current_user) FROM pg_class "
        "WHERE oid = to_regclass(:t) AND NOT pg_has_role(relowner, 'USAGE')"
    )
    for table in dict.fromkeys(each for node in nodes for each in places(node)):
        for owner, role in c.execute(sa.text(right), {"t": table}):
            yield (
                "error", "table-owner",
                f"this role does not own {table}, and so can neither follow it nor stop "
                f"writes to it; GRANT {owner} TO {role}",
            )  # fmt: skip


def _leads(c: Connection, node: Node, table: str) -> bool:
    """Whether the log tells of an old row of a table, quoted, by what leads to its aggregate."""
    if (identity := _identity(c, table)) == "FULL":
        return True
    leads = node.key if node.up is None else node.parent
    return identity == "DEFAULT" and set(leads) <= set(node.info.key)


_SUBSCRIBED = (
    "SELECT s.subname FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid "
    "WHERE r.srrelid = CAST(:t AS regclass)"
)
HINTS = {
    "replica": "name the server that applications write to",
    "subscribed": "name the server that it subscribes to, or drop the subscription",
    "wal-level": "set wal_level = logical in postgresql.conf and restart the server",
    "replication-right": "give this role the right: ALTER ROLE ... REPLICATION",
    "not-logged": "ALTER TABLE ... SET LOGGED, or move it at rest",
    "foreign-table": "move it from the server where it lies, or at rest",
    "inherited": "ALTER TABLE ... NO INHERIT and move each by itself, or move it at rest",
    "slots": "raise max_replication_slots and max_wal_senders, or drop slots nobody uses",
    "server-version": "upgrade the server to PostgreSQL 14 or later",
}


def lacking(c: Connection) -> Iterator[tuple[str, str, str]]:
    """What stands in the way of a slot."""
    if int(one(c, "SHOW server_version_num")) < 140_000:
        yield "error", "server-version", "logical messages need PostgreSQL 14"
    if one(c, "SHOW wal_level") != "logical":
        yield "error", "wal-level", f"wal_level is {one(c, 'SHOW wal_level')}, not logical"
    right = "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
    if not one(c, right):
        yield "error", "replication-right", "this role may not read the replication stream"
    free = (
        "SELECT current_setting('max_replication_slots')\\:\\:int > "
        "(SELECT count(*) FROM pg_replication_slots)"
    )
    if not one(c, free):
        yield "error", "slots", "no replication slot is free"

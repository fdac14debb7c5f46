"""The journal of PostgreSQL where no slot can be had: triggers that fill an outbox.

Triggers write what tells whose rows they are, and the way up to the root is looked up when the
outbox is read: in the transaction itself, a row in between may be moved by another one. What was
read is told by snapshots, never by numbers, which are given before the commit: all rows that this
snapshot shows and the one before did not.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.errors import FeedLost, Refused
from migrator.journal import Kept, Touches
from migrator.ports import Json
from migrator.stores.sql.journal_postgresql import (
    HINTS,
    Followed,
    ddl,
    lacking,
    left,
    not_owned,
    one,
    places,
    quoted,
    unfollowed,
)
from migrator.stores.sql.locks_postgresql import locked
from migrator.stores.sql.pgoutput import Relation, Tuple
from migrator.stores.sql.shape import Node
from migrator.stores.sql.touched import Touched

T = TypeVar("T")

_AT_ONCE = 2_000
_LOOK_EVERY = 0.02
# Texts as the feed reads them, whatever the application's session says.
_SETTINGS = (
    "SET DateStyle = 'ISO, YMD' SET IntervalStyle = 'iso_8601' SET TimeZone = 'UTC' "
    "SET extra_float_digits = '1' SET bytea_output = 'hex' SET search_path FROM CURRENT"
)


class OutboxJournal:
    """An outbox of one run, with a function and two triggers for each table."""

    rounds = 1

    def __init__(self, followed: Followed, name: str) -> None:
        self.followed = followed
        self.database = followed.database
        self.where = followed.where
        self.name = name
        self.outbox = f'"{name}_outbox"'

    def nodes(self) -> list[Node]:
        return list(self.followed.root.walk())

    def describe(self) -> str:
        count = len(self.nodes())
        return f"trigger outbox of {count} table{'s' if count > 1 else ''}"

    def findings(self) -> Iterable[tuple[str, str, str]]:
        with self.database.reading(self.where) as c:
            why = "; ".join(f"{text} ({HINTS[code]})" for _, code, text in lacking(c))
        yield (
            "note", "trigger-outbox",
            f"while the move lasts, triggers write what changes to {self.outbox}, in the same "
            f"transaction, for the write-ahead log can't be read: {why}",
        )  # fmt: skip
        with self.database.reading(self.where) as c:
            yield from (("error", code, text) for code, text in self._unfollowed(c))
            yield from not_owned(c, self.nodes())

    def prepare(self) -> Json:
        with self.database.reading(self.where) as c:
            made = self.identity(c)
            for code, text in self._unfollowed(c) if made is None else ():
                raise Refused(text, where=self.where, hint=HINTS[code])
        if made is None:
            made = self._locked("SHARE ROW EXCLUSIVE", self.nodes(), self._make)
        return {"outbox": made, "seen": "1:1:"}

    def _unfollowed(self, c: Connection) -> Iterator[tuple[str, str]]:
        yield from unfollowed(c, self.nodes(), logged=False)

    def _make(self, c: Connection) -> str | None:
        if self.identity(c) is None:  # else somebody was faster
            c.execute(ddl(
                f"CREATE TABLE {self.outbox} (id bigserial PRIMARY KEY, "
                "xid xid8 NOT NULL DEFAULT pg_current_xact_id(), "
                "at timestamptz NOT NULL DEFAULT clock_timestamp(), "
                "node integer, old text[], new text[], mark text)"
            ))  # fmt: skip
            c.execute(ddl(f"COMMENT ON TABLE {self.outbox} IS '{uuid.uuid4().hex}'"))
            for number, node in enumerate(self.nodes()):
                self._watch(c, number, node)
        return self.identity(c)

    def _locked(self, mode: str, nodes: Sequence[Node], work: Callable[[Connection], T]) -> T:
        """Do this while all of these tables that are still there are held."""
        tables = [quoted(node) for node in nodes]
        with self.database.reading(self.where) as c:
            there = [t for t in tables if one(c, "SELECT to_regclass(:t)", t=t) is not None]
        return locked(self.database, self.where, there, mode, work)

    def identity(self, c: Connection) -> str | None:
        """What tells this outbox from all others; None where there is none."""
        found = one(c, "SELECT obj_description(to_regclass(:t), 'pg_class')", t=self.outbox)
        return None if found is None else str(found)

    def _watch(self, c: Connection, number: int, node: Node) -> None:
        name = f'"{self.name}_outbox_{number}"'
        old, new = (_array(row, node) for row in ("OLD", "NEW"))
        into = f"INSERT INTO {self.outbox} (node, old, new) VALUES"
        c.execute(ddl(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"{_SETTINGS} AS $outbox$ BEGIN "
            f"IF TG_OP = 'INSERT' THEN {into} ({number}, NULL, {new}); "
            f"ELSIF TG_OP = 'UPDATE' THEN {into} ({number}, {old}, {new}); "
            f"ELSIF TG_OP = 'DELETE' THEN {into} ({number}, {old}, NULL); "
            f"ELSE {into} ({number}, NULL, NULL); END IF; RETURN NULL; END $outbox$"
        ))  # fmt: skip
        # The server itself gives a partition the trigger of its table, but none for TRUNCATE.
        for table in places(node):
            for each, events in (("ROW", "INSERT OR UPDATE OR DELETE"), ("STATEMENT", "TRUNCATE")):
                trigger = f'"{self.name}_outbox_{each.lower()}"'
                if each == "STATEMENT" or table == quoted(node):
                    c.execute(ddl(
                        f"CREATE TRIGGER {trigger} AFTER {events} ON {table} FOR EACH {each} "
                        f"EXECUTE FUNCTION {name}()"
                    ))  # fmt: skip
                c.execute(ddl(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}"))

    def kept(self) -> Kept | None:
        """The outbox with its index, as they lie on the disk."""
        with self.database.reading(self.where) as c:
            size = one(c, "SELECT pg_total_relation_size(to_regclass(:t))", t=self.outbox)
        return None if size is None else Kept(int(size))

    def drop(self) -> None:
        self._locked("ACCESS EXCLUSIVE", left(self.followed), self._remove)

    def _remove(self, c: Connection) -> None:
        pattern = f"{self.name}_outbox_"
        functions = (
            "SELECT quote_ident(proname) FROM pg_proc WHERE left(proname, :n) = :p "
            "AND pg_function_is_visible(oid)"
        )
        asked = {"n": len(pattern), "p": pattern}
        for (name,) in c.execute(sa.text(functions), asked).all():
            c.execute(ddl(f"DROP FUNCTION {name}() CASCADE"))  # its triggers go with it
        c.execute(ddl(f"DROP TABLE IF EXISTS {self.outbox}"))

    def mark(self, name: str) -> None:
        with self.database.writing(self.where) as c:
            self.emit(c, name)

    def emit(self, c: Connection, mark: str) -> None:
        """Write a marker in the connection's transaction."""
        c.execute(sa.text(f"INSERT INTO {self.outbox} (mark) VALUES (:m)"), {"m": mark})  # noqa: S608

    def open(self, position: Json) -> OutboxFeed:
        return OutboxFeed(self, position if isinstance(position, dict) else {})


class OutboxFeed:
    """An outbox being read: from the snapshot ``seen`` to the snapshot ``now``, in pages."""

    def __init__(self, journal: OutboxJournal, position: dict[str, Json]) -> None:
        self._journal = journal
        self._database = journal.database
        self._touched = Touched(journal.followed.root, journal.followed.key)
        self._relations = [_relation(node) for node in journal.nodes()]
        self._seen = str(position.get("seen", "1:1:"))
        self._now = None if position.get("now") is None else str(position["now"])
        self._last = int(str(position.get("id", 0)))
        with self._database.reading(journal.where) as c:
            self._name = journal.identity(c)
        if self._name is None or position.get("outbox") not in (None, self._name):
            raise FeedLost("the outbox was removed", where=journal.where)

    def _position(self) -> dict[str, Json]:
        return {"outbox": self._name, "seen": self._seen, "now": self._now, "id": self._last}

    def poll(self, seconds: float) -> Touches | None:
        end = time.monotonic() + seconds
        while True:
            if (given := self._take()) is not None:
                return given
            left = end - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(_LOOK_EVERY, left))

    def _take(self) -> Touches | None:
        query = sa.text(
            "SELECT id, extract(epoch FROM clock_timestamp() - at), node, old, new, mark "  # noqa: S608
            f"FROM {self._journal.outbox} WHERE id > :last "
            "AND pg_visible_in_snapshot(xid, CAST(:now AS pg_snapshot)) "
            "AND NOT pg_visible_in_snapshot(xid, CAST(:seen AS pg_snapshot)) "
            f"ORDER BY id LIMIT {_AT_ONCE}"
        )
        with self._database.reading(self._journal.where) as c:
            if self._journal.identity(c) != self._name:
                raise FeedLost("the outbox was removed", where=self._journal.where)
            now = self._now or str(one(c, "SELECT CAST(pg_current_snapshot() AS text)"))
            asked = {"last": self._last, "now": now, "seen": self._seen}
            found = c.execute(query, asked).all()
            touches = self._touched.touches(c, [row for each in found for row in self._rows(each)])
        if len(found) == _AT_ONCE:
            self._now, self._last = now, found[-1][0]
        else:
            self._seen, self._now, self._last = now, None, 0
        if not found:
            return None
        whole = any(node is not None and old is new is None for _, _, node, old, new, _ in found)
        marks = [mark for *_, mark in found if mark is not None]
        return Touches(touches, self._position(), whole, marks, max(0.0, float(found[0][1])))

    def _rows(self, found: Sequence[Any]) -> list[tuple[str, Relation, Tuple]]:
        _, _, node, old, new, _ = found
        if node is None:
            return []
        relation = self._relations[node]
        rows: list[tuple[str, Relation, Tuple]] = []
        if old is not None:
            rows.append(("D" if new is None else "O", relation, old))
        if new is not None:
            rows.append(("N", relation, new))
        return rows

    def acknowledge(self, position: Json) -> None:
        assert isinstance(position, dict)
        now = position["now"]
        with self._database.writing(self._journal.where) as c:
            if self._journal.identity(c) != self._name:
                return  # it was removed meanwhile, as the next look tells
            c.execute(
                sa.text(
                    f"DELETE FROM {self._journal.outbox} WHERE "  # noqa: S608
                    "pg_visible_in_snapshot(xid, CAST(:seen AS pg_snapshot)) OR (id <= :id AND "
                    "pg_visible_in_snapshot(xid, CAST(coalesce(:now, '1:1:') AS pg_snapshot)))"
                ),
                {"seen": position["seen"], "now": now, "id": position["id"]},
            )

    def close(self) -> None:
        """The outbox stays."""


def _columns(node: Node) -> tuple[str, ...]:
    """What tells whose a row is."""
    return node.key if node.up is None else node.parent


def _array(row: str, node: Node) -> str:
    names = ['"' + name.replace('"', '""') + '"' for name in _columns(node)]
    return "ARRAY[" + ", ".join(f"{row}.{name}::text" for name in names) + "]"


def _relation(node: Node) -> Relation:
    return Relation(0, node.info.schema or "", node.info.name, _columns(node))

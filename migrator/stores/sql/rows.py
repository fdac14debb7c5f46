"""From rows to aggregates: a page of roots, and one query a table for all that hangs below.

The same code serves the copier and the observer; what differs is the ``Decoding``: how columns
are selected and decoded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import Connection

from migrator.model import value as v
from migrator.model.value import Record, Value
from migrator.stores.sql.columns import Codec
from migrator.stores.sql.documents import JSON_NULL
from migrator.stores.sql.keys import among, selected
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.shape import Node

Row: TypeAlias = Sequence[Any]
_CHUNK = {"postgresql": 5000, "mysql": 1000, "sqlite": 400}


@dataclass(frozen=True)
class Decoding:
    """One way to read: how a column is selected, and what makes a value of what arrives."""

    select: Callable[[Codec, sa.ColumnElement[Any]], sa.ColumnElement[Any]]
    decode: Callable[[Codec], Callable[[Any], Value] | None]


COPIER = Decoding(selected, lambda codec: codec.decode)


@dataclass(slots=True)
class Found:
    """A row on its way: its values by column, and the record they become.

    ``top`` is the root it belongs to (None for a root), ``problem`` why that is damaged.
    """

    values: list[Value]
    record: Record
    top: Found | None = None
    problem: str = ""


def fetch(connection: Connection, statement: sa.Executable, dialect: Dialect) -> list[Row]:
    """All rows of a query. Text of SQLite that is no UTF-8 arrives as an opaque value."""
    if dialect != "sqlite":
        return list(connection.execute(statement).all())
    try:
        return list(connection.execute(statement).all())
    except exc.OperationalError as error:
        if "decode to UTF-8" not in str(error.orig):
            raise
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.text_factory = _lenient
    try:
        return list(connection.execute(statement).all())
    finally:
        raw.text_factory = str


def _lenient(data: bytes) -> Value:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return v.Opaque("sqlite", "text", data)


class Reader:
    """Reads aggregates of one shape."""

    def __init__(self, root: Node, dialect: Dialect, decoding: Decoding = COPIER) -> None:
        self.root = root
        self.dialect = dialect
        self.decoding = decoding
        self._decoders = {
            node: [
                (i, decode)
                for i, codec in enumerate(node.codecs)
                if (decode := decoding.decode(codec)) is not None
            ]
            for node in root.walk()
        }

    def select(self, node: Node, source: sa.FromClause | None = None) -> sa.Select[Any]:
        """The query for all columns of a table."""
        table = node.table if source is None else source
        columns = [self.decoding.select(codec, table.c[codec.name]) for codec in node.codecs]
        return sa.select(*columns)

    def read(
        self,
        connection: Connection,
        conditions: Sequence[Any],
        limit: int | None,
        seen: dict[Node, list[Found]] | None = None,
    ) -> tuple[list[Found], int]:
        """The aggregates that meet the conditions, in key order, and about how many bytes.

        ``seen`` takes up every row that was read, by its table.
        """
        return self.read_at(connection, self.root, conditions, limit, seen)

    def read_at(
        self,
        connection: Connection,
        node: Node,
        conditions: Sequence[Any],
        limit: int | None,
        seen: dict[Node, list[Found]] | None = None,
    ) -> tuple[list[Found], int]:
        """As ``read``, for the rows of any table and what hangs below them."""
        query = self.select(node).where(*conditions)
        query = query.order_by(*(node.table.c[name] for name in node.key)).limit(limit)
        rows = fetch(connection, query, self.dialect)
        found = [self._found(node, row) for row in rows]
        if seen is not None:
            seen[node].extend(found)
        weight = _weight(rows) + self._fill(connection, node, found, seen)
        return found, weight

    def _found(self, node: Node, row: Row) -> Found:
        values = list(row)
        for i, decode in self._decoders[node]:
            if values[i] is not None:
                values[i] = decode(values[i])
        return Found(values, _record(node, values))

    def _fill(
        self,
        connection: Connection,
        node: Node,
        parents: list[Found],
        seen: dict[Node, list[Found]] | None,
    ) -> int:
        """Put the rows of the child tables into their parents' records."""
        weight = 0
        for child in node.children:
            groups: dict[tuple[Value, ...], list[Found]] = {}
            all_found: list[Found] = []
            places = node.places(child.refs)
            wanted = list(dict.fromkeys(tuple(p.values[i] for i in places) for p in parents))
            wanted = [key for key in wanted if None not in key]
            for chunk in _chunks(wanted, _CHUNK[self.dialect]):
                rows = fetch(connection, self._children(child, chunk), self.dialect)
                weight += _weight(rows)
                for row in rows:
                    key, found = self._child(child, row)
                    groups.setdefault(key, []).append(found)
                    all_found.append(found)
            for parent in parents:
                key = tuple(parent.values[i] for i in places)
                _hang(child, parent, key, groups.get(key, []))
            if seen is not None:
                seen[child].extend(all_found)
            weight += self._fill(connection, child, all_found, seen)
        return weight

    def _children(self, child: Node, keys: list[tuple[Value, ...]]) -> sa.Select[Any]:
        assert child.up is not None
        up = child.up
        theirs = up.codecs_of(child.refs)
        encoded = [[c.encode(x) for c, x in zip(theirs, key, strict=True)] for key in keys]
        mine = [child.table.c[name] for name in child.parent]
        query = self.select(child)
        if child.joined:
            parent = up.table.alias("parent")
            columns = [parent.c[name] for name in child.refs]
            query = query.add_columns(
                *(
                    self.decoding.select(c, column).label(f"parent {i}")
                    for i, (c, column) in enumerate(zip(theirs, columns, strict=True))
                )
            )
            on = sa.and_(*(a == b for a, b in zip(mine, columns, strict=True)))
            query = query.select_from(child.table.join(parent, on))
            query = query.where(among(theirs, columns, encoded, self.dialect))
        else:
            query = query.where(among(theirs, mine, encoded, self.dialect))
        order = child.order or tuple(codec.name for codec in child.codecs)
        return query.order_by(*(child.table.c[name] for name in order))

    def _child(self, child: Node, row: Row) -> tuple[tuple[Value, ...], Found]:
        width = len(child.codecs)
        found = self._found(child, row[:width])
        if not child.joined:
            return tuple(found.values[i] for i in child.places(child.parent)), found
        assert child.up is not None
        key = []
        for codec, raw in zip(child.up.codecs_of(child.refs), row[width:], strict=True):
            decode = self.decoding.decode(codec)
            key.append(raw if decode is None or raw is None else decode(raw))
        return tuple(key), found


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _record(node: Node, values: list[Value]) -> Record:
    absent = node.spec.nulls == "absent"
    record: Record = {}
    for codec, value in zip(node.codecs, values, strict=True):
        if codec.name == node.position:
            continue
        if value is None and (absent or codec.json):
            continue
        if value is JSON_NULL:
            value = None
        record[codec.name] = value
    return record


def _hang(child: Node, parent: Found, key: tuple[Value, ...], found: list[Found]) -> None:
    """Give a parent's record its child rows; what merely repeats the parent's key goes."""
    spec, record = child.spec, parent.record
    top = parent.top or parent
    for one in found:
        one.top = top
        for name, value in zip(child.parent, key, strict=True):
            held = one.record.get(name)
            if type(held) is type(value) and held == value:
                one.record.pop(name, None)
    items = [one.record.get(spec.value) if spec.value else one.record for one in found]
    if not spec.one:
        record[child.name] = items
        return
    if len(items) > 1:
        top.problem = f"{child.path}: {len(items)} rows of {child.info.name}, declared as one"
    if items:
        record[child.name] = items[0]
    elif child.up is not None and child.up.spec.nulls != "absent":
        record[child.name] = None


def _weight(rows: list[Row]) -> int:
    total = 0
    for row in rows:
        for value in row:
            total += len(value) if isinstance(value, (str, bytes)) else 8
    return total

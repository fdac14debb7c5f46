"""From rows to aggregates: a page of roots, and one query a table for all that hangs below.

The same code serves the copier and the observer; what differs is the ``Decoding``: how columns
are selected and decoded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
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
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return leniently(raw, lambda: list(connection.execute(statement).all()))


def leniently(raw: sqlite3.Connection, ask: Callable[[], list[Row]]) -> list[Row]:
    """What is asked of SQLite, once more where a text turns out to be no UTF-8."""
    try:
        return ask()
    except (exc.OperationalError, sqlite3.OperationalError) as error:
        if "decode to UTF-8" not in str(getattr(error, "orig", error)):
            raise
    raw.text_factory = _lenient
    try:
        return ask()
    finally:
        raw.text_factory = str


def _lenient(data: bytes) -> Value:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return v.Opaque("sqlite", "text", data)


# Gives the rows of a child table that lie below some parents.
Below: TypeAlias = Callable[[Node, list[Found]], Iterable[list[Row]]]


class Plan:
    """What is known of a table's rows before one is read: this runs for every row."""

    def __init__(self, node: Node, decoding: Decoding) -> None:
        self.node = node
        self.width = len(node.codecs)
        self.decoders = [
            (i, decode)
            for i, codec in enumerate(node.codecs)
            if (decode := decoding.decode(codec)) is not None
        ]
        # Where both columns are read alike, the link to the parent is sure to repeat its key.
        self.repeats = node.up is not None and not node.joined and node.linked_alike
        left_out = {node.position, *node.apart, *(node.parent if self.repeats else ())}
        self.fields = [
            (i, codec.name, codec.json)
            for i, codec in enumerate(node.codecs)
            if codec.name not in left_out
        ]
        self.names = [name for _, name, _ in self.fields]
        self.places = [i for i, _, _ in self.fields]
        self.absent = node.spec.nulls == "absent"
        self.simple = not self.absent and not any(json for _, _, json in self.fields)
        self.parent = node.places(node.parent)
        self.pick = picker(self.places)
        self.link = picker(self.parent)
        # Rows of which nothing but the record is needed later.
        self.light = self.repeats and self.simple and not node.children and not node.spec.one
        self.value = node.spec.value
        # Of rows that repeat their parent's key, nothing but these fields is needed.
        flat = node.linked_alike and self.simple and not node.children and not node.spec.one
        self.own = [
            (i, name) for i, name, _ in self.fields if name not in node.parent
        ] if flat else None  # fmt: skip

    def found(self, row: Row) -> Found:
        found = self.bare(row)
        found.record = self.record(found.values)
        return found

    def bare(self, row: Row) -> Found:
        """As ``found``, without a record."""
        values = list(row[: self.width])
        for i, decode in self.decoders:
            raw = values[i]
            if raw is not None:
                values[i] = decode(raw)
        return Found(values, {})

    def record(self, values: list[Value]) -> Record:
        if self.simple:
            return dict(zip(self.names, self.pick(values), strict=True))
        record: Record = {}
        for i, name, json in self.fields:
            value = values[i]
            if value is None and (self.absent or json):
                continue
            record[name] = None if value is JSON_NULL else value
        return record

    def listed(self, rows: list[Row], link: tuple[Any, ...]) -> list[Value] | None:
        """The items of a list, of rows that all repeat a key as the driver gives it; None where
        they don't, or are not so plain."""
        if self.own is None or any(self.link(row) != link for row in rows):
            return None
        decoders = dict(self.decoders)
        fields = [(i, name, decoders.get(i)) for i, name in self.own]
        items: list[Value] = []
        for row in rows:
            record: Record = {}
            for i, name, decode in fields:
                held = row[i]
                record[name] = held if decode is None or held is None else decode(held)
            items.append(record if self.value is None else record[self.value])
        return items

    def group(self, rows: list[Row], groups: dict[tuple[Value, ...], list[Value]]) -> None:
        """Sort the records of light rows by their parents' keys."""
        names, pick, link = self.names, self.pick, self.link
        decoders, field = self.decoders, self.value
        for row in rows:
            values: Row = row
            if decoders:
                values = list(row)
                for i, decode in decoders:
                    raw = values[i]
                    if raw is not None:
                        values[i] = decode(raw)
            record = dict(zip(names, pick(values), strict=True))
            item = record if field is None else record[field]
            key = link(values)
            if key in groups:
                groups[key].append(item)
            else:
                groups[key] = [item]


def picker(places: Sequence[int]) -> Callable[[Row], tuple[Value, ...]]:
    """Some columns of a row as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    if not places:
        return lambda row: ()
    (place,) = places
    return lambda row: (row[place],)


class Reader:
    """Reads aggregates of one shape."""

    def __init__(self, root: Node, dialect: Dialect, decoding: Decoding = COPIER) -> None:
        self.root = root
        self.dialect = dialect
        self.decoding = decoding
        self.plans = {node: Plan(node, decoding) for node in root.walk()}

    def select(self, node: Node, source: sa.FromClause | None = None) -> sa.Select[Any]:
        """The query for all columns of a table."""
        return sa.select(*self.columns(node, source))

    def columns(
        self, node: Node, source: sa.FromClause | None = None
    ) -> list[sa.ColumnElement[Any]]:
        """All columns of a table, as they are read."""
        table = node.table if source is None else source
        return [self.decoding.select(codec, table.c[codec.name]) for codec in node.codecs]

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
        return self._made(node, rows, partial(self._below, connection), seen)

    def whole(
        self, rows: Mapping[Node, list[Row]], seen: dict[Node, list[Found]] | None = None
    ) -> list[Found]:
        """As ``read``, of all rows that there are, by table and in order."""
        return self._made(self.root, rows[self.root], lambda node, _: [rows[node]], seen)[0]

    def _made(
        self, node: Node, rows: list[Row], below: Below, seen: dict[Node, list[Found]] | None
    ) -> tuple[list[Found], int]:
        found = list(map(self.plans[node].found, rows))
        if seen is not None:
            seen[node].extend(found)
        return found, weight(rows) + self._fill(below, node, found, seen)

    def _below(
        self, connection: Connection, child: Node, parents: list[Found]
    ) -> Iterator[list[Row]]:
        """Rows of a table below some parents, by as many queries as that takes."""
        for chunk in self._wanted(child, parents):
            yield fetch(connection, self._children(child, chunk), self.dialect)

    def _fill(
        self,
        below: Below,
        node: Node,
        parents: list[Found],
        seen: dict[Node, list[Found]] | None,
    ) -> int:
        """Put the rows of the child tables into their parents' records."""
        total = 0
        for child in node.children:
            plan = self.plans[child]
            if plan.light and seen is None:
                total += self._fill_light(below, plan, parents)
                continue
            groups: dict[tuple[Value, ...], list[Found]] = {}
            all_found: list[Found] = []
            places = node.places(child.refs)
            for rows in below(child, parents):
                total += weight(rows)
                found = list(map(self.plans[child].found, rows))
                all_found += found
                for key, one in zip(self._parents(child, rows, found), found, strict=True):
                    groups.setdefault(key, []).append(one)
            for parent in parents:
                key = tuple([parent.values[i] for i in places])
                _hang(plan, parent, key, groups.get(key, []))
            if seen is not None:
                seen[child].extend(all_found)
            total += self._fill(below, child, all_found, seen)
        return total

    def _fill_light(self, below: Below, plan: Plan, parents: list[Found]) -> int:
        total = 0
        groups: dict[tuple[Value, ...], list[Value]] = {}
        for rows in below(plan.node, parents):
            total += weight(rows)
            plan.group(rows, groups)
        assert plan.node.up is not None
        link = picker(plan.node.up.places(plan.node.refs))
        name = plan.node.name
        for parent in parents:
            parent.record[name] = groups.get(link(parent.values)) or []
        return total

    def _wanted(self, child: Node, parents: list[Found]) -> Iterator[list[tuple[Value, ...]]]:
        """The keys of the parents whose rows are wanted, in lists of the size of a query."""
        assert child.up is not None
        link = picker(child.up.places(child.refs))
        keys = dict.fromkeys(link(parent.values) for parent in parents)
        return _chunks([key for key in keys if None not in key], _CHUNK[self.dialect])

    def _children(self, child: Node, keys: list[tuple[Value, ...]]) -> sa.Select[Any]:
        assert child.up is not None
        up = child.up
        theirs = up.codecs_of(child.refs)
        encoded = [[c.encode(x) for c, x in zip(theirs, key, strict=True)] for key in keys]
        mine = [child.table.c[name] for name in child.parent]
        if child.joined:
            parent = up.table.alias("parent")
            columns = [parent.c[name] for name in child.refs]
            query = self.beside(child, parent)
            query = query.where(among(theirs, columns, encoded, self.dialect))
        else:
            query = self.select(child).where(among(theirs, mine, encoded, self.dialect))
        order = child.order or tuple(codec.name for codec in child.codecs)
        return query.order_by(*(child.table.c[name] for name in order))

    def beside(self, child: Node, parent: sa.FromClause) -> sa.Select[Any]:
        """The query for all columns of a table, and for those by which the server joins a row to
        its parent."""
        assert child.up is not None
        theirs = child.up.codecs_of(child.refs)
        columns = [parent.c[name] for name in child.refs]
        query = self.select(child).add_columns(
            *(
                self.decoding.select(c, column).label(f"parent {i}")
                for i, (c, column) in enumerate(zip(theirs, columns, strict=True))
            )
        )
        mine = [child.table.c[name] for name in child.parent]
        on = sa.and_(*(a == b for a, b in zip(mine, columns, strict=True)))
        return query.select_from(child.table.join(parent, on))

    def _parents(
        self, child: Node, rows: list[Row], found: list[Found]
    ) -> Iterator[tuple[Value, ...]]:
        """The key of each row's parent: the row's own link, or what the server joined."""
        if not child.joined:
            places = self.plans[child].parent
            for one in found:
                yield tuple([one.values[i] for i in places])
            return
        assert child.up is not None
        width = len(child.codecs)
        decoders = [self.decoding.decode(c) for c in child.up.codecs_of(child.refs)]
        for row in rows:
            yield tuple(
                raw if decode is None or raw is None else decode(raw)
                for decode, raw in zip(decoders, row[width:], strict=True)
            )


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _hang(plan: Plan, parent: Found, key: tuple[Value, ...], found: list[Found]) -> None:
    """Give a parent's record its child rows; what merely repeats the parent's key goes."""
    child, record = plan.node, parent.record
    top = parent.top or parent
    for one in found:
        one.top = top
        if plan.repeats:
            continue
        for name, value in zip(child.parent, key, strict=True):
            held = one.record.get(name)
            if type(held) is type(value) and held == value:
                one.record.pop(name, None)
    field = plan.value
    items: list[Value] = [one.record.get(field) if field else one.record for one in found]
    if not child.spec.one:
        record[child.name] = items
        return
    if len(items) > 1:
        top.problem = f"{child.path}: {len(items)} rows of {child.info.name}, declared as one"
    if items:
        record[child.name] = items[0]
    elif child.up is not None and child.up.spec.nulls != "absent":
        record[child.name] = None


def weight(rows: Sequence[Row]) -> int:
    """About the bytes of rows, by some of them."""
    if not rows:
        return 0
    some = rows[:: max(1, len(rows) // 16)]
    total = 0
    for row in some:
        for held in row:
            total += len(held) if type(held) is str or type(held) is bytes else 8
    return total * len(rows) // len(some)

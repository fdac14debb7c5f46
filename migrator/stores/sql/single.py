"""One aggregate by its key in one statement: the root's row, and all rows below it.

A statement sees one snapshot, so that no transaction is needed around it, and its text is made
once. Every row has the columns of all tables, of which only those of its own hold something.

MariaDB and MySQL make other types of columns that a union puts together. There a row for each
table is joined to its rows, which leaves types alone; where rows lie deeper than a level below the
root, or the order of their texts would take a table on the disk, it is a statement for each table,
with a snapshot around them. So it is on SQLite, where a statement costs no round trip.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from migrator.model.value import Value
from migrator.stores.sql.columns import server_cast
from migrator.stores.sql.rows import COPIER, Found, Plan, Reader, Row, leniently, picker
from migrator.stores.sql.shape import Node
from migrator.stores.sql.together import send


@dataclass(frozen=True)
class _Text:
    """A statement that takes a key, and gives rows of some tables."""

    text: str
    others: dict[str, Any]
    nodes: Sequence[Node]

    def given(self, key: Sequence[Any]) -> dict[str, Any]:
        """What is bound for a key."""
        return {**self.others, **{f"key{i}": part for i, part in enumerate(key)}}

    def asked(self, raw: Any, key: Sequence[Any]) -> list[Row]:
        """All rows that the server gives."""
        given = self.given(key)
        if isinstance(raw, sqlite3.Connection):
            return leniently(raw, lambda: raw.execute(self.text, given).fetchall())
        if not hasattr(raw, "pgconn"):  # PyMySQL's
            return list(send(raw, "mysql", [(self.text, given)])[0].rows)
        with raw.cursor() as cursor:
            cursor.execute(self.text, given)
            return list(cursor.fetchall())

    def sorted(self, raw: Any, key: Sequence[Any], heads: int) -> dict[Node, list[Row]]:
        """The rows by table; each begins with so many columns, the number of its table first."""
        return self.by_table(self.asked(raw, key), heads)

    def by_table(self, answer: Sequence[Row], heads: int) -> dict[Node, list[Row]]:
        """As ``sorted``, of rows that were given."""
        starts = [heads]
        for node in self.nodes:
            starts.append(starts[-1] + len(node.codecs))
        places = [slice(start, end) for start, end in pairwise(starts)]
        rows: list[list[Row]] = [[] for _ in self.nodes]
        for row in answer:
            rows[row[0]].append(row[places[row[0]]])
        return dict(zip(self.nodes, rows, strict=True))


class One:
    """What all ways have in common: which rows of a table belong to the aggregate of a key."""

    snapshot = False
    """Whether a snapshot has to begin before it reads."""

    def __init__(self, reader: Reader, dialect: sa.Dialect) -> None:
        self.reader = reader
        self.nodes = list(reader.root.walk())
        self._dialect = dialect
        root = reader.root
        held = reader.select(root).where(self._of(root, root.table)).with_for_update()
        self._held = self._text(held, [root])

    def hold(
        self, raw: Any, key: Sequence[Any], seen: dict[Node, list[Found]]
    ) -> list[Found] | None:
        """As ``read``, the root's row held to the end of the transaction; None where there is
        none."""
        return self.read(raw, key, seen) if self._held.asked(raw, key) else None

    def together(self, key: Sequence[Any]) -> list[tuple[str, Any]]:
        """What asks at once for what ``hold`` does: for the root's row, held, and then for the
        rows below it."""
        return [(text.text, text.given(key)) for text in (self._held, *self._rest)]

    def of(
        self, answers: Sequence[Sequence[Row]], seen: dict[Node, list[Found]] | None
    ) -> list[Found] | None:
        """As ``hold``, of the answers to ``together``; nothing is seen where there is no root."""
        return self._made(self._by_table(answers), seen) if answers[0] else None

    def rows_of(
        self, answers: Sequence[Sequence[Row]], seen: dict[Node, list[Found]]
    ) -> list[Found] | None:
        """As ``of``, where nothing but the rows is wanted: no records are made of them."""
        if not answers[0]:
            return None
        for node, rows in self._by_table(answers).items():
            seen[node].extend(map(self.reader.plans[node].bare, rows))
        return seen[self.nodes[0]]

    def _by_table(self, answers: Sequence[Sequence[Row]]) -> dict[Node, list[Row]]:
        """The rows of the answers to ``together``."""
        raise NotImplementedError

    def _made(
        self, rows: dict[Node, list[Row]], seen: dict[Node, list[Found]] | None
    ) -> list[Found]:
        return self.reader.whole(rows, seen)

    @property
    def _rest(self) -> Sequence[_Text]:
        """The statements for the rows below the root."""
        raise NotImplementedError

    def read(
        self, raw: Any, key: Sequence[Any], seen: dict[Node, list[Found]] | None = None
    ) -> list[Found]:
        """The aggregate of a key, as its columns encode it, by the driver's own connection; as
        ``Reader.read``."""
        raise NotImplementedError

    def _text(self, statement: Any, nodes: Sequence[Node]) -> _Text:
        made = statement.compile(dialect=self._dialect)
        # Beside the key there are parameters of what a column is made to by the server.
        return _Text(str(made), dict(made.params), nodes)

    def _of(self, node: Node, table: sa.FromClause) -> sa.ColumnElement[bool]:
        """Rows of a table that belong to the aggregate."""
        if node.up is None:
            return sa.and_(*(table.c[name] == given_key(node, name) for name in node.key))
        up, root = node.up, self.reader.root
        if _by_key(node):
            pairs = zip(node.parent, node.refs, strict=True)
            return sa.and_(*(table.c[mine] == given_key(root, ref) for mine, ref in pairs))
        above = up.table.alias()
        keys = sa.select(*(above.c[ref] for ref in node.refs)).where(self._of(up, above))
        mine = [table.c[name] for name in node.parent]
        return (mine[0] if len(mine) == 1 else sa.tuple_(*mine)).in_(keys)


def given_key(root: Node, name: str) -> sa.ColumnElement[Any]:
    """What is bound for a column of the root's key: ``key0`` and so on, as it encodes them."""
    (codec,) = root.codecs_of((name,))
    place = root.key.index(name)
    given: sa.ColumnElement[Any] = sa.bindparam(f"key{place}", type_=sa.types.NullType())
    return server_cast(given, codec.cast) if codec.cast else given


class Single(One):
    """Reads one aggregate of a shape, on PostgreSQL."""

    _heads = 2

    def __init__(self, reader: Reader, dialect: sa.Dialect) -> None:
        super().__init__(reader, dialect)
        self._all = self._text(self._statement(self.nodes), self.nodes)
        below = self.nodes[1:]
        self._below = self._text(self._statement(below), below) if below else None

    def read(
        self, raw: Any, key: Sequence[Any], seen: dict[Node, list[Found]] | None = None
    ) -> list[Found]:
        return self._made(self._all.sorted(raw, key, self._heads), seen)

    def hold(
        self, raw: Any, key: Sequence[Any], seen: dict[Node, list[Found]]
    ) -> list[Found] | None:
        root = self._held.asked(raw, key)
        if not root:
            return None
        below = {} if self._below is None else self._below.sorted(raw, key, self._heads)
        return self._made({self.nodes[0]: root, **below}, seen)

    @cached_property
    def _rest(self) -> Sequence[_Text]:
        return [] if self._below is None else [self._below]

    def _by_table(self, answers: Sequence[Sequence[Row]]) -> dict[Node, list[Row]]:
        root, *below = answers
        rows = {self.nodes[0]: list(root)}
        for text, answer in zip(self._rest, below, strict=True):
            rows |= text.by_table(answer, self._heads)
        return rows

    def _statement(self, nodes: Sequence[Node]) -> Any:
        """What tells tables apart, and a row's place among those of its table, come first."""
        tables = [node.table.alias(f"t{i}") for i, node in enumerate(nodes)]
        columns = self._columns(nodes, tables)
        selects = []
        for number, (node, table) in enumerate(zip(nodes, tables, strict=True)):
            source: sa.FromClause = table
            for other in tables:
                if other is not table:  # its columns, with their types, and never a row of it
                    source = source.outerjoin(other, sa.false())
            place = sa.func.row_number().over(order_by=[table.c[n] for n in _order(node)])
            heads = [sa.literal_column(str(number)), place]
            selects.append(
                sa.select(*heads, *columns).select_from(source).where(self._of(node, table))
            )
        return sa.union_all(*selects).order_by(sa.text("1, 2"))

    def _columns(
        self, nodes: Sequence[Node], tables: Sequence[sa.FromClause]
    ) -> list[sa.ColumnElement[Any]]:
        pairs = zip(nodes, tables, strict=True)
        return [column for node, table in pairs for column in self.reader.columns(node, table)]


class Joined(Single):
    """Reads one aggregate of a shape, on MariaDB and MySQL."""

    _heads = 1

    @cached_property
    def _rest(self) -> Sequence[_Text]:
        """One for each table: beside others in one request it takes less than a join."""
        return [self._text(self._rows(node), [node]) for node in self.nodes[1:]]

    def _by_table(self, answers: Sequence[Sequence[Row]]) -> dict[Node, list[Row]]:
        return dict(zip(self.nodes, map(list, answers), strict=True))

    @classmethod
    def suits(cls, root: Node) -> bool:
        """Whether all rows are found by the root's key, and the server can order them at once."""
        below = [node for node in root.walk() if node.up is not None]
        if not all(_by_key(node) and _alike(node) for node in below):
            return False
        large = any(c.column.base in _LARGE for node in root.walk() for c in node.codecs)
        return not large or all(map(_is_counted, below))

    def _made(
        self, rows: dict[Node, list[Row]], seen: dict[Node, list[Found]] | None
    ) -> list[Found]:
        root, *below = self.nodes
        if not rows[root]:
            return []  # what is below is of a root whose key differs by its collation
        for node in below:
            if _is_counted(node):
                places = node.places(own_order(node))
                rows[node].sort(key=lambda row, at=places: [_counted(row[i]) for i in at])  # type: ignore[misc]
        found = self._listed(rows) if seen is None else None
        if found is not None:
            return [found]
        for node in below:
            if node.joined:  # beside it the key of its parent, as a join would have it
                link = self._link(rows, node)
                rows[node] = [(*row, *link) for row in rows[node]]
        return super()._made(rows, seen)

    def _listed(self, rows: dict[Node, list[Row]]) -> Found | None:
        """One root with lists of plain rows, as most are; None for others."""
        root, *below = self.nodes
        found = self.reader.plans[root].found(rows[root][0])
        for node in below:
            items = self.reader.plans[node].listed(rows[node], self._link(rows, node))
            if items is None:
                return None
            found.record[node.name] = items
        return found if len(rows[root]) == 1 else None

    def _link(self, rows: dict[Node, list[Row]], node: Node) -> tuple[Any, ...]:
        """The key of the root's row to which the rows of a table point."""
        root = self.nodes[0]
        return tuple([rows[root][0][i] for i in root.places(node.refs)])

    def _statement(self, nodes: Sequence[Node]) -> Any:
        """What tells tables apart comes first."""
        if len(nodes) == 1:
            return self._rows(nodes[0], sa.literal_column("0"))
        tables = [node.table.alias(f"t{i}") for i, node in enumerate(nodes)]
        columns = self._columns(nodes, tables)
        pairs = zip(nodes, tables, strict=True)
        order = [column for node, table in pairs for column in self._server_order(node, table)]
        numbers: list[Any] = [
            sa.select(sa.literal_column(str(i)).label("number")) for i in range(len(nodes))
        ]
        of = sa.union_all(*numbers).subquery("of_table")
        source: sa.FromClause = of
        there = []
        for i, (node, table) in enumerate(zip(nodes, tables, strict=True)):
            number = of.c.number == sa.literal_column(str(i))
            source = source.outerjoin(table, sa.and_(number, self._of(node, table)))
            there.append(table.c[(node.parent or node.key)[0]].is_not(None))
        made = sa.select(of.c.number, *columns).select_from(source).where(sa.or_(*there))
        return made.order_by(of.c.number, *order) if order else made

    def _rows(self, node: Node, *heads: sa.ColumnElement[Any]) -> Any:
        """The rows of one table, in their order."""
        table = node.table.alias("t0")
        made = sa.select(*heads, *self._columns([node], [table])).where(self._of(node, table))
        return made.order_by(*self._server_order(node, table))

    def _server_order(self, node: Node, table: sa.FromClause) -> list[sa.ColumnElement[Any]]:
        """What the server orders the rows of a table by: nothing where we do."""
        if node.up is None or _is_counted(node):
            return []
        return [table.c[name] for name in _order(node)]


class EachTable(One):
    """Reads one aggregate of any shape, in a snapshot that has begun."""

    snapshot = True

    def __init__(self, reader: Reader, dialect: sa.Dialect) -> None:
        super().__init__(reader, dialect)
        self._texts = [self._text(self._statement(node), [node]) for node in self.nodes]

    def read(
        self, raw: Any, key: Sequence[Any], seen: dict[Node, list[Found]] | None = None
    ) -> list[Found]:
        rows: dict[Node, list[Row]] = {}
        for node, text in zip(self.nodes, self._texts, strict=True):
            rows[node] = text.asked(raw, key)
            if node.up is None and not rows[node]:
                return []  # as above
        return self.reader.whole(rows, seen)

    @property
    def _rest(self) -> Sequence[_Text]:
        return self._texts[1:]

    def _by_table(self, answers: Sequence[Sequence[Row]]) -> dict[Node, list[Row]]:
        return dict(zip(self.nodes, map(list, answers), strict=True))

    def _statement(self, node: Node) -> sa.Select[Any]:
        if node.up is not None and node.joined:
            parent = node.up.table.alias("parent")
            query = self.reader.beside(node, parent).where(self._of(node.up, parent))
        else:
            query = self.reader.select(node).where(self._of(node, node.table))
        return query.order_by(*(node.table.c[name] for name in _order(node)))


class InProcess(EachTable):
    """Reads one aggregate of any shape, on SQLite, in a transaction that has begun.

    No round trip is saved here, so what counts is how few steps are made of a row. Where nothing
    but its fields is needed of the rows below, they alone are asked for.
    """

    def __init__(self, reader: Reader, dialect: sa.Dialect) -> None:
        super().__init__(reader, dialect)
        self._lists = None
        light = all(reader.plans[node].light and _by_key(node) for node in self.nodes[1:])
        if light and reader.decoding is COPIER:  # the observer asks for more than the columns
            self._lists = [_Listed(self, reader.plans[node]) for node in self.nodes[1:]]
            self._root = _Asked(self, self._statement(self.nodes[0]))
            self._plan = reader.plans[self.nodes[0]]

    def read(
        self, raw: Any, key: Sequence[Any], seen: dict[Node, list[Found]] | None = None
    ) -> list[Found]:
        if seen is not None or self._lists is None:
            return super().read(raw, key, seen)
        try:
            roots = self._root.rows(raw, key)
            if not roots:
                return []
            if len(roots) > 1:  # keys that only the index over them tells apart
                return super().read(raw, key)
            found = self._plan.found(roots[0])
            for listed in self._lists:
                found.record[listed.name] = listed.records(raw, key)
        except sqlite3.OperationalError:  # perhaps a text that is no UTF-8: leniently
            return super().read(raw, key)
        return [found]

    def hold(
        self, raw: Any, key: Sequence[Any], seen: dict[Node, list[Found]]
    ) -> list[Found] | None:
        return self.read(raw, key, seen)  # one that writes holds the whole file


class _Asked:
    """A statement of SQLite that takes the root's key."""

    def __init__(self, one: InProcess, statement: sa.Select[Any]) -> None:
        made = statement.compile(dialect=sqlite.dialect(paramstyle="qmark"))
        self._text = str(made)
        places = [int(name.removeprefix("key")) for name in made.positiontup or ()]
        # Mostly a key is what is bound, as it is.
        whole = places == list(range(len(one.reader.root.key)))
        self._pick = None if whole else picker(places)

    def rows(self, raw: Any, key: Sequence[Any]) -> list[Row]:
        """All rows that it gives; text is not read leniently."""
        given = key if self._pick is None else self._pick(key)
        return raw.execute(self._text, given).fetchall()  # type: ignore[no-any-return]


class _Listed:
    """The rows of a table below the root, as the list that they become."""

    def __init__(self, one: InProcess, plan: Plan) -> None:
        node = plan.node
        self.name = node.name
        self._value = plan.value
        self._names = plan.names
        self._recorded = _recording(plan.names)
        codecs = [node.codecs[place] for place in plan.places]
        decoders = map(one.reader.decoding.decode, codecs)
        self._decoders = [(i, d) for i, d in enumerate(decoders) if d is not None]
        columns = [one.reader.decoding.select(c, node.table.c[c.name]) for c in codecs]
        # Without a field there are as many empty records as rows.
        select = sa.select(*(columns or [sa.literal_column("1")]))
        statement = select.where(one._of(node, node.table))
        statement = statement.order_by(*(node.table.c[name] for name in _order(node)))
        self._asked = _Asked(one, statement)

    def records(self, raw: Any, key: Sequence[Any]) -> list[Value]:
        """The items of the list, in order."""
        rows: Any = self._asked.rows(raw, key)
        if self._decoders:
            rows = list(map(list, rows))
            for row in rows:
                for i, decode in self._decoders:
                    held = row[i]
                    if held is not None:
                        row[i] = decode(held)
        if self._value is not None:
            place = self._names.index(self._value)
            return [row[place] for row in rows]
        return self._recorded(rows)


def _recording(names: Sequence[str]) -> Callable[[list[Row]], list[Value]]:
    """What makes records of rows: this takes a third of the time where the names are few."""
    if len(names) == 1:
        (a,) = names
        return lambda rows: [{a: x} for (x,) in rows]
    if len(names) == 2:
        a, b = names
        return lambda rows: [{a: x, b: y} for x, y in rows]
    if len(names) == 3:
        a, b, c = names
        return lambda rows: [{a: x, b: y, c: z} for x, y, z in rows]
    # An empty record of no fields has a row of one column.
    return lambda rows: [dict(zip(names, row)) for row in rows]  # noqa: B905


_LARGE = ("tinytext", "text", "mediumtext", "longtext", "json", "tinyblob", "blob", "mediumblob",
          "longblob", "geometry")  # fmt: skip


def _by_key(node: Node) -> bool:
    """Whether the root's key alone tells which rows of a table below it belong to an aggregate."""
    up = node.up
    return up is not None and up.up is None and set(node.refs) <= set(up.key)


def _alike(node: Node) -> bool:
    """Whether what equals the root's key, to the server, is equal to it in a link as well."""
    assert node.up is not None
    pairs = zip(node.codecs_of(node.parent), node.up.codecs_of(node.refs), strict=True)
    return not node.joined or all(
        mine.column.collation == theirs.column.collation
        and (mine.column.collation is not None or mine.column.base == theirs.column.base)
        for mine, theirs in pairs
    )


def _order(node: Node) -> tuple[str, ...]:
    return node.order or tuple(codec.name for codec in node.codecs)


def own_order(node: Node) -> tuple[str, ...]:
    """What orders the rows of one parent; none where there is one at most."""
    return tuple(name for name in node.order if name not in node.parent)


def _is_counted(node: Node) -> bool:
    """Whether rows are ordered by whole numbers, which we order as the server does."""
    counted = all(codec.family == "int" for codec in node.codecs_of(own_order(node)))
    return bool(node.order) and counted


def _counted(raw: Any) -> tuple[bool, int]:
    """A number, or the text of one, in its order; nothing comes first."""
    return (False, 0) if raw is None else (True, int(raw))


def single(reader: Reader, dialect: sa.Dialect) -> One | None:
    """What reads one aggregate of a shape, where there is such a way."""
    if reader.dialect == "sqlite":
        return InProcess(reader, sqlite.dialect(paramstyle="named"))
    if reader.dialect == "mysql":
        return Joined(reader, dialect) if Joined.suits(reader.root) else EachTable(reader, dialect)
    links = any(node.joined for node in reader.root.walk())  # a row does not tell its parent
    return None if links else Single(reader, dialect)

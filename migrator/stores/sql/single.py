"""One aggregate by its key in one statement: the root's row, and all rows below it.

A statement sees one snapshot, so that no transaction is needed around it, and its text is made
once. Every row has the columns of all tables, of which only those of its own hold something.

MariaDB and MySQL make other types of columns that are put together so. There it is a statement
for each table, with a snapshot around them; what is saved is making the texts for each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from migrator.stores.sql.columns import server_cast
from migrator.stores.sql.rows import Found, Reader, Row
from migrator.stores.sql.shape import Node


class _One:
    """What both ways have in common: which rows of a table belong to the aggregate of a key."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.nodes = list(reader.root.walk())

    def _of(self, node: Node, table: sa.FromClause) -> sa.ColumnElement[bool]:
        """Rows of a table that belong to the aggregate."""
        if node.up is None:
            return sa.and_(*(table.c[n] == self._given(i) for i, n in enumerate(node.key)))
        up, key = node.up, self.reader.root.key
        if up.up is None and set(node.refs) <= set(key):
            pairs = zip(node.parent, node.refs, strict=True)
            return sa.and_(*(table.c[mine] == self._given(key.index(ref)) for mine, ref in pairs))
        above = up.table.alias()
        keys = sa.select(*(above.c[ref] for ref in node.refs)).where(self._of(up, above))
        mine = [table.c[name] for name in node.parent]
        return (mine[0] if len(mine) == 1 else sa.tuple_(*mine)).in_(keys)

    def _given(self, place: int) -> sa.ColumnElement[Any]:
        root = self.reader.root
        (codec,) = root.codecs_of((root.key[place],))
        given: sa.ColumnElement[Any] = sa.bindparam(f"key{place}", type_=sa.types.NullType())
        return server_cast(given, codec.cast) if codec.cast else given


class Single(_One):
    """Reads one aggregate of a shape, on PostgreSQL."""

    def __init__(self, reader: Reader, dialect: sa.Dialect) -> None:
        super().__init__(reader)
        self.text = str(self._statement().compile(dialect=dialect))
        starts = [2]
        for node in self.nodes:
            starts.append(starts[-1] + len(node.codecs))
        self._places = [slice(start, end) for start, end in pairwise(starts)]

    def read(
        self, raw: Any, key: Sequence[Any], seen: dict[Node, list[Found]] | None = None
    ) -> list[Found]:
        """The aggregate of a key, as its columns encode it, by the driver's own connection; as
        ``Reader.read``."""
        given = {f"key{i}": part for i, part in enumerate(key)}
        rows: list[list[Row]] = [[] for _ in self.nodes]
        for row in raw.execute(self.text, given).fetchall():
            number = row[0]
            rows[number].append(row[self._places[number]])
        return self.reader.whole(dict(zip(self.nodes, rows, strict=True)), seen)

    def _statement(self) -> Any:
        """What tells tables apart, and a row's place among those of its table, come first."""
        tables = [node.table.alias(f"t{i}") for i, node in enumerate(self.nodes)]
        columns = [
            self.reader.decoding.select(codec, table.c[codec.name])
            for node, table in zip(self.nodes, tables, strict=True)
            for codec in node.codecs
        ]
        selects = []
        for number, (node, table) in enumerate(zip(self.nodes, tables, strict=True)):
            source: sa.FromClause = table
            for other in tables:
                if other is not table:  # its columns, with their types, and never a row of it
                    source = source.outerjoin(other, sa.false())
            order = [table.c[name] for name in node.order or tuple(c.name for c in node.codecs)]
            place = sa.func.row_number().over(order_by=order)
            heads = [sa.literal_column(str(number)), place]
            selects.append(
                sa.select(*heads, *columns).select_from(source).where(self._of(node, table))
            )
        return sa.union_all(*selects).order_by(sa.text("1, 2"))


class EachTable(_One):
    """Reads one aggregate of a shape, on MariaDB and MySQL, in a snapshot that has begun."""

    def __init__(self, reader: Reader, dialect: sa.Dialect) -> None:
        super().__init__(reader)
        made = [self._statement(node).compile(dialect=dialect) for node in self.nodes]
        # Beside the key there are parameters of what a column is made to by the server.
        self._texts = [(str(each), dict(each.params)) for each in made]

    def read(
        self, raw: Any, key: Sequence[Any], seen: dict[Node, list[Found]] | None = None
    ) -> list[Found]:
        """As ``Single.read``."""
        given = {f"key{i}": part for i, part in enumerate(key)}
        rows: dict[Node, list[Row]] = {}
        with raw.cursor() as cursor:
            for node, (text, others) in zip(self.nodes, self._texts, strict=True):
                cursor.execute(text, {**others, **given})
                rows[node] = list(cursor.fetchall())
                if node.up is None and not rows[node]:
                    return []  # what is below is of a root whose key differs by its collation
        return self.reader.whole(rows, seen)

    def _statement(self, node: Node) -> sa.Select[Any]:
        if node.up is not None and node.joined:
            parent = node.up.table.alias("parent")
            query = self.reader.beside(node, parent).where(self._of(node.up, parent))
        else:
            query = self.reader.select(node).where(self._of(node, node.table))
        order = node.order or tuple(codec.name for codec in node.codecs)
        return query.order_by(*(node.table.c[name] for name in order))


def single(reader: Reader, dialect: sa.Dialect) -> Single | EachTable | None:
    """What reads one aggregate of a shape, where there is such a way."""
    if reader.dialect == "mysql":
        return EachTable(reader, dialect)
    links = any(node.joined for node in reader.root.walk())  # a row does not tell its parent
    return None if links or reader.dialect == "sqlite" else Single(reader, dialect)

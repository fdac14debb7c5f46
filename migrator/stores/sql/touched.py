"""From touched rows to touched aggregates: whose root each row belongs or belonged to.

A row of a child table leads to its parent by the columns that point there, and so on up to the
root. Rows in between are looked up as they are now: where one of them has gone or moved, it was
touched itself, and its old row leads on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.journal import Touch
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.stores.sql.columns import server_cast
from migrator.stores.sql.keys import id_of, selected
from migrator.stores.sql.pgoutput import Relation, Tuple
from migrator.stores.sql.shape import Node

Texts = tuple[str, ...]


class Touched:
    """The rows of the tables of one aggregate; ``key`` makes the block's key of the root's."""

    def __init__(self, root: Node, key: Callable[[Value], Value]) -> None:
        self.root = root
        self._key = key
        self._nodes: dict[tuple[str, str], list[Node]] = {}
        for node in root.walk():
            below = [(schema, name) for schema, name, _ in node.info.members]
            for place in ((node.info.schema or "", node.info.name), *below):
                self._nodes.setdefault(place, []).append(node)

    def leads(self, relation: Relation) -> bool:
        """Whether old rows of a table are told by the columns that lead to their aggregate."""
        return all(set(_leading(node)) <= set(relation.told) for node in self._of(relation))

    def touches(
        self, connection: Connection, rows: Iterable[tuple[str, Relation, Tuple]]
    ) -> list[Touch]:
        """The aggregates of some rows, each once; asks the server by this connection."""
        roots: dict[Texts, bool] = {}
        below: dict[Node, dict[Texts, None]] = {}
        before: Texts | None = None
        for kind, relation, row in rows:
            for node in self._of(relation):
                texts = _texts(_leading(node), relation, row)
                if texts is None:
                    continue
                if node.up is None:
                    roots[texts] = roots.get(texts, False) or kind == "D"
                    if kind == "N" and before not in (None, texts):
                        roots[before] = True  # the row took another key
                    before = texts if kind == "O" else None
                else:
                    below.setdefault(node, {})[texts] = None
        for node in reversed(list(self.root.walk())):
            if node in below and node.up is not None:
                self._climb(connection, node, list(below[node]), roots, below)
        return self._keys(connection, roots)

    def _of(self, relation: Relation) -> list[Node]:
        """The places of a table in the aggregate; none for one that is not part of it."""
        exact = self._nodes.get((relation.schema, relation.name))
        return exact or self._nodes.get(("", relation.name), [])

    def _climb(
        self,
        connection: Connection,
        node: Node,
        texts: list[Texts],
        roots: dict[Texts, bool],
        below: dict[Node, dict[Texts, None]],
    ) -> None:
        """From links of a table's rows to the rows of the table above."""
        up = node.up
        assert up is not None
        wanted = up.key if up.up is None else up.parent
        if set(wanted) <= set(node.refs):
            order = [node.refs.index(name) for name in wanted]
            found = [tuple(row[i] for i in order) for row in texts]
        else:
            found = _look_up(connection, up, node.refs, wanted, texts)
        for row in found:
            if up.up is None:
                roots.setdefault(row, False)
            else:
                below.setdefault(up, {})[row] = None

    def _keys(self, connection: Connection, roots: dict[Texts, bool]) -> list[Touch]:
        """The keys behind their texts, as the server reads and the copier decodes them."""
        if not roots:
            return []
        given = list(roots)
        codecs = self.root.codecs_of(self.root.key)
        typed = [
            server_cast(column, codec.column.type)
            for column, codec in zip(_given(self.root.key), codecs, strict=True)
        ]
        columns = [selected(codec, one) for codec, one in zip(codecs, typed, strict=True)]
        place: sa.ColumnElement[int] = sa.literal_column("given.place")
        query = sa.select(place, *columns).select_from(_unnested(given)).order_by(place)
        touches: dict[bytes, Touch] = {}
        for number, *raw in connection.execute(query).all():
            values = [
                codec.decode(value) if codec.decode and value is not None else value
                for codec, value in zip(codecs, raw, strict=True)
            ]
            key = self._key(id_of(tuple(values)))
            form = encode(key)
            deleted = roots[given[number - 1]] or (form in touches and touches[form].deleted)
            touches[form] = Touch(key, deleted)
        return list(touches.values())


def _leading(node: Node) -> tuple[str, ...]:
    return node.key if node.up is None else node.parent


def _texts(names: Sequence[str], relation: Relation, row: Tuple) -> Texts | None:
    """Some columns of a row; None where one is NULL or was not sent, so that nothing is linked."""
    texts = [row[relation.columns.index(name)] for name in names]
    return tuple(texts) if all(type(text) is str for text in texts) else None  # type: ignore[arg-type]


def _unnested(rows: Sequence[Texts]) -> sa.FromClause:
    """Rows of texts as a table ``given`` with columns c0, c1 ... and ``place``, from 1."""
    width = len(rows[0])
    arrays = [
        server_cast(
            sa.bindparam(None, [row[i] for row in rows], sa.types.NullType(), unique=True), "text[]"
        )
        for i in range(width)
    ]
    made: Any = sa.func.unnest(*arrays)
    table: sa.FromClause = made.table_valued(
        *(f"c{i}" for i in range(width)), with_ordinality="place"
    ).render_derived(name="given")
    return table


def _given(names: Sequence[str]) -> list[sa.ColumnElement[Any]]:
    return [sa.literal_column(f"given.c{i}") for i in range(len(names))]


def _look_up(
    connection: Connection,
    node: Node,
    by: Sequence[str],
    wanted: Sequence[str],
    texts: list[Texts],
) -> list[Texts]:
    """Columns of a table's rows that others point to, as texts."""
    typed = [
        server_cast(column, codec.column.type)
        for column, codec in zip(_given(by), node.codecs_of(tuple(by)), strict=True)
    ]
    table = node.table
    joined = sa.and_(*(table.c[name] == one for name, one in zip(by, typed, strict=True)))
    columns = [server_cast(table.c[name], "text") for name in wanted]
    query = sa.select(*columns).select_from(_unnested(texts).join(table, joined)).distinct()
    rows = connection.execute(query).all()
    return [tuple(row) for row in rows if None not in row]

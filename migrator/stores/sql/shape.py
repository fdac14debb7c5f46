"""The shape of an aggregate over tables: which columns, keys and links each table has.

Made from what the script declares and what the catalogue says; whatever is ambiguous or would
lose something is refused here, before a row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.errors import Refused
from migrator.model.move import Tables
from migrator.model.path import child as child_path
from migrator.stores.sql.catalog import Column, ForeignKey, Table, read_table
from migrator.stores.sql.columns import Codec, codec, server_cast
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.schema import split_declared


@dataclass(eq=False)
class Node:
    """One table of the aggregate.

    ``parent`` are its columns that point to its parent's columns ``refs``. ``order`` are the
    columns that order the rows of one parent; ``position`` is the column that holds a row's
    index in the list and is no field itself, ``apart`` are the columns of the block's key that
    are none either. ``path`` is the field's path without indexes.
    """

    spec: Tables
    info: Table
    codecs: tuple[Codec, ...]
    key: tuple[str, ...]
    parent: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    position: str | None = None
    apart: tuple[str, ...] = ()
    name: str = ""
    path: str = ""
    up: Node | None = None
    children: list[Node] = field(default_factory=list)
    _placed: dict[tuple[str, ...], tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def at(self) -> dict[str, int]:
        """The place of each column in a row."""
        return {codec.name: i for i, codec in enumerate(self.codecs)}

    @cached_property
    def table(self) -> sa.TableClause:
        columns: list[sa.ColumnClause[Any]] = [sa.column(c.name) for c in self.codecs]
        return sa.table(self.info.name, *columns, schema=self.info.schema)

    def places(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """The places of some columns in a row: asked for every row, of a few lists of names."""
        found = self._placed.get(names)
        if found is None:
            found = self._placed[names] = tuple([self.at[name] for name in names])
        return found

    def codecs_of(self, names: tuple[str, ...]) -> tuple[Codec, ...]:
        return tuple([self.codecs[place] for place in self.places(names)])

    def walk(self) -> Iterator[Node]:
        """This node and those below it, parents first."""
        yield self
        for below in self.children:
            yield from below.walk()

    @cached_property
    def joined(self) -> bool:
        """Whether only the server can say which row belongs to which parent: text compares by
        collation, and values of two types by its own rules."""
        if self.up is None:
            return False
        pairs = zip(self.codecs_of(self.parent), self.up.codecs_of(self.refs), strict=True)
        return any(not mine.family or mine.family != theirs.family for mine, theirs in pairs)

    @cached_property
    def linked_alike(self) -> bool:
        """Whether the link and the parent's key are read as values of the same kind."""
        if self.up is None:
            return False
        pairs = zip(self.codecs_of(self.parent), self.up.codecs_of(self.refs), strict=True)
        return all(
            mine.column.base == theirs.column.base or mine.family == theirs.family == "text"
            for mine, theirs in pairs
        )


Lookup: TypeAlias = Callable[[str], Table | None]
Probe: TypeAlias = Callable[[Node, list[str]], bool]


@dataclass(frozen=True)
class Schema:
    """Where tables are looked up: ``lookup`` by name, ``null_keys`` whether a table holds a row
    in which one of these columns is NULL."""

    dialect: Dialect
    lookup: Lookup
    null_keys: Probe


def on_server(connection: Connection, dialect: Dialect) -> Schema:
    """The tables as they are."""
    return Schema(
        dialect,
        lambda name: read_table(connection, dialect, name),
        lambda node, names: null_keys(connection, node, names),
    )


def null_keys(connection: Connection, node: Node, names: list[str]) -> bool:
    """Whether a row's key is NULL in part, or JSON's null, where it is that of a block."""
    null: list[sa.ColumnElement[bool]] = []
    for name, each in zip(names, node.codecs_of(tuple(names)), strict=True):
        held: sa.ColumnElement[Any] = node.table.c[name]
        null.append(held.is_(None))
        if each.json and node.up is None:
            held = server_cast(held, "text") if connection.dialect.name == "postgresql" else held
            null.append(sa.func.trim(held) == sa.literal_column("'null'"))
    probe = sa.select(sa.literal(1)).select_from(node.table).where(sa.or_(*null)).limit(1)
    return connection.execute(probe).first() is not None


def resolve(schema: Schema, spec: Tables, where: str) -> Node:
    """The shape of an aggregate. Raises Refused for what is missing, ambiguous or would lose."""
    return _node(schema, spec, where, None, "")


def _node(schema: Schema, spec: Tables, where: str, up: Node | None, name: str) -> Node:
    info = schema.lookup(spec.table)
    if info is None:
        raise Refused(f"there is no table {spec.table!r}", where=where, hint="check its name")
    _check_names(spec, info, where)
    position = _position(spec, info)
    # No pragma tells the collation of a column, but without one all are compared by bytes.
    by_bytes = bool(info.sql) and "COLLATE" not in info.sql.upper()
    node = Node(
        spec,
        info,
        tuple(
            codec(schema.dialect, c, _declared(spec, c), by_bytes=by_bytes) for c in info.columns
        ),
        spec.key or info.key,
        position=position,
        apart=_apart(spec, info) if up is None else (),
        name=name,
        path=child_path(up.path, name) if up else "",
        up=up,
    )
    if up is not None:
        node.parent, node.refs = _link(spec, info, up, where)
    node.order = tuple(dict.fromkeys((*spec.order_by, *node.key)))
    _check_key(schema, node, where)
    _check_value(node, where)
    for field_name, below in spec.children.items():
        if field_name in node.at:
            raise Refused(
                f"table {info.name} has a column {field_name!r}, which is also a child table",
                where=where,
                hint="give the child another field name",
            )
        node.children.append(_node(schema, below, where, node, field_name))
    if node.children and spec.value is not None:
        raise Refused(f"{node.path}: value= leaves no record for child tables", where=where)
    return node


def _position(spec: Tables, info: Table) -> str | None:
    """The column declared as ``... POSITION``, by the script or by what the table itself keeps:
    a row's index in its list."""
    return next((c.name for c in info.columns if _ours(spec, c) == "POSITION"), None)


def _apart(spec: Tables, info: Table) -> tuple[str, ...]:
    key = spec.key or info.key
    return tuple(name for name in key if _ours(spec, info.by_name[name]) == "BLOCK KEY")


def _ours(spec: Tables, column: Column) -> str:
    return split_declared(_declared(spec, column) or "")[1]


def _declared(spec: Tables, column: Column) -> str | None:
    said = (t for n, t in spec.columns.items() if n.lower() == column.name.lower())
    return next(said, column.said or None)


def _check_names(spec: Tables, info: Table, where: str) -> None:
    named = [*spec.key, *spec.parent, *spec.order_by, *spec.columns, *filter(None, [spec.value])]
    missing = [name for name in named if name not in info.by_name]
    if missing:
        raise Refused(
            f"table {info.name} has no column {missing[0]!r}",
            where=where,
            hint="its columns are: " + ", ".join(info.by_name),
        )


def _link(
    spec: Tables, info: Table, up: Node, where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    keys = [key for key in info.foreign if _same_table(key, up.info)]
    if spec.parent:
        for key in keys:
            if set(key.columns) == set(spec.parent):
                return key.columns, key.refs
        if len(spec.parent) != len(up.key):
            raise Refused(
                f"table {info.name}: parent={list(spec.parent)} does not match the key "
                f"{list(up.key)} of {up.info.name}",
                where=where,
            )
        return spec.parent, up.key
    if len(keys) == 1:
        return keys[0].columns, keys[0].refs
    which = " or ".join(str(list(key.columns)) for key in keys)
    raise Refused(
        f"table {info.name} has {'several foreign keys' if keys else 'no foreign key'} "
        f"to {up.info.name}" + (f": {which}" if keys else ""),
        where=where,
        hint=f'say which columns point to it: tables("{info.name}", parent=...)',
    )


def _same_table(key: ForeignKey, table: Table) -> bool:
    full = f"{table.schema}.{table.name}" if table.schema else table.name
    return key.table.lower() in (table.name.lower(), full.lower())


def unique_keys(info: Table) -> list[tuple[str, ...]]:
    """The column lists that the server holds to be unique, the primary key first."""
    return [key for key in (info.key, *(index.columns for index in info.uniques)) if key]


def _check_key(schema: Schema, node: Node, where: str) -> None:
    info = node.info
    hint = "declare key=... with columns that are unique and not null, or add such a key"
    if not node.key:
        if node.up is None:
            raise Refused(f"table {info.name} has no primary key", where=where, hint=hint)
        return  # the rows of a child table without a key are rewritten as a whole
    unique = [key for key in unique_keys(info) if set(key) <= set(node.key)]
    if not unique and node.up is None:
        raise Refused(
            f"table {info.name}: nothing makes {list(node.key)} unique", where=where, hint=hint
        )
    nullable = [c.name for c in node.codecs_of(node.key) if c.column.nullable or c.json]
    if not nullable:
        return
    # A comparison with NULL is never true: paging would pass such rows over (hard case C12).
    if schema.null_keys(node, nullable):
        raise Refused(
            f"table {info.name} holds rows whose key {list(node.key)} is NULL in part",
            where=where,
            hint=hint,
        )


def _check_value(node: Node, where: str) -> None:
    if node.spec.value is None:
        return
    kept = {node.spec.value, *node.parent, *filter(None, [node.position])}
    lost = [c.name for c in node.codecs if c.name not in kept]
    if lost:
        raise Refused(
            f"{node.path}: value={node.spec.value!r} would lose the columns {lost} of "
            f"{node.info.name}",
            where=where,
            hint="leave value= out, so that each row is a record",
        )


__all__ = ["Node", "Schema", "null_keys", "on_server", "resolve", "unique_keys"]

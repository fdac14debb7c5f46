"""Making and dropping the tables of a location: the full one, projections, the locator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from migrator.errors import Refused
from migrator.stores.cassandra.columns_nested import Type, Types, names_of, parse_type, quoted
from migrator.stores.cassandra.table_shape import Column, Shape, TableInfo
from migrator.stores.cassandra.table_spec import SIDE, Key, Projection


def name_in(keyspace: str, table: str) -> str:
    """A table with its keyspace, quoted."""
    return f"{quoted(keyspace)}.{quoted(table)}"


def creation(shape: Shape, keyspace: str) -> Iterator[str]:
    """The statements that make what is not there yet, in their order."""
    spec = shape.spec
    needed: list[str] = []
    for type_ in spec.columns.values():
        needed += names_of(type_, spec.types)
    for name in dict.fromkeys(needed):
        fields = ", ".join(
            f"{quoted(field)} {_inner(parse_type(text))}"
            for field, text in spec.types[name].items()
        )
        yield f"CREATE TYPE IF NOT EXISTS {name_in(keyspace, name)} ({fields})"
    columns = {name: column.type for name, column in shape.columns.items()}
    static = {column.name for column in shape.static}
    yield _table(name_in(keyspace, spec.table), columns, shape.key, static)
    for name, kind in spec.indexes.items():
        using = " USING 'sai'" if kind == "sai" else ""
        index = quoted(index_name(spec.table, name))
        yield (
            f"CREATE INDEX IF NOT EXISTS {index} ON {name_in(keyspace, spec.table)} "
            f"({_indexed(shape.columns[name])}){using}"
        )
    for projection in spec.projections:
        held = projected(shape, projection)
        yield _table(name_in(keyspace, projection.name), held, projection.key, set())
    if shape.located:
        held = {n: shape.columns[n].type for n in (*shape.id, *shape.key.columns)}
        yield _table(name_in(keyspace, spec.locator), held, Key(shape.id), set())


def _inner(type_: Type) -> str:
    """A type inside a user-defined one, where whatever is nested has to be frozen."""
    plain = not type_.multicell
    return type_.cql if plain else f"frozen<{type_.cql}>"


def _indexed(column: Column) -> str:
    # A frozen collection is indexed whole or not at all.
    whole = column.type.frozen and column.type.name in ("list", "set", "map")
    return f"FULL({column.quoted})" if whole else column.quoted


def index_name(table: str, column: str) -> str:
    """The name of an index of ours; what is no letter or digit becomes an underscore."""
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in column)
    return f"{table}_{plain}_idx"


def projected(shape: Shape, projection: Projection) -> Mapping[str, Type]:
    """The columns of a projection: its key, the block key, and what it repeats."""
    repeated = projection.columns
    if repeated is None:
        outside = {SIDE, *shape.spec.derived}
        repeated = tuple(name for name in shape.columns if name not in outside)
    held: dict[str, Type] = {}
    for name in dict.fromkeys((*projection.key.columns, *repeated)):
        column = shape.columns.get(name)
        made = projection.derived.get(name)
        type_ = column.type if column is not None else made.type if made is not None else None
        assert type_ is not None  # checked with the declaration
        held[name] = type_
    return held


def _table(name: str, columns: Mapping[str, Type], key: Key, static: set[str]) -> str:
    lines = [
        f"{quoted(column)} {type_.cql}{' static' if column in static else ''}"
        for column, type_ in columns.items()
    ]
    partition = ", ".join(map(quoted, key.partition))
    parts = [f"({partition})", *map(quoted, key.clustering)]
    lines.append(f"PRIMARY KEY ({', '.join(parts)})")
    text = f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(lines)})"
    if key.descending:
        orders = ", ".join(
            f"{quoted(c)} {'DESC' if c in key.descending else 'ASC'}" for c in key.clustering
        )
        text += f" WITH CLUSTERING ORDER BY ({orders})"
    return text


def check_made(shape: Shape, found: Mapping[str, TableInfo | None], where: str) -> None:
    """Refuse projections and locators that are there already and are others."""
    for projection in shape.spec.projections:
        info = found.get(projection.name)
        if info is not None:
            _check_like(projection.name, info, projected(shape, projection), projection.key, where)
    info = found.get(shape.spec.locator) if shape.located else None
    if info is not None:
        held = {n: shape.columns[n].type for n in (*shape.id, *shape.key.columns)}
        _check_like(shape.spec.locator, info, held, Key(shape.id), where)


def _check_like(
    name: str, info: TableInfo, wanted: Mapping[str, Type], key: Key, where: str
) -> None:
    types = {column.name: parse_type(column.type).cql for column in info.columns}
    differ = [n for n, type_ in wanted.items() if types.get(n) != type_.cql]
    if differ or info.key() != key:
        what = f"column {differ[0]}" if differ else "key"
        raise Refused(
            f"the table {name} is there already, with another {what}",
            where=where,
            hint="drop it, or give the projection another name",
        )


def check_types(wanted: Types, there: Types, where: str) -> None:
    """Refuse user-defined types that are there already and are others."""
    for name, fields in wanted.items():
        lies = there.get(name)
        if lies is not None and _plain(lies) != _plain(fields):
            raise Refused(
                f"the type {name} is there already, with other fields: {', '.join(lies)}",
                where=where,
                hint="give the type another name",
            )


def _plain(fields: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, _inner(parse_type(text))) for name, text in fields.items()]

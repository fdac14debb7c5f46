"""Making the tables of a target: like those of another store, or as the script declares.

Each step is looked up before it is taken, so a schema that was left half made is completed
(hard case C57); what is there already is compared and never changed. Foreign keys inside the
aggregate are made at once, those that lead out of it by ``settle``, when rows are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from migrator.errors import Refused
from migrator.model.move import Tables
from migrator.stores.sql.catalog import REMARK, Column, ForeignKey, Index, Table, read_table
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.schema import remark, split_declared, translate

if TYPE_CHECKING:
    from migrator.stores.sql.tables import TablesCollection

_SAFE_TYPE = re.compile(r"[A-Za-z_\"][\w \"]*(\(\s*[\d', \w]+\s*\))?[\w \[\]()]*")


@dataclass
class Wanted:
    """A table to be: as the catalogue should show it, and the statements that make it.

    ``link`` is its foreign key to its parent. ``exact``: it is a copy from the same system, so
    that one that is there already must look the same in every column.
    """

    table: Table
    statements: list[str] = field(default_factory=list)
    indexes: dict[str, str] = field(default_factory=dict)
    link: ForeignKey | None = None
    exact: bool = False


def create(collection: TablesCollection) -> None:
    """Make what is missing. Raises Refused, before the first step, for what can't be made."""
    database = collection.database
    if not database.absent:
        with database.reading(collection.where) as connection:
            _check_spec(connection, collection)
    wanted = list(wanted_tables(collection))
    database.may_create = True
    with database.writing(collection.where, foreign_keys=False) as connection:
        for one in wanted:
            there = read_table(connection, collection.dialect, full_name(one.table))
            if there is not None:
                _compare(one, there, collection.where)
        for one in wanted:
            _make(connection, collection.dialect, one)


def _check_spec(connection: Connection, collection: TablesCollection) -> None:
    """Tables that are there need no declaration; one that is missing does."""
    for spec, like in _specs(collection.spec, None):
        if like or spec.columns:
            continue
        if read_table(connection, collection.dialect, spec.table) is None:
            raise _undeclared(spec, collection.where)


def _specs(spec: Tables, like: str | None) -> Iterator[tuple[Tables, str | None]]:
    like = spec.like or like
    yield spec, like
    for below in spec.children.values():
        yield from _specs(below, like)


def _undeclared(spec: Tables, where: str) -> Refused:
    return Refused(
        f"nothing says what table {spec.table!r} looks like",
        where=where,
        hint=f'write tables("{spec.table}", like="STORE") to make it like a table there, or '
        f'tables("{spec.table}", columns={{"id": "integer", ...}}, key="id")',
    )


def wanted_tables(collection: TablesCollection) -> Iterator[Wanted]:
    """The tables of the aggregate as they are to be, parents first; not those left as found."""
    yield from _wanted(collection, collection.spec, None, None)


def _wanted(
    collection: TablesCollection, spec: Tables, up: Wanted | None, like: str | None
) -> Iterator[Wanted]:
    like = spec.like or like
    if like is not None:
        one = _like(collection, spec, like, up)
    elif spec.columns:
        one = _declared(collection, spec, up)
    else:
        one = _found(collection, spec)
    if like is None and not spec.columns:
        if spec.children and any(below.columns for below in spec.children.values()):
            yield one
    else:
        yield one
    for below in spec.children.values():
        yield from _wanted(collection, below, one, like)


def _found(collection: TablesCollection, spec: Tables) -> Wanted:
    if collection.database.absent:
        raise _undeclared(spec, collection.where)
    with collection.database.reading(collection.where) as connection:
        table = read_table(connection, collection.dialect, spec.table)
    if table is None:
        raise _undeclared(spec, collection.where)
    return Wanted(table)


def _like(collection: TablesCollection, spec: Tables, like: str, up: Wanted | None) -> Wanted:
    from migrator.stores.sql.store import SqlStore

    other = collection.store.sibling(like)
    if not isinstance(other, SqlStore):
        raise Refused(f"like={like!r}: that is no relational store", where=collection.where)
    source, target = other.database, collection.dialect
    with source.reading(other.name) as connection:
        table = read_table(connection, source.dialect, spec.table)
        if table is None:
            raise Refused(
                f"like={like!r}: there is no table {spec.table!r} in that store",
                where=collection.where,
            )
        link = _link(spec, table, up)
        if source.dialect == target:
            from migrator.stores.sql.copies import copied

            made = copied(connection, target, table)
            made.link = link
            return made
    table = translate(table, source.dialect, target, collection.where)
    return render(target, table, link, collection)


def _link(spec: Tables, table: Table, up: Wanted | None) -> ForeignKey | None:
    if up is None:
        return None
    for key in table.foreign:
        if key.table.lower() in (up.table.name.lower(), full_name(up.table).lower()) and (
            not spec.parent or set(spec.parent) == set(key.columns)
        ):
            return key
    return None


def _declared(collection: TablesCollection, spec: Tables, up: Wanted | None) -> Wanted:
    where = collection.where
    types = {name: _type(spec, name, type_, where) for name, type_ in spec.columns.items()}
    link = None
    if up is not None:
        refs = up.table.key
        parent = spec.parent or tuple(
            name if name.startswith(up.table.name) else f"{up.table.name}_{name}" for name in refs
        )
        if len(parent) != len(refs):
            raise Refused(
                f"table {spec.table}: parent={list(parent)} does not match the key {list(refs)} "
                f"of {up.table.name}",
                where=where,
            )
        for name, ref in zip(parent, refs, strict=True):
            types.setdefault(name, up.table.by_name[ref].type)
        link = ForeignKey("", parent, up.table.name, refs)
    key = spec.key or _default_key(spec, link)
    if not key or not set(key) <= set(types):
        raise Refused(
            f"table {spec.table!r}: key={list(key)} names no declared columns",
            where=where,
            hint='declare them: tables("...", key="id", columns={"id": "integer", ...})',
        )
    columns = tuple(
        Column(
            name, type_, "", nullable=name not in key,
            said=remark(collection.dialect, spec.columns.get(name, "")),
        )
        for name, type_ in types.items()
    )  # fmt: skip
    schema, name = _split(spec.table, collection.dialect)
    table = Table(name, schema, columns, key)
    return render(collection.dialect, table, link, collection)


def _default_key(spec: Tables, link: ForeignKey | None) -> tuple[str, ...]:
    if link is None:
        return ()
    if spec.one:
        return link.columns
    return (*link.columns, *(spec.order_by or filter(None, [spec.value])))


def _type(spec: Tables, column: str, type_: str, where: str) -> str:
    bare = split_declared(type_)[0]
    if _SAFE_TYPE.fullmatch(bare) is None:
        raise Refused(f"table {spec.table}: {type_!r} of {column} is no SQL type", where=where)
    return bare


def render(
    dialect: Dialect, table: Table, link: ForeignKey | None, collection: TablesCollection
) -> Wanted:
    """A table of plain columns, keys and indexes."""
    quote = collection.database.engine.dialect.identifier_preparer.quote_identifier

    def names(columns: tuple[str, ...]) -> str:
        return ", ".join(map(quote, columns))

    full = (f"{quote(table.schema)}." if table.schema else "") + quote(table.name)
    lines = column_lines(collection, table)
    # SQLite has no other moment for a foreign key than this.
    keys = [key for key in table.foreign if dialect == "sqlite" or key == link]
    for key in [*keys, *([link] if link and link not in keys else [])]:
        target = quote(key.table.rpartition(".")[2])
        lines.append(f"FOREIGN KEY ({names(key.columns)}) REFERENCES {target} ({names(key.refs)})")
    tail = table_tail(collection)
    body = ",\n  ".join(lines)
    indexes = {index.name: index for index in table.indexes}
    if link and table.key[: len(link.columns)] != link.columns and dialect != "mysql":
        covered = any(i.columns[: len(link.columns)] == link.columns for i in table.indexes)
        if not covered:
            name = f"{table.name}_{'_'.join(link.columns)}_idx"[:63]
            indexes[name] = Index(name, link.columns)
    made = {
        index.name: f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {quote(index.name)} "
        f"ON {full} ({names(index.columns)})"
        for index in indexes.values()
    }
    told = remarks(table, full, quote) if dialect == "postgresql" else []
    return Wanted(table, [f"CREATE TABLE {full} (\n  {body}\n){tail}", *told], made, link)


def column_lines(collection: TablesCollection, table: Table) -> list[str]:
    """The columns and the primary key of a table, as its statement lists them."""
    quote = collection.database.engine.dialect.identifier_preparer.quote_identifier
    lines = []
    for column in table.columns:
        words = [quote(column.name), column.type]
        if column.said and collection.dialect == "sqlite":  # the type itself keeps the remark
            words.append(split_declared(column.said)[1])
        if column.identity:
            words.append("GENERATED BY DEFAULT AS IDENTITY")
        if not column.nullable or column.name in table.key:
            words.append("NOT NULL")
        elif collection.dialect == "mysql" and column.type.startswith("timestamp"):
            words.append("NULL")  # else some servers give the first one a default of their own
        if column.said and collection.dialect == "mysql":
            words.append(f"COMMENT {_literal(REMARK + column.said)}")
        lines.append(" ".join(words))
    return [*lines, f"PRIMARY KEY ({', '.join(map(quote, table.key))})"]


def remarks(table: Table, full: str, quote: Callable[[str], str]) -> list[str]:
    """The statements that keep the remarks on a table's columns, on PostgreSQL."""
    return [
        f"COMMENT ON COLUMN {full}.{quote(column.name)} IS {_literal(REMARK + column.said)}"
        for column in table.columns
        if column.said
    ]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def table_tail(collection: TablesCollection) -> str:
    """What ends the statement: keys are compared byte by byte, so that none collide (C09)."""
    if collection.dialect != "mysql":
        return ""
    return f" CHARACTER SET utf8mb4 COLLATE {_binary(collection)}"


def _binary(collection: TablesCollection) -> str:
    with collection.database.reading(collection.where) as connection:
        version = str(connection.exec_driver_sql("SELECT version()").scalar_one()).lower()
    return "utf8mb4_nopad_bin" if "mariadb" in version else "utf8mb4_0900_bin"


def _compare(wanted: Wanted, there: Table, where: str) -> None:
    """Raises Refused where a table that is there is another than is wanted."""
    for column in wanted.table.columns:
        held = there.by_name.get(column.name)
        if held is None:
            raise Refused(
                f"table {there.name} is there already, without the column {column.name!r}",
                where=where,
                hint="move to another table, or change that one first",
            )
        if wanted.exact and _seen(column) != _seen(held):
            raise Refused(
                f"table {there.name} is there already, and its column {column.name} is "
                f"{_words(held)}, not {_words(column)}",
                where=where,
                hint="move to another table, or change that one first",
            )
    if wanted.table.key and there.key != wanted.table.key:
        raise Refused(
            f"table {there.name} is there already, with the key {list(there.key)} and not "
            f"{list(wanted.table.key)}",
            where=where,
        )


def _seen(column: Column) -> Column:
    return replace(column, default=None, collation=None, said="")


def _words(column: Column) -> str:
    return column.type + ("" if column.nullable else " NOT NULL")


def _make(connection: Connection, dialect: Dialect, wanted: Wanted) -> None:
    there = read_table(connection, dialect, full_name(wanted.table))
    if there is None:
        for statement in wanted.statements:
            run(connection, statement)
        there = read_table(connection, dialect, full_name(wanted.table))
    assert there is not None
    held = {index.name for index in there.indexes}
    for name, statement in wanted.indexes.items():
        if name not in held:
            run(connection, statement)
    if wanted.link is not None and dialect != "sqlite":
        add_foreign_key(connection, there, wanted.link)


def add_foreign_key(connection: Connection, table: Table, key: ForeignKey) -> bool:
    """Add a foreign key that the table lacks; whether it did."""
    if any(k.columns == key.columns and k.refs == key.refs for k in table.foreign):
        return False
    quote = connection.dialect.identifier_preparer.quote_identifier
    schema, name = table.schema, table.name
    full = (f"{quote(schema)}." if schema else "") + quote(name)
    columns, refs = (", ".join(map(quote, names)) for names in (key.columns, key.refs))
    definition = key.definition.replace("%", "%%") or (
        f"FOREIGN KEY ({columns}) REFERENCES {quote(key.table)} ({refs})"
        f" ON DELETE {key.on_delete} ON UPDATE {key.on_update}"
    )
    named = f"CONSTRAINT {quote(key.name)} " if key.name else ""
    connection.exec_driver_sql(f"ALTER TABLE {full} ADD {named}{definition}")
    return True


def run(connection: Connection, statement: str) -> None:
    """One statement without parameters, its percent signs as they are."""
    connection.exec_driver_sql(statement)


def drop(collection: TablesCollection) -> None:
    """Drop the tables, children first."""
    database = collection.database
    if database.absent:
        return
    specs = [spec for spec, _ in _specs(collection.spec, None)]
    with database.writing(collection.where) as connection:
        quote = connection.dialect.identifier_preparer.quote_identifier
        for spec in reversed(specs):
            table = read_table(connection, collection.dialect, spec.table)
            if table is not None:
                full = (f"{quote(table.schema)}." if table.schema else "") + quote(table.name)
                connection.exec_driver_sql(f"DROP TABLE {full}")


def full_name(table: Table) -> str:
    """The name by which ``read_table`` finds it."""
    return f"{table.schema}.{table.name}" if table.schema else table.name


def _split(name: str, dialect: Dialect) -> tuple[str | None, str]:
    if dialect == "sqlite" or "." not in name:
        return None, name
    schema, _, table = name.partition(".")
    return schema, table

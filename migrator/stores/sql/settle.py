"""What remains when the rows are there: sequences, foreign keys, statistics.

A sequence is moved past the largest number of its column and past the source's, never back
(hard case C50). A foreign key that leads out of the aggregate is added once it holds; until
the other side is filled it does not, and is left to that side's own ``settle``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import Connection

from migrator.stores.sql.catalog import Column, ForeignKey, Table, read_table
from migrator.stores.sql.ddl import add_foreign_key, full_name
from migrator.stores.sql.engine import Database
from migrator.stores.sql.shape import Node

if TYPE_CHECKING:
    from migrator.stores.sql.tables import TablesCollection

_NEXTVAL = re.compile(r"nextval\('((?:[^']|'')+)'::regclass\)")


def settle(collection: TablesCollection) -> None:
    """Finish the tables of a collection."""
    number_on(collection)
    for node in collection.root.walk():
        source = _source(collection, node)
        if source is not None and source.dialect == collection.dialect:
            _foreign_keys(collection, node, source)
    _analyze(collection)


def number_on(collection: TablesCollection, past: int = 0) -> None:
    """Move the sequences of a collection past its rows; that of its keys also past a number."""
    for node in collection.root.walk():
        source = _source(collection, node)
        with collection.database.writing(collection.where) as connection:
            _sequences(connection, collection, node, source)
            if past > 0 and node.up is None:
                _past(connection, collection.dialect, node, past)


def numbered(table: Table) -> Column | None:
    """The column of a table's key that the server numbers; None where it does not."""
    if len(table.key) != 1:
        return None
    column = table.by_name[table.key[0]]
    return column if column.identity or _NEXTVAL.search(column.default or "") else None


def numbers(table: Table, dialect: str) -> bool | None:
    """Whether the server counts the rows of a table; None where it looks for the highest."""
    if numbered(table) is None:
        return False
    return True if dialect != "sqlite" or _counts(table.sql) else None


def _past(connection: Connection, dialect: str, node: Node, past: int) -> None:
    """Give no number up to this one any more. SQLite without AUTOINCREMENT knows no such thing."""
    column = numbered(node.info)
    if column is None:
        return
    if dialect == "postgresql":
        _raise_sequence(connection, node, column, past)
    elif dialect == "mysql":
        _raise_auto_increment(connection, node, past + 1)
    elif _counts(node.info.sql):
        _raise_sqlite(connection, node, past)


def _source(collection: TablesCollection, node: Node) -> Database | None:
    """The database whose tables this one was made like."""
    from migrator.stores.sql.store import SqlStore

    at: Node | None = node
    while at is not None and at.spec.like is None:
        at = at.up
    if at is None or at.spec.like is None:
        return None
    other = collection.store.sibling(at.spec.like)
    return other.database if isinstance(other, SqlStore) else None


def _sequences(
    connection: Connection, collection: TablesCollection, node: Node, source: Database | None
) -> None:
    if source is not None and source.dialect != collection.dialect:
        source = None
    for column in node.info.columns:
        made = column.identity or _NEXTVAL.search(column.default or "")
        if made and collection.dialect == "postgresql":
            floor = _last_value(source, node.info, column) if source else None
            _raise_sequence(connection, node, column, floor)
    if collection.dialect == "mysql" and source is not None:
        if any(column.identity for column in node.info.columns):
            with source.reading(source.name) as there:
                next_ = _next_of(there, node)
            _raise_auto_increment(connection, node, next_)
    elif collection.dialect == "sqlite" and source is not None and _counts(node.info.sql):
        last = _last_of_sqlite(source, node)
        if last is not None:
            _raise_sqlite(connection, node, last)


def _sequence_name(connection: Connection, table: Table, column: Column) -> str | None:
    found = _NEXTVAL.search(column.default or "")
    if found is not None:
        return found[1].replace("''", "'")
    # As a value: what quotes for statements doubles % beside.
    named = (table.schema, table.name) if table.schema else (table.name,)
    full = ".".join('"' + name.replace('"', '""') + '"' for name in named)
    query = "SELECT pg_get_serial_sequence(%s, %s)"
    name = connection.exec_driver_sql(query, (full, column.name)).scalar()
    return None if name is None else str(name)


def _last_value(source: Database, table: Table, column: Column) -> int | None:
    with source.reading(source.name) as connection:
        there = read_table(connection, source.dialect, full_name(table))
        held = there.by_name.get(column.name) if there else None
        name = _sequence_name(connection, there, held) if there and held else None
        if name is None:
            return None
        query = "SELECT pg_sequence_last_value(to_regclass(%s))"
        value: Any = connection.exec_driver_sql(query, (name,)).scalar()
        return None if value is None else int(value)


def _raise_sequence(connection: Connection, node: Node, column: Column, floor: int | None) -> None:
    name = _sequence_name(connection, node.info, column)
    if name is None:
        return
    largest = connection.execute(sa.select(sa.func.max(node.table.c[column.name]))).scalar()
    wanted = max((int(x) for x in (largest, floor) if x is not None), default=None)
    query = "SELECT pg_sequence_last_value(to_regclass(%s))"
    last: Any = connection.exec_driver_sql(query, (name,)).scalar()
    if wanted is not None and (last is None or wanted > int(last)) and wanted > 0:
        connection.exec_driver_sql("SELECT setval(to_regclass(%s), %s)", (name, wanted))


_NEXT_OF_MYSQL = (
    "SELECT auto_increment FROM information_schema.tables "
    "WHERE table_schema = coalesce(%s, database()) AND table_name = %s"
)


def _next_of(there: Connection, node: Node) -> int:
    """The number that a table of MariaDB's or MySQL's gives next; 0 where it gives none."""
    asked = (node.info.schema, node.info.name)
    return int(there.exec_driver_sql(_NEXT_OF_MYSQL, asked).scalar() or 0)


def _raise_auto_increment(connection: Connection, node: Node, next_: int) -> None:
    """InnoDB moves on by itself past what is inserted; the source may have been further."""
    if next_ > (_next_of(connection, node) or 1):
        quote = connection.dialect.identifier_preparer.quote_identifier
        full = (f"{quote(node.info.schema)}." if node.info.schema else "") + quote(node.info.name)
        connection.exec_driver_sql(f"ALTER TABLE {full} AUTO_INCREMENT = {next_}")


_LAST_OF_SQLITE = "SELECT seq FROM sqlite_sequence WHERE name = ?"


def _last_of_sqlite(source: Database, node: Node) -> int | None:
    with source.reading(source.name) as there:
        if not _counts(_made(there, node.info.name)):
            return None
        last: Any = there.exec_driver_sql(_LAST_OF_SQLITE, (node.info.name,)).scalar()
        return None if last is None else int(last)


def _counts(made: str) -> bool:
    """Whether a table of SQLite's has a counter; others give the number after their highest."""
    return "AUTOINCREMENT" in made.upper()


def _raise_sqlite(connection: Connection, node: Node, last: int) -> None:
    name = (node.info.name,)
    here: Any = connection.exec_driver_sql(_LAST_OF_SQLITE, name).scalar()
    if here is None:
        connection.exec_driver_sql(
            "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (*name, last)
        )
    elif here < last:
        connection.exec_driver_sql(
            "UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (last, *name)
        )


def _made(connection: Connection, name: str) -> str:
    query = "SELECT sql FROM sqlite_master WHERE name = ?"
    return str(connection.exec_driver_sql(query, (name,)).scalar() or "")


def _foreign_keys(collection: TablesCollection, node: Node, source: Database) -> None:
    """Foreign keys of the source's table, from it and to it, where both tables are here."""
    if collection.dialect == "sqlite":
        return
    with source.reading(source.name) as connection:
        there = read_table(connection, source.dialect, full_name(node.info))
    if there is None:
        return
    wanted: list[tuple[str, ForeignKey]] = [(full_name(there), key) for key in there.foreign]
    for name, key in [*wanted, *there.referenced]:
        try:
            with collection.database.engine.connect() as connection, connection.begin():
                table = read_table(connection, collection.dialect, name)
                target = read_table(connection, collection.dialect, key.table)
                if table is not None and target is not None:
                    add_foreign_key(connection, table, key)
        except exc.IntegrityError:
            continue  # rows it points to are still to come


def _analyze(collection: TablesCollection) -> None:
    with collection.database.writing(collection.where) as connection:
        quote = connection.dialect.identifier_preparer.quote_identifier
        word = "ANALYZE TABLE" if collection.dialect == "mysql" else "ANALYZE"
        for node in collection.root.walk():
            info = node.info
            full = (f"{quote(info.schema)}." if info.schema else "") + quote(info.name)
            result = connection.exec_driver_sql(f"{word} {full}")
            result.close()

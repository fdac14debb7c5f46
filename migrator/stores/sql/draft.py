"""The tables of an aggregate as they will be, so that a plan can check values against columns
that nobody has made yet.

How the server will understand a declared type only the server knows (``varchar`` is ``text``
here and ``longtext`` there, ``float(24)`` is a ``real``), so it is asked: the columns are made
once in a temporary table, which no other session sees, and the catalogue is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import Connection

from migrator.stores.sql.catalog import Table, read_table
from migrator.stores.sql.ddl import Wanted, column_lines, full_name, table_tail, wanted_tables
from migrator.stores.sql.errors import classify, edge
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.shape import Node, Schema, null_keys, resolve

if TYPE_CHECKING:
    from migrator.stores.sql.tables import TablesCollection

_NAME = "migrator_draft"


class NotAllowed(Exception):
    """The account may make no temporary table."""


def draft(collection: TablesCollection) -> Node:
    """The shape the aggregate will have once its tables are made; nothing is changed.

    Raises Refused where nothing says what a table looks like, Terminal where the server does
    not take a declared type, NotAllowed where it can't be asked.
    """
    there = collection.tables_by_name()
    made: dict[str, Table] = {}
    for wanted in wanted_tables(collection):
        table = _whole(collection, wanted)
        made.setdefault(table.name, table)
        made.setdefault(full_name(table), table)

    def holds_null_keys(node: Node, names: list[str]) -> bool:
        if there.get(node.spec.table) is None:
            return False
        with collection.database.reading(collection.where) as connection:
            return null_keys(connection, node, names)

    schema = Schema(
        collection.dialect, lambda name: there.get(name) or made.get(name), holds_null_keys
    )
    return resolve(schema, collection.spec, collection.where)


def _whole(collection: TablesCollection, wanted: Wanted) -> Table:
    """The table with its columns as the catalogue will show them, and its link to its parent."""
    table, link = wanted.table, wanted.link
    if not wanted.exact and not all(column.base for column in table.columns):
        said = {column.name: column.said for column in table.columns}
        asked = _asked(collection, table).columns
        table = replace(table, columns=tuple(replace(c, said=said[c.name]) for c in asked))
    if link is not None and not any(key.columns == link.columns for key in table.foreign):
        table = replace(table, foreign=(*table.foreign, link))
    return table


def _asked(collection: TablesCollection, table: Table) -> Table:
    dialect = collection.dialect
    kind = "TABLE" if dialect == "sqlite" else "TEMPORARY TABLE"
    body = ", ".join(column_lines(collection, table))
    statement = f"CREATE {kind} {_NAME} ({body}){table_tail(collection)}"
    with edge(f"{collection.where}  table {table.name}"), _session(collection) as connection:
        try:
            connection.exec_driver_sql(statement)
        except exc.DBAPIError as error:
            origin = error.orig
            if isinstance(origin, Exception) and classify(origin)[1] in ("grant", "readonly"):
                raise NotAllowed from None
            raise
        return _described(connection, dialect)


@contextmanager
def _session(collection: TablesCollection) -> Iterator[Connection]:
    """A session in which a temporary table leaves nothing behind."""
    if collection.dialect == "sqlite":
        engine = sa.create_engine("sqlite://")  # in memory: the file may not be there yet
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()
        return
    with collection.database.engine.connect() as connection, connection.begin() as transaction:
        try:
            yield connection
        finally:
            if collection.dialect == "mysql":
                connection.exec_driver_sql(f"DROP TEMPORARY TABLE IF EXISTS {_NAME}")
            transaction.rollback()


def _described(connection: Connection, dialect: Dialect) -> Table:
    if dialect == "mysql":
        from migrator.stores.sql.catalog_mysql import read_temporary

        return read_temporary(connection, _NAME)
    found = read_table(connection, dialect, _NAME)
    assert found is not None
    return found


__all__ = ["NotAllowed", "draft"]

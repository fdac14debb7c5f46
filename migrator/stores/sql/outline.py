"""All tables of a database with their keys: what a script is drafted from."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.model.shape import ForeignKey, TableShape
from migrator.stores.sql.catalog import Table, read_table
from migrator.stores.sql.options import Dialect


def shapes(connection: Connection, dialect: Dialect) -> list[TableShape]:
    """The tables of the default schema, by name."""
    return [_shape(table) for table in _tables(connection, dialect)]


def _tables(connection: Connection, dialect: Dialect) -> Iterator[Table]:
    for name in sorted(sa.inspect(connection).get_table_names()):
        found = read_table(connection, dialect, name)
        if found is not None:
            yield found


def _shape(table: Table) -> TableShape:
    return TableShape(
        table.name,
        tuple(column.name for column in table.columns),
        table.key,
        tuple(ForeignKey(key.columns, key.table, key.refs) for key in table.foreign),
        tuple(index.columns for index in table.uniques),
        frozenset(column.name for column in table.columns if column.nullable),
    )

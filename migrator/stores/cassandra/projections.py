"""Projections: tables that repeat parts of the blocks under keys of their own.

They are written with the full table and never read back: what they hold follows from it. A
block that lacks a value of a projection's key is left out there, as of a materialized view.
"""

from __future__ import annotations

from collections.abc import Container

from migrator.stores.cassandra.columns_nested import quoted
from migrator.stores.cassandra.table_ddl import name_in, projected
from migrator.stores.cassandra.table_rows import Row
from migrator.stores.cassandra.table_shape import Shape
from migrator.stores.cassandra.table_spec import Projection
from migrator.stores.cassandra.table_wire import UNSET, Statement


class Projected:
    """Builds the statements that keep one projection."""

    def __init__(self, shape: Shape, projection: Projection, keyspace: str) -> None:
        self._key = projection.key
        self._table = name_in(keyspace, projection.name)
        self._columns = list(projected(shape, projection))

    def changes(
        self, new: Row | None, old: Row | None, held: Container[str], stamp: bytes, ttl: bytes
    ) -> list[Statement]:
        """What makes the projection of ``old`` that of ``new``; None stands for no block."""
        before = old.key(self._key) if old is not None and old.has(self._key) else None
        after = new.key(self._key) if new is not None and new.has(self._key) else None
        changes = []
        if before is not None and before != after:
            changes.append(delete(self._table, self._key.columns, before, stamp))
        if new is not None and after is not None:
            # Where a row lies already, what it holds and the block no longer has must go.
            there = held if before == after else ()
            values = [
                new.values.get(name, new.more.get(name, None if name in there else UNSET))
                for name in self._columns
            ]
            changes.append(insert(self._table, self._columns, values, stamp, ttl))
        return changes


def insert(
    table: str, columns: list[str], values: list[object], stamp: bytes, ttl: bytes
) -> Statement:
    """A row put with a stamp and a time to live (0 for ever)."""
    names = ", ".join(map(quoted, columns))
    marks = ", ".join("?" for _ in columns)
    return Statement(
        f"INSERT INTO {table} ({names}) VALUES ({marks}) USING TIMESTAMP ? AND TTL ?",  # noqa: S608
        [*values, stamp, ttl],
    )


def delete(table: str, columns: tuple[str, ...], key: tuple[bytes, ...], stamp: bytes) -> Statement:
    """A row removed with a stamp."""
    where = " AND ".join(f"{quoted(name)} = ?" for name in columns)
    return Statement(
        f"DELETE FROM {table} USING TIMESTAMP ? WHERE {where}",  # noqa: S608
        [stamp, *key],
    )

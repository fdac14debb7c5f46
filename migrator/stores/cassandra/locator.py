"""The locator: a table beside the full one that says by block key where a block lies now.

It is needed where the key of the full table holds more than the block key (invoices by customer
and month), so that a block whose customer changes is found, moved and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.stores.cassandra.columns_nested import quoted
from migrator.stores.cassandra.table_read import selected
from migrator.stores.cassandra.table_shape import Shape
from migrator.stores.cassandra.table_wire import Name, Statement, Wire

PlaceKey = tuple[bytes, ...]


@dataclass(frozen=True)
class Found:
    """Where a block lies: the primary key in the full table, and when that was written."""

    key: PlaceKey
    stamp: int


class Locator:
    """Reads the locator and builds the statements that change it."""

    def __init__(self, wire: Wire, shape: Shape, table: str) -> None:
        self._wire = wire
        self._shape = shape
        self._table = table
        self._columns = list(dict.fromkeys((*shape.id, *shape.key.columns)))
        self._more = [name for name in self._columns if name not in shape.id]

    def find(self, ids: Sequence[Sequence[bytes]]) -> list[Found | None]:
        """Where the blocks of some keys lie; None for those that are nowhere."""
        names: list[Name] = [*self._columns, ("writetime", self._more[0])]
        where = " AND ".join(f"{quoted(name)} = ?" for name in self._shape.id)
        query = f"SELECT {selected(names)} FROM {self._table} WHERE {where}"  # noqa: S608
        found: list[Found | None] = []
        for rows in self._wire.each(Statement(query, id) for id in ids):
            held = dict(zip(names, rows[0], strict=True)) if rows else {}
            key = tuple(held.get(name) for name in self._shape.key.columns)
            stamp = held.get(names[-1])
            if not rows or None in key or stamp is None:
                found.append(None)
                continue
            whole = tuple(part for part in key if part is not None)
            found.append(Found(whole, int.from_bytes(stamp, "big", signed=True)))
        return found

    def set(self, key: PlaceKey, stamp: bytes, ttl: bytes) -> Statement:
        """The statement that says that a block lies at a primary key."""
        at = dict(zip(self._shape.key.columns, key, strict=True))
        names = ", ".join(map(quoted, self._columns))
        marks = ", ".join("?" for _ in self._columns)
        return Statement(
            f"INSERT INTO {self._table} ({names}) VALUES ({marks}) "  # noqa: S608
            "USING TIMESTAMP ? AND TTL ?",
            [*(at[name] for name in self._columns), stamp, ttl],
        )

    def remove(self, key: PlaceKey, stamp: bytes) -> Statement:
        """The statement that forgets the block at a primary key."""
        at = dict(zip(self._shape.key.columns, key, strict=True))
        where = " AND ".join(f"{quoted(name)} = ?" for name in self._shape.id)
        return Statement(
            f"DELETE FROM {self._table} USING TIMESTAMP ? WHERE {where}",  # noqa: S608
            [stamp, *(at[name] for name in self._shape.id)],
        )

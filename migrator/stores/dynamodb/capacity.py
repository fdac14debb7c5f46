"""Capacity units, as the service counts them: a write for each KB, a read for each 4 KB.

A write costs each index that it changes once more, by what the index repeats; an item whose key
in an index changes is removed from there and written anew. All reads are consistent. Nothing here
is written by a transaction, which would cost twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from migrator.ports import Rates
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.options import PROVISIONED, Attribute, Index
from migrator.stores.dynamodb.sizes import item_size
from migrator.stores.dynamodb.table import Table


def write_units(size: int) -> int:
    return max(1, -(-size // 1024))


def read_units(size: int) -> int:
    return max(1, -(-size // 4096))


class Meter:
    """Counts what requests to a table take; the table is looked at once."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @cached_property
    def _found(self) -> Mapping[str, Any] | None:
        return self._table.describe()

    @cached_property
    def indexes(self) -> Sequence[Index]:
        """Those that the table has, or is to have."""
        if self._found is None:
            return self._table.options.indexes
        return list(_described(self._found))

    def fresh(self, item: Item, size: int) -> int:
        """Write units to put an item of this size where none lies."""
        total = write_units(size)
        for index in self.indexes:
            entry = self._entry(index, item)
            if entry is not None:
                total += write_units(size if entry is item else item_size(entry))
        return total

    def put(self, new: Item | None, old: Item | None) -> int:
        """Write units to put an item where another may lie; None for none."""
        there = [item for item in (new, old) if item is not None]
        total = write_units(max(map(item_size, there), default=0))
        for index in self.indexes:
            before, after = self._entry(index, old), self._entry(index, new)
            entries = [entry for entry in (before, after) if entry is not None]
            if before == after:
                continue
            if len(entries) == 2 and self._key(index, before) == self._key(index, after):
                total += write_units(max(map(item_size, entries)))
            else:
                total += sum(write_units(item_size(entry)) for entry in entries)
        return total

    def _key(self, index: Index, entry: Item | None) -> list[object]:
        keys = (index.hash, index.sort)
        return [(entry or {}).get(key.name) for key in keys if key is not None]

    def _entry(self, index: Index, item: Item | None) -> Item | None:
        """What an index repeats of an item; None where the item is not in it."""
        if item is None or None in self._key(index, item):
            return None
        if index.project == "all":
            return item
        keys = (index.hash, index.sort, self._table.options.hash, self._table.options.range)
        names = {key.name for key in keys if key is not None}
        if index.project != "keys":
            names.update(index.project)  # type: ignore[arg-type]
        return {name: av for name, av in item.items() if name in names}

    def scan(self) -> int:
        """Read units of a scan of the whole table."""
        return read_units(self._table.statistics().bytes) if self._found is not None else 0

    def rates(self) -> Rates:
        """What table and settings allow a second. An index that takes less holds the table up."""
        reads, writes = [self._table.wire.reads.units], [self._table.wire.writes.units]
        for given in self._throughput():
            reads.append(given[0] or None)
            writes.append(given[1] or None)
        # Indexes are not read here.
        return Rates(_least(reads[:2]), _least(writes))

    def _throughput(self) -> Iterator[tuple[float, float]]:
        """Provisioned units of the table, then of its indexes; zeros for none."""
        options, found = self._table.options, self._found
        if found is None:
            if options.billing == PROVISIONED:
                yield options.units
            return
        for one in (found, *(found.get("GlobalSecondaryIndexes") or ())):
            given = one.get("ProvisionedThroughput", {})
            yield given.get("ReadCapacityUnits", 0), given.get("WriteCapacityUnits", 0)


def _least(rates: Sequence[float | None]) -> float | None:
    return min((rate for rate in rates if rate is not None), default=None)


def _described(found: Mapping[str, Any]) -> Iterator[Index]:
    for local, name in ((False, "GlobalSecondaryIndexes"), (True, "LocalSecondaryIndexes")):
        for index in found.get(name) or ():
            keys = {key["KeyType"]: Attribute(key["AttributeName"]) for key in index["KeySchema"]}
            shown = index.get("Projection", {})
            project: object = {"ALL": "all", "KEYS_ONLY": "keys"}.get(
                shown.get("ProjectionType", "ALL"), shown.get("NonKeyAttributes", [])
            )
            yield Index(index["IndexName"], keys["HASH"], keys.get("RANGE"), local, project)

"""Which partitions would be too large: counted over the blocks that a plan measures."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.heavy import Heavy
from migrator.stores.cassandra.table_rows import Row
from migrator.stores.cassandra.table_shape import Shape

ROWS = 100_000
BYTES = 100 * 1024 * 1024


class Partitions:
    """Rows and bytes by partition key."""

    def __init__(self, shape: Shape) -> None:
        self._columns = shape.key.partition
        self._several = bool(shape.key.clustering)
        self._heavy = Heavy()

    def add(self, row: Row) -> None:
        """Count a block's row."""
        if self._several:
            parts = [row.column(name) for name in self._columns]
            key = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
            self._heavy.add(key, row.size)

    def findings(self, blocks: int) -> Iterator[tuple[str, str, str]]:
        """What to tell of a plan that writes so many blocks; only a part may have been seen."""
        held = self._heavy.of(blocks)
        rows = [count for count, _ in held if count > ROWS]
        sizes = [size for _, size in held if size > BYTES]
        if rows:
            yield (
                "warning",
                "cassandra-partition-rows",
                f"{len(rows):,} partitions would have over {ROWS:,} rows, the largest about "
                f"{max(rows):,.0f}: add a bucket to the partition key, as "
                '"bucket 16 of block key"',
            )
        if sizes:
            yield (
                "warning",
                "cassandra-partition-bytes",
                f"{len(sizes):,} partitions would have over 100 MB, the largest about "
                f"{max(sizes) / 1024**2:,.0f} MB: add a bucket to the partition key",
            )

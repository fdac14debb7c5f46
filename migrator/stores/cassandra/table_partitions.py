"""Which partitions would be too large: counted over the blocks that a plan measures.

Memory is bounded: of more partitions than ``KEPT`` the heavy ones stay (Misra and Gries), each
with at most the share 1/KEPT of all blocks counted too few.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from migrator.stores.cassandra.table_rows import Row
from migrator.stores.cassandra.table_shape import Shape

ROWS = 100_000
BYTES = 100 * 1024 * 1024
KEPT = 20_000


class Partitions:
    """Rows and bytes by partition key."""

    def __init__(self, shape: Shape) -> None:
        self._columns = shape.key.partition
        self._several = bool(shape.key.clustering)
        self._held: dict[bytes, list[int]] = {}
        self._seen = 0
        self._lock = threading.Lock()

    def add(self, row: Row) -> None:
        """Count a block's row."""
        if not self._several:
            return
        parts = [row.column(name) for name in self._columns]
        key = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        with self._lock:
            self._seen += 1
            held = self._held.get(key)
            if held is not None:
                held[0] += 1
                held[1] += row.size
                return
            if len(self._held) >= KEPT:
                self._held = {k: [n - 1, size - size // n] for k, (n, size) in self._held.items()
                              if n > 1}  # fmt: skip
            else:
                self._held[key] = [1, row.size]

    def findings(self, blocks: int) -> Iterator[tuple[str, str, str]]:
        """What to tell of a plan that writes so many blocks; only a part may have been seen."""
        with self._lock:
            seen, held = max(1, self._seen), list(self._held.values())
        share = max(1.0, blocks / seen)
        rows = [n * share for n, _ in held if n * share > ROWS]
        sizes = [size * share for _, size in held if size * share > BYTES]
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

"""Partition keys that many blocks share: counted over the blocks that a plan measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.heavy import Heavy
from migrator.stores.dynamodb.options import Index
from migrator.stores.dynamodb.places import Place, Places

# What one partition takes a second; all items of a key that is no longer split lie in one.
UNITS_A_SECOND = 1_000
COLLECTION_BYTES = 10 * 1024**3
# Fewer blocks of one key, one after another, are written before it grows hot.
MANY = 100
LONG_SECONDS = 60


class PartitionKeys:
    """Blocks and bytes by partition key, where the key is not that of one block alone."""

    def __init__(self, places: Places) -> None:
        parts = {slot.part for slot in places.pk.slots}
        whole = parts >= set(range(places.parts)) if places.parts else -1 in parts
        self._shared = not whole
        self._heavy = Heavy()

    def add(self, place: Place, size: int) -> None:
        """Count a block."""
        if self._shared:
            self._heavy.add(place.pk.encode("utf-8", "surrogatepass"), size)

    def crowded(self, blocks: int) -> bool:
        """Whether the order matters in which so many blocks are written."""
        return self._most(blocks) > MANY

    def _most(self, blocks: int) -> float:
        return max((many for many, _ in self._heavy.of(blocks)), default=0.0)

    def findings(
        self, blocks: int, size: int, indexes: Sequence[Index]
    ) -> Iterator[tuple[str, str, str]]:
        """What to tell of a plan that writes so much; only a part may have been seen."""
        held = self._heavy.of(blocks)
        if not held:
            return
        yield from _too_large([size for _, size in held], indexes)
        if self.crowded(blocks):
            yield (
                "note",
                "dynamodb-order",
                f"up to {self._most(blocks):,.0f} blocks share a partition key: pages are copied "
                "in an order by chance, so that blocks of one key do not come one after another",
            )
        many, largest = max(held)
        seconds = largest / 1024 / UNITS_A_SECOND
        if many > MANY and seconds > LONG_SECONDS and largest > size / 10:
            yield (
                "warning",
                "dynamodb-hot-partition",
                f"one partition key gets {many:,.0f} of {blocks:,} blocks, about "
                f"{largest / 1024**2:,.0f} MB: a partition takes {UNITS_A_SECOND:,} write units a "
                f"second, so it alone takes {seconds / 60:,.0f} minutes; shard the key, as "
                "Shard(16) of ReKey does",
            )


def _too_large(sizes: Sequence[float], indexes: Sequence[Index]) -> Iterator[tuple[str, str, str]]:
    """Local indexes keep all items of a key together, with what they repeat of them."""
    local = [index for index in indexes if index.local]
    if not local:
        return
    copies = 1 + sum(index.project == "all" for index in local)
    over = [size * copies for size in sizes if size * copies > COLLECTION_BYTES]
    if over:
        yield (
            "error",
            "dynamodb-collection-size",
            f"{len(over):,} partition keys would get over 10 GB with their local indexes, the "
            f"largest about {max(over) / 1024**3:,.0f} GB, and writes beyond are refused: leave "
            "local indexes out, or shard the key, as Shard(16) of ReKey does",
        )

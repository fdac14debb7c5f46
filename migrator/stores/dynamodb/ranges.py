"""Ranges are segments of a parallel scan: they cover all keys that may ever come.

Partition keys are hashed, and a segment is a share of the hashes, so that segments read or
written side by side spread over all partitions of the table.
"""

from __future__ import annotations

from migrator.errors import DamagedBlock, Refused
from migrator.model.value import Value, show
from migrator.ports import Collection, Json, Page, one_page
from migrator.stores.dynamodb.codec import Item, Unreadable

_MOST = 1_000_000


def segments(parts: int) -> list[Json]:
    """As many segments as asked for."""
    of = max(1, min(parts, _MOST))
    return [{"segment": i, "of": of} for i in range(of)]


def sample(collection: Collection, size: int) -> Page:
    """So many blocks at most: a share of each of a few segments, or else the first of all."""
    # A scan begins anywhere in the order of hashes: its first items are as good as others.
    wanted = -(-size // 8) if size > 8 else 1
    ranges = segments(min(size, 8))
    found = one_page((collection.page(range_, None, wanted) for range_ in ranges), size)
    return found if found.met >= size else collection.page(None, None, size)


def after(position: Json) -> Item | None:
    """The key that a page begins after. Raises Refused for what is none."""
    if position is None or (
        isinstance(position, dict) and all(isinstance(av, dict) for av in position.values())
    ):
        return position
    raise Refused(f"{position!r} is no position in a DynamoDB table")


def unreadable(id: Value, error: Unreadable, where: str) -> DamagedBlock:
    """The error for a single block that was asked for and can't be read."""
    return DamagedBlock(
        f"{show(id)} can't be read: {error}",
        where=where,
        hint="mend or remove the item with the application that wrote it",
    )

"""Ranges are segments of a parallel scan: they cover all keys that may ever come.

Partition keys are hashed, and a segment is a share of the hashes, so that segments read or
written side by side spread over all partitions of the table.
"""

from __future__ import annotations

from migrator.errors import DamagedBlock, Refused
from migrator.model.value import Value, show
from migrator.ports import Json
from migrator.stores.dynamodb.codec import Item, Unreadable

_MOST = 1_000_000


def segments(parts: int) -> list[Json]:
    """As many segments as asked for."""
    of = max(1, min(parts, _MOST))
    return [{"segment": i, "of": of} for i in range(of)]


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

"""An aggregate as a gateway gives it, and which one a write expects."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final, TypeAlias

from migrator.errors import DamagedBlock
from migrator.gateway import changes
from migrator.gateway.opened import Sides
from migrator.model.block import Aggregate, Block, has_ended
from migrator.model.rules import CorruptBlock
from migrator.model.value import Record, Value


class _Any(Enum):
    ANY = 0


ANY: Final = _Any.ANY
Expected: TypeAlias = str | _Any | None
"""The version that must be there; None for no aggregate at all, ANY for whatever there is."""


@dataclass(frozen=True)
class Found:
    """An aggregate as it was read or written. ``expires``: milliseconds since 1970, or None."""

    id: Value
    value: Record = field(repr=False)
    expires: int | None = None

    @cached_property
    def version(self) -> str:
        """What ``expected`` takes: a digest of the content, the same on both sides of a move."""
        return changes.version(Aggregate(self.id, self.value, self.expires))


def found_in(sides: Sides, block: Block | None) -> Found | None:
    """The aggregate of a block; none of one that has ended, which servers remove late or never."""
    if block is None or has_ended(block.expires, time.time()):
        return None
    try:
        aggregate = sides.seen(block)
    except CorruptBlock as error:
        where = sides.route.name(block.id)
        raise DamagedBlock(f"it can't be read: {error}", where=where) from None
    return Found(aggregate.id, aggregate.value, aggregate.expires)

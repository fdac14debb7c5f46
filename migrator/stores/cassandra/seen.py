"""Putting a block where a delete may lie, which leaves no stamp that could be read (R10).

Where the clock that stamped the delete was ahead, what is put in its place comes to nothing, and
the server says nothing of it. So it is looked for, and put again, later, until it is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from migrator.errors import Terminal
from migrator.model.block import has_ended

P = TypeVar("P")

_SOON = 60  # seconds


class Pristine:
    """Whether no delete can lie in a table: it was made just now, nobody else writes there, and
    nothing was deleted since."""

    holds = False


# In microseconds: by how much later at first, and when to give up. Later than needed by a factor
# of two at most, for plain writes with clocks of their own come to nothing until then.
_FIRST, _LAST = 1_000, 86_400_000_000


def ended(expires: int | None) -> bool:
    """Whether a deadline has passed; the server sweeps up to a second later."""
    return has_ended(expires, time.time())


def lasts(expires: int | None) -> bool:
    """Whether a block is there when it is looked for: one that ends soon may have ended."""
    return expires is None or expires > (time.time() + _SOON) * 1000


def until_seen(
    put: Sequence[P],
    hidden: Callable[[Sequence[P]], Sequence[P]],
    put_later: Callable[[Sequence[P], int], None],
    where: str,
) -> None:
    """Put again what is ``hidden`` of what was put. Raises Terminal where that takes over a day."""
    later = _FIRST
    while put := hidden(put):
        if later > _LAST:
            raise Terminal(
                f"{len(put)} blocks were deleted by a clock that is more than a day ahead: nothing "
                "that is put in their place is seen",
                where=where,
                hint="set the clocks of the hosts that write there; wait until the time of that "
                "delete has come, or compact the tables away with nodetool after gc_grace_seconds",
            )
        put_later(put, later)
        later *= 2


__all__ = ["Pristine", "lasts", "until_seen"]

"""Writing where something may lie that has no stamp which could be read (R10): a delete, of a block
or of one of its columns, or a row that has nothing but its key.

Where the clock that stamped it was ahead, what is written in its place comes to nothing, and the
server says nothing of it. So it is looked for, and written again, later, until it is there.
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
    left = _again(put, hidden, put_later)
    if left:
        raise Terminal(
            f"{len(left)} blocks were deleted by a clock that is more than a day ahead: nothing "
            "that is put in their place is seen",
            where=where,
            hint="set the clocks of the hosts that write there; wait until the time of that "
            "delete has come, or compact the tables away with nodetool after gc_grace_seconds",
        )


def until_gone(
    removed: Sequence[P],
    there: Callable[[Sequence[P]], Sequence[P]],
    remove_later: Callable[[Sequence[P], int], None],
    where: str,
) -> None:
    """Remove again what is still ``there``. Raises Terminal where that takes over a day."""
    left = _again(removed, there, remove_later)
    if left:
        raise Terminal(
            f"{len(left)} rows were written by a clock that is more than a day ahead: they can't "
            "be removed",
            where=where,
            hint="set the clocks of the hosts that write there, and wait until that time has come",
        )


def _again(
    done: Sequence[P],
    missed: Callable[[Sequence[P]], Sequence[P]],
    later_: Callable[[Sequence[P], int], None],
) -> Sequence[P]:
    """Do again, later each time, what came to nothing; what still does after a day."""
    later = _FIRST
    while (done := missed(done)) and later <= _LAST:
        later_(done, later)
        later *= 2
    return done


__all__ = ["Pristine", "lasts", "until_gone", "until_seen"]

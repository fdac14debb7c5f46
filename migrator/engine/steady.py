"""That what writes are denied to is what its name stands for, up to the flip (R16).

A table that is renamed away takes the fence along, and another in its place has none. So at the
last moment the stores are asked for the fence by the names of the tables, and what can keep tables
in their places does until the flip is persisted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import structlog

from migrator.engine.bound import Bound
from migrator.engine.points import reached
from migrator.errors import MigratorError, Waiting
from migrator.journal import Steady
from migrator.ports import Shaped

if TYPE_CHECKING:
    from migrator.engine.lane import Lane
    from migrator.engine.mirror import Mirror

log = structlog.get_logger("migrator.swap")


@contextmanager
def steady(mirror: Mirror, old: str, bound: Bound) -> Iterator[None]:
    """Keep the old primary's tables in their places within, where its store can. Raises Waiting
    where one of them is no longer fenced."""
    kept = ExitStack()
    try:
        for lane in mirror.lanes:
            _keep(kept, lane, old, bound)
        reached("swap.steady")
        yield
    finally:
        try:
            kept.close()
        except MigratorError as error:  # it holds nothing any more, whatever became of the flip
            log.warning("tables let go late", where=error.where, error=error.what)


def _keep(kept: ExitStack, lane: Lane, old: str, bound: Bound) -> None:
    side, fence = lane.side(old), lane.fence(old)
    if fence is None or not isinstance(side, Shaped):
        return
    if isinstance(fence, Steady):
        up = kept.enter_context(fence.steady(max(0.001, bound.until - time.monotonic())))
    else:
        up = fence.is_up()
    if not up:
        raise Waiting(
            "another table has just taken the place of one whose writes were stopped: undone",
            where=str(side.at),
            hint="try again once both sides were compared anew:  migrator status "
            f"{lane.scene.plan.revision}",
        )


__all__ = ["steady"]

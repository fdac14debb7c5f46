"""Named points of a run, at which a test kills the process (design, section 3).

``reached`` does nothing by itself; a test sets ``hook`` in the process that it wants to end.
"""

from __future__ import annotations

from collections.abc import Callable

# At rest, from the first to the last.
POINTS = (
    "run.started",
    "prepare.created",
    "backfill.listed",
    "backfill.read",
    "backfill.intended",
    "backfill.written",
    "backfill.checkpointed",
    "backfill.task_done",
    "delete.intended",
    "delete.written",
    "verify.listed",
    "verify.checkpointed",
    "cut_over.settled",
    "cut_over.flipped",
    "rollback.flipped",
    "abort.dropped",
    "finish.dropped",
)
# Where a move has an archive.
ARCHIVING = ("backfill.archived",)
# Where the applications go on writing.
LIVE = (
    "feed.prepared",
    "mirror.touched",
    "mirror.write",
    "mirror.written",
    "mirror.deleted",
    "mirror.applied",
    "page.read",
    "page.written",
    "page.checkpointed",
    "swap.armed",
    "swap.claimed",
    "swap.raised",
    "swap.fenced",
    "swap.drained",
    "swap.flipped",
    "epoch.written",
    "swap.crowned",
    "swap.marked",
    "swap.released",
)

hook: Callable[[str], None] | None = None


def reached(point: str) -> None:
    """Tell that the run is at a named point."""
    if hook is not None:
        hook(point)

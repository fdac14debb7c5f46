"""The phases of a run (design, section 6)."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a run stands. The order of definition is the order of a move."""

    PLANNED = "planned"
    PREPARED = "prepared"
    DUAL_WRITE = "dual_write"
    BACKFILLED = "backfilled"
    SHADOW_READ = "shadow_read"
    CUT_OVER = "cut_over"
    FINISHED = "finished"
    ABORTED = "aborted"

    rank: int
    """Its place in the order of a move."""

    def __init__(self, _: str) -> None:
        self.rank = len(type(self).__members__)  # of those defined before it

    @property
    def ended(self) -> bool:
        return self in (Phase.FINISHED, Phase.ABORTED)

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")

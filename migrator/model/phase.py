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

    @property
    def rank(self) -> int:
        return list(Phase).index(self)

    @property
    def ended(self) -> bool:
        return self in (Phase.FINISHED, Phase.ABORTED)

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")

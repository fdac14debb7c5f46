"""A run's row made anew, or put right, where it was lost or is of the past (R15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from migrator.errors import Refused
from migrator.state import tables as t
from migrator.state.control import Control, Run, append, compare_and_set


def insert_run(control: Control, run: Run, moves: Sequence[tuple[str, str, str]]) -> None:
    """Register a run of which this control database knows nothing, under its own name.

    Raises Refused where a class of it is in another unfinished move.
    """
    control.register(run, moves, "rebuilt", primary=run.primary, epoch=run.epoch)


def replace_run(control: Control, old: Run, new: Run) -> Run:
    """Put a run's row right: a compare-and-set on all that tells who is the primary.

    Raises Refused where somebody else changed it meanwhile.
    """
    with control.transaction() as c:
        if not compare_and_set(
            c, old, phase=new.phase.value, primary_side=new.primary, epoch=new.epoch,
            attempt=new.attempt, fence=new.fence,
        ):  # fmt: skip
            raise Refused(
                f"run {old.id} was moved by somebody else",
                hint=f"look at it again:  migrator repair {old.revision}",
            )
        append(c, old.id, "rebuilt", {"primary": new.primary, "epoch": new.epoch})
    return replace(new, changed=old.changed)


def forget_positions(control: Control, run: str) -> None:
    """Where feeds were read on is of the past: they are prepared anew."""
    with control.transaction() as c:
        c.execute(sa.delete(t.feed).where(t.feed.c.run == run))

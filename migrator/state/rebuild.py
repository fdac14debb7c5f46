"""A run's row made anew, or put right, where it was lost or is of the past (R15)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from migrator.errors import Refused
from migrator.state import tables as t
from migrator.state.control import Control, Run, _append, _run_row


def insert_run(control: Control, run: Run, moves: Sequence[tuple[str, str, str]]) -> None:
    """Register a run of which this control database knows nothing, under its own name.

    Raises Refused where a class of it is in another unfinished move.
    """
    with control.transaction() as c:
        for cls, *sides in moves:
            control._refuse_second(c, cls, sides)
        c.execute(t.run.insert().values(**_run_row(run)))
        rows = [
            {"run": run.id, "number": i, "cls": cls, "source": s, "target": g, "open": True}
            for i, (cls, s, g) in enumerate(moves)
        ]
        c.execute(t.move.insert(), rows)
        _append(c, run.id, "rebuilt", {"primary": run.primary, "epoch": run.epoch})


def replace_run(control: Control, old: Run, new: Run) -> Run:
    """Put a run's row right: a compare-and-set on all that tells who is the primary.

    Raises Refused where somebody else changed it meanwhile.
    """
    r = t.run.c
    with control.transaction() as c:
        changed = c.execute(
            t.run.update()
            .where(
                r.id == old.id, r.phase == old.phase.value, r.epoch == old.epoch,
                r.attempt == old.attempt, r.fence == old.fence, r.primary_side == old.primary,
            )
            .values(
                phase=new.phase.value, epoch=new.epoch, attempt=new.attempt, fence=new.fence,
                primary_side=new.primary, changed=time.time(),
            )
        ).rowcount  # fmt: skip
        if changed != 1:
            raise Refused(
                f"run {old.id} was moved by somebody else",
                hint=f"look at it again:  migrator repair {old.revision}",
            )
        _append(c, old.id, "rebuilt", {"primary": new.primary, "epoch": new.epoch})
    return replace(new, changed=old.changed)


def forget_positions(control: Control, run: str) -> None:
    """Where feeds were read on is of the past: they are prepared anew."""
    with control.transaction() as c:
        c.execute(sa.delete(t.feed).where(t.feed.c.run == run))

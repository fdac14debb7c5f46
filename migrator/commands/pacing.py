"""Steering a run while it goes on: how fast it copies, and whether.

Who carries the run out looks at what is kept here several times a second.
"""

from __future__ import annotations

import msgspec

from migrator.commands.project import Project
from migrator.errors import Refused
from migrator.model.phase import Phase
from migrator.state import LiveState, Run, keep_pace


class Paced(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a run may copy. ``throttle``: blocks a second, null for as fast as it goes."""

    run: str
    revision: str
    live: bool
    throttle: float | None
    paused: bool


def throttle(project: Project, revision: str, rate: float | None) -> Paced:
    """Copy at most so many blocks a second, None for as fast as it goes."""
    return _keep(project, revision, "throttle off" if rate is None else "throttled", rate=rate)


def pause(project: Project, revision: str) -> Paced:
    """Copy nothing more for now. What is written meanwhile is mirrored all the same."""
    return _keep(project, revision, "paused", paused=True)


def resume(project: Project, revision: str) -> Paced:
    """Let the copying go on."""
    return _keep(project, revision, "resumed", paused=False)


def _keep(project: Project, revision: str, event: str, **changes: float | bool | None) -> Paced:
    run = project.control.run(revision)
    _refuse_copied(project, run)
    pace = keep_pace(project.control, run.id, event, **changes)
    return Paced(
        run=run.id, revision=run.revision, live=run.live, throttle=pace.rate, paused=pace.paused
    )


def _refuse_copied(project: Project, run: Run) -> None:
    if run.live and LiveState(project.control, run.id).told()[1].get("scanning"):
        return  # both sides are compared anew, at the same pace
    if run.phase.rank >= Phase.BACKFILLED.rank:
        raise Refused(
            f"{run.revision} is {run.phase.words}: there is nothing left to copy",
            hint=f"see where it stands:  migrator status {run.revision}",
        )

"""Where runs stand, and what was recorded of them."""

from __future__ import annotations

import msgspec

from migrator.commands.applying import frozen_plan
from migrator.commands.project import Project
from migrator.model.phase import Phase
from migrator.state import Run


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where one run stands. ``changed``: when it got there, in seconds since 1970."""

    run: str
    revision: str
    classes: list[str]
    phase: str
    primary: str
    mirror: str
    changed: float
    epoch: int
    read: int
    planned: int
    quarantined: int
    next: str


def status(project: Project) -> list[RunStatus]:
    """Where every run stands, oldest first; aborted ones are left out."""
    runs = [run for run in project.control.runs() if run.phase is not Phase.ABORTED]
    return [_status(project, run) for run in runs]


def _status(project: Project, run: Run) -> RunStatus:
    made = frozen_plan(run)
    sides = [[str(getattr(m, side)) for m in made.moves] for side in ("source", "target")]
    primary, mirror = sides if run.primary == "source" else reversed(sides)
    tasks = [
        task
        for number in range(len(made.moves))
        for task in project.control.tasks(run.id, number, "backfill")
    ]
    return RunStatus(
        run=run.id,
        revision=run.revision,
        classes=[m.cls for m in made.moves],
        phase=run.phase.value,
        primary=", ".join(primary),
        mirror=", ".join(mirror),
        changed=run.changed,
        epoch=run.epoch,
        read=sum(task.counts.get("read", 0) for task in tasks),
        planned=sum(m.read for m in made.moves),
        quarantined=len(project.control.quarantined(run.id)),
        next=_next(run),
    )


def _next(run: Run) -> str:
    match run.phase:
        case Phase.CUT_OVER:
            return f"migrator finish {run.revision}, or back: migrator rollback {run.revision}"
        case Phase.FINISHED | Phase.ABORTED:
            return ""
        case _:
            return f"migrator apply {run.revision}, or leave it: migrator abort {run.revision}"


def events(project: Project, name: str) -> list[dict[str, object]]:
    """The append-only log of a run."""
    return project.control.events(project.control.run(name).id)

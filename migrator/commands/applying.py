"""Carrying a plan out, under the lease of its run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from migrator.commands.live import apply_live
from migrator.commands.plans import reach
from migrator.commands.project import Project
from migrator.commands.started import (
    Applied,
    Terms,
    applied,
    check_plan,
    frozen_plan,
    refuse_changed,
    taken_up,
)
from migrator.engine.run import Engine
from migrator.engine.work import Nobody, Scene, Watcher
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.retry import Retry
from migrator.state import Lease


def apply(
    project: Project,
    made: Plan,
    *,
    until: Phase = Phase.CUT_OVER,
    terms: Terms | None = None,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
) -> Applied:
    """Carry a plan out up to a phase; a run that was interrupted goes on from its checkpoints.

    Raises Refused before anything is done, Mismatch, Waiting or Interrupted on the way.
    """
    terms = terms or Terms()
    reach(project, project.revision_id(made.revision))
    check_plan(project, made, terms)
    if made.live:
        return apply_live(project, made, until, terms, watcher, stop)
    with under_lease(project, made.revision, watcher, stop, terms, made) as engine:
        return applied(engine.apply(until, terms.accept_keys, terms.swap.why), engine.verified)


@contextmanager
def under_lease(
    project: Project,
    revision: str,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
    terms: Terms | None = None,
    made: Plan | None = None,
) -> Iterator[Engine]:
    """The engine of a revision's run, under its lease; ``made`` begins a run where none is."""
    terms, stop = terms or Terms(), stop or threading.Event()
    control = project.control
    with Lease(control, f"{project.settings.env}/{revision}") as lease:
        run = taken_up(project, revision, made, terms)
        structlog.contextvars.bind_contextvars(run=run.id)
        if not run.phase.ended:
            refuse_changed(project, run)
        frozen = frozen_plan(run)
        scene = Scene(
            run, frozen, project.routes(revision, frozen), control, lease, terms.workers,
            watcher or Nobody(), Retry(stop=stop, check=lease.check), stop,
            request_life=project.settings.request_life,
        )  # fmt: skip
        yield Engine(scene)

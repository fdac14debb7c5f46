"""What is done with a run afterwards: verify, take back, leave, finish."""

from __future__ import annotations

import threading

from migrator import revisions
from migrator.commands.applying import Applied, Terms, under_lease
from migrator.commands.project import Project
from migrator.engine.verify import Verification, verify
from migrator.engine.work import Watcher
from migrator.errors import Refused
from migrator.model.move import At
from migrator.places import refuse_needed
from migrator.state import Run


def verify_run(
    project: Project,
    revision: str,
    *,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
    workers: int = 2,
) -> list[Verification]:
    """Compare both sides of a revision's run, all blocks, anew."""
    revision = project.revision_id(revision)
    with under_lease(project, revision, watcher, stop, Terms(workers=workers)) as engine:
        refuse_ended(engine.run)
        return [verify(engine.scene, route) for route in engine.scene.routes]


def refuse_ended(run: Run) -> None:
    if run.phase.ended:
        raise Refused(f"{run.revision} is {run.phase.words}: there are no two sides any more")


def rollback(
    project: Project,
    revision: str,
    *,
    carry_back: bool = False,
    discard: bool = False,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
) -> Applied:
    """Make the source the primary again."""
    revision = project.revision_id(revision)
    with under_lease(project, revision, watcher, stop) as engine:
        found = engine.rollback(carry_back=carry_back, discard=discard)
        run = engine.run
        return Applied(
            run=run.id, revision=revision, phase=run.phase.value, primary=run.primary,
            verified=found,
        )  # fmt: skip


def abort(project: Project, revision: str, *, drop_target: bool) -> Run:
    """Leave a move while the source is primary."""
    revision = project.revision_id(revision)
    with under_lease(project, revision) as engine:
        engine.abort(drop_target=drop_target)
        return engine.run


def finish(project: Project, revision: str, *, keep_source: bool) -> Run:
    """End a move for good; the source is dropped unless it is kept."""
    revision = project.revision_id(revision)
    with under_lease(project, revision) as engine:
        if not keep_source:
            refuse_needed(project.settings, project.graph, revision, project.done())
        engine.finish(keep_source=keep_source)
        return engine.run


def held_at(project: Project, revision: str, side: str) -> list[str]:
    """What a ``source`` or ``target`` consists of, by name: what dropping it would drop."""
    found: list[str] = []
    for move in project.moves(project.revision_id(revision)):
        ends: list[At] = [*move.reads().values()] if side == "source" else [move.target]
        for at in ends:
            tables = [] if at.tables is None else revisions.all_tables(at.tables)
            found += [f"{at.store}:{each.table}" for each in tables] or [str(at)]
    return list(dict.fromkeys(found))

"""What is done with a run afterwards: verify, take back, leave, finish."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from migrator import revisions
from migrator.commands.applying import under_lease
from migrator.commands.comparing import compare_live
from migrator.commands.live import ask, end_live
from migrator.commands.project import Project
from migrator.commands.started import Applied, Terms, applied
from migrator.engine.ending import refuse_no_way_back, refuse_not_cut_over, refuse_only_copy
from migrator.engine.swap import SwapTerms
from migrator.engine.verify import Verification, verify
from migrator.engine.work import Watcher
from migrator.errors import Refused, Transient
from migrator.journal import journal_name
from migrator.model.move import At
from migrator.model.phase import Phase
from migrator.places import refuse_needed
from migrator.state import Run


def verify_run(
    project: Project,
    revision: str,
    *,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
    workers: int = 2,
    mend: bool = False,
) -> list[Verification]:
    """Compare both sides of a revision's run, all blocks, anew; with ``mend`` the mirror of a live
    one reconciles what differs, which is then looked at again. Raises Refused for one at rest."""
    revision = project.revision_id(revision)
    run = project.control.run(revision)
    if run.live:
        refuse_ended(run)
        return compare_live(project, revision, watcher, stop, workers, mend=mend)
    if mend:
        raise Refused(
            f"{revision} is moved at rest: there is no mirror that could reconcile what differs",
            hint=f"copy it anew:  migrator abort {revision}, then plan",
        )
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
    swap: SwapTerms | None = None,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
) -> Applied:
    """Make the source the primary again; ``swap`` is for a live move, whose mirror goes on."""
    revision = project.revision_id(revision)
    run = project.control.run(revision)
    if run.live:
        if carry_back or discard:
            raise Refused("a live move loses nothing: its mirror has carried every write back")
        refuse_no_way_back(project.control, run)
        return ask(project, revision, Phase.SHADOW_READ, swap or SwapTerms(), watcher, stop)
    with under_lease(project, revision, watcher, stop) as engine:
        found = engine.rollback(carry_back=carry_back, discard=discard)
        return applied(engine.run, found)


def cutover(
    project: Project,
    revision: str,
    *,
    swap: SwapTerms | None = None,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
) -> Applied:
    """Make the target of a live run the primary, or rehearse it.

    Raises Refused, Waiting or Mismatch with nothing changed.
    """
    revision = project.revision_id(revision)
    run = project.control.run(revision)
    if not run.live:
        raise Refused(
            f"{revision} is moved at rest", hint=f"cut it over:  migrator apply {revision}"
        )
    if run.phase is Phase.CUT_OVER:
        raise Refused(f"{revision} is cut over already", hint=f"see:  migrator status {revision}")
    if run.phase.ended:
        raise Refused(
            f"{revision} is {run.phase.words}: there is nothing to cut over",
            hint=f"see:  migrator status {revision}"
            if run.phase is Phase.FINISHED
            else f"move it anew:  migrator plan {revision} --live",
        )
    if run.phase is not Phase.SHADOW_READ:
        raise Refused(
            f"{revision} is {run.phase.words}: both sides were not compared yet",
            hint=f"go on with:  migrator apply {revision} --until shadow_read",
        )
    return ask(project, revision, Phase.CUT_OVER, swap or SwapTerms(), watcher, stop)


def abort(project: Project, revision: str, *, drop_target: bool, leave_target: bool = False) -> Run:
    """Leave a move while the source is primary. ``leave_target``: nothing is asked of the target's
    store, which is down for good. Raises Waiting where a mirror is running then."""
    revision = project.revision_id(revision)
    if (run := project.control.run(revision)).live:
        if not run.phase.ended:
            refuse_only_copy(project.control, run)  # its mirror may be waiting for a store
        terms = SwapTerms(drop_target=drop_target, leave_target=leave_target)
        try:
            return end_live(project, revision, Phase.ABORTED, terms)
        except Transient as error:
            if error.where.partition(":")[0] in {m.target.store for m in project.moves(revision)}:
                way = f"migrator abort {revision} --leave-target"
                error.hint += f"\nwhere it is down for good, leave it as it is:  {way}"
            raise
    with under_lease(project, revision) as engine:
        engine.abort(drop_target=drop_target, leaving="target" if leave_target else "")
        return engine.run


def left_on_servers(run: Run) -> str:
    """How the names begin of all that a run makes on a server."""
    return journal_name(run.id, 0, "source").removesuffix("0_s")


def finish(
    project: Project, revision: str, *, keep_source: bool, accept_keys: Sequence[str] = ()
) -> Run:
    """End a move for good; the source is dropped unless it is kept. ``accept_keys`` are the blocks
    in quarantine that may go with it."""
    revision = project.revision_id(revision)
    if (run := project.control.run(revision)).live:
        if not run.phase.ended:
            # At once: what is asked for during a swap would be done behind it, on other data than
            # it was asked of, and nobody was asked whether the source may go.
            refuse_not_cut_over(run)
        _refuse_needed(project, revision, keep_source)
        terms = SwapTerms(keep_source=keep_source, accept_keys=tuple(accept_keys))
        return end_live(project, revision, Phase.FINISHED, terms)
    with under_lease(project, revision) as engine:
        _refuse_needed(project, revision, keep_source)
        engine.finish(keep_source=keep_source, given_up=accept_keys)
        return engine.run


def _refuse_needed(project: Project, revision: str, keep_source: bool) -> None:
    if not keep_source:
        refuse_needed(project.settings, project.graph, revision, project.done())


def held_at(project: Project, revision: str, side: str) -> list[str]:
    """What a ``source`` or ``target`` consists of, by name: what dropping it would drop."""
    found: list[str] = []
    for move in project.moves(project.revision_id(revision)):
        ends: list[At] = [*move.reads().values()] if side == "source" else [move.target]
        for at in ends:
            tables = [] if at.tables is None else revisions.all_tables(at.tables)
            found += [f"{at.store}:{each.table}" for each in tables] or [str(at)]
    return list(dict.fromkeys(found))

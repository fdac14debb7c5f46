"""A run and its plan: whether one may begin or go on, and how far it came."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from migrator.commands.plans import subject
from migrator.commands.project import Project
from migrator.engine.run import refuse_filled
from migrator.engine.swap import Swap, SwapTerms
from migrator.engine.verify import Verification
from migrator.errors import Refused
from migrator.model.plan import Plan
from migrator.places import places, refuse_overlap
from migrator.planning.file import decode_plan, encode_plan
from migrator.planning.planner import declaration, fingerprint, target_fingerprint
from migrator.retry import Retry
from migrator.state import Run
from migrator.state.control import PLACE


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run came. ``primary`` is source or target, ``swap`` how long the writes to a live
    one were stopped."""

    run: str
    revision: str
    phase: str
    primary: str
    verified: list[Verification]
    swap: Swap | None = None


@dataclass
class Terms:
    """What a person accepted, and how the work is done; ``swap`` is for a live move."""

    accept: Collection[str] = ()
    accept_keys: Collection[str] = ()
    workers: int = 2
    swap: SwapTerms = field(default_factory=SwapTerms)


def pending(project: Project) -> str | None:
    """The next revision that is not done, None where all are."""
    done = project.done()
    return next((r.id for r in project.graph.revisions if r.id not in done), None)


def unfinished(project: Project, revision: str) -> Run | None:
    """The run of a revision that has begun and not ended."""
    runs = project.control.runs(revision)
    return runs[-1] if runs and not runs[-1].phase.ended else None


def check_plan(project: Project, made: Plan, terms: Terms) -> None:
    """Whether a plan may be carried out. Raises Refused: stale, foreign, findings."""
    again = f"make a new plan:  migrator plan {made.revision}"
    if made.env != project.settings.env:
        raise Refused(
            f"this plan is for environment {made.env}, not {project.settings.env}",
            hint=f"use --env {made.env}, or {again}",
        )
    done = project.done()
    if made.revision in done:
        raise Refused(f"revision {made.revision} is finished already")
    for before in project.graph.path_to(made.revision, done)[:-1]:
        raise Refused(
            f"revision {made.revision} builds on {before.id}, which is not finished",
            hint=f"carry it out first:  migrator apply {before.id}, migrator finish {before.id}",
        )
    if made.errors:
        first = made.errors[0]
        raise Refused(
            f"{first.code}  {_told(first.text, first.path, first.keys)}"
            + (f" (and {len(made.errors) - 1} more)" if len(made.errors) > 1 else ""),
            hint="mend the data or the script, then " + again,
        )
    # A run begins only after its findings were accepted, and goes on without asking again.
    running = unfinished(project, made.revision) is not None
    missing = [f for f in made.to_accept if f.code not in terms.accept]
    if missing and not running:
        codes = " ".join(f"--accept {code}" for code in dict.fromkeys(f.code for f in missing))
        raise Refused(
            f"{missing[0].code}  {_told(missing[0].text, missing[0].path, missing[0].keys)}",
            hint=f"if that is what you want, say so:  {codes}",
        )
    refuse_overlap(project.settings, made.revision, project.moves(made.revision))
    refuse_stale(project, made, again, targets=not running)


def _told(text: str, path: str, keys: Sequence[str]) -> str:
    return " ".join([*([path] if path else []), text, *([f"({', '.join(keys)})"] if keys else [])])


def refuse_stale(project: Project, made: Plan, again: str, *, targets: bool) -> None:
    routes = project.routes(made.revision, made)
    tables = [move.tables for move in made.moves]
    now = fingerprint(subject(project, made.revision), routes, tables, Retry())
    if now != made.fingerprint:
        raise Refused(
            "the script, the settings or the schema of the source have changed since this plan "
            "was made",
            hint=again,
        )
    if targets and target_fingerprint(routes, Retry()) != made.targets:
        raise Refused("the schema of the target has changed since this plan was made", hint=again)
    if targets:
        refuse_filled(made, routes, Retry())


def refuse_changed(project: Project, run: Run) -> None:
    """Raise Refused where script or settings no longer say what the run was begun with.

    What is compared, taken back or dropped is what the run moved, whatever a script says now.
    The schemas may have changed: a rollback has to work then, too.
    """
    if frozen_plan(run).declared != declaration(subject(project, run.revision)):
        raise Refused(
            f"the script of {run.revision}, or where its stores lie, is no longer what run "
            f"{run.id} was begun with",
            hint="restore it, then run the same command again",
        )


def taken_up(project: Project, revision: str, made: Plan | None, terms: Terms) -> Run:
    """The run of a revision; ``made`` begins one where none is under way. To be asked under the
    run's lease. Raises Refused where the run was begun with another plan."""
    run = unfinished(project, revision)
    if run is None:
        return project.control.run(revision) if made is None else _begin(project, made, terms)
    if made is not None and run.fingerprint != made.fingerprint:
        raise Refused(
            f"run {run.id} was begun with another plan",
            hint=f"go on with that one: migrator apply {revision}; or leave it: "
            f"migrator abort {revision}",
        )
    return run


def _begin(project: Project, made: Plan, terms: Terms) -> Run:
    # Asked before already, but then without the lease.
    if made.revision in project.done():
        raise Refused(f"revision {made.revision} is finished already")
    run = project.control.start(
        made.revision, made.fingerprint, encode_plan(made).decode(), claims(project, made),
        made.live,
    )  # fmt: skip
    accepted = [f for f in made.to_accept if f.code in terms.accept]
    if accepted:
        codes, found = [f.code for f in accepted], [f.text for f in accepted]
        project.control.record_accepted(
            run.id, "accepted", terms.swap.why, codes=codes, found=found
        )
    return run


def claims(project: Project, made: Plan) -> list[tuple[str, str, str]]:
    """What a run of a plan keeps others off: class, source and target of each of its moves; and
    the tables behind these, whatever name a store has."""
    moves = [(m.cls, str(m.source), str(m.target)) for m in made.moves]
    for move in project.moves(made.revision):
        if move.merges is not None:  # its class is on the way, too
            moves.append((move.merges.of, str(move.merges.at), str(move.target)))
        if move.archive is not None:
            moves.append((move.cls, str(move.source), str(move.archive)))
        for at in (*move.reads().values(), *move.writes()):
            for place in map(repr, places(project.settings, at)):
                named = f"{PLACE}{hashlib.sha256(place.encode()).hexdigest()}"
                moves.append((move.cls, named, named))
    return moves


def applied(run: Run, verified: list[Verification], swap: Swap | None = None) -> Applied:
    """A run as the result of what was done with it."""
    return Applied(
        run=run.id, revision=run.revision, phase=run.phase.value, primary=run.primary,
        verified=verified, swap=swap,
    )  # fmt: skip


def frozen_plan(run: Run) -> Plan:
    """The plan that a run carries out."""
    return decode_plan(run.plan.encode(), f"run {run.id}")

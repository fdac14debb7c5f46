"""What Migrator does, as plain functions that return values and never print.

The CLI only reflects them. Each takes a ``Project``: settings, scripts, stores and the control
database of one environment, opened as they are needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import structlog

from migrator import revisions
from migrator.bootstrap import Stores
from migrator.engine.backfill import write_again
from migrator.engine.run import Engine, refuse_filled
from migrator.engine.verify import Verification, verify
from migrator.engine.verify import forget as forget_verification
from migrator.engine.work import Nobody, Scene, Watcher
from migrator.errors import MigratorError, Refused, Terminal
from migrator.model.move import At, Move
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.places import refuse_needed, refuse_overlap
from migrator.planning.file import decode_plan, encode_plan, read_plan, write_plan
from migrator.planning.planner import (
    Subject,
    declaration,
    fingerprint,
    make_plan,
    target_fingerprint,
)
from migrator.ports import Collection as StoreCollection
from migrator.ports import HasTables
from migrator.project_files import init as init
from migrator.retry import Retry
from migrator.route import Route, open_route, pages
from migrator.settings import Settings, load_settings
from migrator.state import Control, Lease, Quarantined, Run, open_control, quarantine_key

Progress = Callable[[str, int, int], None]


class Project:
    """One environment of one project. Use it as a context: it closes what it opened."""

    def __init__(self, config: str | Path | None = None, env: str | None = None) -> None:
        self.settings: Settings = load_settings(config, env)
        self.stores = Stores(self.settings)

    @cached_property
    def graph(self) -> revisions.Graph:
        """The scripts, checked."""
        return revisions.load(self.settings.migrations)

    @cached_property
    def control(self) -> Control:
        """The control database."""
        return open_control(self.settings.control_store(), self.settings.env)

    def moves(self, revision: str) -> tuple[Move, ...]:
        return self.graph.moves(revision, self.settings.stores.keys())

    def routes(self, revision: str) -> list[Route]:
        """The moves of a revision with both ends open."""
        return [
            open_route(number, move, move.source, self.stores.get)
            for number, move in enumerate(self.moves(revision))
            if move.source is not None
        ]

    def done(self) -> set[str]:
        """The revisions whose data has arrived: finished, or stamped."""
        finished = {r.revision for r in self.control.runs() if r.phase is Phase.FINISHED}
        return finished | self.control.stamps()

    def revision_id(self, name: str) -> str:
        return self.graph.get(name).id

    def plan_path(self, revision: str) -> Path:
        """Where the plan of a revision lies: the environment is part of the name."""
        return self.settings.plans / f"{revision}.{self.settings.env}.json"

    def close(self) -> None:
        if "control" in self.__dict__:
            self.control.close()
        self.stores.close()

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---------------------------------------------------------------- stores


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a store answered to a ping, or why it did not."""

    name: str
    ok: bool
    product: str = ""
    version: str = ""
    layouts: list[str] = []
    feed: str | None = None
    remarks: list[str] = []
    error: str = ""


def stores(project: Project) -> list[StoreStatus]:
    """Ping every store of the environment."""
    return [_ping(project, name) for name in sorted(project.settings.stores)]


def _ping(project: Project, name: str) -> StoreStatus:
    try:
        store = project.stores.get(name)
        info = store.ping()
    except MigratorError as error:
        return StoreStatus(name=name, ok=False, error=str(error))
    capabilities = store.capabilities
    return StoreStatus(
        name=name,
        ok=True,
        product=info.product,
        version=info.version,
        layouts=list(capabilities.layouts),
        feed=capabilities.feed,
        remarks=list(info.remarks),
    )


class KindRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of value is held by one store."""

    kind: str
    store: str
    how: str
    type: str


def kinds(project: Project) -> list[KindRow]:
    """The table of kinds: every kind in every store of the environment."""
    return [
        KindRow(kind=kind.value, store=name, how=held.how.value, type=held.type)
        for name in sorted(project.settings.stores)
        for kind, held in project.stores.get(name).capabilities.kinds.items()
    ]


# ---------------------------------------------------------------- plan


def plan(
    project: Project,
    revision: str,
    *,
    full: bool = False,
    workers: int = 2,
    progress: Progress = lambda cls, done, of: None,
) -> Plan:
    """What a revision would do now. Nothing is changed anywhere."""
    revision = project.revision_id(revision)
    if revision in project.done():
        raise Refused(f"revision {revision} is done already")
    refuse_overlap(project.settings, revision, project.moves(revision))
    reach(project, revision)
    routes = project.routes(revision)
    for route in routes:
        _need_source(project, revision, route)
    return make_plan(
        subject(project, revision),
        routes,
        _referred(project, revision, routes),
        full=full,
        workers=workers,
        progress=progress,
    )


def _need_source(project: Project, revision: str, route: Route) -> None:
    """Raise Terminal where the source of a move is not there."""
    if Retry()(route.source.exists):
        return
    hint = "check the name in the script"
    for before in project.graph.path_to(revision, project.done())[:-1]:
        if any(str(move.target) == str(route.source_at) for move in before.moves):
            hint = f"it is made by revision {before.id}:  migrator apply {before.id}"
    raise Terminal(f"there is nothing at {route.source_at}", hint=hint)


def reach(project: Project, revision: str) -> None:
    """Ask the stores of a revision who they are, once.

    A store that does not answer now is told at once; later on it is waited for. Raises Transient
    or Terminal.
    """
    for name in sorted(_store_names(project, revision)):
        project.stores.get(name).ping()


def _store_names(project: Project, revision: str) -> set[str]:
    return {at.store for m in project.moves(revision) for at in (m.source, m.target) if at}


def subject(project: Project, revision: str) -> Subject:
    """A revision in the words of a plan."""
    names = _store_names(project, revision)
    return Subject(
        revision,
        project.graph.get(revision).message,
        project.settings.env,
        project.graph.fingerprint(revision),
        project.settings.fingerprint_view(names),
    )


def _referred(
    project: Project, revision: str, routes: Sequence[Route]
) -> dict[str, StoreCollection]:
    """The collections that references of this revision lead to, where they can be told."""
    classes = {cls.rstrip(":") for r in routes for cls in r.move.references.values()}
    found: dict[str, StoreCollection] = {r.cls: r.source for r in routes if r.cls in classes}
    for cls in classes - found.keys():
        at = project.graph.locate(cls, before=revision)
        if at is not None and at.store in project.settings.stores:
            found[cls] = project.stores.get(at.store).collection(cls, at)
    return found


def save_plan(project: Project, made: Plan, path: Path | None = None) -> Path:
    """Write a plan file; returns where."""
    path = path or project.plan_path(made.revision)
    write_plan(made, path)
    return path


def is_plan_file(name: str) -> bool:
    """Whether a name on the command line means a file rather than a revision."""
    return name.endswith(".json") or Path(name).is_file()


def plan_file(project: Project, name: str) -> Path:
    """The file of a plan: itself, or the latest plan of a revision."""
    return Path(name) if is_plan_file(name) else project.plan_path(project.revision_id(name))


def show(project: Project, name: str) -> Plan:
    """The plan in a file, or the latest plan file of a revision."""
    return read_plan(plan_file(project, name))


# ---------------------------------------------------------------- apply


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """How far an apply came."""

    run: str
    revision: str
    phase: str
    primary: str
    verified: list[Verification]


@dataclass
class Terms:
    """What a person accepted, and how the work is done."""

    accept: Collection[str] = ()
    accept_keys: Collection[str] = ()
    workers: int = 2


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
    _refuse_stale(project, made, again, targets=not running)


def _told(text: str, path: str, keys: Sequence[str]) -> str:
    return " ".join([*([path] if path else []), text, *([f"({', '.join(keys)})"] if keys else [])])


def _refuse_stale(project: Project, made: Plan, again: str, *, targets: bool) -> None:
    routes = project.routes(made.revision)
    now = fingerprint(subject(project, made.revision), routes, Retry())
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
    with _engine(project, made.revision, watcher, stop, terms, made) as engine:
        run = engine.apply(until, terms.accept_keys)
        return Applied(
            run=run.id,
            revision=run.revision,
            phase=run.phase.value,
            primary=run.primary,
            verified=engine.verified,
        )


@contextmanager
def _engine(
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
        run = unfinished(project, revision)
        if run is None:
            run = control.run(revision) if made is None else _begin(project, made, terms)
        elif made is not None and run.fingerprint != made.fingerprint:
            raise Refused(
                f"run {run.id} was begun with another plan",
                hint=f"go on with that one: migrator apply {revision}; or leave it: "
                f"migrator abort {revision}",
            )
        structlog.contextvars.bind_contextvars(run=run.id)
        if not run.phase.ended:
            _refuse_changed(project, run)
        scene = Scene(
            run, frozen_plan(run), project.routes(revision), control, lease, terms.workers,
            watcher or Nobody(), Retry(stop=stop, check=lease.check), stop,
        )  # fmt: skip
        yield Engine(scene)


def _refuse_changed(project: Project, run: Run) -> None:
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


def _begin(project: Project, made: Plan, terms: Terms) -> Run:
    # Asked before already, but then without the lease.
    if made.revision in project.done():
        raise Refused(f"revision {made.revision} is finished already")
    moves = [(m.cls, str(m.source), str(m.target)) for m in made.moves]
    run = project.control.start(made.revision, made.fingerprint, encode_plan(made).decode(), moves)
    accepted = [f.code for f in made.to_accept if f.code in terms.accept]
    if accepted:
        project.control.record(run.id, "accepted", codes=accepted)
    return run


def frozen_plan(run: Run) -> Plan:
    """The plan that a run carries out."""
    return decode_plan(run.plan.encode(), f"run {run.id}")


# ---------------------------------------------------------------- after apply


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
    with _engine(project, revision, watcher, stop, Terms(workers=workers)) as engine:
        _refuse_ended(engine.run)
        return [verify(engine.scene, route) for route in engine.scene.routes]


def _refuse_ended(run: Run) -> None:
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
    with _engine(project, revision, watcher, stop) as engine:
        found = engine.rollback(carry_back=carry_back, discard=discard)
        run = engine.run
        return Applied(
            run=run.id, revision=revision, phase=run.phase.value, primary=run.primary,
            verified=found,
        )  # fmt: skip


def abort(project: Project, revision: str, *, drop_target: bool) -> Run:
    """Leave a move while the source is primary."""
    revision = project.revision_id(revision)
    with _engine(project, revision) as engine:
        engine.abort(drop_target=drop_target)
        return engine.run


def finish(project: Project, revision: str, *, keep_source: bool) -> Run:
    """End a move for good; the source is dropped unless it is kept."""
    revision = project.revision_id(revision)
    with _engine(project, revision) as engine:
        if not keep_source:
            refuse_needed(project.settings, project.graph, revision, project.done())
        engine.finish(keep_source=keep_source)
        return engine.run


def held_at(project: Project, revision: str, side: str) -> list[str]:
    """What a ``source`` or ``target`` consists of, by name: what dropping it would drop."""
    found: list[str] = []
    for move in project.moves(project.revision_id(revision)):
        at: At = getattr(move, side)
        tables = [] if at.tables is None else revisions.all_tables(at.tables)
        found += [f"{at.store}:{each.table}" for each in tables] or [str(at)]
    return found


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


def quarantine(project: Project, revision: str) -> list[Quarantined]:
    """The blocks of a run that could not be written, and why."""
    return project.control.quarantined(project.control.run(revision).id)


def retry_quarantined(project: Project, revision: str) -> tuple[int, int]:
    """Write the blocks in quarantine again: how many went through, how many remain.

    Those that the source no longer has leave quarantine, too.
    """
    revision = project.revision_id(revision)
    with _engine(project, revision) as engine:
        _refuse_ended(engine.run)
        if engine.run.primary != "source" and project.control.quarantined(engine.run.id):
            raise Refused(
                "the target is the primary: what the source holds could be older than what was "
                "written there since",
                hint=f"take the cut-over back first:  migrator rollback {revision}",
            )
        scene, mended = engine.scene, 0
        for route in scene.routes:
            forget_verification(scene, route)
            aside = {
                item.key
                for item in project.control.quarantined(scene.run.id)
                if item.move == route.number
            }
            gone = set(aside)
            # The canonical form can't be read back; the source itself names its keys.
            for range_ in scene.retry(route.source.split, 1) if aside else ():
                for page in pages(route.source, range_, None, 500, scene.retry):
                    gone.difference_update(quarantine_key(id) for id, _ in page.damaged)
                    ids = [b.id for b in page.blocks if quarantine_key(b.id) in aside]
                    gone.difference_update(quarantine_key(id) for id in ids)
                    bad = {quarantine_key(id) for id in write_again(scene, route, ids)}
                    for id in ids:
                        form = quarantine_key(id)
                        if form not in bad:
                            project.control.take_up(scene.run.id, route.number, form)
                    mended += len(ids) - len(bad)
            for form in gone:
                project.control.take_up(scene.run.id, route.number, form)
        return mended, len(project.control.quarantined(scene.run.id))


# ---------------------------------------------------------------- revisions


def new(
    project: Project,
    message: str,
    *,
    from_sql: tuple[str, str] | None = None,
    repartition: str | None = None,
) -> revisions.NewScript:
    """Write the next script; ``from_sql`` names a store and a table, ``repartition`` a class.

    Raises Refused for a store that has no tables, Failed where the file can't be written.
    """
    drafted = None
    if from_sql is not None:
        store = project.stores.get(from_sql[0])
        if not isinstance(store, HasTables):
            raise Refused(f"store {from_sql[0]} has no tables to draft from")
        drafted = revisions.FromSql(*from_sql, store.table_shapes())
    return revisions.new(
        project.settings.migrations,
        project.graph,
        message,
        from_sql=drafted,
        repartition=repartition,
        stores=sorted(project.settings.stores),
    )


def history(project: Project) -> tuple[revisions.HistoryEntry, ...]:
    """All revisions, the first one first."""
    return revisions.history(project.graph)


def heads(project: Project) -> tuple[revisions.HistoryEntry, ...]:
    """The revisions that none follows."""
    return revisions.heads(project.graph)


def check(project: Project) -> revisions.Checked:
    """Check every script without touching a store. Raises Refused for the first wrong one."""
    return revisions.check(project.graph, project.settings.stores.keys())


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """Where the collection of a class is now."""

    cls: str
    at: str
    revision: str


def current(project: Project) -> list[Current]:
    """Where each class is now, by the revisions that are done."""
    done, found = project.done(), {}
    for revision in project.graph.revisions:
        if revision.id in done:
            for move in project.moves(revision.id):
                found[move.cls] = Current(cls=move.cls, at=str(move.target), revision=revision.id)
    return list(found.values())


def stamp(project: Project, revision: str) -> str:
    """Note that a revision's data was moved by hand. Raises Refused where a run is under way."""
    revision = project.revision_id(revision)
    run = unfinished(project, revision)
    if run is not None:
        raise Refused(f"run {run.id} of {revision} is under way ({run.phase.words})")
    project.control.stamp(revision)
    return revision

"""Making, keeping and reading plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from migrator.commands.project import Project
from migrator.errors import Refused, Terminal
from migrator.model.plan import Plan
from migrator.places import refuse_crowded, refuse_overlap
from migrator.planning.differences import Sink, forget, writing
from migrator.planning.file import read_plan, sealed, write_plan
from migrator.planning.living import live as living
from migrator.planning.planner import (
    Subject,
    make_plan,
)
from migrator.ports import Collection as StoreCollection
from migrator.retry import Retry
from migrator.route import Route

Progress = Callable[[str, int, int], None]


def plan(
    project: Project,
    revision: str,
    *,
    full: bool = False,
    live: bool = False,
    workers: int = 2,
    progress: Progress = lambda cls, done, of: None,
    sink: Sink = lambda cls, difference: None,
) -> Plan:
    """What a revision would do now. Nothing is changed anywhere.

    With ``full`` all is read, and every difference of a block that is changed or deleted is
    handed to ``sink``, with its class: the plan itself holds samples, however many there are.
    With ``live`` it is to be carried out while the applications go on writing.
    """
    revision = project.revision_id(revision)
    if revision in project.done():
        raise Refused(f"revision {revision} is done already")
    refuse_overlap(project.settings, revision, project.moves(revision))
    reach(project, revision)
    routes = project.routes(revision)
    refuse_crowded(project.settings, routes)
    for route in routes:
        _need_source(project, revision, route)
    made = make_plan(
        subject(project, revision),
        routes,
        _referred(project, revision, routes),
        full=full,
        workers=workers,
        progress=progress,
        sink=sink,
    )
    return living(made, routes) if live else made


def _need_source(project: Project, revision: str, route: Route) -> None:
    """Raise Terminal where the source of a move is not there."""
    if Retry()(route.source.exists):
        return
    hint = "check the name in the script"
    ends = [str(at) for at in route.move.reads().values()]
    for before in project.graph.path_to(revision, project.done())[:-1]:
        if any(str(move.target) in ends for move in before.moves):
            hint = f"it is made by revision {before.id}:  migrator apply {before.id}"
    raise Terminal(f"there is nothing at {' or '.join(ends)}", hint=hint)


def reach(project: Project, revision: str) -> None:
    """Ask the stores of a revision who they are, once.

    A store that does not answer now is told at once; later on it is waited for. Raises Transient
    or Terminal.
    """
    for name in sorted(store_names(project, revision)):
        project.stores.get(name).ping()


def store_names(project: Project, revision: str) -> set[str]:
    moves = project.moves(revision)
    return {at.store for m in moves for at in (*m.reads().values(), *m.writes())}


def subject(project: Project, revision: str) -> Subject:
    """A revision in the words of a plan."""
    names = store_names(project, revision)
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


def plan_to_file(
    project: Project,
    revision: str,
    path: Path | None = None,
    *,
    full: bool = False,
    live: bool = False,
    workers: int = 2,
    progress: Progress = lambda cls, done, of: None,
) -> tuple[Plan, Path]:
    """Plan a revision into a file; with ``full`` every difference goes into one beside it.

    Neither is held in memory, and an interrupted plan leaves neither.
    """
    path = path or project.plan_path(project.revision_id(revision))
    if not full:
        made = plan(project, revision, live=live, workers=workers, progress=progress)
        forget(path)
        return made, save_plan(project, made, path)
    with writing(path) as out:
        made = plan(
            project, revision, full=True, live=live, workers=workers, progress=progress,
            sink=out.add,
        )  # fmt: skip
        out.keep()
    made = sealed(msgspec.structs.replace(made, differences=out.count))
    return made, save_plan(project, made, path)


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


def planned_live(project: Project, revision: str) -> bool:
    """Whether the latest plan file of a revision is of a live move. Raises Refused for a file that
    is no plan."""
    path = project.plan_path(revision)
    return path.exists() and read_plan(path).live


def show(project: Project, name: str) -> Plan:
    """The plan in a file, or the latest plan file of a revision."""
    return read_plan(plan_file(project, name))

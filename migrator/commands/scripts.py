"""Migration scripts: new ones, their order, and where each class is."""

from __future__ import annotations

import msgspec

from migrator import revisions
from migrator.commands.project import Project
from migrator.commands.started import unfinished
from migrator.errors import Refused
from migrator.ports import HasTables
from migrator.state.gateways import Gateways, alive


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
    """Note that a revision's data was moved by hand. Raises Refused where a run is under way, or
    while a gateway is open that would go on where the data lay."""
    revision = project.revision_id(revision)
    run = unfinished(project, revision)
    if run is not None:
        raise Refused(f"run {run.id} of {revision} is under way ({run.phase.words})")
    moves = project.graph.get(revision).moves
    classes = sorted({move.cls for move in moves} | {move.source_cls for move in moves})
    if renewing := alive(Gateways(project.control), classes):
        raise Refused(
            f"{renewing[0].told} goes on writing where {revision} finds its data",
            hint="stop what uses a gateway of these classes, stamp, and start it again",
        )
    project.control.stamp(revision)
    return revision

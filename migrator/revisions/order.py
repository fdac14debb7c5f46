"""What is wrong with the links between scripts: ids, parents, cycles, branches that meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from migrator.errors import Refused
from migrator.model.move import At, Move
from migrator.revisions.declared import all_tables
from migrator.revisions.script import Revision, shown

Touch: TypeAlias = tuple[str, str]


def check_links(revisions: Sequence[Revision]) -> None:
    """Refuse ids that clash, parents that are missing, and cycles."""
    _check_ids(revisions)
    _check_parents(revisions)
    _check_cycles(revisions)


def _check_ids(revisions: Sequence[Revision]) -> None:
    seen: dict[str, Revision] = {}
    for revision in revisions:
        # Plans are files named by revision, and some file systems know no capitals.
        first = seen.setdefault(revision.id.lower(), revision)
        if first is revision:
            continue
        same = first.id == revision.id
        raise Refused(
            f"revision {revision.id} is there twice: also at {first.where()}"
            if same
            else f"revision {revision.id} differs from {first.id} ({first.where()}) in capitals "
            "alone",
            where=revision.where(),
            hint="give one of them another id, also where a down_revision names it",
        )


def _check_parents(revisions: Sequence[Revision]) -> None:
    known = {revision.id for revision in revisions}
    for revision in revisions:
        for parent in revision.down:
            if parent not in known:
                raise Refused(
                    f"revision {revision.id} follows {parent!r}, which no script declares",
                    where=revision.where("down_revision"),
                    hint=f"known: {', '.join(sorted(known))}",
                )


def _check_cycles(revisions: Sequence[Revision]) -> None:
    left = {revision.id: revision for revision in revisions}
    while free := [r for r in left.values() if not any(parent in left for parent in r.down)]:
        for revision in free:
            del left[revision.id]
    if not left:
        return
    # Every revision left has a parent that is left, so going back ends in the cycle itself.
    at, way = next(iter(left)), []
    while at not in way:
        way.append(at)
        at = next(parent for parent in left[at].down if parent in left)
    cycle = [*way[way.index(at) :], at]
    revision = left[at]
    raise Refused(
        "the revisions follow one another in a circle: " + " after ".join(cycle),
        where=revision.where("down_revision"),
        hint="the first revision has  down_revision = None",
    )


def touches(move: Move) -> Iterator[Touch]:
    """The collections and tables that a move reads, writes or drops."""
    for at in (*move.reads().values(), *move.writes()):
        yield from touched(at)


def touched(at: At) -> Iterator[Touch]:
    """The collections and tables of a location."""
    names = [t.table for t in all_tables(at.tables)] if at.tables else [at.collection]
    yield from ((at.store, name) for name in names)


def classes_read(move: Move) -> Iterator[str]:
    """The classes that a move takes."""
    yield move.source_cls
    if move.merges is not None:
        yield move.merges.of


def check_branches(
    revisions: Sequence[Revision],
    ancestors: Mapping[str, frozenset[str]],
    touched: Mapping[str, Sequence[Touch]],
) -> None:
    """Refuse two revisions that touch the same thing while neither follows the other.

    ``revisions`` come in order, so it is enough to look at the last one that touched a thing.
    A later revision that joins the branches does not help: which came first stays open.
    """
    last: dict[Touch, Revision] = {}
    for revision in revisions:
        for touch in touched[revision.id]:
            earlier = last.get(touch, revision)
            last[touch] = revision
            if earlier is revision or earlier.id in ancestors[revision.id]:
                continue
            kind, name = touch
            thing = f"class {name}" if kind == "class" else f"collection {kind}:{name}"
            raise Refused(
                f"revisions {earlier.id} ({shown(earlier.file)}) and {revision.id} both touch "
                f"{thing}, and neither follows the other",
                where=revision.where("down_revision"),
                hint=f'let one follow:  down_revision = "{earlier.id}"',
            )

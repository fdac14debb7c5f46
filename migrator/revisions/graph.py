"""How revisions follow one another, and where the chain leaves each class.

What alembic would answer with a traceback or a warning is refused before it sees the scripts;
order and heads are then its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from migrator.errors import Refused
from migrator.model.move import At, Move
from migrator.revisions.declared import check_stores, check_ways
from migrator.revisions.fingerprint import fingerprint
from migrator.revisions.order import check_branches, check_links, classes_read, touches
from migrator.revisions.script import Revision, find_scripts, load_script


class Graph:
    """The revisions of a project, in an order in which each follows its parents."""

    def __init__(self, revisions: tuple[Revision, ...], heads: tuple[str, ...]) -> None:
        self.revisions = revisions
        self.heads = heads
        self._by_id: Mapping[str, Revision] = {r.id: r for r in revisions}
        self._ancestors: dict[str, frozenset[str]] = {}
        for revision in revisions:
            above = [self._ancestors[parent] | {parent} for parent in revision.down]
            self._ancestors[revision.id] = frozenset().union(*above)

    def get(self, name: str) -> Revision:
        """A revision by its whole id, or ``head``.

        Raises Refused where there is none, or several heads. A part of an id is not enough: what
        is rolled back at night had better be named in full.
        """
        if name == "head":
            if len(self.heads) == 1:
                name = self.heads[0]
            elif self.heads:
                heads = ", ".join(self.heads)
                raise Refused(f"there are several heads: {heads}", hint="name one of them")
            else:
                raise Refused("there is no revision yet", hint="write one:  migrator new MESSAGE")
        found = self._by_id.get(name)
        if found is None:
            known = ", ".join(self._by_id) or "none yet"
            raise Refused(f"there is no revision {name!r}", hint=f"known: {known}")
        return found

    def ancestors(self, name: str) -> frozenset[str]:
        """The ids of all revisions that one builds on, itself left out."""
        return self._ancestors[self.get(name).id]

    def path_to(self, name: str, done: Collection[str] = ()) -> tuple[Revision, ...]:
        """The revisions to carry out, in order, up to one and with it; those done left out."""
        last = self.get(name)
        wanted = self._ancestors[last.id] | {last.id}
        return tuple(r for r in self.revisions if r.id in wanted and r.id not in done)

    def locate(self, cls: str, before: str | None = None) -> At | None:
        """Where the chain left a class: after all revisions, or just before one of them."""
        above = None if before is None else self.ancestors(before)
        for revision in reversed(self.revisions):
            if above is None or revision.id in above:
                for move in revision.moves:
                    if move.cls == cls:
                        return move.target
                if any(move.dissolves == cls for move in revision.moves):
                    return None  # it lies nowhere any more
        return None

    def classes(self) -> tuple[str, ...]:
        """All classes that some revision moves, in the order of their first move."""
        return tuple(dict.fromkeys(m.cls for r in self.revisions for m in r.moves))

    def moves(self, name: str, stores: Collection[str] | None = None) -> tuple[Move, ...]:
        """The moves of a revision with their sources filled in.

        Raises Refused where a source can't be told, where it is the target, or where a store is
        not among ``stores``.
        """
        revision = self.get(name)
        found = []
        for move in revision.moves:
            where = revision.where_move(move.cls)
            filled = self._filled(revision, move)
            merges = filled.merges
            ends = [(filled.source, filled.source_cls, "source")]
            if merges is not None:
                ends.append((merges.at, merges.of, "at"))
            for at, cls, how in ends:
                if at is None:
                    raise Refused(
                        f"revision {revision.id} moves {cls}, and no source can be told: no "
                        f"revision before it moves {cls}",
                        where=where,
                        hint=f"write where it lies now:  {how}=At(...)",
                    )
                check_ways(move.cls, at, move.target, where)
            found.append(filled)
            if stores is not None:
                check_stores(found[-1:], stores, where)
        return tuple(found)

    def _filled(self, revision: Revision, move: Move) -> Move:
        """A move with what the chain of revisions tells of where it reads."""
        source = move.source or self.locate(move.source_cls, before=revision.id)
        merges = move.merges
        if merges is not None and merges.at is None:
            found = replace(merges, at=self.locate(merges.of, before=revision.id))
            move = replace(move, evolve=tuple(found if e is merges else e for e in move.evolve))
        return replace(move, source=source)

    def fingerprint(self, name: str) -> str:
        """A stable digest of what a revision declares, its sources filled in."""
        return fingerprint(self.get(name), self.moves(name))

    def check(self) -> None:
        """Refuse branches that meet in a class or a collection."""
        named = {
            r.id: [("class", cls) for m in r.moves for cls in (m.cls, *classes_read(m))]
            for r in self.revisions
        }
        check_branches(self.revisions, self._ancestors, named)
        # Only now is it certain where the chain leaves a class.
        places = {
            r.id: [place for move in r.moves for place in touches(self._filled(r, move))]
            for r in self.revisions
        }
        check_branches(self.revisions, self._ancestors, places)


def load(folder: Path) -> Graph:
    """All scripts of a folder, checked and in order.

    Raises Refused, with file and line, for the first thing that is wrong.
    """
    revisions = [load_script(file) for file in find_scripts(folder)]
    check_links(revisions)
    graph = _ordered(folder, revisions)
    graph.check()
    return graph


def _ordered(folder: Path, revisions: Iterable[Revision]) -> Graph:
    # Alembic takes half a second to load, which `migrator --help` should not.
    from alembic.script import Script, ScriptDirectory
    from alembic.script.revision import RevisionMap
    from alembic.util import CommandError

    by_id = {revision.id: revision for revision in revisions}

    def script(revision: Revision) -> Script:
        module = ModuleType(revision.id, revision.doc)
        module.__dict__["down_revision"] = revision.down or None
        return Script(module, revision.id, revision.file)

    directory = ScriptDirectory(folder.absolute(), version_locations=[folder.absolute()])
    # Left to itself alembic would run the scripts again and cache bytecode beside them.
    # It walks from the newest down, hence the turn: branches then come by the names of files.
    turned = tuple(reversed(by_id.values()))
    directory.revision_map = RevisionMap(lambda: map(script, turned))
    try:
        order = [found.revision for found in directory.walk_revisions()]
        heads = directory.get_heads()
    except CommandError as error:
        raise Refused(str(error), where=folder.name) from error
    return Graph(tuple(by_id[name] for name in reversed(order)), tuple(sorted(heads)))

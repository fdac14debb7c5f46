"""What people ask of the revisions, as values: history, heads, check."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from migrator.model.move import At
from migrator.revisions.graph import Graph
from migrator.revisions.script import Revision


@dataclass(frozen=True)
class Step:
    """One class on its way in a revision; ``source`` is None where it can't be told."""

    cls: str
    source: At | None
    target: At


@dataclass(frozen=True)
class HistoryEntry:
    """One revision in the history."""

    id: str
    down: tuple[str, ...]
    message: str
    file: Path
    head: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Remark:
    """Something a check tells although nothing is wrong for certain."""

    where: str
    what: str


@dataclass(frozen=True)
class Checked:
    """The outcome of a check that refused nothing."""

    revisions: int
    moves: int
    heads: tuple[str, ...]
    remarks: tuple[Remark, ...]


def history(graph: Graph) -> tuple[HistoryEntry, ...]:
    """All revisions, the first one first."""
    return tuple(_entry(graph, revision) for revision in graph.revisions)


def heads(graph: Graph) -> tuple[HistoryEntry, ...]:
    """The revisions that none follows."""
    return tuple(entry for entry in history(graph) if entry.head)


def check(graph: Graph, stores: Collection[str]) -> Checked:
    """Check every revision as ``plan`` would, against the stores of the settings.

    Raises Refused for the first thing that is wrong.
    """
    moves = 0
    remarks: list[Remark] = []
    for revision in graph.revisions:
        moves += len(graph.moves(revision.id, stores))
        if not revision.message:
            remarks.append(Remark(revision.where(), f"revision {revision.id} has no docstring"))
        for move in revision.moves:
            left = graph.locate(move.source_cls, before=revision.id)
            if move.source is not None and left is not None and move.source != left:
                remarks.append(
                    Remark(
                        revision.where_move(move.cls),
                        f"takes {move.source_cls} from {move.source}, yet the chain left it at "
                        f"{left}",
                    )
                )
    return Checked(len(graph.revisions), moves, graph.heads, tuple(remarks))


def _entry(graph: Graph, revision: Revision) -> HistoryEntry:
    steps = tuple(
        Step(
            move.cls,
            move.source or graph.locate(move.source_cls, before=revision.id),
            move.target,
        )
        for move in revision.moves
    )
    return HistoryEntry(
        revision.id,
        revision.down,
        revision.message,
        revision.file,
        revision.id in graph.heads,
        steps,
    )

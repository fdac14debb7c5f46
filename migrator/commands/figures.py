"""The figures of a live run for who collects them, such as Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from migrator.commands.project import Project
from migrator.commands.records import RunStatus, status
from migrator.state import LiveState


@dataclass
class Figures:
    """``told`` is when the mirror said so, in seconds since 1970. ``touched`` keys and the blocks
    ``reconciled``, by outcome, are those since it started; ``pauses`` are of each swap that was
    carried out, by the side that became the primary, in seconds."""

    status: RunStatus
    told: float
    touched: int
    reconciled: Mapping[str, int]
    pauses: dict[str, list[float]] = field(default_factory=dict)


def figures(project: Project, run: str) -> Figures:
    """What can be counted of a live run, as its mirror told it last."""
    (stands,) = status(project, run)
    told, state = LiveState(project.control, run).told()
    found = Figures(
        stands, told, cast("int", state.get("touched", 0)),
        cast("dict[str, int]", state.get("mirrored", {})),
    )  # fmt: skip
    for event in project.control.events(run, "swapped"):
        detail = cast("dict[str, float]", event["detail"])
        found.pauses.setdefault(str(detail["to"]), []).append(detail["pause"])
    return found

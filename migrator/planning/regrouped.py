"""What a plan tells of moves that regroup, and of moves that share their source."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.model.evolution import Keep
from migrator.planning.tally import Issues
from migrator.retry import Retry
from migrator.route import Route


def regrouping_findings(
    route: Route, routes: Sequence[Route], issues: Issues, retry: Retry
) -> None:
    """How many blocks become how many, and what ``finish`` would drop that no move takes along."""
    if route.gathers:
        behind, made = retry(route.source_blocks), retry(route.source.count)
        issues.add("note", "N116", f"{behind:,} blocks of {_ends(route)} make {made:,}")
    if _takes_a_part(route) and all(_takes_a_part(other) for other in _beside(route, routes)):
        issues.add(
            "accept",
            "A117",
            f"only a part of each {route.move.source_cls} is moved: finish would drop the rest "
            f"with {route.source_at}; move it beside, or finish with --keep-source",
        )


def _ends(route: Route) -> str:
    return " and ".join(str(at) for at in route.move.reads().values())


def _takes_a_part(route: Route) -> bool:
    regrouping = route.translation.regrouping
    split = route.spreads and regrouping is not None and regrouping.back is not None
    return split or any(isinstance(step, Keep) for step in route.move.evolve)


def _beside(route: Route, routes: Sequence[Route]) -> list[Route]:
    """The moves that take the same aggregates from the same place, this one included."""
    return [
        other
        for other in routes
        if other.source_at == route.source_at and other.move.source_cls == route.move.source_cls
    ]

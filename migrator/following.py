"""What keeps a holder of a lease from following a move: asked by a gateway of itself, and by who
is about to change the phase of all that hold a lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.journal import Bracketed
from migrator.model.evolution import SplitOut
from migrator.model.follows import BRACKETS, KEYS, SHAPE, SPREAD, Follows
from migrator.model.move import Move
from migrator.model.phase import Phase
from migrator.route import Route

STEPS = (Phase.DUAL_WRITE, Phase.CUT_OVER, Phase.SHADOW_READ)
"""The steps of a run that a holder may be unable to follow; the last is a rollback."""
_HOOK = "let the application write by its own driver, and tell it at the swap: --hook"


@dataclass(frozen=True)
class Lack:
    """What is in the way, and what to do about it."""

    what: str
    hint: str


def lack(
    follows: Follows, cls: str, revision: str, routes: Sequence[Route], to: Phase
) -> Lack | None:
    """What keeps a holder on a class from going on once a live run is in a phase, one of ``STEPS``;
    None where nothing does."""
    if follows.its_own:
        return None
    route = next((each for each in routes if each.cls == cls), None)
    side = "target" if to is Phase.CUT_OVER else "source"
    if route is None:
        return _of_source(cls, revision, routes, to)
    if missing := sorted(_needed(route, routes, to, side) - (follows.knows or frozenset())):
        if follows.knows is None:
            what = "its version of Migrator does not say what it can follow"
        else:
            what = f"its version of Migrator does not know {' and '.join(missing)}"
        return Lack(what, "let that application run this version of Migrator")
    if to is Phase.DUAL_WRITE:
        return begun(follows, revision, route)
    moves = [each.move for each in routes]
    return cut_over(follows, revision, route, moves) if side == "target" else None


def begun(follows: Follows, revision: str, route: Route) -> Lack | None:
    """What keeps a gateway from going on once a run has begun."""
    if follows.revision not in ("", revision):
        changed = ', shape="source"' if _changes(route) else ""
        return Lack(
            f"revision {revision} moves it, and it was opened for {follows.revision}",
            f'open it for this one:  Gateway.open("{route.cls}", revision="{revision}"{changed})',
        )
    if route.gathers or route.spreads:
        return Lack(f"revision {revision} regroups {route.cls}, and no gateway follows that", _HOOK)
    return None


def cut_over(follows: Follows, revision: str, route: Route, moves: Sequence[Move]) -> Lack | None:
    """What keeps a gateway from going on where the target is the primary."""
    if _changes(route) and follows.shape not in ("source", "target"):
        return Lack(
            f"revision {revision} changes its {'keys' if route.changes_key else 'shape'}, and it "
            "was opened for neither side's",
            "say whose shape the application speaks, source or target:  Gateway.open"
            f'("{route.cls}", revision="{revision}", shape="source"), or  '
            f"migrator serve {route.cls} --revision {revision} --shape source",
        )
    if follows.shape == "source" and is_spread(route.move, moves):
        return Lack(
            f"revision {revision} spreads {route.move.source_cls} over others, and no gateway "
            "puts them together again",
            _HOOK,
        )
    return None


def is_spread(move: Move, moves: Sequence[Move]) -> bool:
    """Whether another move spreads the blocks that this one takes from its source."""
    return any(
        each is not move
        and each.source_cls == move.source_cls
        and str(each.source) == str(move.source)
        and any(isinstance(step, SplitOut) for step in each.evolve)
        for each in moves
    )


def _changes(route: Route) -> bool:
    return not route.translation.identity


def _of_source(cls: str, revision: str, routes: Sequence[Route], to: Phase) -> Lack | None:
    """The same for a holder on a class of which the moves make others: it goes on at the source,
    as if there were no run, and so never stops writing there when the sides are swapped."""
    of = [route for route in routes if route.move.source_cls == cls]
    if not of or (to is Phase.DUAL_WRITE and not any(_is_bracketed(r, "source") for r in of)):
        return None
    made = " and ".join(dict.fromkeys(route.cls for route in of))
    return Lack(f"revision {revision} makes {made} of {cls}, which no gateway of {cls} sees", _HOOK)


def _needed(route: Route, routes: Sequence[Route], to: Phase, side: str) -> set[str]:
    """What a version of Migrator has to know to go on."""
    needed = {BRACKETS} if _is_bracketed(route, side) else set()
    if to is Phase.SHADOW_READ:
        return needed
    if _changes(route):
        needed.add(KEYS if route.changes_key else SHAPE)
    if is_spread(route.move, [each.move for each in routes]):
        needed.add(SPREAD)
    return needed


def _is_bracketed(route: Route, side: str) -> bool:
    return isinstance(route.source if side == "source" else route.target, Bracketed)


__all__ = ["STEPS", "Lack", "begun", "cut_over", "is_spread", "lack"]

"""Faults to be planted in the engine, each against one rule: schedules have to find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from migrator.engine import lane, mirror, points, swap
from migrator.engine.lane import Lane
from migrator.engine.mirror import Mirror
from migrator.engine.reconcile import Reconciler
from migrator.engine.swap import SwapTerms
from migrator.journal import Touches
from tests.protocol.schedule import Chances, Schedule, filled, mirrored, whole_life
from tests.protocol.server import Event, ServerFence

Plant = Callable[[pytest.MonkeyPatch], None]


def _gathers(change: Callable[[Lane, str, Touches], Touches]) -> Plant:
    """A change of what a lane has gathered."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        gather = Lane._gather

        def gathers(self: Lane, side: str, seconds: float) -> Touches | None:
            given = gather(self, side, seconds)
            return given and change(self, side, given)

        patch.setattr(Lane, "_gather", gathers)

    return plant


def _acknowledged(self: Lane, side: str, given: Touches) -> Touches:
    self._acknowledge(side, given)
    return given


def _stale_pages(patch: pytest.MonkeyPatch) -> None:
    """Touches are acted on between the listing of a page and its writing; then all are quiet, so
    that no later touch mends it."""
    page = Mirror._page

    def _page(self: Mirror) -> None:
        def reached(point: str) -> None:
            points.reached(point)
            if point == "page.read":
                self.lanes[0].turn("source", 0.0)
                self.lanes[0].route.source.world.writes = 0  # type: ignore[attr-defined]

        patch.setattr(mirror, "reached", reached)
        page(self)

    patch.setattr(Mirror, "_page", _page)


def _impatient(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reconciler, "_pause", lambda self, seconds: None)


def _hasty_successor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Schedule, "waits", 0.0)


def _scans_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane, "_scan_from_start", lambda side="primary": None)


def _scans_one_side(patch: pytest.MonkeyPatch) -> None:
    begin = lane._scan_from_start
    patch.setattr(
        lane, "_scan_from_start", lambda side="primary": None if side == "mirror" else begin(side)
    )


def _undrained(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(swap, "_drain", lambda *_: None)


def _open_fence(patch: pytest.MonkeyPatch) -> None:
    def raise_(self: ServerFence, mark: str, seconds: float) -> None:
        self._server.log.append(Event(mark=mark))
        self._server.world.step("fenced")

    patch.setattr(ServerFence, "raise_", raise_)


def _late_start(patch: pytest.MonkeyPatch) -> None:
    go_on = swap._go_on

    def released_first(owner: Mirror, terms: SwapTerms) -> None:
        if terms.hook:
            swap._call(owner, terms, "release", 60.0)
        go_on(owner, terms)

    patch.setattr(swap, "_go_on", released_first)


_MANY = Chances(faults=20, fault=0.05)
_BUSY = Chances(writes=60, write=0.1, faults=0)
_FEW = Chances(writes=20, write=0.3, faults=60, fault=0.04, kill=False, lose=False)
_SWAPS = Chances(lose=False, truncate=False)

# By rule: what is planted, and in which schedules it shows: of the mirror alone, or with swaps.
PLANTS: Mapping[str, tuple[Plant, Chances]] = {
    "R2.lease": (_hasty_successor, _MANY),
    "R4.let_go": (_stale_pages, _BUSY),
    "R5.durable": (_gathers(_acknowledged), _MANY),
    "R5.keyless": (_gathers(lambda self, side, given: replace(given, whole=False)), Chances()),
    "R5.identity": (_scans_nothing, Chances()),
    "R5.union": (_scans_one_side, Chances()),
    "R6.let_go": (_impatient, _FEW),
    "R16.held": (_open_fence, _SWAPS),
    "cutover.marker": (_undrained, _SWAPS),
    "cutover.start": (_late_start, _SWAPS),
}


def carried_out(rule: str, seed: int, patch: pytest.MonkeyPatch) -> None:
    """A schedule in which what is planted against a rule would show."""
    chances = PLANTS[rule][1]
    if chances is _SWAPS:
        whole_life(seed, patch, chances)
    else:
        mirrored(filled(seed, patch, chances))

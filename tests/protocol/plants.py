"""Faults to be planted in the engine, each against one rule: schedules have to find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from migrator.engine import bound, copying, lane, points, positions, rescan, swap
from migrator.engine.lane import Lane
from migrator.engine.mirror import Mirror
from migrator.engine.pages import Pages
from migrator.engine.reading import Reading
from migrator.engine.reconcile import Reconciler
from migrator.engine.swap import SwapTerms
from migrator.journal import Touches
from migrator.model.phase import Phase
from tests.protocol.schedule import LIFE, Chances, Schedule, World, equal, filled, level, reach
from tests.protocol.server import Event, ServerFence

Plant = Callable[[pytest.MonkeyPatch], None]


def _gathers(change: Callable[[Reading, Touches], Touches]) -> Plant:
    """A change of what a lane has gathered."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        gather = lane.gather

        def gathers(reading: Reading, seconds: float, **how: Any) -> Touches | None:
            given = gather(reading, seconds, **how)
            return given and change(reading, given)

        patch.setattr(lane, "gather", gathers)

    return plant


def _acknowledged(reading: Reading, given: Touches) -> Touches:
    reading.acted_on(given)
    return given


def _stale_pages(patch: pytest.MonkeyPatch) -> None:
    """Touches are acted on between the listing of a page and its writing."""
    turn = Pages.turn

    def turns(self: Pages) -> bool:
        def reached(point: str) -> None:
            points.reached(point)
            if point == "page.read":
                self._lanes[0].turn("source", 0.0)

        patch.setattr(copying, "reached", reached)
        return turn(self)

    patch.setattr(Pages, "turn", turns)


def _impatient(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reconciler, "_pause", lambda self, seconds: None)


def _hasty_successor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mirror, "_outwait", lambda self: None)


def _scans_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(positions, "scan_from_start", lambda **_: None)


def _scans_one_side(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rescan, "scan_from_start", lambda side, **_: None)


def _undrained(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(swap, "_drain", lambda *_: None)


def _open_fence(patch: pytest.MonkeyPatch) -> None:
    def raise_(self: ServerFence, mark: str, seconds: float) -> None:
        self._server.log.append(Event(mark=mark))
        self._server.world.hears("fenced", self._server, mark)
        self._server.world.step("fenced")

    patch.setattr(ServerFence, "raise_", raise_)


def _late_start(patch: pytest.MonkeyPatch) -> None:
    """Writes go on before the start, and what the feed shows until then is thrown away."""
    go_on = swap._go_on

    def pass_over(self: Lane, side: str, seconds: float, mark: str = "") -> None:
        reading = self._readings[side]
        given = reading.poll(seconds)
        if given is not None:
            reading.acted_on(given)
            reading.marks.extend(given.marks)

    def released_first(owner: Mirror, terms: SwapTerms) -> None:
        if terms.hook:
            bound.call(owner, terms, "release", 60.0)
        go_on(owner, terms)

    patch.setattr(Lane, "pass_over", pass_over)
    patch.setattr(swap, "_go_on", released_first)


# ---------------------------------------------------------------------- where each would show


def ends_equal(schedule: Schedule) -> None:
    """At rest both sides hold what the application was told."""
    schedule.settle()
    equal(schedule.world)


def _meanwhile(what: Callable[[World], None]) -> Plant:
    """Something happens while the mirror does nothing but mirror."""

    def play(patch: pytest.MonkeyPatch) -> None:
        schedule = level(patch)
        what(schedule.world)
        ends_equal(schedule)

    return play


def _in_a_swap(step: str, *, hook: bool = False) -> Plant:
    """The application writes at a step of a cut-over."""

    def play(patch: pytest.MonkeyPatch) -> None:
        schedule = level(patch, hook=hook)
        schedule.world.script[step] = lambda: schedule.world.put("0")
        schedule.ask(Phase.CUT_OVER)
        ends_equal(schedule)

    return play


def _while_copied(patch: pytest.MonkeyPatch) -> None:
    schedule = filled(1, patch, Chances(writes=0, faults=0))
    schedule.world.script["page.read"] = lambda: schedule.world.put("0")
    reach(schedule, Phase.BACKFILLED)
    ends_equal(schedule)


def _dies_with_a_request(world: World) -> None:
    world.put("0")
    world.fates.append("killed")
    world.script["write"] = lambda: world.put("0")


def _loses_an_answer(patch: pytest.MonkeyPatch) -> None:
    """While games are copied: later the mirror's feed would show that something else lies there."""
    schedule = filled(1, patch, Chances(writes=0, faults=0))
    world = schedule.world
    world.fates.append("late")
    world.script["mirror.write"] = lambda: world.put("0")
    world.script["settle"] = lambda: world.wait(LIFE)  # so that it has landed by then
    reach(schedule, Phase.BACKFILLED)
    ends_equal(schedule)


def _dies_before_it_acts(world: World) -> None:
    world.put("0")
    world.script["mirror.touched"] = world.kill


def _loses_the_feed(world: World, change: Callable[[str], None]) -> None:
    change("0")
    world.servers["source"].lose_feed()


# By rule: what is planted, and a schedule in which it shows.
PLANTS: Mapping[str, tuple[Plant, Plant]] = {
    "R2.lease": (_hasty_successor, _meanwhile(_dies_with_a_request)),
    "R4.let_go": (_stale_pages, _while_copied),
    "R5.durable": (_gathers(_acknowledged), _meanwhile(_dies_before_it_acts)),
    "R5.keyless": (
        _gathers(lambda _, given: replace(given, whole=False)),
        _meanwhile(lambda world: world.truncate()),
    ),
    "R5.identity": (
        _scans_nothing,
        _meanwhile(lambda world: _loses_the_feed(world, world.put)),
    ),
    "R5.union": (
        _scans_one_side,
        _meanwhile(lambda world: _loses_the_feed(world, world.delete)),
    ),
    "R6.let_go": (_impatient, _loses_an_answer),
    "R16.held": (_open_fence, _in_a_swap("swap.drained")),
    "cutover.marker": (_undrained, _in_a_swap("swap.raised")),
    "cutover.start": (_late_start, _in_a_swap("hooked release", hook=True)),
}

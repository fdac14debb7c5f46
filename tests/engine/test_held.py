"""What the mirror says of until when it holds all that was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from migrator.engine.held import Held
from migrator.errors import Interrupted, MigratorError, Transient
from migrator.model.phase import Phase
from migrator.state import Run

RUN = Run("run", "test", "0001", "", "", Phase.SHADOW_READ, "source", 1, 0.0, 0.0, live=True)


@dataclass
class Lane:
    """A lane whose feed shows what the test wants it to."""

    written: list[str] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    scanning: bool = False
    broken: type[MigratorError] | None = None

    def mark(self, side: str, name: str) -> None:
        assert side == "source"
        if self.broken is not None:
            raise self.broken("no answer")
        self.written.append(name)

    def has_mark(self, side: str, mark: str) -> bool:
        return mark in self.met


class Beside:
    """Two lanes, a clock that stands still, and somebody who asks or does not."""

    def __init__(self) -> None:
        self.now, self.wanted, self.run = 100.0, True, RUN
        self.lanes = [Lane(), Lane()]
        self.held = Held(lambda _: self.wanted, lambda: self.now)

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.held.turn(self.run, cast("Any", self.lanes))

    @property
    def age(self) -> object:
        told = self.held.told()
        return told and told["age"]


def test_it_is_held_since_before_a_marker_that_all_lanes_met() -> None:
    beside = Beside()
    one, two = beside.lanes
    beside.turn()
    beside.turn(0.5)
    assert one.written == two.written
    assert len(one.written) == 1
    one.met = list(one.written)
    beside.turn()
    assert beside.held.told() is None
    two.met = list(two.written)
    beside.turn(0.25)
    assert (len(one.written), beside.age) == (1, 0.75)  # the next one comes a second after it
    beside.turn(0.5)
    assert len(one.written) == 2
    beside.turn(5.0)
    assert (len(one.written), beside.age) == (2, 6.25)
    beside.turn(5.0)  # it must have gone with a feed
    assert len(one.written) == 3


def test_nothing_is_written_where_nobody_asks() -> None:
    beside = Beside()
    beside.wanted = False
    beside.turn()
    beside.turn(10.0)
    assert beside.lanes[0].written == []
    beside.wanted = True
    beside.turn(1.0)
    for lane in beside.lanes:
        lane.met = list(lane.written)
    beside.turn()
    assert beside.age == 0.0
    beside.wanted = False
    beside.turn(1.0)
    assert beside.held.told() is None


def test_a_marker_proves_nothing_while_keys_are_compared_anew() -> None:
    beside = Beside()
    beside.turn()
    beside.lanes[0].scanning = True
    for _ in range(2):
        for lane in beside.lanes:
            lane.met = list(lane.written)
        beside.turn(1.0)
        assert beside.held.told() is None
    beside.lanes[0].scanning = False
    for lane in beside.lanes:
        lane.met = list(lane.written)
    beside.turn()
    assert beside.age == 0.0
    beside.turn(1.0)
    beside.lanes[1].scanning = True
    for lane in beside.lanes:
        lane.met = list(lane.written)
    written = len(beside.lanes[0].written)
    beside.turn(0.5)
    assert beside.age == 1.5  # what was held before is held still
    assert len(beside.lanes[0].written) == written  # one a second, however soon it is met


def test_a_marker_of_another_reign_proves_nothing() -> None:
    beside = Beside()
    beside.turn()
    for lane in beside.lanes:
        lane.met = list(lane.written)
    beside.run = Run(
        "run", "test", "0001", "", "", Phase.SHADOW_READ, "source", 3, 0.0, 0.0, live=True
    )
    beside.turn(1.0)
    assert beside.held.told() is None
    assert len(beside.lanes[0].written) == 2
    for lane in beside.lanes:
        lane.met = list(lane.written)
    beside.turn()
    told = beside.held.told()
    assert told is not None
    assert told["epoch"] == 3  # a gateway believes it in that reign alone


def test_a_marker_that_can_not_be_written_is_written_later() -> None:
    beside = Beside()
    beside.lanes[1].broken = Transient
    beside.turn()
    beside.turn(1.0)
    assert beside.held.told() is None
    beside.lanes[1].broken = None
    beside.turn(1.0)
    assert len(beside.lanes[1].written) == 1


def test_an_owner_that_has_lost_its_lease_ends_there_too() -> None:
    beside = Beside()
    beside.lanes[1].broken = Interrupted
    with pytest.raises(Interrupted):
        beside.turn()

"""How many blocks go over in how much time, by a clock of the test's own."""

from __future__ import annotations

import threading

import pytest

from migrator.engine.throttle import LOOK_EVERY, Throttle
from migrator.errors import Interrupted
from migrator.state import Pace
from tests.ending import PATIENCE, joined


class Copier:
    """Copies pages of 50 blocks whenever it may, looking every 10 ms."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.now = 100.0
        self.throttle = Throttle(lambda: self.pace, lambda: self.now)

    def copied_in(self, seconds: float) -> int:
        blocks = 0
        for _ in range(round(seconds * 100)):
            if self.throttle.ready():
                page = self.throttle.limit(50)
                self.throttle.copied(page)
                blocks += page
            self.now += 0.01
        return blocks


@pytest.mark.parametrize("rate", [5.0, 20.0, 400.0])
def test_the_rate_is_kept(rate: float) -> None:
    copier = Copier(Pace(rate))
    assert copier.copied_in(60) == pytest.approx(60 * rate, rel=0.05)


def test_a_page_takes_no_longer_than_a_second() -> None:
    copier = Copier(Pace(5.0))
    assert copier.copied_in(0.5) == 5
    slow = Copier(Pace(0.5))
    assert slow.copied_in(20) == 10


def test_without_a_rate_nothing_is_held_back() -> None:
    assert Copier(Pace()).copied_in(1) == 100 * 50


def test_most_of_the_time_is_left_to_an_application_that_writes() -> None:
    copier = Copier(Pace())
    throttle, pages = copier.throttle, 0
    for turn in range(1_000):
        if throttle.ready():
            throttle.yields(0.1, touched=turn)
            copier.now += 0.1
            pages += 1
        else:
            copier.now += 0.01
    assert 0.1 * pages / (copier.now - 100.0) == pytest.approx(1 / 3, rel=0.1)
    throttle.yields(0.1, touched=1_000)
    assert not throttle.ready()
    copier.pace = Pace(10.0)
    copier.now += LOOK_EVERY
    assert throttle.ready(), "somebody said how fast"


def test_after_a_page_that_waited_long_for_a_store_a_copy_soon_goes_on() -> None:
    copier = Copier(Pace())
    copier.throttle.yields(600.0, touched=1)
    assert not copier.throttle.ready()
    copier.now += 10.0
    assert copier.throttle.ready()


def test_a_copy_that_nobody_writes_beside_does_not_rest() -> None:
    copier = Copier(Pace())
    for _ in range(3):
        copier.throttle.yields(60.0, touched=0)
        assert copier.throttle.ready()


def test_what_is_said_meanwhile_is_obeyed_at_the_next_look() -> None:
    copier = Copier(Pace())
    copier.copied_in(1)
    copier.pace = Pace(paused=True)
    assert copier.copied_in(10) <= LOOK_EVERY * 100 * 50
    assert copier.copied_in(10) == 0
    copier.pace = Pace(10.0)
    assert copier.copied_in(60) == pytest.approx(600, rel=0.05)
    copier.pace = Pace()
    copier.copied_in(LOOK_EVERY)
    assert copier.copied_in(1) == 100 * 50


def test_who_waits_can_be_stopped() -> None:
    def check() -> None:
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        Throttle(lambda: Pace(paused=True)).wait(check)


def test_nobody_waits_for_what_another_thread_asks_of_the_control_database() -> None:
    asked, answers = threading.Event(), threading.Event()
    looks = iter([Pace(5.0)])

    def look() -> Pace:
        if (pace := next(looks, None)) is not None:
            return pace
        asked.set()
        answers.wait(PATIENCE)
        return Pace(paused=True)

    now = 100.0
    throttle = Throttle(look, lambda: now)
    assert throttle.ready()
    now += LOOK_EVERY
    waiting = threading.Thread(target=throttle.ready)
    waiting.start()
    assert asked.wait(PATIENCE)
    now += LOOK_EVERY
    beside = threading.Thread(target=lambda: (throttle.ready(), throttle.copied(50)))
    beside.start()
    beside.join(20)
    stuck = beside.is_alive()
    answers.set()
    joined(waiting)
    joined(beside)
    assert not stuck
    assert not throttle.ready()

"""Wall clocks that jump by an hour and back: the owner's and all gateways', on real feeds, and on
Cassandra, whose writes are stamped by them (R10)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.dying import Stubborn, own
from tests.system.test_live_deaths import config, living

__all__ = ["config"]
_HOUR = 3600


def leaping(now: Callable[[], int], hour: int) -> Callable[[], int]:
    """A clock that is right, an hour ahead, and an hour behind, in turn at each look."""
    off = itertools.cycle((0, hour, -hour))
    return lambda: now() + next(off)


class Leaping(Stubborn):
    """A writer whose wall clock jumps. It says where it could not write, and goes on."""

    def live(self) -> None:
        leap(setattr)
        super().live()


def leap(replace: Callable[[object, str, object], None]) -> None:
    """Let the wall clock of this process jump."""
    replace(time, "time", leaping(time.time, _HOUR))  # type: ignore[arg-type]
    replace(time, "time_ns", leaping(time.time_ns, _HOUR * 10**9))


class Stepping(Stubborn):
    """A writer whose wall clock jumps, and then goes on from there for a while."""

    def live(self) -> None:
        step(setattr)
        super().live()


def step(replace: Callable[[object, str, object], None]) -> None:
    """Let the wall clock of this process jump at each tenth stamp that is asked of it. Cassandra's
    driver gives up what it waits for by the same clock: what is under way then has no answer."""
    off = itertools.cycle(10 * (0,) + 10 * (_HOUR,) + 10 * (-_HOUR,))
    now, now_ns, ahead = time.time, time.time_ns, 0

    def stamp() -> int:
        nonlocal ahead
        ahead = next(off)
        return now_ns() + ahead * 10**9

    replace(time, "time", lambda: now() + ahead)
    replace(time, "time_ns", stamp)


@pytest.mark.parametrize("config", [("cassandra", "embedded")], indirect=True, ids="-".join)
def test_nothing_is_lost_where_the_clocks_jump_that_stamp_writes_to_cassandra(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gateways write there up to the cut-over, and the mirror from there on. No way back: what the
    mirror has stamped ahead a gateway refuses to write until that time has come."""
    with living(config, Stepping) as life:
        step(monkeypatch.setattr)
        own(config, "apply")
        life.write()
        own(config, "cutover")
        life.write()
        life.assert_nothing_lost()


@pytest.mark.parametrize(
    "config",
    [("postgresql", "mongodb"), ("mariadb", "embedded")],
    indirect=True,
    ids="-".join,
)
def test_nothing_is_lost_where_clocks_jump(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with living(config, Leaping) as life:
        with monkeypatch.context() as patch:
            leap(patch.setattr)
            own(config, "apply")
            own(config, "cutover")
        life.write()
        life.assert_nothing_lost()
        with monkeypatch.context() as patch:
            leap(patch.setattr)
            own(config, "rollback")
        life.write()
        life.assert_nothing_lost()

"""Whether both sides of a move come together, from the figures of the last half minute."""

from __future__ import annotations

import msgspec
import pytest

from migrator.commands.records import LiveStatus, RunStatus
from migrator.commands.watching import Outlook, Trend
from migrator.render.watching import change_line

MIRROR = LiveStatus(running=True, silent=0.2, lag=0.0, scanning=False, ledger=0, fence="")
RUN = RunStatus(
    run="0001-x", revision="0001", classes=["Game"], phase="dual_write", primary="shop:game",
    mirror="docs:games", changed=0.0, epoch=1, read=0, planned=1_000, quarantined=0, next="",
    live=MIRROR,
)  # fmt: skip


def look(*figures: tuple[float, int, float], phase: str = "dual_write", **live: object) -> Outlook:
    """What is told after looks at (time, blocks copied, lag)."""
    trend, told = Trend(), None
    for at, read, lag in figures:
        mirror = msgspec.structs.replace(MIRROR, lag=lag, **live)
        run = msgspec.structs.replace(RUN, phase=phase, read=read, live=mirror)
        told = trend.add(at, run)
    assert told is not None
    return told


def test_a_copy_ends_when_its_rate_says_so() -> None:
    told = look((0, 0, 0.1), (5, 100, 0.2), (10, 200, 0.1))
    assert (told.rate, told.converges, told.seconds) == (20.0, True, 40.0)


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    told = look((0, 0, 0.1), (10, 500, 0.2), (20, 510, 0.1), (40, 530, 0.1))
    assert (told.rate, told.seconds) == (1.0, 470.0)


def test_a_lag_that_shrinks_is_gone_in_time() -> None:
    told = look((0, 0, 10.0), (5, 0, 8.0), (10, 0, 6.0), phase="shadow_read")
    assert (told.drift, told.converges, told.seconds) == (-0.4, True, 15.0)


@pytest.mark.parametrize(
    ("lags", "why"),
    [([1.0, 3.0, 5.0], "the lag grows by 0.40 s in a second"), ([3.0, 3.0, 3.0], "not shrink")],
)
def test_a_lag_that_does_not_shrink_never_does(lags: list[float], why: str) -> None:
    told = look(*[(5.0 * n, 900, lag) for n, lag in enumerate(lags)], phase="shadow_read")
    assert told.converges is False
    assert why in told.why


def test_what_stands_still_does_not_converge() -> None:
    told = look((0, 10, 0.0), (10, 10, 0.0), (20, 10, 0.0))
    assert (told.converges, told.why) == (False, "nothing was copied in 20 s")
    assert look((0, 10, 0.0), (10, 10, 0.0)).converges is None  # it may be one slow page


def test_what_was_caught_up_with_needs_no_time() -> None:
    told = look((0, 900, 0.1), (10, 900, 0.3), phase="cut_over")
    assert (told.converges, told.seconds) == (True, 0.0)


def test_nothing_is_foretold_without_a_mirror_or_from_one_look() -> None:
    assert look((0, 0, 0.0), (10, 100, 0.0), running=False).converges is False
    assert look((0, 0, 0.0), (10, 100, 0.0), running=False).why == "no mirror is running"
    assert look((0, 0, 0.0)).converges is None
    assert look((0, 0, 0.0), (10, 0, 0.0), scanning=True).converges is None


def test_a_line_is_told_for_what_changed_alone() -> None:
    from migrator.commands.watching import Watched

    def line(at: float, read: int, seconds: float) -> tuple[str, str]:
        outlook = Outlook(rate=20.0, drift=0.0, converges=True, seconds=seconds, why="")
        run = msgspec.structs.replace(RUN, read=read)
        changed, told = change_line(Watched(at=at, status=run, outlook=outlook))
        return changed, told.text

    first, later, other = line(0, 100, 45.0), line(60, 100, 44.0), line(60, 120, 44.0)
    assert first[0] == later[0] != other[0]
    assert other[1] == (
        "1970-01-01 00:01:00Z  0001  dual write  primary shop:game  120/1,000 copied  lag 0.0 s"
        "  converges in 44 s at 20 blocks/s"
    )

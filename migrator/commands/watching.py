"""Looking on while runs go on: where they stand, and where that leads.

What is told of the future is the trend of the last half minute, and no more than that.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator

import msgspec

from migrator.commands.project import Project
from migrator.commands.records import RunStatus, status
from migrator.errors import Interrupted
from migrator.model.phase import Phase

WINDOW = 30.0
# A guess from the first moments would only be taken back.
GUESS_AFTER = 3.0
# What a cut-over allows by default: below it the mirror has caught up.
CAUGHT_UP = 0.5
# Seconds of lag in a second: less than that is noise.
_STEADY = 0.02


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run leads, as things went in the last half minute. ``rate``: blocks copied in a
    second. ``drift``: by how many seconds the lag grew in a second. ``converges``: whether both
    sides come together like this, null where that can't be told; ``seconds``: how long it takes;
    ``why``: what is in the way."""

    rate: float
    drift: float
    converges: bool | None
    seconds: float | None
    why: str


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one run. ``at`` is in seconds since 1970."""

    at: float
    status: RunStatus
    outlook: Outlook


class Trend:
    """The figures of one run over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, float]] = deque()

    def add(self, now: float, run: RunStatus) -> Outlook:
        """Take one look; what it and those before it say of the future."""
        lag = run.live.lag if run.live else 0.0
        if self._seen and run.read < self._seen[-1][1]:
            self._seen.clear()  # it was begun anew
        self._seen.append((now, run.read, lag))
        while now - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        rate, drift = self._rate(), self._drift()
        converges, seconds, why = self._judge(run, rate, drift)
        return Outlook(
            rate=round(rate, 1), drift=round(drift, 3), converges=converges,
            seconds=None if seconds is None else round(seconds, 1), why=why,
        )  # fmt: skip

    @property
    def _span(self) -> float:
        return self._seen[-1][0] - self._seen[0][0]

    def _rate(self) -> float:
        return (self._seen[-1][1] - self._seen[0][1]) / self._span if self._span else 0.0

    def _drift(self) -> float:
        """The slope of the straight line through all lags: one slow page must not decide."""
        if len(self._seen) < 3:
            return 0.0
        times, lags = [t for t, _, _ in self._seen], [lag for _, _, lag in self._seen]
        middle, level = sum(times) / len(times), sum(lags) / len(lags)
        over = sum((t - middle) ** 2 for t in times)
        return sum((t - middle) * (g - level) for t, g in zip(times, lags, strict=True)) / over

    def _judge(
        self, run: RunStatus, rate: float, drift: float
    ) -> tuple[bool | None, float | None, str]:
        """Whether both sides come together, in how many seconds, and what is in the way."""
        phase = Phase(run.phase)
        if phase.ended:
            return None, None, ""
        if run.live and not run.live.running:
            return False, None, "no mirror is running"
        if phase.rank < Phase.DUAL_WRITE.rank:
            return None, None, "the copy has not begun"
        left = max(0, run.planned - run.read) if phase is Phase.DUAL_WRITE else 0
        if run.live and run.live.scanning and run.paused:
            return False, None, "the comparison of both sides is paused"
        if run.live and (waits := run.live.waits or run.live.holders):
            return None, None, f"the mirror waits for {waits}"
        if run.live and run.live.scanning:
            return None, None, "the keys of both sides are compared anew"
        if self._span < GUESS_AFTER:
            return None, None, "it was not watched for long enough"
        if left and run.paused:
            return False, None, "the copy is paused"
        if left and not rate:
            known = self._span > WINDOW / 2
            return (False if known else None), None, f"nothing was copied in {self._span:.0f} s"
        lag = self._seen[-1][2]
        if lag > CAUGHT_UP and drift > -_STEADY:
            how = f"grows by {drift:.2f} s in a second" if drift > _STEADY else "does not shrink"
            return False, None, f"the lag {how}"
        behind = lag / -drift if lag > CAUGHT_UP else 0.0
        return True, max(behind, left / rate if left else 0.0), ""


def watch(
    project: Project,
    revision: str | None = None,
    *,
    every: float = 2.0,
    stop: threading.Event | None = None,
) -> Iterator[list[Watched]]:
    """Look every few seconds, until what was under way has ended. Raises Interrupted."""
    stop = stop or threading.Event()
    trends: dict[str, Trend] = {}
    while True:
        now, found = time.time(), []
        for run in status(project, revision):
            ended = Phase(run.phase).ended
            if ended and run.run not in trends and revision is None:
                continue
            outlook = trends.setdefault(run.run, Trend()).add(now, run)
            found.append(Watched(at=now, status=run, outlook=outlook))
        yield found
        if all(Phase(each.status.phase).ended for each in found):
            return
        if stop.wait(every):
            raise Interrupted("stopped looking; the runs go on")


__all__ = ["Outlook", "Trend", "Watched", "watch"]

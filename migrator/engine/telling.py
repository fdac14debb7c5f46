"""What the owner says of itself in the control database, for whoever asks how the mirror is.

It says so every half a second. Where its thread waits for a store, the guard's speaks for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from migrator.engine.bound import unfenced
from migrator.engine.held import Held
from migrator.engine.holders import Holders
from migrator.engine.lane import Lane
from migrator.engine.pages import counts
from migrator.engine.reconcile import Done
from migrator.engine.settled import SETTLING
from migrator.engine.work import Scene
from migrator.journal import OTHER
from migrator.model.phase import Phase
from migrator.state import LiveState

TELL_EVERY = 0.5
# After so many seconds without a word the guard speaks for the mirror.
_ALIVE_EVERY = 2.0


class Telling:
    """Tells of the mirror of one run."""

    def __init__(
        self,
        scene: Scene,
        live: LiveState,
        lanes: Sequence[Lane],
        holders: Holders,
        held: Held,
    ) -> None:
        self._scene = scene
        self._live = live
        self._lanes = lanes
        self._holders = holders
        self._held = held
        # The store that the last turn came to its end for, too early, and why.
        self.stalled = ""
        self._told = self._said = 0.0
        self._settled: list[str] = []
        self._state: dict[str, object] = {}
        self._lock = threading.Lock()

    @property
    def lag(self) -> float:
        """Seconds by which the mirror is behind, of the worst lane."""
        return max((lane.lag for lane in self._lanes), default=0.0)

    @property
    def waits(self) -> str:
        """The stores that it waits for, and why; empty for none."""
        all_ = self._scene.retry.waits, *(lane.reconciler.waits for lane in self._lanes)
        return "; ".join(filter(None, all_)) or self.stalled

    def tell(self, *, waits: str = "", lag: float = 0.0) -> None:
        """Say how things stand, where that was not done just now; ``waits`` as in LiveStatus."""
        marks = self._marks()
        if self._told + TELL_EVERY > time.monotonic() and marks == self._settled:
            return
        self._settled = marks
        self._told = time.monotonic()
        run, lanes = self._scene.run, self._lanes
        total = Done()
        for lane in lanes:
            total.add(lane.reconciler.total)
        copied = [counts(self._scene.control.tasks(run.id, lane.route.number, "backfill"))
                  for lane in lanes]  # fmt: skip
        self._say(
            settled=marks, lag=round(max(lag, self.lag), 3),
            scanning=any(lane.scanning for lane in lanes),
            read=sum(c.get("read", 0) for c in copied), mirrored=total.__dict__,
            touched=sum(lane.touched for lane in lanes),
            brackets=sum(lane.brackets for lane in lanes), waits=waits,
            holders=self._holders.waits,
            unfenced=[side for side in OTHER if any(unfenced(lane, side) for lane in lanes)],
            reading={lane.route.cls: lane.is_reading(run.primary) for lane in lanes
                     if run.phase.rank >= Phase.DUAL_WRITE.rank},
        )  # fmt: skip

    def _marks(self) -> list[str]:
        """The markers of who waits for the mirror to hold what was written before them; none of
        those of a feed that was lost, until both sides are scanned."""
        lanes = (lane for lane in self._lanes if not lane.scanning)
        marks = (mark for lane in lanes for mark in lane.marks(self._scene.run.primary))
        return [mark for mark in marks if mark.startswith(SETTLING)]

    def still_there(self, feeds: list[dict[str, object]]) -> None:
        """Say the same from the guard's thread, while this one may wait for a store: by how much
        the mirror is behind by now, what it waits for, and what feeds keep."""
        if time.monotonic() > self._said + _ALIVE_EVERY:
            self._say(lag=round(self.lag, 3), waits=self.waits, feeds=feeds)
        elif feeds != self._state.get("feeds", []):
            self._say(feeds=feeds)

    def _say(self, **changes: object) -> None:
        with self._lock:
            self._state |= changes
            self._state["held"] = self._held.told()
            self._live.tell(**self._state)
            self._said = time.monotonic()


__all__ = ["Telling"]

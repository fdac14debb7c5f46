"""The guard of a mirror: what feeds keep on the disks of the stores, and that the mirror is there.

It looks from a thread of its own, for the owner's may be waiting for a store just when a feed
grows. A feed that keeps more than the settings allow is given up: the source's disk comes before a
comparison of both sides, which is what a lost feed costs and no more (R5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from migrator.errors import Interrupted, MigratorError
from migrator.journal import Keeping, Kept

if TYPE_CHECKING:
    from migrator.engine.lane import Lane
    from migrator.engine.telling import Telling
    from migrator.engine.work import Scene

log = structlog.get_logger("migrator.guard")

# From this share of a bound on it is told as a warning.
NEAR = 0.5
_BEAT = 0.5
_PATIENCE = 5.0  # seconds for a look that is under way when the mirror ends


@dataclass(frozen=True)
class Bounds:
    """``feed``: bytes that a feed may keep on a server's disk. ``every``: seconds between two
    looks."""

    feed: int
    every: float = 5.0


def share(kept: Kept, bound: int) -> float:
    """How much of what a feed may keep it keeps: at 1 it is given up, by us or by the server."""
    ours = kept.size / bound
    if kept.room is None:
        return ours
    whole = kept.size + max(0, kept.room)
    return max(ours, kept.size / whole if whole else 0.0)


class Guard:
    """Looks at the feeds of one mirror's lanes, and tells of them."""

    def __init__(
        self, scene: Scene, lanes: Sequence[Lane], telling: Telling, bounds: Bounds
    ) -> None:
        self._scene = scene
        self._lanes = lanes
        self._telling = telling
        self.bounds = bounds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._feeds: dict[tuple[int, str], dict[str, object]] = {}
        self._rounds: dict[tuple[int, str], int] = {}
        self._warned: set[tuple[str, str]] = set()

    def begin(self) -> None:
        """Look from now on."""
        self._thread = threading.Thread(
            target=copy_context().run, args=[self._run], name="guard", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Look no more. A server that does not answer is not waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        looked = float("-inf")
        while not self._stop.wait(_BEAT):
            try:
                # Who is no longer the owner gives nothing up, and says nothing.
                self._scene.lease.check()
                if time.monotonic() >= looked + self.bounds.every:
                    looked = time.monotonic()
                    self.look()
                self._telling.still_there(list(self._feeds.values()))
            except Interrupted:
                return
            except MigratorError as error:
                log.warning("guard", where=error.where, error=error.what)
            except Exception:
                if not self._stop.is_set():  # else the stores were closed under it
                    log.exception("guard")  # a feed may grow later on, whatever this was

    def look(self) -> None:
        """One round: note what each feed keeps, and give up what keeps too much."""
        for number, lane in enumerate(self._lanes):
            for side in lane.read:
                journal = lane.journal(side)
                if not isinstance(journal, Keeping):
                    continue
                round_ = self._rounds[number, side] = self._rounds.get((number, side), 0) + 1
                if round_ % journal.rounds:
                    continue
                try:
                    self._look_at(number, lane, side, journal.kept())
                except MigratorError as error:
                    log.warning("guard", where=error.where, error=error.what)

    def _look_at(self, number: int, lane: Lane, side: str, kept: Kept | None) -> None:
        if kept is None:
            self._feeds.pop((number, side), None)
            return
        self._feeds[number, side] = {
            "cls": lane.route.cls, "side": side, "size": kept.size, "room": kept.room,
            "window": kept.window,
        }  # fmt: skip
        self._warn(lane, side, kept)
        if kept.size > self.bounds.feed:
            self._give_up(lane, side, kept)

    def _give_up(self, lane: Lane, side: str, kept: Kept) -> None:
        """Drop a feed of our own. The owner finds it lost, makes it anew and scans both sides."""
        scene = self._scene
        if scene.run.fence:
            return  # writes are stopped for a moment, and so is what it keeps
        lane.journal(side).drop()
        told = {"cls": lane.route.cls, "side": side, "size": kept.size, "bound": self.bounds.feed}
        log.warning("feed given up", **told)
        scene.control.record(scene.run.id, "feed given up", **told)

    def _warn(self, lane: Lane, side: str, kept: Kept) -> None:
        """Log that a feed comes near its bound, once for each time."""
        feed = lane.route.cls, side
        if share(kept, self.bounds.feed) < NEAR:
            self._warned.discard(feed)
        elif feed not in self._warned:
            self._warned.add(feed)
            log.warning(
                "feed keeps much", cls=lane.route.cls, side=side, size=kept.size, room=kept.room,
                bound=self.bounds.feed,
            )  # fmt: skip


__all__ = ["NEAR", "Bounds", "Guard", "share"]

"""The comparison of both sides while the mirror goes on: in a thread of its own, reading only.

What it finds unlike it looks at once more behind a marker, when the mirror holds all that had been
written until then (R5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace

from migrator.engine.lane import Lane
from migrator.engine.run import record_verified
from migrator.engine.settled import settling
from migrator.engine.verify import Verification, verify
from migrator.engine.work import Scene
from migrator.retry import Retry


@dataclass
class _Comparison:
    """One that is under way. ``since`` is the event of the run's log after which it began."""

    thread: threading.Thread
    stop: threading.Event
    since: int
    found: list[Verification] = field(default_factory=list)
    error: BaseException | None = None


class Comparing:
    """Compares all moves of a run."""

    def __init__(self, scene: Scene, lanes: Sequence[Lane]) -> None:
        self._scene = scene
        self._lanes = lanes
        self._under_way: _Comparison | None = None
        self._settling = threading.Lock()

    def turn(self) -> list[Verification] | None:
        """Begin a comparison, where none is under way; what was found once it is done, and until
        then None. Raises what ended it."""
        done = self._under_way
        if done is None:
            self.begin()
            return None
        if done.thread.is_alive():
            return None
        done.thread.join()
        self._under_way = None
        if done.error is not None:
            raise done.error
        record_verified(self._scene, done.found, done.since)
        return done.found

    def begin(self) -> None:
        """Compare from now on."""
        stop = threading.Event()
        # Who ends it waits for no store's sake: the owner has other things to do.
        retry = Retry(stop=stop, check=self._scene.retry.check)
        scene = replace(self._scene, stop=stop, retry=retry)
        scene.settle = lambda: self._settle(scene.check)

        def compare() -> None:
            try:
                for route in self._scene.routes:
                    comparison.found.append(verify(scene, route))
            except BaseException as error:  # noqa: BLE001 - raised again by the owner's thread
                comparison.error = error

        thread = threading.Thread(
            target=copy_context().run, args=[compare], name="verify", daemon=True
        )
        comparison = _Comparison(thread, stop, self._scene.control.newest(self._scene.run.id))
        self._under_way = comparison
        thread.start()

    def stop(self) -> None:
        """End the one that is under way, if any; what it has found is for nobody."""
        if self._under_way is not None:
            self._under_way.stop.set()
            self._under_way.thread.join()
            self._under_way = None

    def _settle(self, check: Callable[[], None]) -> None:
        """Wait, in another thread than the owner's, until the mirror holds all that has been
        written to the primary until now. ``check`` raises where that is to be given up."""
        with self._settling:
            primary = self._scene.run.primary
            for lane in self._lanes:
                losses, mark = -1, settling()
                # Of a feed that was lost it proves nothing until both sides are scanned.
                while lane.scanning or not lane.has_mark(primary, mark):
                    check()
                    if losses != lane.losses(primary):
                        losses = lane.losses(primary)  # a marker went with the feed that was lost
                        self._scene.retry(lane.journal(primary).mark, mark)
                    time.sleep(0.002)


__all__ = ["Comparing"]

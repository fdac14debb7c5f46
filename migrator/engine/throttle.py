"""The throttle: pages are copied as fast as somebody said while the run goes on.

It holds back the copying of what was there before, and nothing else: touches go on being
mirrored, or what the feed holds would grow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from migrator.state import Pace

# How often to look what was said: it is obeyed within a second.
LOOK_EVERY = 0.25
WAIT = 0.05
# For how long the copy rests after a page beside an application that writes, by what the page took;
# and at most, for a page that waited until a store answered again cost the application nothing.
_REST = 3.0
_LONGEST_REST = 5.0


class Throttle:
    """Says whether the next page may be copied. Threads may share one."""

    def __init__(
        self, look: Callable[[], Pace], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._pace: Pace | None = None  # not known yet
        self._looked: float | None = None
        self._looks = False  # some thread
        # Blocks that were copied ahead of the rate, and when that was so.
        self._ahead = 0.0
        self._at = clock()
        self._rests = float("-inf")  # until then
        self._touched = 0

    def limit(self, page: int) -> int:
        """The size of a page: at most what a second allows, so that the rate is an even one."""
        rate = None if self._pace is None else self._pace.rate
        return page if rate is None else max(1, min(page, int(rate)))

    def ready(self) -> bool:
        """Whether a page may be copied now."""
        if self._has_to_look():
            self._see()
        with self._lock:
            now = self._clock()
            if self._pace is None or self._pace.paused:
                return False
            if self._pace.rate is None:
                self._ahead = 0.0
                return now >= self._rests
            self._ahead = max(0.0, self._ahead - (now - self._at) * self._pace.rate)
            self._at = now
            return not self._ahead

    def _has_to_look(self) -> bool:
        """Whether it is time, and nobody else does: it may take as long as the control database
        does not answer, and no other thread waits for that."""
        with self._lock:
            now = self._clock()
            if self._looks or (self._looked is not None and now - self._looked < LOOK_EVERY):
                return False
            self._looks, self._looked = True, now
            return True

    def _see(self) -> None:
        pace = None
        try:
            pace = self._look()
        finally:
            with self._lock:
                self._looks, self._pace = False, pace or self._pace

    def copied(self, blocks: int) -> None:
        """So many blocks went over."""
        with self._lock:
            self._ahead += blocks

    def yields(self, seconds: float, touched: int) -> None:
        """A page took so many seconds. Where that many touches tell that an application has written
        since the page before, most of the time is left to it, unless somebody said how fast."""
        with self._lock:
            if touched != self._touched:
                self._rests = self._clock() + min(_REST * seconds, _LONGEST_REST)
            self._touched = touched

    def wait(self, check: Callable[[], None]) -> None:
        """Wait until a page may be copied; ``check`` raises where the run is to stop."""
        while not self.ready():
            check()
            time.sleep(WAIT)

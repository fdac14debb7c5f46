"""Whether whoever asked something of the mirror still waits for it.

Who asks for a swap of the sides, or for the end of a run, renews the request as long as it waits.
One that was killed takes nothing back, and what it asked for must not be done by a mirror that
starts later, when nobody looks. No two clocks are compared (R14): a renewal may be as old as the
look before the one that found it, and is taken to be no younger.
"""

from __future__ import annotations

from collections.abc import Callable

from migrator.state import Request
from migrator.state.lease import boot_clock

# Seconds between two renewals, and without one after which nobody waits any more.
RENEW_EVERY = 1.0
LEFT = 10.0


class Asker:
    """Who asked for what is pending, as one owner sees it. ``mine`` is the number of what its own
    process asked for, and waits for."""

    def __init__(self, mine: int | None = None, clock: Callable[[], float] = boot_clock) -> None:
        self._mine = mine
        self._clock = clock
        self._looked = float("-inf")
        self._seen: tuple[int, int] | None = None
        # When what was seen last was first seen, and since when it may have been there.
        self._first = self._since = float("-inf")

    def waits(self, request: Request | None) -> bool | None:
        """Whether somebody waits for a request that was just read, None where that can't be told
        yet. What is not renewed is wanted until it is answered."""
        now, before = self._clock(), self._looked
        self._looked = now
        if request is None or request.renewed is None or request.number == self._mine:
            return True
        seen = request.number, request.renewed
        if seen != self._seen:
            self._seen, self._first, self._since = seen, now, before
        if now <= self._since + LEFT:
            return True
        return False if now > self._first + LEFT else None

    @property
    def was_away(self) -> bool:
        """Whether the owner did not look for long before it found what it saw last: only another
        renewal, or none, tells who waits."""
        return LEFT < self._first - self._since < float("inf")


__all__ = ["LEFT", "RENEW_EVERY", "Asker"]

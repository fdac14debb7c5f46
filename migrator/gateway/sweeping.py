"""Removing the leases of gateways that ended without a word.

The owner of a run removes those that it had to wait for. Of a class that no run moves nobody does,
so those go on who use it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from migrator.errors import MigratorError
from migrator.state.gateways import Gateways

# Seconds between two looks at the leases of a class, by each of its gateways.
EVERY = 300.0


class Sweep:
    """The leases of one class, looked at now and then. ``request_life``: for how many seconds a
    request may live on whose holder has ended."""

    def __init__(
        self, gateways: Gateways, cls: str, request_life: float, clock: Callable[[], float]
    ) -> None:
        self._gateways = gateways
        self._cls = cls
        self._life = request_life
        self._clock = clock
        # Not at once: who forks does so as it begins, and has no thread at a database then.
        self._due = clock() + EVERY
        self._met: dict[str, tuple[int, float]] = {}

    def turn(self) -> None:
        """Where it is time, remove those that ran out so long ago that nothing of theirs is alive:
        whoever moves the class then has nothing to wait for (R6, R14)."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + EVERY
        with suppress(MigratorError):  # the next time
            leases = self._gateways.leases([self._cls])
            met = {}
            for lease in leases:
                counter, since = self._met.get(lease.instance, (lease.counter, now))
                met[lease.instance] = lease.counter, since if counter == lease.counter else now
            self._met = met
            self._gateways.forget(
                lease
                for lease in leases
                if now - met[lease.instance][1] >= lease.lasts + self._life
            )


__all__ = ["EVERY", "Sweep"]

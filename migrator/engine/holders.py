"""The gateways of applications, as the owner waits for them: before a copy, and under a fence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from migrator.engine.followers import Followers
from migrator.errors import Waiting
from migrator.journal import Bracketed
from migrator.model.phase import Phase
from migrator.state.gateways import (
    GatewayLease,
    Gateways,
    Watch,
    has_acknowledged,
    is_armed,
    knows,
    wait_for,
)
from migrator.state.lease import SECONDS

if TYPE_CHECKING:
    from migrator.engine.mirror import Mirror

log = structlog.get_logger("migrator.swap")

# Beyond the longest lease, for what it takes to see that it ran out, or that a swap is armed.
_ARMING = 25.0
# So often those that ran out are outwaited while others run out meanwhile.
_ROUNDS = 3
_PAUSE = 0.02


class Holders:
    """What holds leases on the classes of one run. ``waits``: for which of it the mirror waits
    just now, what for, and how long at most; empty for none."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._gateways = Gateways(mirror.scene.control)
        routes = mirror.scene.routes
        self.followers = Followers(self._gateways, mirror.scene.plan.revision, routes)
        self._classes = self.followers.classes
        self._watch: Watch | None = None
        # Which leases ran out, by what tells that one was renewed since, and since when they have.
        self._lapsed: set[tuple[str, int]] = set()
        self._since = 0.0
        self.waits = ""

    def know(self) -> bool:
        """Whether every write that may still come leaves a touch, so that copying may begin (R9).

        A feed of the store's own shows them all; where gateways leave the touches, each has to
        know of it, or its lease and the last of its requests have run out.
        """
        mirror = self._mirror
        primary = mirror.run.primary
        if not any(isinstance(lane.side(primary), Bracketed) for lane in mirror.lanes):
            return True
        if self._watch is None:
            self._watch = Watch()
        waiting, lapsed = self._watch.sort(self._gateways.leases(self._classes), knows(mirror.run))
        ran_out = {(lease.instance, lease.counter) for lease in lapsed}
        if not ran_out <= self._lapsed:
            self._lapsed |= ran_out
            self._since = time.monotonic()
        # Also where the owner of another run of this gateway's has removed its leases meanwhile.
        if waiting:
            self.waits = f"{_told(waiting)} to see that writes are to be followed"
            return False
        until = self._since + mirror.request_life
        if self._lapsed and time.monotonic() < until:
            names = sorted({name for name, _ in self._lapsed})
            self.waits = _until(f"the last requests of {_named(names)}", until)
            return False
        self.waits = ""
        # Not before: whoever owns the run by then has nothing else that tells of them (R6).
        self._forget(lapsed)
        return True

    def arm(self, to: Phase, *, denied: bool) -> None:
        """Wait until each looks at the run all the time, and where the store does not deny what
        those had sent that ran out, until that is over. Raises Waiting."""
        try:
            self._all_armed(denied=denied)
        finally:
            self.waits = ""
        self.followers.refuse(self.followers.unable(to), to)  # also who came since the gate

    def _all_armed(self, *, denied: bool) -> None:
        for _ in range(_ROUNDS):
            if not (lapsed := self._lapsed_at_arming()):
                return
            if not denied:
                self._outwait(lapsed)
            self._forget(lapsed)  # one that came back meanwhile is seen in the next round
        raise Waiting(
            f"{_told(lapsed)} ended without leaving, as others did before",
            hint="see why these applications end again and again, then try again",
        )

    def _lapsed_at_arming(self) -> list[GatewayLease]:
        """Those that ran out, once all others look at the run all the time. Raises Waiting."""
        leases = self._gateways.leases(self._classes)
        longest = max([SECONDS, *(lease.lasts for lease in leases)])
        until = time.monotonic() + longest + _ARMING

        def turn(waiting: Sequence[GatewayLease]) -> None:
            who = f"{_told(waiting)} to see that the sides are to be swapped"
            self.waits = _until(who, until) if waiting else ""
            self._turn()

        waiting, lapsed = self._wait(is_armed, until, turn)
        if waiting:
            raise Waiting(
                f"{_told(waiting)} did not notice that the sides are to be swapped",
                hint="see that these applications reach the control database, or stop them",
            )
        return lapsed

    def _outwait(self, lapsed: Sequence[GatewayLease]) -> None:
        """Wait until no request can be carried out any more of those that ran out: no store denies
        it, and behind a flip it would change the new mirror unseen (R6, R16)."""
        life = self._mirror.request_life
        log.warning("waits for the last requests of gateways that ran out", seconds=life)
        until = time.monotonic() + life
        while time.monotonic() < until:
            self.waits = _until(f"the last requests of {_told(lapsed)}", until)
            self._turn()
            time.sleep(_PAUSE)

    def able(self, to: Phase) -> None:
        """See that all go on in a phase that is about to be reached. Raises Waiting."""
        self.followers.gate(to, self._turn)

    def _turn(self) -> None:
        """What the mirror does while applications go on writing."""
        mirror = self._mirror
        mirror.scene.check()
        if mirror.run.phase.rank >= Phase.DUAL_WRITE.rank:
            mirror.mirror()
        mirror.telling.tell()

    def hold(self, until: float, *, denied: bool) -> None:
        """Wait until none of them writes. Raises Waiting, where that takes too long, or where
        nothing stops the last request of one that ran out: ``denied`` tells that the store does
        (R16)."""
        waiting, lapsed = self._wait(has_acknowledged, until, lambda _: self._mirror.scene.check())
        if waiting:
            raise Waiting(
                f"{_told(waiting)} did not stop writing in time: undone",
                hint="try again, or allow more: --bound SECONDS",
            )
        if lapsed and not denied:
            # Their leases stay, so that the next attempt outwaits them, whoever makes it.
            raise Waiting(
                f"{_told(lapsed)} ended without leaving, and a last request may live on: undone",
                hint=f"try again: that is outwaited then, for {self._mirror.request_life:g} s",
            )
        self._forget(lapsed)

    def _wait(
        self,
        content: Callable[..., Callable[[GatewayLease], bool]],
        until: float,
        check: Callable[[Sequence[GatewayLease]], None],
    ) -> tuple[list[GatewayLease], list[GatewayLease]]:
        return wait_for(
            self._gateways, self._classes, content(self._mirror.run), until=until, check=check
        )

    def _forget(self, lapsed: list[GatewayLease]) -> None:
        for lease in lapsed:
            log.warning("gateway ran out", instance=lease.instance, cls=lease.cls)
        if lapsed:
            self._gateways.forget(lapsed)


def _told(leases: Sequence[GatewayLease]) -> str:
    return _named([lease.instance for lease in leases])


def _named(instances: Sequence[str]) -> str:
    names, count = ", ".join(instances[:3]), len(instances)
    more = f" and {count - 3} more" if count > 3 else ""
    return f"{count} gateways ({names}{more})" if count > 1 else f"gateway {names}"


def _until(what: str, until: float) -> str:
    return f"{what}, {math.ceil(until - time.monotonic())} s more at most"

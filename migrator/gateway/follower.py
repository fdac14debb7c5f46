"""Following the run of a class by a lease that a thread renews.

A write asks for a permit, which costs no request: it is there while the lease runs and no fence is
up. A thread renews the lease and looks at the run, seldom in quiet phases and every few
milliseconds once a swap is armed.
"""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

import structlog

from migrator.errors import MigratorError, Refused, Transient
from migrator.gateway.errors import Stopped
from migrator.gateway.logs import log_of
from migrator.gateway.sweeping import Sweep
from migrator.model.follows import PLAIN, Follows
from migrator.model.phase import Phase
from migrator.state.gateways import SHORT, Gateways, Standing
from migrator.state.lease import boot_clock

log = structlog.get_logger("migrator.gateway")

_REACH = "see that the control database can be reached, and try again"
# Seconds between two looks while writes are stopped, at least, and in looks that take as long.
_OFTEN, _REST = 0.002, 3


@dataclass(frozen=True)
class Terms:
    """Seconds: of a lease in quiet phases, between looks once armed, for which a write waits at
    most, for which a request lives on at most whose answer never came, and for which a read waits
    for the mirror before the primary answers it. Raises Refused for what no clock can count."""

    lease: float = 15.0
    look: float = 0.01
    bound: float = 5.0
    request_life: float = 61.0
    patience: float = 0.25

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            if not 0 < seconds < math.inf:
                raise Refused(f"{name} is a number of seconds above 0, not {seconds}")


class Moved(Exception):
    """The run was moved under a write that had not been sent: it begins anew."""


class Follower:
    """One gateway's lease, and what it has seen of its run. For one process."""

    def __init__(
        self,
        gateways: Gateways,
        cls: str,
        terms: Terms,
        clock: Callable[[], float] = boot_clock,
        warm: Callable[[Standing], None] = lambda standing: None,
        renewed: Callable[[Standing], None] = lambda standing: None,
        agrees: Callable[[Standing], None] = lambda standing: None,
        follows: Follows = PLAIN,
        request_life: float = 0.0,
    ) -> None:
        self._gateways = gateways
        self._cls = cls
        self.terms = terms
        self._clock = clock
        self._warm = warm
        self._renewed = renewed
        self._agrees = agrees
        self._follows = follows
        # An owner goes by what the settings say, and so has to find who may be alive by that.
        self._sweep = Sweep(gateways, cls, max(terms.request_life, request_life), clock)
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # One look at a time: an older one must not be acted on after a newer one.
        self._looking = threading.RLock()
        self._turning = threading.Lock()  # held by its thread while that is at a database
        self._closed = False
        self._instance = ""
        self._until = 0.0
        self._granted = terms.lease
        self._lapses = 0
        self._flying = 0
        self._unknown_until = 0.0
        # By the run that carries them over, none for "": how many writes are under way, and until
        # when one of unknown outcome may live on. Then what was said last of what was seen.
        self._under = Counter[str]()
        self._alive_until = dict[str, float]()
        self._said: tuple[str, Phase, int, int] | None = None
        self._acknowledged: tuple[str, int] | None = None
        self._took = 0.0  # seconds of the last look
        self._why = "it has not been granted yet"
        self._hint = _REACH
        self.standing = Standing()
        self._enter()
        self._renewed(self.standing)
        self._thread = threading.Thread(target=self._follow, name="gateway", daemon=True)
        self._thread.start()

    @property
    def instance(self) -> str:
        """The name of this gateway's lease."""
        return self._instance

    def close(self) -> None:
        """Give the lease back, once nothing is in flight any more."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        with self._changed:
            self._changed.wait_for(lambda: not self._flying, self.terms.bound)
            # One whose outcome is unknown may live on: then the lease has to run out by itself.
            leave = not self._flying and self._clock() >= self._unknown_until
        if leave:
            with suppress(MigratorError):
                self._gateways.leave([self._instance])

    # ------------------------------------------------------------------ permits

    def writing(self, until: float) -> AbstractContextManager[Standing]:
        """A permit for one write, which waits for it until a moment of ``time.monotonic``.

        Raises Stopped where there was none in time. Nothing was written then.
        """
        return _Permit(self, until)

    def _begin(self, until: float) -> Standing:
        if os.getpid() != self._pid:
            raise self._stopped()  # a thread of the parent may have held the lock
        with self._lock:
            while not self._may():
                left = until - time.monotonic()
                if left <= 0 or self._closed:
                    raise self._stopped()
                self._changed.wait(left)
            standing = self.standing
            self._flying += 1
            self._under[standing.carries] += 1
        return standing

    def _end(self, run: str) -> None:
        with self._lock:
            self._flying -= 1
            self._under[run] -= 1
            if self.standing.stopped or self._closed:
                self._changed.notify_all()

    def doubt(self) -> None:
        """A request's outcome is unknown: it may live on, also behind its repetition (R6)."""
        with self._changed:
            self._unknown_until = self._clock() + self.terms.request_life
            for run in +self._under:  # whose it is, is not told
                self._alive_until[run] = self._unknown_until

    def look(self, standing: Standing) -> bool:
        """Look at the run now; whether it is no longer as a write was begun under."""
        self._look()
        return self.standing != standing

    def check(self, standing: Standing) -> int:
        """Raise Moved where a write may not be begun, or repeated, as the run stands now; else what
        ``assure`` takes once it is done."""
        lapses = self._lapses
        if self.standing is not standing or not self._may():
            raise Moved
        return lapses

    def assure(self, standing: Standing, lapses: int, where: str) -> None:
        """Raise Transient for a write during which the lease ran out, where the run went on.

        An owner did not wait for it then: it may have come to the old primary after the flip, and
        so must not be acknowledged.
        """
        if self._lapses == lapses and self._clock() < self._until:
            return
        try:
            moved = self.look(standing)
        except MigratorError:
            moved = True
        if moved:
            late = Transient(
                "the lease of this gateway ran out while it was written, and the run went on; it "
                "is not known whether this was carried out",
                where=where, unknown=True, hint="read the aggregate, and see whether it is there",
            )  # fmt: skip
            late.given_up = True
            raise late

    def check_lease(self) -> None:
        """Raise Moved where a write that is under way may send nothing more.

        A fence waits for it, so it goes on to its end.
        """
        if self._clock() >= self._until or os.getpid() != self._pid:
            raise Moved

    def _may(self) -> bool:
        return (
            self.standing.open
            and self._clock() < self._until
            and os.getpid() == self._pid
            and not self._closed
        )

    def _stopped(self) -> MigratorError:
        where = self._cls
        if self._closed or os.getpid() != self._pid:
            return Refused("the gateway is closed", where=where, hint="open a new one")
        found = self.standing
        if found.stopped:
            return Stopped(
                f"writes are stopped for longer than {self.terms.bound:g} s, while the sides of "
                f"revision {found.revision} are swapped; nothing was written",
                where=where,
                hint=f"try again; if it goes on:  migrator status {found.revision}",
            )
        if found.at_rest:
            return Stopped(
                f"revision {found.revision} moves it at rest; nothing was written",
                where=where,
                hint=f"write again once it is cut over, or plan it live:  "
                f"migrator plan {found.revision} --live",
            )
        return Stopped(
            f"the lease of this gateway ran out: {self._why}; nothing was written",
            where=where,
            hint=self._hint,
        )

    # ------------------------------------------------------------------ the thread

    def _enter(self) -> None:
        """A lease of a new name; what came of the old one is the owner's to judge."""
        instance, asked = uuid.uuid4().hex, self._clock()
        self._gateways.enter(instance, self._cls, self.terms.lease, follows=self._follows)
        self._instance, self._acknowledged, self._said = instance, None, None
        self._look()
        self._agree()
        self._grant(asked, self._seconds())

    def _grant(self, asked: float, seconds: float) -> None:
        with self._changed:
            self._lapses += self._clock() >= self._until
            self._until, self._granted = asked + seconds, seconds
            self._changed.notify_all()

    def _seconds(self) -> float:
        return SHORT if self.standing.fence else self.terms.lease

    def _follow(self) -> None:
        renewed = self._clock()
        while not self._closed:
            log_of(self.standing)
            with self._turning:
                renewed = self._turn(renewed)
            self._pause(renewed)

    def rests(self, seconds: float) -> bool:
        """Keep its thread from all databases until ``goes_on``; whether it is, within so many
        seconds."""
        return self._turning.acquire(timeout=seconds)

    def goes_on(self) -> None:
        """Let its thread work again, which ``rests`` has kept from that."""
        self._turning.release()

    def _turn(self, renewed: float) -> float:
        """Look at the run, and renew the lease where it is time; when that was begun last."""
        try:
            self._acknowledge()  # what was in flight may just have ended
            if self._clock() >= renewed + self._granted / 5:
                renewed = self._clock()
                self._renew(renewed)
                self._renewed(self.standing)
            else:
                self._look()
            self._say()
            self._acknowledge()
            if not self.standing.fence:
                self._sweep.turn()
        except MigratorError as error:
            self._why = f"it could not be renewed ({error.what})"
            self._hint = error.hint if isinstance(error, Refused) else _REACH
            log.warning("lease not renewed", cls=self._cls, error=error.what)
        except Exception as error:  # a thread that died would stop all writes without a word
            self._why = f"it could not be renewed ({error})"
            log.exception("lease not renewed", cls=self._cls)
        return renewed

    def _pause(self, renewed: float) -> None:
        """Until the next look; at once where what is in flight has ended under the fence."""
        with self._changed:
            if self._closed:
                return
            if self.standing.stopped and self._flying:
                self._changed.wait_for(lambda: not self._flying or self._closed, self.terms.look)
                return
            if self.standing.stopped:
                # All writers wait: as often as leaves the control database to others.
                seconds = min(self.terms.look, max(_OFTEN, _REST * self._took))
            elif self.standing.fence or self._said != self.standing.said:
                seconds = self.terms.look
            else:
                seconds = renewed + self._granted / 5 - self._clock()
            if seconds > 0:
                self._changed.wait_for(lambda: self._closed, seconds)

    def _renew(self, asked: float) -> None:
        seconds = self._seconds()
        if not self._gateways.renew(self._instance, seconds):
            # An owner saw it run out, or the control database was made anew.
            with self._changed:
                self._until = 0.0
            self._enter()
            return
        self._look()
        if not self.standing.fence:
            self._agree()  # a swap is armed only by who has done so
        self._grant(asked, min(seconds, self._seconds()))

    def _look(self) -> None:
        with self._looking:
            began = time.monotonic()
            found, seen = self._gateways.standing(self._cls), self.standing
            self._took = time.monotonic() - began
            if found.run == seen.run and found.epoch < seen.epoch:
                # R15: what was restored from a backup does not know who is the primary.
                raise Refused(
                    f"the control database says epoch {found.epoch}, and this gateway has seen "
                    f"{seen.epoch}",
                    where="control database",
                    hint=f"it was restored; mend it:  migrator repair {seen.revision}",
                )
            self._see(found)

    def _agree(self) -> None:
        """Go by what was seen only where the store tells of no later reign (R15); else nothing is
        written any more. Raises Refused."""
        try:
            self._agrees(self.standing)
        except Refused:
            try:
                self._look()  # a run may have begun, or the sides been swapped, in between
                self._agrees(self.standing)
            except Refused:
                with self._changed:
                    self._until = 0.0
                raise

    def _see(self, found: Standing) -> None:
        """Act by what was found, then say so: never the other way round."""
        if found == self.standing:
            return
        shorter = bool(found.fence) and not self.standing.fence
        with self._changed:
            self.standing = found
            if shorter:
                self._until = min(self._until, self._clock() + SHORT)
                self._granted = SHORT
            self._changed.notify_all()
        log.info("gateway sees", cls=self._cls, run=found.run, phase=found.phase.value,
                 primary=found.primary, fence=found.fence)  # fmt: skip
        if shorter:
            asked = self._clock()
            if self._gateways.renew(self._instance, SHORT):
                self._grant(asked, SHORT)
            # So that the first write to the other side need not open it while others wait.
            threading.Thread(target=self._warm, args=(found,), daemon=True).start()
        self._say()

    def _say(self) -> None:
        """Note what this gateway acts by, once nothing acts otherwise any more.

        Whoever reads that a run is known begins to copy (R9): a write that began before leaves no
        touch for it, and would come after its page was read.
        """
        with self._looking:
            found = self.standing
            # While a swap goes on to its end, nobody asks: its owner writes there just then.
            if found.said == self._said or found.fence in ("flipped", "marked"):
                return
            if (run := found.carries) and self._is_alive_of_others(run):
                return
            self._gateways.saw(self._instance, found)
            self._said = found.said

    def _is_alive_of_others(self, run: str) -> bool:
        """Whether a write may be under way that another run carries over, or none."""
        with self._changed:
            now = self._clock()
            self._alive_until = {of: end for of, end in self._alive_until.items() if now < end}
            return bool((self._alive_until.keys() | +self._under) - {run})

    def _acknowledge(self) -> None:
        found = self.standing
        if found.fence != "raised" or self._acknowledged == (found.run, found.attempt):
            return
        with self._changed:
            if self._flying or self._clock() < self._unknown_until:
                return
        # No permit is given while the standing says that writes are stopped.
        if self._gateways.acknowledge(self._instance, found):
            self._acknowledged = found.run, found.attempt


class _Permit:
    """The permit of one write, for a ``with``: no generator, as one is made for each write."""

    __slots__ = ("_follower", "_run", "_until")

    def __init__(self, follower: Follower, until: float) -> None:
        self._follower = follower
        self._until = until

    def __enter__(self) -> Standing:
        standing = self._follower._begin(self._until)
        self._run = standing.carries
        return standing

    def __exit__(self, *_: object) -> None:
        self._follower._end(self._run)

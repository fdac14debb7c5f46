"""A lane: one move of a live run, with the feeds of both its sides.

The primary's touches are acted on; those of the mirror are writes of our own, and are thrown
away, or somebody else's, and told. A feed that was lost is followed by a re-scan over the keys of
both sides (R5).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from migrator.engine.batch import gather
from migrator.engine.copying import copying
from migrator.engine.overhearing import Overhearing
from migrator.engine.points import reached
from migrator.engine.positions import Positions
from migrator.engine.reading import Reading, journal_of
from migrator.engine.rescan import Rescan
from migrator.engine.spread import reconciler
from migrator.engine.throttle import Throttle
from migrator.engine.work import Scene
from migrator.errors import FeedLost
from migrator.journal import Fence, Fenced, Journal, Touches, journal_name
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.ports import Collection
from migrator.route import Route
from migrator.state import LiveState

# Seconds between two tries of what was refused.
_AGAIN = 5.0


class Lane:
    """One move."""

    def __init__(
        self, scene: Scene, route: Route, live: LiveState, request_life: float, throttle: Throttle
    ) -> None:
        self.scene = scene
        self.route = route = route.followed
        self.throttle = throttle
        self.touched = 0
        self._lag = 0.0
        # Since when what is in work, or can't be read, has waited.
        self._since: float | None = None
        self._tried_at = 0.0
        self.reconciler = writes = reconciler(scene, route, live, request_life)
        self.copying = copying(route, writes, scene.retry)
        self._readings: dict[str, Reading] = {}
        self._positions = at = Positions(scene, live, route.number)
        self._overhearing = Overhearing(writes, at, self._readings)
        self._rescan = Rescan(scene, route, writes, at, self._overhearing, throttle)
        writes.strangers.sound = self._is_sound
        writes.strangers.hurry = self._overhearing.hurry

    def side(self, side: str) -> Collection:
        return self.route.side(side)

    def journal(self, side: str) -> Journal:
        """The journal of a side. Raises Refused where it has none."""
        return journal_of(self.route, side, self.scene.run.id)

    def mark(self, side: str, name: str) -> None:
        """Write a marker into the feed of a side that is being read, by what reads it."""
        self._readings[side].journal.mark(name)

    def fence(self, side: str) -> Fence | None:
        """The store's own fence of a side, None where it has none."""
        collection = self.side(side)
        if not isinstance(collection, Fenced):
            return None
        return collection.fence(journal_name(self.scene.run.id, self.route.number, side))

    # ------------------------------------------------------------------ attaching

    def attach(self, side: str) -> None:
        """Prepare a side's feed, once, and read it from here on."""
        if side in self._readings:
            return
        reading = Reading(
            self._positions, side, str(self.side(side).at), lambda: self.journal(side), self._lost
        )
        reading.prepare()
        self._readings[side] = reading
        reading.open()

    def reopen(self, side: str) -> None:
        """Read a side's feed on from where it was, by what its catalogue says now."""
        self.reconciler.written[side].forget()  # what was written is read otherwise now
        if side in self._readings:
            self._readings[side].reopen()

    def begin_anew(self, side: str, why: str) -> None:
        """Make a side's feed anew, and compare both sides: it follows what is there no longer."""
        self.attach(side)
        self._readings[side].begin_anew(FeedLost(why, where=str(self.side(side).at)))

    def close(self) -> None:
        """Let go of the feeds; the servers keep what comes."""
        self.reconciler.close()
        for reading in self._readings.values():
            reading.close()

    def drop(self, *, leaving: str = "") -> None:
        """Remove what was made on both sides for the feeds and fences, and beside them; nothing on
        a side that is left as it is."""
        self.close()
        if leaving != "target":
            self.reconciler.drop()
        for side, begins in (("source", Phase.PREPARED), ("target", Phase.BACKFILLED)):
            if side == leaving:
                continue
            # Also where a crash came between its making and the noting of its place.
            if self.scene.run.phase.rank >= begins.rank or self._positions.get(side) is not None:
                self.scene.retry(self.journal(side).drop)
            # Before a move is prepared there is none, perhaps not even the target's file.
            fence = None if self.scene.run.phase is Phase.PLANNED else self.fence(side)
            if fence is not None:
                self.scene.retry(fence.lower)

    def _lost(self, side: str, error: FeedLost) -> None:
        """A side's feed was lost, and is about to be made anew: a re-scan over both sides, behind
        the start of the new one, misses nothing.

        That it is needed is noted before anything else: a crash in between does not spare it. Also
        where it is the mirror's feed: somebody else may have written there. Between flip
        and release the sides were equal, and no application writes: what differs is told then,
        and still where another feed is lost before the re-scan is done. Was that one the
        primary's, it may have held touches of applications: nobody can tell whose it is.
        """
        run = self.scene.run
        self.scene.control.record(
            run.id, "feed lost", cls=self.route.cls, side=side, why=error.what
        )
        flipped = run.fence == "flipped"
        self._positions.scan(tells=flipped or None, theirs=not flipped and side == run.primary)
        self._overhearing.lost()
        for written in self.reconciler.written.values():
            written.forget_touches()  # one that comes would be somebody else's
        self.reconciler.written[side].lost()

    def _is_sound(self, side: str) -> bool:
        return side in self._readings and self._readings[side].is_sound()

    # ------------------------------------------------------------------ acting

    def turn(self, primary: str, seconds: float, *, hurry: bool = False, mark: str = "") -> bool:
        """Act on what the primary's feed gives within so many seconds; whether there was any.

        ``hurry``: at once, and not on what comes meanwhile; but with all that lies before ``mark``
        where that comes in a moment, since it is waited for.
        """
        for reading in self._readings.values():
            if not reading.is_stopped:
                reading.acknowledge()
        self.reconciler.written[primary].forget()
        with self._whole(primary) as reading:
            given = gather(reading, seconds, hurry=hurry, mark=mark)
            self._overhearing.overhear(primary)
            if given is not None:
                self._act(primary, given)
        if given is None and reading.feed is not None:
            self._lag, self._since = 0.0, None
        elif given is None and self._since is None:
            self._since = time.monotonic()
        # Also where touches came: under steady writes they always do.
        scanned = self._rescan.turn(primary)
        if not scanned:
            self._try_again(primary)
        return given is not None or scanned

    @contextmanager
    def _whole(self, side: str) -> Iterator[Reading]:
        """What is taken out of a feed within, and not dealt with to its end, is taken out again:
        whoever goes on after an error must not acknowledge what lies behind it."""
        reading = self._readings[side]
        try:
            yield reading
        except BaseException:
            reading.close()
            self._since = self._since or time.monotonic()
            raise

    def _act(self, primary: str, given: Touches) -> None:
        began = self._since = time.monotonic() - given.age
        if given.whole:
            self._positions.scan(tells=False)
        reached("mirror.touched")
        self.reconciler.touched(primary, given.touches)
        reached("mirror.applied")
        self.touched += len(given.touches)
        self._overhearing.explained(primary, given)
        reading = self._readings[primary]
        reading.acted_on(given)
        self._lag, self._since = time.monotonic() - began, None
        reading.marks.extend(given.marks)

    def _try_again(self, primary: str) -> None:
        """Reconcile once more, now and then, what the other side has refused."""
        if time.monotonic() < self._tried_at + _AGAIN:
            return
        self._tried_at = time.monotonic()
        self.reconciler.touched(primary, self.reconciler.aside.refused(primary))

    @property
    def lag(self) -> float:
        """Seconds by which the mirror is behind: what the last touches took, or those in work
        have waited already."""
        since = self._since
        return self._lag if since is None else max(self._lag, time.monotonic() - since)

    # ------------------------------------------------------------------ in a swap

    def overhear(self, primary: str) -> None:
        """Look into the mirror's feed now: after a flip what somebody else wrote there would be the
        truth."""
        self._overhearing.hurry()
        self._overhearing.overhear(primary)

    def drained(self, primary: str, check: Callable[[], None]) -> None:
        """As ``Overhearing.drained``."""
        self._overhearing.drained(primary, check)

    def pass_over(self, side: str, seconds: float, mark: str = "") -> None:
        """Read the feed of a side that has just become the primary, and whose fence is up. It shows
        writes of our own; what somebody else wrote there is told, and mirrored. ``mark`` as in
        ``turn``."""
        with self._whole(side) as reading:
            given = gather(reading, seconds, hurry=True, mark=mark)
            if given is None:
                return
            if given.whole:
                self._positions.scan(tells=True)
            written = self.reconciler.written[side]
            strange = [touch for touch in given.touches if not written.expects(touch)]
            self.reconciler.foreign(side, self.reconciler.unlike(side, strange), side, tell=True)
            reading.acted_on(given)
            reading.marks.extend(given.marks)

    def acknowledge(self, side: str) -> None:
        """What was acted on of a side's feed need not be shown again."""
        self._readings[side].acknowledge()

    # ------------------------------------------------------------------ comparing

    def scan(self) -> None:
        """Compare both sides key by key, and make the mirror equal."""
        self._positions.scan()

    def take_up(self) -> None:
        """Look once more at what was refused. A re-scan that a process before has begun goes on
        where it was, or with many short lives it would come to no end; all of what is set aside
        then is looked at by another one."""
        if not self.scanning:
            self.scan()

    @property
    def scanning(self) -> bool:
        """Whether a re-scan is not done: until then the sides may differ."""
        return self._positions.scanning

    @property
    def scan_waits(self) -> bool:
        """Whether it has to wait, since what differs is to be told first."""
        return self._rescan.waits

    def mend(self, primary: str, keys: Sequence[Value], side: str) -> None:
        """As ``Overhearing.mend``."""
        self._overhearing.mend(primary, keys, side)

    # ------------------------------------------------------------------ what was read

    def losses(self, side: str) -> int:
        """How often a side's feed was lost, and with it the markers in it."""
        return self._readings[side].losses

    def has_mark(self, side: str, mark: str) -> bool:
        return mark in self._readings[side].marks

    def marks(self, side: str) -> list[str]:
        """The markers met last in a side's feed."""
        return list(self._readings[side].marks) if side in self._readings else []

    @property
    def read(self) -> list[str]:
        """The sides whose feeds are being read."""
        return list(self._readings)

    @property
    def brackets(self) -> int:
        """How many brackets of gateways are open: their writes have not ended yet."""
        return sum(reading.brackets for reading in self._readings.values())

    def is_reading(self, side: str) -> bool:
        return side in self._readings and self._readings[side].feed is not None


__all__ = ["Lane"]

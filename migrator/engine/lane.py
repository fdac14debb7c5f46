"""A lane: one move of a live run, with the feeds of both its sides.

The primary's touches are acted on; those of the mirror are writes of our own, and are thrown
away, or somebody else's, and told. A feed that broke is opened again where it was; one that was
lost is prepared anew and followed by a re-scan over the keys of both sides (R5).
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import structlog

from migrator.engine.copying import copying
from migrator.engine.points import reached
from migrator.engine.reconcile import LONGEST_WAIT
from migrator.engine.spread import reconciler
from migrator.engine.strangers import FOREIGN, RECONCILED, Foreign
from migrator.engine.throttle import Throttle
from migrator.engine.work import Scene
from migrator.errors import FeedLost, Refused, Transient, Waiting
from migrator.journal import (
    OTHER,
    Bracketing,
    Feed,
    Fence,
    Fenced,
    Followed,
    Forgetful,
    Journal,
    Touch,
    Touches,
    journal_name,
)
from migrator.model.canonical import encode
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.ports import Collection, Json
from migrator.route import Route
from migrator.state import LiveState, Position, quarantine_key

log = structlog.get_logger("migrator.mirror")

# Keys to act on at once, and for how long to gather them. Where fewer came at once than are many
# there is no more behind them: the store is asked again after a pause, for its writers' sake.
_MOST = 500
_GATHER = 0.1
_MANY = 50
_PAUSE = 0.01
_REMEMBERED = 100
# Seconds between two looks into the mirror's feed.
_OVERHEAR = 0.25
# How often what somebody else wrote is undone at once, where it comes again just then.
_ROUNDS = 3
# How the run's row says that writes are stopped, until they go on at one side or the other.
_STOPPED = ("raised", "flipped", "marked")
# Seconds between two tries of what was refused.
_AGAIN = 5.0


@dataclass
class _Reading:
    """A side's feed, and the markers met in it."""

    journal: Journal
    feed: Feed | None = None
    marks: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    broken_until: float = 0.0
    losses: int = 0
    wait: float = 0.1
    # What was acted on, and is acknowledged once writes go on.
    later: Json = None
    # What was read of it to see that it is not lost, and that it is.
    ahead: deque[Touches] = field(default_factory=deque)
    lost: FeedLost | None = None

    def close(self) -> None:
        """Let go of the feed: what was taken out of it and not acknowledged comes again."""
        if self.feed is not None:
            self.feed.close()
        self.feed = self.later = None
        self.ahead.clear()


class Lane:
    """One move."""

    def __init__(
        self, scene: Scene, route: Route, live: LiveState, request_life: float, throttle: Throttle
    ) -> None:
        self.scene = scene
        self.route = route = route.followed
        self.live = live
        self.throttle = throttle
        self.reconciler = reconciler(scene, route, live, request_life)
        self.reconciler.strangers.sound = self._is_sound
        self.reconciler.strangers.hurry = self._hurry
        self.copying = copying(route, self.reconciler, scene.retry)
        self.touched = 0
        self._lag = 0.0
        # Since when what is in work, or can't be read, has waited.
        self._since: float | None = None
        self._readings: dict[str, _Reading] = {}
        # As the control database holds them: nobody but the owner writes them there.
        self._positions: dict[str, Position] = {}
        self._strange: dict[bytes, Touch] = {}
        self._suspects: dict[bytes, Foreign] = {}
        self._suspected = ""
        self._looked = False  # at the page of a re-scan that comes next
        self._began = False  # the re-scan that is under way
        self._overheard: Json = None
        self._overheard_at = 0.0
        self._tried_at = 0.0

    def side(self, side: str) -> Collection:
        return self.route.source if side == "source" else self.route.target

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
        journal = self.journal(side)
        if self.position(side) is None:
            start = self.scene.retry(journal.prepare)
            reached("feed.prepared")
            self._keep(side, Position(start))
        self._readings[side] = _Reading(journal)
        self._open(side)

    def reopen(self, side: str) -> None:
        """Read a side's feed on from where it was, by what its catalogue says now."""
        self.reconciler.written[side].forget()  # what was written is read otherwise now
        reading = self._readings.get(side)
        if reading is None:
            return
        reading.close()
        reading.journal = self.journal(side)
        self._open(side)

    def begin_anew(self, side: str, why: str) -> None:
        """Make a side's feed anew, and compare both sides: it follows what is there no longer."""
        self.attach(side)
        self._readings[side].journal = self.journal(side)
        self._lost(side, FeedLost(why, where=str(self.side(side).at)))

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
            if self.scene.run.phase.rank >= begins.rank or self.position(side) is not None:
                self.scene.retry(self.journal(side).drop)
            # Before a move is prepared there is none, perhaps not even the target's file.
            fence = None if self.scene.run.phase is Phase.PLANNED else self.fence(side)
            if fence is not None:
                self.scene.retry(fence.lower)

    def _open(self, side: str) -> None:
        reading = self._readings[side]
        try:
            reading.feed = reading.journal.open(self._kept(side).feed)
            reading.wait = 0.1
        except Transient as error:
            self._broken(reading, error)
        except FeedLost as error:
            self._lost(side, error)

    def _broken(self, reading: _Reading, error: Transient) -> None:
        reading.close()
        reading.broken_until = time.monotonic() + reading.wait
        log.warning("feed broke", where=error.where, error=error.what, seconds=reading.wait)
        reading.wait = min(reading.wait * 2, LONGEST_WAIT)

    def _lost(self, side: str, error: FeedLost) -> None:
        """Begin anew: the new feed, then a re-scan over both sides, which so misses nothing.

        That the re-scan is needed is noted before anything else: a crash in between does not spare
        it. Also where it is the mirror's feed: somebody else may have written there. Between flip
        and release the sides were equal, and no application writes: what differs is told then,
        and still where another feed is lost before the re-scan is done. Was that one the
        primary's, it may have held touches of applications: nobody can tell whose it is.
        """
        log.warning("feed lost", where=error.where, error=error.what)
        self.scene.control.record(
            self.scene.run.id, "feed lost", cls=self.route.cls, side=side, why=error.what
        )
        flipped = self.scene.run.fence == "flipped"
        self.scan(tells=flipped or None, theirs=not flipped and side == self.scene.run.primary)
        self._suspects.clear()
        for written in self.reconciler.written.values():
            written.forget_touches()  # one that comes would be somebody else's
        self.reconciler.written[side].lost()
        reading = self._readings[side]
        reading.lost = None
        reading.close()  # of what is read no position may be kept for the new one
        self.scene.retry(reading.journal.drop)
        start = self.scene.retry(reading.journal.prepare)
        self._keep(side, replace(self._kept(side), feed=start))
        self._overheard = None
        reading.losses += 1
        try:
            reading.feed = reading.journal.open(start)
        except Transient as broke:
            self._broken(reading, broke)

    # ------------------------------------------------------------------ reading

    def turn(self, primary: str, seconds: float, *, hurry: bool = False, mark: str = "") -> bool:
        """Act on what the primary's feed gives within so many seconds; whether there was any.

        ``hurry``: at once, and not on what comes meanwhile; but with all that lies before ``mark``
        where that comes in a moment, since it is waited for.
        """
        for side in () if self._is_stopped else self.read:
            self.acknowledge(side)
        self.reconciler.written[primary].forget()
        with self._whole(primary):
            given = self._gather(primary, seconds, hurry=hurry, mark=mark)
            self._overhear(primary)
            if given is not None:
                self._act(primary, given)
        if given is None and self._readings[primary].feed is not None:
            self._lag, self._since = 0.0, None
        elif given is None and self._since is None:
            self._since = time.monotonic()
        # Also where touches came: under steady writes they always do.
        scanned = self._scan(primary)
        if not scanned:
            self._try_again(primary)
        return given is not None or scanned

    @contextmanager
    def _whole(self, side: str) -> Iterator[None]:
        """What is taken out of a feed within, and not dealt with to its end, is taken out again:
        whoever goes on after an error must not acknowledge what lies behind it."""
        try:
            yield
        except BaseException:
            self._readings[side].close()
            self._since = self._since or time.monotonic()
            raise

    def _act(self, primary: str, given: Touches) -> None:
        began = self._since = time.monotonic() - given.age
        if given.whole:
            self.scan(tells=False)
        reached("mirror.touched")
        self.reconciler.touched(primary, given.touches)
        reached("mirror.applied")
        self.touched += len(given.touches)
        self._clear(primary, given)
        self._acknowledge(primary, given)
        self._lag, self._since = time.monotonic() - began, None
        self._readings[primary].marks.extend(given.marks)

    @property
    def lag(self) -> float:
        """Seconds by which the mirror is behind: what the last touches took, or those in work
        have waited already."""
        since = self._since
        return self._lag if since is None else max(self._lag, time.monotonic() - since)

    def _gather(
        self, side: str, seconds: float, *, hurry: bool = False, mark: str = ""
    ) -> Touches | None:
        """All touches that wait, each key once: what is written often costs no more for it."""
        given = self._poll(side, seconds)
        if given is None:
            return None
        feed = self._readings[side].feed
        touches: dict[bytes, Touch] = {}
        _merge(touches, given.touches)
        now = time.monotonic()
        until, soon, last = now + _GATHER, now + _PAUSE if mark else now, len(touches)
        while len(touches) < _MOST and time.monotonic() < until:
            if last < _MANY and not hurry:
                time.sleep(_PAUSE)
            elif last < _MANY and (mark in given.marks or time.monotonic() >= soon):
                break
            more = self._poll(side, max(0.0, soon - time.monotonic()))
            if more is None:
                break
            last = len(more.touches)
            _merge(touches, more.touches)
            given = Touches(
                (), more.position or given.position, given.whole or more.whole,
                [*given.marks, *more.marks], max(given.age, more.age),
            )  # fmt: skip
        if self._readings[side].feed is not feed:
            # Of a feed that is no more: all of it comes again, or was lost. A marker counts only
            # with the place behind it, where the reverse journal may begin.
            given.position, given.marks = None, []
        return replace(given, touches=list(touches.values()))

    def _poll(self, side: str, seconds: float) -> Touches | None:
        reading = self._readings[side]
        self._end_lost(side)
        if reading.ahead:
            return reading.ahead.popleft()
        if reading.feed is None:
            if time.monotonic() < reading.broken_until:
                time.sleep(min(seconds, 0.05))
                return None
            self._open(side)
            if reading.feed is None:
                return None
        try:
            return reading.feed.poll(seconds)
        except Transient as error:
            self._broken(reading, error)
        except FeedLost as error:
            self._lost(side, error)
        return None

    def _is_sound(self, side: str) -> bool:
        """Whether a side's feed is read and not lost by now, and with it what was written there.
        Raises Transient where that can't be told yet; after a while it is taken for lost.

        What it shows is kept for who reads it on: a batch may be in work.
        """
        reading = self._readings.get(side)
        if reading is None or reading.lost is not None:
            return False
        try:
            if reading.feed is None:
                reading.feed = reading.journal.open(self._kept(side).feed)
                reading.wait = 0.1
            while len(reading.ahead) < _MOST and (given := reading.feed.poll(0.0)) is not None:
                reading.ahead.append(given)
        except Transient as error:
            self._broken(reading, error)
            if reading.wait < LONGEST_WAIT:
                raise
            return False
        except FeedLost as error:
            reading.lost = error
            return False
        return True

    def _is_surely_sound(self, side: str) -> bool:
        """As ``_is_sound``, and no where that can't be told yet."""
        try:
            return self._is_sound(side)
        except Transient:
            return False

    def _end_lost(self, side: str) -> None:
        """Begin a side's feed anew where it was found to be lost."""
        if (lost := self._readings[side].lost) is not None:
            self._lost(side, lost)

    def _acknowledge(self, side: str, given: Touches) -> None:
        """Once writes go on: where a crash comes before that, it is shown again (R5)."""
        reading = self._readings[side]
        if given.position is None or reading.feed is None:
            return
        reading.later = given.position
        if not self._is_stopped:
            self.acknowledge(side)

    @property
    def _is_stopped(self) -> bool:
        """Whether applications wait, so that what can be done later is."""
        return self.scene.run.fence in _STOPPED

    def acknowledge(self, side: str) -> None:
        """What was acted on of a side's feed need not be shown again. The position is kept before
        the server may forget what lies before it."""
        reading = self._readings[side]
        if reading.later is None or reading.feed is None:
            return
        self._keep(side, replace(self._kept(side), feed=reading.later))
        reading.feed.acknowledge(reading.later)
        reading.later = None

    # ------------------------------------------------------------------ the mirror's own feed

    def _overhear(self, primary: str) -> None:
        """Read the mirror's feed on, now and then. It shows writes of our own, and those of
        somebody else, which are told and then reconciled away (R11).

        It is acknowledged once they are: after a crash before that it shows them again.
        """
        side = OTHER[primary]
        if side not in self._readings or time.monotonic() < self._overheard_at + _OVERHEAR:
            return
        written = self.reconciler.written[side]
        while len(self._strange) < _MOST and (given := self._poll(side, 0.0)) is not None:
            self._readings[side].marks.extend(given.marks)
            self._overheard = given.position or self._overheard
            if given.whole:
                self.scan()
            for touch in given.touches:
                if not written.expects(touch):
                    self._strange[encode(touch.key)] = touch
        self._overheard_at = time.monotonic()
        if self._suspects:
            return  # those first: with ever new ones no marker would be the last
        found = self._look(primary)
        self._tell(primary, [each for each in found if each.sure])
        found = [each for each in found if not each.sure]
        if found and not self._is_surely_sound(side):
            return  # what it has lost may explain them: once more when it is read again, or lost
        if found and self._is_blind:
            self._undo(primary, found)  # what a lost feed did not show explains it as well
        elif found:
            self._suspect(primary, found)
        self._strange.clear()
        self._acknowledge_overheard(side)

    def _hurry(self) -> None:
        """Look into the mirror's feed as soon as can be: perhaps more is to be told from there."""
        self._overheard_at = float("-inf")

    def overhear(self, primary: str) -> None:
        """Look into the mirror's feed now: after a flip what somebody else wrote there would be the
        truth."""
        self._hurry()
        self._overhear(primary)

    def _look(self, primary: str) -> list[Foreign]:
        """What differs of all that may have been written to the mirror by somebody else."""
        side = OTHER[primary]
        strange = self.reconciler.unlike(side, list(self._strange.values()))
        return self.reconciler.look(primary, strange, side) if strange else []

    def _suspect(self, primary: str, found: list[Foreign]) -> None:
        """What differs may still be a write to the primary that was not acted on: its touch then
        comes before a marker that is written now."""
        self._suspected = f"foreign {secrets.token_hex(8)}"
        self.mark(primary, self._suspected)
        self._suspects = {encode(each.key): each for each in found}

    def _acknowledge_overheard(self, side: str) -> None:
        if self._overheard is not None and not self._suspects:
            self._acknowledge(side, Touches(position=self._overheard))
            self._overheard = None

    def _clear(self, primary: str, given: Touches) -> None:
        """Tell of the suspects that no touch before the marker explains, and undo them."""
        touched = {encode(touch.key) for touch in given.touches}
        for form, each in list(self._suspects.items()):
            if not touched.isdisjoint(map(encode, each.sources)):
                del self._suspects[form]
        if self._suspects and self._suspected in given.marks:
            self._tell(primary, list(self._suspects.values()))
            self._suspects.clear()

    def _tell(self, primary: str, found: list[Foreign]) -> None:
        """Tell what somebody else wrote, and only then undo it: after a crash in between it is
        told twice, and never not at all.

        What comes again as often as it is undone is left, as found: a trigger may write there.
        """
        side = OTHER[primary]
        written, said = self.reconciler.written[side], set[tuple[bytes, tuple[str, ...]]]()
        fields: dict[bytes, frozenset[str]] = {}
        for left in range(_ROUNDS, -1, -1):
            undone = []
            for each in found:
                of = (form := encode(each.key)), tuple(each.paths)
                usual = written.is_usual(each.key, each.held)
                # What applications write meanwhile is no part of what comes again.
                fields[form] = each.fields & fields.get(form, each.fields)
                if of in said:
                    written.told(each.key, each.held)
                elif not usual:
                    self.reconciler.strangers.tell(each, self._event(each))
                said.add(of)
                if usual or not left:
                    self.reconciler.strangers.leave(each, frozenset() if usual else fields[form])
                else:
                    undone.append(each)
            if not undone:
                return
            reached("foreign.told")
            self._undo(primary, undone)
            again = self.reconciler.unlike(side, [Touch(e.key) for e in undone], surely=True)
            found = self.reconciler.look(primary, again, side) if again else []

    def mend(self, primary: str, keys: Sequence[Value], side: str) -> None:
        """Reconcile keys of a side that a comparison has named. What differs is told before it is
        written over: nobody knows whose it is, but where the owner had left something else."""
        for each in self.reconciler.look(primary, [Touch(key) for key in keys], side):
            self.reconciler.strangers.tell(each, FOREIGN if each.sure else RECONCILED)
        reached("mend.told")
        self.reconciler.untouched(primary, keys, side)

    def _undo(self, primary: str, found: list[Foreign]) -> None:
        self.reconciler.untouched(primary, [each.key for each in found], OTHER[primary])

    def drained(self, primary: str, check: Callable[[], None]) -> None:
        """All that was written to the primary has been acted on, and nobody writes: no touch will
        explain what is suspected still. ``check`` raises where somebody may write again, Waiting
        where the mirror may have lost what was written to it: it would become the truth."""
        side = OTHER[primary]
        forgets = isinstance(self._readings[side].journal, Forgetful)
        if (self._suspects or self._strange or forgets) and not self._is_surely_sound(side):
            self._end_lost(side)
            if forgets and not self.scanning:
                raise Waiting(
                    "the mirror's feed is not read just now, so its server may have lost writes",
                    where=str(self.side(side).at),
                    hint="try again once it is",
                )
        if self.scanning:
            return
        check()
        self._tell(primary, list(self._suspects.values()))
        self._suspects.clear()
        found = self._look(primary)
        check()
        self._tell(primary, found)
        self._strange.clear()
        self._acknowledge_overheard(OTHER[primary])

    def pass_over(self, side: str, seconds: float, mark: str = "") -> None:
        """Read the feed of a side that has just become the primary, and whose fence is up. It shows
        writes of our own; what somebody else wrote there is told, and mirrored. ``mark`` as in
        ``turn``."""
        with self._whole(side):
            given = self._gather(side, seconds, hurry=True, mark=mark)
            if given is None:
                return
            if given.whole:
                self.scan(tells=True)
            written = self.reconciler.written[side]
            strange = [touch for touch in given.touches if not written.expects(touch)]
            self.reconciler.foreign(side, self.reconciler.unlike(side, strange), side, tell=True)
            self._acknowledge(side, given)
            self._readings[side].marks.extend(given.marks)

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
        feeds: list[object] = [reading.feed for reading in self._readings.values()]
        return sum(feed.brackets for feed in feeds if isinstance(feed, Bracketing))

    def is_reading(self, side: str) -> bool:
        return side in self._readings and self._readings[side].feed is not None

    # ------------------------------------------------------------------ re-scans

    def scan(self, *, tells: bool | None = None, theirs: bool = False) -> None:
        """Compare both sides key by key, and make the mirror equal.

        ``tells``: what differs, and no touch explains, is told; None for as it was. ``theirs``: it
        may be what applications have written to the primary.
        """
        primary = self.scene.run.primary
        if (found := self.position(primary)) is not None:
            tells = _tells(found.scan) if tells is None else tells
            theirs = theirs or _is(found.scan, "theirs")
            scan = _scan_from_start(tells=tells, theirs=theirs)
            self._keep(primary, replace(found, scan=scan))
            self._looked, self._began = False, True

    def take_up(self) -> None:
        """Look once more at what was refused. A re-scan that a process before has begun goes on
        where it was, or with many short lives it would come to no end; all of what is set aside
        then is looked at by another one."""
        if not self.scanning:
            self.scan()

    def _try_again(self, primary: str) -> None:
        """Reconcile once more, now and then, what the other side has refused."""
        if time.monotonic() < self._tried_at + _AGAIN:
            return
        self._tried_at = time.monotonic()
        self.reconciler.touched(primary, self.reconciler.aside.refused(primary))

    @property
    def scanning(self) -> bool:
        """Whether a re-scan is not done: until then the sides may differ."""
        return any(
            found is not None and found.scan is not None
            for found in (self.position(side) for side in OTHER)
        )

    @property
    def scan_waits(self) -> bool:
        """Whether a re-scan has to wait for a marker, since what differs is to be told first."""
        return bool(self._suspects) and self.scanning and not self._is_blind

    def _event(self, found: Foreign) -> str:
        """What a difference is called in the record: only what is somebody else's a foreign one."""
        scans = [at.scan for side in OTHER if (at := self.position(side)) is not None]
        doubtful = not found.sure and any(_is(scan, "theirs") for scan in scans)
        return RECONCILED if doubtful else FOREIGN

    @property
    def _is_blind(self) -> bool:
        """Whether touches may have been lost of which a re-scan has still to tell."""
        scans = [found.scan for side in OTHER if (found := self.position(side)) is not None]
        return any(scan is not None and not _tells(scan) for scan in scans)

    def _finds(self, primary: str, keys: Sequence[Value], side: str) -> bool:
        """Whether a page of a re-scan that tells has to wait for what differs there to be told.

        It is looked at once: under steady writes something always differs.
        """
        if self._looked:
            return False
        known = self.reconciler.aside.quarantine_keys()
        found = [
            each
            for each in self.reconciler.look(primary, [Touch(key) for key in keys], side)
            if known.isdisjoint(map(quarantine_key, [each.key, *each.sources]))
        ]
        self._looked = True
        if found:
            self._suspect(primary, found)
        return bool(found)

    def _scan(self, primary: str) -> bool:
        """One page of a re-scan: the primary's keys, then the mirror's; whether there was one, and
        it may be."""
        found = self._kept(primary)
        scan = found.scan
        if not isinstance(scan, dict) or self.scan_waits or not self.throttle.ready():
            return False
        side = primary if scan["side"] == "primary" else OTHER[primary]
        collection = self.side(side)
        retry = self.scene.retry
        if scan["range"] is None:
            scan = {**scan, "range": retry(collection.split, 1)[0]}
            if side == "source":
                self.reconciler.aside.list_source()
            elif side == primary:
                self.reconciler.aside.list_target()
        limit = self.throttle.limit(self.scene.planned(self.route).page)
        keys, position = retry(collection.keys, scan["range"], scan["position"], limit)
        if _tells(scan) and self._finds(primary, keys, side):
            return False
        self._looked = False
        self.reconciler.keys(primary, keys, side)
        self.throttle.copied(len(keys))
        following: Json = {**scan, "position": position}
        if position is None:
            if side == "source":
                self.reconciler.aside.listed_source()
            onward = scan["side"] == "primary"
            begins = _scan_from_start("mirror", tells=_tells(scan), theirs=_is(scan, "theirs"))
            following = begins if onward else None
        if following is None and primary == "target":
            self.reconciler.aside.listed_target()
        self._keep(primary, replace(found, scan=following))
        if following is None:
            if not self._began and not self.reconciler.aside.is_empty:
                self.scan()
            self.reconciler.written[OTHER[primary]].regained()
            self.scene.control.record(self.scene.run.id, "scanned anew", cls=self.route.cls)
        return True

    def position(self, side: str) -> Position | None:
        """Where a side's feed is read on; None where it was never prepared."""
        if side not in self._positions:
            found = self.live.position(self.route.number, side)
            if found is None:
                return None
            self._positions[side] = found
        return self._positions[side]

    def _kept(self, side: str) -> Position:
        found = self.position(side)
        assert found is not None
        return found

    def _keep(self, side: str, position: Position) -> None:
        self.scene.retry(self.live.keep, self.route.number, side, position)
        self._positions[side] = position


def _merge(touches: dict[bytes, Touch], more: Sequence[Touch]) -> None:
    """Each key once; that it was deleted is kept, and of how many writes, where that is counted."""
    for touch in more:
        form = encode(touch.key)
        if (old := touches.get(form)) is not None:
            writes = old.writes + touch.writes if old.writes and touch.writes else 0
            touches[form] = Touch(touch.key, old.deleted or touch.deleted, writes)
        else:
            touches[form] = touch


def _scan_from_start(
    side: str = "primary", *, tells: bool = False, theirs: bool = False
) -> dict[str, Json]:
    return {"side": side, "range": None, "position": None, "tells": tells, "theirs": theirs}


def _tells(scan: Json) -> bool:
    """Whether a re-scan tells what differs; those of older versions do not."""
    return _is(scan, "tells")


def _is(scan: Json, what: str) -> bool:
    return isinstance(scan, dict) and bool(scan.get(what))


def journal_of(route: Route, side: str, run: str) -> Journal:
    """The journal of a move's side. Raises Refused where it has none."""
    route = route.followed
    collection = route.source if side == "source" else route.target
    name = journal_name(run, route.number, side)
    journal = collection.journal(name) if isinstance(collection, Followed) else None
    if journal is None:
        raise Refused(
            "its writes can't be followed: this store or layout has no change feed",
            where=str(collection.at),
            hint="move it at rest: plan without --live",
        )
    return journal


__all__ = ["Lane", "journal_of"]

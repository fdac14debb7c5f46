"""One side's feed, as the owner reads it on: from where it was, also where it broke or was lost.

A feed that broke is opened again after a while; one that was lost is made anew. What was given is
acknowledged once it was acted on, so that after a crash before that it is shown again (R5).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import structlog

from migrator.engine.points import reached
from migrator.engine.positions import Positions
from migrator.engine.reconcile import LONGEST_WAIT
from migrator.errors import FeedLost, Refused, Transient
from migrator.journal import Bracketing, Feed, Followed, Forgetful, Journal, Touches, journal_name
from migrator.ports import Json
from migrator.route import Route
from migrator.state import Position

log = structlog.get_logger("migrator.mirror")

# Keys to act on at once.
MOST = 500
_FIRST_WAIT = 0.1
_REMEMBERED = 100
# How the run's row says that writes are stopped, until they go on at one side or the other.
_STOPPED = ("raised", "flipped", "marked")


class Reading:
    """A side's feed, and the markers met in it.

    ``journal`` gives the side's journal as its catalogue is now. ``on_lost`` is called where the
    feed was lost, before it is made anew.
    """

    def __init__(
        self,
        positions: Positions,
        side: str,
        where: str,
        journal: Callable[[], Journal],
        on_lost: Callable[[str, FeedLost], None],
    ) -> None:
        self.side = side
        self.where = where
        self.feed: Feed | None = None
        self.marks: deque[str] = deque(maxlen=_REMEMBERED)
        # How often it was lost, and with it the markers in it.
        self.losses = 0
        self._scene = positions.scene
        self._positions = positions
        self._journal_now = journal
        self._on_lost = on_lost
        self.journal = journal()
        self._broken_until = 0.0
        self._wait = _FIRST_WAIT
        # What was acted on, and is acknowledged once writes go on.
        self._later: Json = None
        # What was read of it to see that it is not lost, and that it is.
        self._ahead: deque[Touches] = deque()
        self._found_lost: FeedLost | None = None

    @property
    def forgets(self) -> bool:
        """Whether its server may lose what was written, and only the feed tells."""
        return isinstance(self.journal, Forgetful)

    @property
    def brackets(self) -> int:
        """How many brackets of gateways are open: their writes have not ended yet."""
        return self.feed.brackets if isinstance(self.feed, Bracketing) else 0

    # ------------------------------------------------------------------ opening

    def prepare(self) -> None:
        """Have the server keep what is written from here on, where that was not done before."""
        if self._positions.get(self.side) is None:
            start = self._scene.retry(self.journal.prepare)
            reached("feed.prepared")
            self._positions.keep(self.side, Position(start))

    def open(self) -> None:
        """Read it on from where it was."""
        try:
            self._open()
        except Transient as error:
            self._broken(error)
        except FeedLost as error:
            self._lost(error)

    def _open(self) -> None:
        self.feed = self.journal.open(self._positions.of(self.side).feed)
        self._wait = _FIRST_WAIT

    def reopen(self) -> None:
        """Read it on by what its side's catalogue says now."""
        self.close()
        self.journal = self._journal_now()
        self.open()

    def begin_anew(self, error: FeedLost) -> None:
        """Have the server make it anew: it follows what is there no longer."""
        self.journal = self._journal_now()
        self._lost(error)

    def close(self) -> None:
        """Let go of the feed: what was taken out of it and not acknowledged comes again."""
        if self.feed is not None:
            self.feed.close()
        self.feed = self._later = None
        self._ahead.clear()

    def _broken(self, error: Transient) -> None:
        self.close()
        self._broken_until = time.monotonic() + self._wait
        log.warning("feed broke", where=error.where, error=error.what, seconds=self._wait)
        self._wait = min(self._wait * 2, LONGEST_WAIT)

    def _lost(self, error: FeedLost) -> None:
        """Begin anew, once it was noted what that has missed."""
        log.warning("feed lost", where=error.where, error=error.what)
        self._on_lost(self.side, error)
        self._found_lost = None
        self.close()  # of what is read no position may be kept for the new one
        self._scene.retry(self.journal.drop)
        start = self._scene.retry(self.journal.prepare)
        self._positions.keep(self.side, replace(self._positions.of(self.side), feed=start))
        self.losses += 1
        try:
            self.feed = self.journal.open(start)
        except Transient as broke:
            self._broken(broke)

    # ------------------------------------------------------------------ reading on

    def poll(self, seconds: float) -> Touches | None:
        """What comes next, None where nothing comes within so many seconds, or it can't be read."""
        self.end_lost()
        if self._ahead:
            return self._ahead.popleft()
        if self.feed is None:
            if time.monotonic() < self._broken_until:
                time.sleep(min(seconds, 0.05))
                return None
            self.open()
            if self.feed is None:
                return None
        try:
            return self.feed.poll(seconds)
        except Transient as error:
            self._broken(error)
        except FeedLost as error:
            self._lost(error)
        return None

    def is_sound(self) -> bool:
        """Whether it is read and not lost by now, and with it what was written there. Raises
        Transient where that can't be told yet; after a while it is taken for lost.

        What it shows is kept for who reads it on: a batch may be in work.
        """
        if self._found_lost is not None:
            return False
        try:
            if self.feed is None:
                self._open()
            assert self.feed is not None
            while len(self._ahead) < MOST and (given := self.feed.poll(0.0)) is not None:
                self._ahead.append(given)
        except Transient as error:
            self._broken(error)
            if self._wait < LONGEST_WAIT:
                raise
            return False
        except FeedLost as error:
            self._found_lost = error
            return False
        return True

    def is_surely_sound(self) -> bool:
        """As ``is_sound``, and no where that can't be told yet."""
        try:
            return self.is_sound()
        except Transient:
            return False

    def end_lost(self) -> None:
        """Begin anew where it was found to be lost."""
        if (lost := self._found_lost) is not None:
            self._lost(lost)

    # ------------------------------------------------------------------ acknowledging

    @property
    def is_stopped(self) -> bool:
        """Whether applications wait, so that what can be done later is."""
        return self._scene.run.fence in _STOPPED

    def acted_on(self, given: Touches) -> None:
        """Acknowledge what was given, once writes go on: where a crash comes before that, it is
        shown again (R5)."""
        if given.position is None or self.feed is None:
            return
        self._later = given.position
        if not self.is_stopped:
            self.acknowledge()

    def acknowledge(self) -> None:
        """What was acted on need not be shown again. The position is kept before the server may
        forget what lies before it."""
        if self._later is None or self.feed is None:
            return
        kept = self._positions.of(self.side)
        self._positions.keep(self.side, replace(kept, feed=self._later))
        self.feed.acknowledge(self._later)
        self._later = None


def journal_of(route: Route, side: str, run: str) -> Journal:
    """The journal of a move's side. Raises Refused where it has none."""
    route = route.followed
    collection = route.side(side)
    name = journal_name(run, route.number, side)
    journal = collection.journal(name) if isinstance(collection, Followed) else None
    if journal is None:
        raise Refused(
            "its writes can't be followed: this store or layout has no change feed",
            where=str(collection.at),
            hint="move it at rest: plan without --live",
        )
    return journal


__all__ = ["MOST", "Reading", "journal_of"]

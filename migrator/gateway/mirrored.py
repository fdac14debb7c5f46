"""Reads that the mirror answers: a share of a gateway's, chosen by key.

What may be answered there follows from one time: until when the mirror is known to hold all that
was written. What this gateway wrote, or gave from the primary, after that time is *pinned*: its
key is read from the primary until the mirror is known to hold it as well. So a read never goes
back behind a write of this gateway, nor behind what it has shown. Whatever is not as it should be
goes to the primary; a mirror that failed or was slow is left alone for a while.
"""

from __future__ import annotations

import hashlib
import threading
import time
import unicodedata
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

import structlog

from migrator.errors import MigratorError
from migrator.gateway.logs import log_of
from migrator.gateway.shadowing import latencies
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.state import (
    Answered,
    Control,
    LiveState,
    MirrorReads,
    Part,
    ShadowReads,
    Share,
    quarantine_key,
)
from migrator.state.gateways import Standing
from migrator.state.lease import boot_clock
from migrator.state.reads import may_share

if TYPE_CHECKING:
    from migrator.gateway.opened import Sides
    from migrator.ports import Collection

T = TypeVar("T")

log = structlog.get_logger("migrator.gateway")

PINNED = 20_000
"""Keys that are remembered one by one at most; then all that lie as far back are pinned."""
AT_ONCE = 16
"""Reads that are under way at the mirror at most."""
_LOOK = 1.0
_REPORT = 3.0
_TIMES = 1_000
# How long a mirror that failed is left alone, at first and at most.
_REST, _LONGEST_REST = 1.0, 30.0
_WIDTH = 1 << 64


class _Busy(Exception):
    """As many reads are under way at the mirror as may be."""


@dataclass(frozen=True)
class _Grant:
    """What is known of the mirror while the run stands so: it ``holds`` all that was committed
    before that moment, but for the keys that lie ``aside``, and may be read ``until`` another."""

    standing: Standing
    holds: float
    until: float
    aside: frozenset[str]


@dataclass(frozen=True)
class _Heard:
    """The last word of a mirror, which was not there yet at ``after``; the last look was at
    ``looked``. ``by`` is the process whose word it is, and ``said`` when, by its own clock."""

    run: str
    by: object
    at: float
    after: float | None
    looked: float
    said: float = 0.0


@dataclass(frozen=True)
class _Pin:
    """A key that was given from the primary: the same content ``first`` and ``last``; its version
    where that is known."""

    first: float
    last: float
    version: str | None = None


@dataclass
class _Tally:
    """What was met since the sides were swapped last."""

    epoch: tuple[str, int, int]
    counts: dict[str, int] = field(default_factory=dict)
    primary: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    mirror: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    part: Part = field(default_factory=Part)
    changed: bool = False


class MirrorReading:
    """The reads of one gateway that its mirror may answer. ``patience``: for how many seconds a
    read waits for it. ``suspect`` takes keys that the mirror did not hold as it should."""

    def __init__(
        self,
        control: Control,
        cls: str,
        sides: Callable[[Standing], Sides],
        suspect: Callable[[Value], None],
        patience: float,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._control = control
        self._cls = cls
        self._sides = sides
        self._suspect = suspect
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._slots = threading.Semaphore(AT_ONCE)
        self._standing = Standing()
        self._stale = Share().stale
        self._heard: _Heard | None = None
        self._grant: _Grant | None = None
        self._pins: OrderedDict[bytes, _Pin] = OrderedDict()
        # All keys count as pinned at this moment.
        self._floor = 0.0
        self._failed = False
        self._rest, self._rests_until = _REST, 0.0
        self._tally = _Tally(("", 0, 0))
        self._doubts = ""
        self.share = 0.0

    # ------------------------------------------------------------------ on the lease's thread

    def renewed(self, standing: Standing) -> None:
        """Look at how large the share is now; called where the lease was renewed."""
        found, share = Share(), 0.0
        if may_share(standing):
            found = MirrorReads(self._control, standing.run).share()
            share = found.of(standing)
        doubts = ""
        if share:
            doubts = ShadowReads(self._control, standing.run).doubts(self._cls)
            if doubts and doubts != self._doubts:
                log.warning(
                    "the mirror answers no reads", run=standing.run, cls=self._cls, why=doubts
                )
        self._doubts = doubts
        self._obey(standing, 0.0 if doubts else share, found.stale)

    def _obey(self, standing: Standing, share: float, stale: float) -> None:
        with self._lock:
            if share > self.share:
                # What was read and written before was not remembered.
                self._floor = self._clock()
            if not share:
                self._pins.clear()
                self._grant = self._heard = None
            self._standing, self._stale = standing, stale
            self.share = share
            start = share and self._thread is None and not self._stop.is_set()
            if start:
                self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="mirror")
                self._thread = threading.Thread(target=self._work, name="reads", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ask the mirror nothing more, and report what was met."""
        self.share = 0.0
        self._stop.set()
        with self._lock:
            thread, pool = self._thread, self._pool
        if thread is not None:
            thread.join()
        if pool is not None:
            pool.shutdown()  # the stores are closed after this

    # ------------------------------------------------------------------ on the path of a call

    def take(self, key: Value) -> Shared | None:
        """A read of a key that the share takes; None for others."""
        form = self._form(key)
        return None if form is None else Shared(self, key, form)

    def wrote(self, key: Value, late: float = 0.0) -> None:
        """A key that this gateway wrote, or may have: call it before that is told to anybody.
        ``late``: for how many seconds a request for it may live on."""
        form = self._form(key)
        if form is not None:
            with self._lock:
                at = self._clock() + late
                self._pin(form, _Pin(at, at))

    def _form(self, key: Value) -> bytes | None:
        """What stands for a key that the share takes."""
        if not self.share:
            return None
        try:
            form = hashlib.blake2b(_spelled(key), digest_size=16).digest()
        except (TypeError, ValueError):
            return None  # it is no key: the primary says so
        return form if int.from_bytes(form[:8]) < self.share * _WIDTH else None

    def _pin(self, form: bytes, pin: _Pin) -> None:
        self._pins.pop(form, None)
        self._pins[form] = pin
        while len(self._pins) > PINNED:
            _, oldest = self._pins.popitem(last=False)
            self._floor = max(self._floor, oldest.last)

    def _why_not(self, standing: Standing, sides: Sides, key: Value, form: bytes) -> str:
        """Why the primary has to answer; empty where the mirror may. Call it under the lock."""
        grant, now = self._grant, self._clock()
        if not sides.mirror_speaks:
            return "shape"
        if grant is None or grant.standing is not standing or now >= grant.until:
            return "behind"
        if grant.holds <= self._floor:
            return "behind"
        if grant.aside and quarantine_key(key) in grant.aside:
            return "aside"
        pin = self._pins.get(form)
        if pin is not None and not _ripe(pin, grant):
            return "written"
        if self._failed:
            if now < self._rests_until:
                return "resting"
            # One read finds out; the others wait for what it finds.
            self._rests_until = now + self._patience + _REST
        return ""

    def _fetch(self, mirror: Collection, read: Callable[[Collection], T | None]) -> T | None:
        """What the mirror has. Raises _Busy, TimeoutError, and whatever the store raises."""
        pool = self._pool
        if pool is None or not self._slots.acquire(blocking=False):
            raise _Busy

        def fetch() -> T | None:
            try:
                return read(mirror)
            finally:
                self._slots.release()

        try:
            under_way = pool.submit(fetch)
        except RuntimeError:  # it is being closed
            self._slots.release()
            raise
        return under_way.result(self._patience)

    def _went(self, error: BaseException | None, *, first: bool) -> None:
        """How a read ended; ``first`` after a rest, or before any."""
        with self._lock:
            if error is None:
                self._failed, self._rest = False, _REST
            elif first or not self._failed:
                self._failed, self._rests_until = True, self._clock() + self._rest
                self._rest = min(self._rest * 2, _LONGEST_REST)
                why = str(error).partition("\n")[0] or type(error).__name__
                run = self._standing.run
                log.warning("the mirror did not answer", run=run, cls=self._cls, error=why)

    def _count(self, outcome: str, seconds: float | None = None) -> None:
        with self._lock:
            tally = self._tally
            tally.counts[outcome] = tally.counts.get(outcome, 0) + 1
            tally.changed = True
            if seconds is not None:
                (tally.mirror if outcome == "served" else tally.primary).append(seconds)

    # ------------------------------------------------------------------ on a thread of its own

    def _work(self) -> None:
        reported = time.monotonic()
        while not self._stop.wait(_LOOK):
            log_of(self._standing)
            try:
                if self.share:
                    self._look()
                if time.monotonic() - reported >= _REPORT:
                    reported = time.monotonic()
                    self._report()
            except MigratorError as error:
                log.warning("the mirror is not known", where=error.where, error=error.what)
            except Exception:  # whatever it is, the primary answers
                log.exception("the mirror is not known")
        try:
            self._report()
        except MigratorError as error:
            log.warning("reads by the mirror not reported", error=error.what)

    def _look(self) -> None:
        """Find out until when the mirror holds all that was written.

        Each word of a mirror's is made up after the one before was there, which a look of this
        gateway had not found yet: from there its age counts, and no two clocks are compared (R14).
        What lies in quarantine is read after it, so that nothing is missing there.
        """
        standing, now = self._standing, self._clock()
        number = self._sides(standing).route.number
        self._begin((standing.run, number, standing.epoch))
        at, told = LiveState(self._control, standing.run).told()
        held = told.get("held")
        held = held if isinstance(held, dict) and held["epoch"] == standing.epoch else {}
        by, last = held.get("by"), self._heard
        if last is not None and last.run != standing.run:
            last = None
        if last is not None and (last.by, last.at) == (by, at):
            self._heard = replace(last, looked=now)
            return
        said = held.get("said", 0.0)
        if last is not None and last.by == by and said < last.said:
            return  # an older one, which the control database carried out late
        after = None if last is None else last.looked
        self._heard = _Heard(standing.run, by, at, after, now, said)
        if not held or last is None or last.by != by or last.after is None:
            return
        aside = self._control.keys_aside(standing.run, number)
        with self._lock:
            if self.share and self._standing is standing:
                holds = last.after - held["age"]
                self._grant = _Grant(standing, holds, holds + self._stale, aside)

    # ------------------------------------------------------------------ reporting

    def _begin(self, epoch: tuple[str, int, int]) -> None:
        if self._tally.epoch == epoch:
            return
        self._report()
        with self._lock:
            self._tally = _Tally(epoch)

    def _report(self) -> None:
        with self._lock:
            tally = self._tally
            (run, move, epoch), changed = tally.epoch, tally.changed
            counts = dict(tally.counts)
            primary, mirror = list(tally.primary), list(tally.mirror)
            tally.changed = False
        if not run or not changed:
            return
        kept, took = MirrorReads(self._control, run), latencies(primary, mirror)
        try:
            tally.part.report(
                counts,
                lambda name, some, there: kept.keep(
                    move, epoch, Answered(name, some, took), there=there
                ),
            )
        except MigratorError:
            tally.changed = True
            raise


class Shared:
    """One read of a key that the share takes."""

    def __init__(self, reading: MirrorReading, key: Value, form: bytes) -> None:
        self._reading = reading
        self._key = key
        self._form = form
        self._began = time.perf_counter()
        self._outcome = "behind"

    @property
    def pinned(self) -> bool:
        """Whether the mirror may answer only with the very content that was given last."""
        reading = self._reading
        with reading._lock:
            grant, pin = reading._grant, reading._pins.get(self._form)
            return grant is not None and pin is not None and pin.last >= grant.holds

    def ask(
        self,
        standing: Standing,
        sides: Sides,
        read: Callable[[Collection], T | None],
        version: Callable[[T], str] | None = None,
    ) -> T | None:
        """The mirror's answer; None where the primary has to give one.

        ``version`` tells the content of an answer: without it no key is taken off its pin early.
        """
        reading = self._reading
        with reading._lock:
            self._outcome = reading._why_not(standing, sides, self._key, self._form)
            grant, pin = reading._grant, reading._pins.get(self._form)
            first = reading._failed
        if self._outcome:
            return None
        assert grant is not None
        try:
            found = reading._fetch(sides.mirror, read)
        except _Busy:
            self._outcome = "slow"
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, the primary answers
            self._outcome = "slow" if isinstance(error, TimeoutError) else "failed"
            reading._went(error, first=first)
            return None
        reading._went(None, first=first)
        self._outcome = "lagging"
        if found is None:
            return None
        seen = version(found) if pin is not None and version is not None else None
        with reading._lock:
            # Somebody may have written it, or been given a newer one, meanwhile.
            if reading._pins.get(self._form) is not pin or reading._floor >= grant.holds:
                return None
            if pin is not None:
                if pin.last >= grant.holds and pin.version != seen:
                    return None
                del reading._pins[self._form]
        reading._count("served", time.perf_counter() - self._began)
        return found

    def answered(self, version: Callable[[], str] | None, *, there: bool) -> None:
        """What the primary gave is about to be told; its version, where the whole was read."""
        reading = self._reading
        with reading._lock:
            grant, pin = reading._grant, reading._pins.get(self._form)
        # Without a grant nobody will ask, and without a pin it may well run out by itself.
        seen = version() if version is not None and pin is not None and grant is not None else None
        with reading._lock:
            first = last = reading._clock()
            if (pin := reading._pins.get(self._form)) is not None:
                same = seen is not None and pin.version == seen
                first = pin.first if same else max(first, pin.first)
                last = max(last, pin.last)
            reading._pin(self._form, _Pin(first, last, seen))
        if self._outcome == "lagging":
            if there:
                reading._suspect(self._key)
            else:
                self._outcome = "absent"
        reading._count(self._outcome, time.perf_counter() - self._began)


def _ripe(pin: _Pin, grant: _Grant) -> bool:
    """Whether a pinned key may be asked of the mirror: it holds what was given, or what it has can
    be told from it."""
    return pin.last < grant.holds or (pin.first < grant.holds and pin.version is not None)


def _spelled(key: Value) -> bytes:
    """A form of a key that is the same for all ways to write it which a store may take for one:
    in capitals, with blanks at its end, with accents or without."""
    match key:
        case bool():
            return encode(key)
        case int() | float() | Decimal():
            return b"%d" % hash(key)
        case str():
            if not key.isascii():
                parts = unicodedata.normalize("NFKD", key)
                key = "".join(part for part in parts if not unicodedata.combining(part))
            return key.casefold().rstrip().encode("utf-8", "surrogatepass")
        case list():
            return b"/".join(_spelled(item) for item in key)
    return encode(key)

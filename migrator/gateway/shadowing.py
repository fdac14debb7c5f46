"""Shadow reads by a gateway: a share of its reads, made again on both sides, off their path.

A read that was answered offers its key. A thread takes the keys that lie in a bounded queue,
reads each on both sides, and reports. Where it can't keep up, what is offered is dropped and
counted: no read ever waits for this, and none fails by it.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from migrator.errors import Interrupted, MigratorError, Waiting
from migrator.gateway.logs import log_of
from migrator.model.canonical import encode
from migrator.model.distinct import Distinct
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.retry import Retry
from migrator.state import Control, LiveState, Part, Reads, ShadowReads
from migrator.state.gateways import Standing
from migrator.state.shadow import MOST_NAMED

if TYPE_CHECKING:
    from migrator.engine.shadow import Shadow, Shadowed
    from migrator.model.explained import Explained
    from migrator.route import Route

log = structlog.get_logger("migrator.gateway")

WAITING = 1_000
"""Keys that wait to be read at most; more are dropped."""
_BATCH = 100
_GATHER = 0.2
_REPORT = 3.0
_TIMES = 1_000
# So often it is told at once what differs; after that seldom.
_OFTEN, _SELDOM = 20, 600.0


@dataclass
class _Tally:
    """What was found since the sides were swapped last."""

    epoch: tuple[str, int, int]
    counts: dict[str, int] = field(default_factory=dict)
    agreed: Distinct = field(default_factory=Distinct)
    primary: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    mirror: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    told: list[dict[str, object]] = field(default_factory=list)
    part: Part = field(default_factory=Part)
    more: int = 0
    changed: bool = False

    def count(self, name: str, number: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + number
        self.changed = self.changed or bool(number)

    def take(self, shadow: Shadow, found: Shadowed) -> None:
        """Add what one look found, also one that was broken off."""
        decided = 0
        for name in ("equal", "lagging", "moving", "explained", "mismatch", "quarantined",
                     "errors"):  # fmt: skip
            number = getattr(found, name)
            decided += number
            self.count(name, number)
        self.count("absent", found.absent)
        self.count("reads", decided)
        self.count("dropped", found.keys - decided)
        for key in shadow.agreed:
            self.agreed.add(encode(key))
        self.primary.extend(shadow.primary.times)
        self.mirror.extend(shadow.mirror.times)
        differ = [item for item in found.told if item.what in ("differs", "missing", "extra")]
        for item in differ:
            if len(self.told) < MOST_NAMED:
                self.told.append({"key": item.key, "what": item.what, "paths": item.paths})
        self.more += max(0, found.mismatch - len(differ)) + max(0, len(differ) - MOST_NAMED)


class ShadowReading:
    """The shadow reads of one gateway; ``share`` is what its settings say of them."""

    def __init__(
        self,
        control: Control,
        cls: str,
        route: Callable[[Standing], Route],
        standing: Callable[[], Standing],
        share: float,
        explained: tuple[Explained, ...],
    ) -> None:
        self._control = control
        self._cls = cls
        self._route = route
        self._standing = standing
        self._own = share
        self._explained = explained
        self._keys: queue.Queue[Value] = queue.Queue(WAITING)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._tally = _Tally(("", 0, 0))
        self._dropped = 0
        self._events = 0
        self._told_at = 0.0
        self.share = 0.0

    # ------------------------------------------------------------------ on a read's path

    def offer(self, key: Value) -> None:
        """A key that was read just now; it costs a read next to nothing."""
        if self.share and random.random() < self.share:  # noqa: S311
            self._put(key)

    def suspect(self, key: Value) -> None:
        """A key that the mirror did not hold as the primary does: whatever the share, it is told
        whether that was the lag."""
        self._start()
        self._put(key)

    def _put(self, key: Value) -> None:
        try:
            self._keys.put_nowait(key)
        except queue.Full:
            self._dropped += 1

    # ------------------------------------------------------------------ on the lease's thread

    def renewed(self, standing: Standing) -> None:
        """Look at how large the share is now; called where the lease was renewed."""
        share = 0.0
        if _can_compare(standing):
            kept = ShadowReads(self._control, standing.run).share()
            share = self._own if kept is None else kept
        self.share = share
        if share:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._work, name="shadow", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Read nothing more, and report what was found."""
        self.share = 0.0
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    # ------------------------------------------------------------------ on a thread of its own

    def _work(self) -> None:
        reported = time.monotonic()
        while not self._stop.is_set():
            try:
                self._look()
                if time.monotonic() - reported >= _REPORT:
                    reported = time.monotonic()
                    self._report()
            except Interrupted:
                break
            except MigratorError as error:
                log.warning("shadow reads not made", where=error.where, error=error.what)
                self._stop.wait(1.0)
            except Exception:  # whatever it is, the application's reads go on
                log.exception("shadow reads not made")
                self._stop.wait(1.0)
        self._dropped += self._keys.qsize()
        try:
            self._report(last=True)
        except MigratorError as error:
            log.warning("shadow reads not reported", error=error.what)

    def _look(self) -> None:
        """Read what waits, if something does."""
        try:
            keys = [self._keys.get(timeout=_GATHER)]
        except queue.Empty:
            return
        self._stop.wait(_GATHER)  # the more keys settle at once, the less it costs
        while len(keys) < _BATCH and not self._keys.empty():
            keys.append(self._keys.get_nowait())
        standing = self._standing()
        log_of(standing)
        tally = self._begun(standing)
        if not _can_compare(standing):
            self._dropped += len(keys)
            return
        shadow = self._shadow(standing)
        try:
            shadow.look_at(keys)
        except Waiting as why:  # no mirror, or a swap: nothing can be said of what differed
            log.info("shadow reads not settled", why=why.what)
        finally:
            if shadow.found is not None:
                tally.take(shadow, shadow.found)

    def _shadow(self, standing: Standing) -> Shadow:
        # The engine is loaded by a gateway that makes shadow reads, and by no other.
        from migrator.engine.settled import settler
        from migrator.engine.shadow import Shadow

        route = self._route(standing)
        settle = settler(self._control, standing.run, standing, [route], self._stop)
        live = LiveState(self._control, standing.run)

        def settled() -> None:
            if live.told()[1].get("scanning"):
                raise Waiting("the keys of both sides are compared anew")
            settle()

        aside = self._control.keys_aside(standing.run, route.number)
        return Shadow(
            route, standing.primary, settled, self._check, aside,
            Retry(stop=self._stop), self._explained,
        )  # fmt: skip

    def _check(self) -> None:
        if self._stop.is_set():
            raise Interrupted("the gateway is closed")

    # ------------------------------------------------------------------ reporting

    def _begun(self, standing: Standing) -> _Tally:
        """What is added up now; what was found before a swap of the sides is reported apart."""
        number = self._route(standing).number if standing.run else 0
        epoch = (standing.run, number, standing.epoch)
        if self._tally.epoch != epoch:
            self._report(last=True)
            self._tally = _Tally(epoch)
        return self._tally

    def _report(self, *, last: bool = False) -> None:
        tally, (run, move, epoch) = self._tally, self._tally.epoch
        if not run:
            return
        dropped, self._dropped = self._dropped, 0
        tally.count("dropped", dropped)
        kept = ShadowReads(self._control, run)
        if tally.told or tally.more:
            often = self._events < _OFTEN or time.monotonic() - self._told_at >= _SELDOM
            if often or last:
                kept.differed(self._cls, tally.told, tally.more)
                tally.told, tally.more = [], 0
                self._events, self._told_at = self._events + 1, time.monotonic()
        if tally.changed:
            found, agreed = latencies(tally.primary, tally.mirror), tally.agreed
            tally.part.report(
                tally.counts,
                lambda name, counts, there: kept.keep(
                    move, epoch, Reads(name, counts, agreed, found), there=there
                ),
            )
            tally.changed = False


def latencies(primary: Iterable[float], mirror: Iterable[float]) -> dict[str, float | None]:
    """The middle and the slow end of how long both sides took, by the names they are told by."""
    from migrator.engine.shadow import latency_of

    first, other = latency_of(primary), latency_of(mirror)
    return {
        "primary_median": first.median, "primary_p99": first.p99,
        "mirror_median": other.median, "mirror_p99": other.p99,
    }  # fmt: skip


def _can_compare(standing: Standing) -> bool:
    """Whether both sides hold everything, and nobody is swapping them."""
    there = standing.phase.rank >= Phase.BACKFILLED.rank and not standing.phase.ended
    return bool(standing.run) and standing.live and there and not standing.fence

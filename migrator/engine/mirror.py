"""The owner of a live run: the one process that writes its mirror (R2).

    planned -> prepared -> dual_write -> backfilled -> shadow_read <-> cut_over -> finished

It goes on, for days if need be: it acts on touches, and beside them takes the run to the phase
that was asked for. One batch is in work at a time, so what a page lists is never older than what
was last written for its keys (R4).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field, replace

import msgspec
import structlog

from migrator.engine.asker import Asker
from migrator.engine.bound import unfenced
from migrator.engine.catalogues import Catalogues
from migrator.engine.ending import (
    aborted,
    drop_copies,
    drop_sources,
    finished,
    refuse_abort,
    refuse_left_out,
    refuse_not_cut_over,
)
from migrator.engine.epochs import Epochs
from migrator.engine.guard import Bounds, Guard
from migrator.engine.held import Held
from migrator.engine.holders import Holders
from migrator.engine.lane import Lane
from migrator.engine.mending import Mending
from migrator.engine.occupied import WORK as CLEARED
from migrator.engine.occupied import clear
from migrator.engine.points import reached
from migrator.engine.reconcile import Done
from migrator.engine.run import record_verified, refuse_filled, refuse_unequal
from migrator.engine.spread import acquaint
from migrator.engine.swap import Swap, SwapTerms, let_go, mend, swap
from migrator.engine.throttle import Throttle
from migrator.engine.verify import Verification, verify
from migrator.engine.work import Scene
from migrator.errors import Interrupted, MigratorError, Refused, Terminal, Transient, Waiting
from migrator.journal import OTHER
from migrator.model.phase import Phase
from migrator.retry import Retry
from migrator.state import LiveState, Request, Run, Task, read_pace
from migrator.state.control import CONTROL

log = structlog.get_logger("migrator.mirror")

IDLE = 0.05
TELL_EVERY = 0.5
_SETTLING = "settle "
# After so many seconds without a word the guard speaks for the mirror.
_ALIVE_EVERY = 2.0
# Seconds after a store did not answer for as long as a request is repeated, or had no time.
_PAUSE = 0.5


class Problem(msgspec.Struct, frozen=True):
    """An error, as it goes through the control database to who asked."""

    kind: str
    what: str
    where: str
    hint: str


class Answer(msgspec.Struct, frozen=True):
    """What became of a request."""

    verified: list[Verification] = []
    swap: Swap | None = None
    problem: Problem | None = None


@dataclass
class _Verifying:
    """A verification that runs beside the mirror, reading only."""

    thread: threading.Thread
    since: int
    found: list[Verification] = field(default_factory=list)
    error: BaseException | None = None


class Mirror:
    """The owner of one run. ``run`` holds where it stands. ``mine`` is the number of what its own
    process asked for, and waits for."""

    def __init__(
        self,
        scene: Scene,
        request_life: float,
        bounds: Bounds | None = None,
        mine: int | None = None,
    ) -> None:
        self.scene = scene
        self.live = LiveState(scene.control, scene.run.id)
        self.throttle = Throttle(lambda: scene.retry(read_pace, scene.control, scene.run.id))
        self.lanes = [
            Lane(scene, route, self.live, request_life, self.throttle) for route in scene.routes
        ]
        acquaint([lane.reconciler for lane in self.lanes])
        self._swapped: Swap | None = None
        self._verified: list[Verification] = []
        self._verifying: _Verifying | None = None
        self._known = False
        self._copying: Lane | None = None
        # What the control database holds, and nobody but the owner changes: the ranges to copy by
        # move, and whether the source is being dropped.
        self._ranges: dict[int, list[Task]] = {}
        self._dropping: bool | None = None
        self._request: Request | None = None
        self._asker = Asker(mine)
        self._told = self._said = 0.0
        # The store that the last turn came to its end for, too early.
        self._waits = ""
        self._state: dict[str, object] = {}
        self._telling = threading.Lock()
        self._settled: list[str] = []
        self._settling = threading.Lock()
        self.request_life = request_life
        self.holders = Holders(self)
        self.epochs = Epochs(scene)
        self.catalogues = Catalogues(scene, self.lanes, self._stop_verifying)
        self.mending = Mending(scene, self.lanes)
        self.held = Held(lambda run: self.live.read_share().of(run) > 0)
        self.guard = None if bounds is None else Guard(self, bounds)
        for lane in self.lanes:
            # In a process, in which more than its thread is at work.
            lane.reconciler.at_once = self.guard is not None and not lane.route.in_process

    @property
    def run(self) -> Run:
        return self.scene.run

    def work(self, enough: Callable[[], bool] = lambda: False) -> None:
        """Mirror until ``enough``, until the run has ended, or until it is stopped.

        Raises Interrupted. What could not be done of a request is its answer, and no error here.
        """
        reached("run.started")
        try:
            self._begin()
            if self.guard is not None:
                self.guard.begin()
            while not self.run.phase.ended and not enough():
                self.scene.check()
                self.turn()
        finally:
            if self.guard is not None:
                self.guard.end()
            for lane in self.lanes:
                lane.close()
            self._stop_verifying()

    def _begin(self) -> None:
        """Take over from the owner before."""
        lease = self.scene.lease
        # Whoever comes after this process has to outwait them, too, where it does not come so far.
        lease.doubtful = lease.succeeded
        request = self._wanted()
        self._agree(request)
        if self._mirrors(request):
            self.catalogues.begin()
        self._mend(request)
        if lease.succeeded and self.run.phase is not Phase.PLANNED:
            self._outwait()
        lease.doubtful = False
        self._take_up()

    def _wanted(self, *, patient: bool = False) -> Request | None:
        """What was asked for and not answered yet, as long as somebody waits for that."""
        request, waits = self._heard(patient=patient)
        if request is None or waits is False:
            self._stop_verifying()  # who asks next wants to know how it is then
        if request is None or waits:
            return request
        if waits is False:
            log.warning("nobody waits for it any more", wanted=request.wanted)
            self.answer(request, self._nobody())
        return None

    def _heard(self, *, patient: bool) -> tuple[Request | None, bool | None]:
        """What was asked for, and whether somebody waits for that. ``patient``: behind a turn that
        took long it is looked at until that is clear, since the next one may take as long."""
        request = self.live.asked()
        while (waits := self._asker.waits(request)) is None and patient and self._asker.was_away:
            self.scene.check()
            time.sleep(IDLE)
            request = self.live.asked()
        return request, waits

    def _nobody(self) -> Waiting:
        return Waiting(
            "nobody was heard to wait for it any more: it was not begun",
            hint=f"ask again; see where it stands:  migrator status {self.run.revision}",
        )

    def still_wanted(self, *, patient: bool = False) -> bool:
        """Whether somebody waits for what is about to be done; False where that can't be told yet.
        Raises Waiting where nobody does, or where something else was asked for since."""
        request = self._request
        if request is None or request.renewed is None:
            return True
        now, waits = self._heard(patient=patient)
        if now is None or now.number != request.number:
            raise Waiting(
                "it was taken back, or something else was asked for, before it was begun: nothing "
                "has changed",
                hint=f"see where it stands:  migrator status {self.run.revision}",
            )
        if waits is False:
            raise self._nobody()
        return bool(waits)

    def _agree(self, request: Request | None) -> None:
        """Go by the control row only where the stores hold the same epoch (R15). Raises Refused,
        and so answers what was asked for: it must not be done later, when nobody looks."""
        leaving = self._left(request)
        try:
            self.epochs.check(leaving=leaving)
            if leaving:
                return
            if Phase.DUAL_WRITE.rank <= self.run.phase.rank and not self.run.phase.ended:
                self.epochs.begin()
        except Refused as error:
            if (request := self.live.asked()) is not None:
                self.answer(request, error)
            raise

    def _mend(self, request: Request | None) -> None:
        """End a swap that was begun. One back that was flipped has to be ended on both sides: where
        one is left as it is, the end of the run does so."""
        flipped = self.run.fence in ("flipped", "marked")
        if self.run.fence and not (flipped and self._left(request)):
            mend(self)

    def _take_up(self) -> None:
        """What was refused before may go over now: look at everything once more."""
        moves = {item.move for item in self.scene.control.quarantined(self.run.id)}
        moves.update(item.move for item in self.live.ledger())
        for lane in self.lanes:
            if lane.route.number in moves and self.run.phase.rank >= Phase.BACKFILLED.rank:
                lane.take_up()

    def _outwait(self) -> None:
        """Wait until no request of an owner that died can be carried out any more (R2, R6)."""
        log.warning("waits for the last requests of the mirror before", seconds=self.request_life)
        began = time.monotonic()
        while (waited := time.monotonic() - began) < self.request_life:
            self.scene.check()
            # What is written to the primary meanwhile is not read, and so far it is behind.
            self.tell(waits="the last requests of the mirror before", lag=waited)
            time.sleep(IDLE)

    def turn(self) -> None:
        """Act on what there is of touches, and take one step of what was asked for."""
        self.epochs.look()
        if self.run.fence:
            self._mend(self._wanted())  # an attempt whose end could not be written
        request = self._request = self._wanted(patient=True)
        if not (mirrors := self._mirrors(request)):
            self._waits = ""
        else:
            self.catalogues.look()
            try:
                self.mirror()
            except Terminal:
                if not self.catalogues.explains():
                    raise
            except Transient as error:
                if error.where == CONTROL:
                    raise
                # What was in hand is taken up again, whenever the store answers.
                self._waits = error.head
                log.warning("mirror waits", where=error.where, error=error.what, seconds=_PAUSE)
                self.scene.stop.wait(_PAUSE)
            else:
                self._waits = ""
            if self.run.phase.rank >= Phase.BACKFILLED.rank:
                self.mending.turn(time.monotonic())
            if self.run.phase is Phase.SHADOW_READ:
                self.held.turn(self.run, self.lanes)
        self.tell(waits=self._waits)
        if request is None:
            if self.run.phase.rank < Phase.DUAL_WRITE.rank:
                time.sleep(IDLE)
            return
        try:
            done = self._step(Phase(request.wanted), request)
        except Interrupted:
            raise
        except MigratorError as error:
            perhaps = mirrors and isinstance(error, Terminal) and not self.run.fence
            if perhaps and self.catalogues.explains():
                return
            log.warning("not done", wanted=request.wanted, error=error.what)
            # A change of the row may have been carried out, and only its answer lost.
            self.scene.run = self.scene.retry(self.scene.control.run, self.run.id)
            self.answer(request, error)
            if self._left(request):
                raise  # the epoch of that side was not looked at: nothing may be mirrored
        else:
            if done:
                self.answer(request)

    def answer(self, request: Request, error: MigratorError | None = None) -> None:
        """Tell who asked what became of it."""
        answer = Answer(verified=self._verified, swap=self._swapped)
        if error is not None:
            told = Problem(
                kind=type(error).__name__, what=error.what, where=error.where, hint=error.hint
            )
            answer = Answer(problem=told)
        self._verified, self._swapped = [], None
        self.live.answer(request.number, msgspec.to_builtins(answer))

    def _mirrors(self, request: Request | None) -> bool:
        """Whether writes are mirrored now. Not where somebody wants to leave the move, and may:
        whatever keeps the mirror from its work must not keep them from that."""
        leaves = request is not None and request.wanted == Phase.ABORTED.value
        if leaves and self.run.primary == "source":
            return False
        begun = self.run.phase.rank >= Phase.DUAL_WRITE.rank and not self.run.phase.ended
        return begun and not self._ending()

    def _left(self, request: Request | None) -> str:
        """The side that somebody who may leave the move wants to leave as it is, since its store is
        down for good."""
        if request is None or request.wanted != Phase.ABORTED.value:
            return ""
        return (
            "target" if self.run.primary == "source" and request.terms.get("leave_target") else ""
        )

    def _ending(self) -> bool:
        """Whether the source is being dropped, so that nothing is mirrored any more."""
        if self.run.phase is not Phase.CUT_OVER:
            return False
        if self._dropping is None:
            self._dropping = bool(self.scene.control.tasks(self.run.id, 0, "finish"))
        return self._dropping

    def mirror(self) -> None:
        """One turn of each move: attach what is not, and act on touches."""
        busy = False
        for lane in self.lanes:
            lane.attach(self.run.primary)
            if self.run.phase.rank >= Phase.BACKFILLED.rank:
                # What somebody else writes there is seen, also late by who knew it as primary.
                lane.attach(OTHER[self.run.primary])
            busy |= lane.turn(self.run.primary, 0.0 if busy else self._patience())

    def _patience(self) -> float:
        """How long to wait for a touch: not at all while pages are to be copied or compared."""
        scans = any(lane.scanning and not lane.scan_waits for lane in self.lanes)
        more = scans or self._next_page() is not None
        return 0.0 if more and self.throttle.ready() else IDLE

    # ------------------------------------------------------------------ towards a phase

    def _step(self, wanted: Phase, request: Request) -> bool:
        """One step towards a phase; whether it is reached."""
        terms = msgspec.convert(request.terms, SwapTerms)
        phase = self.run.phase
        if wanted.ended and not self.still_wanted(patient=True):
            return False  # what came first in this turn may have waited for a store
        if wanted is Phase.ABORTED:
            self._abort(request, terms)
            return True
        if wanted is Phase.FINISHED:
            self._finish(request, terms)
            return True
        swaps = {phase, wanted} == {Phase.SHADOW_READ, Phase.CUT_OVER}
        if swaps and any(lane.scanning for lane in self.lanes):
            return False  # both sides are being compared key by key: after that
        if phase is Phase.CUT_OVER:
            if wanted is Phase.SHADOW_READ:
                self._swap("source", Phase.SHADOW_READ, terms)
            return True
        if phase is Phase.SHADOW_READ and wanted is Phase.CUT_OVER:
            self._swap("target", Phase.CUT_OVER, terms)
            return True
        if phase.rank >= wanted.rank:
            return True
        steps: dict[Phase, Callable[[], None]] = {
            Phase.PLANNED: self._prepare,
            Phase.PREPARED: self._attach,
            Phase.DUAL_WRITE: self._page,
            Phase.BACKFILLED: self._compare,
        }
        steps[phase]()
        return self.run.phase.rank >= wanted.rank

    def reach(
        self, phase: Phase, *, primary: str | None = None, fence: str | None = None,
        **detail: object,
    ) -> None:  # fmt: skip
        """Persist a phase, then let it take effect."""
        self.scene.run = self.scene.control.advance(
            self.run, phase, primary=primary, fence=fence, **detail
        )
        log.info("phase", run=self.run.id, phase=phase.value, primary=self.run.primary)
        self.scene.watcher.phase(self.run)

    def _prepare(self) -> None:
        refuse_filled(self.scene.plan, self.scene.routes, self.scene.retry)
        for route in self.scene.routes:
            self.scene.retry(route.target.create)
        for lane in self.lanes:
            lane.reconciler.prepare()
        reached("prepare.created")
        self.reach(Phase.PREPARED)

    def _attach(self) -> None:
        """From here on every write to the primary reaches the mirror."""
        self.holders.able(Phase.DUAL_WRITE)
        self.epochs.begin()
        self.catalogues.begin()
        for lane in self.lanes:
            lane.attach("source")
        self.reach(Phase.DUAL_WRITE)

    # ------------------------------------------------------------------ backfill

    def _next_page(self) -> tuple[Lane, Task] | None:
        """The next range to copy from, None where there is none to be copied now."""
        if self.run.phase is not Phase.DUAL_WRITE or self._request is None:
            return None
        for lane in self.lanes:
            for task in self._tasks(lane):
                if not task.done:
                    return lane, task
        return None

    def _tasks(self, lane: Lane) -> list[Task]:
        route = lane.route
        if route.number not in self._ranges:
            planned = self.scene.planned(route)
            self._ranges[route.number] = self.scene.tasks(
                route, "backfill", lambda: lane.copying.split(planned.ranges)
            )
        return self._ranges[route.number]

    def _copying_may_begin(self) -> bool:
        self._known = self._known or self.holders.know()
        return self._known

    def _page(self) -> None:
        """Copy one page, behind a checkpoint (R4), once every write leaves a touch (R9)."""
        if not self._copying_may_begin():
            return
        found = self._next_page()
        if found is None:
            if any(clear(self.scene, lane) for lane in self.lanes):
                return
            for lane in self.lanes:
                cleared = self.scene.control.tasks(self.run.id, lane.route.number, CLEARED)
                copied = _counts([*self._tasks(lane), *cleared])
                self.scene.control.record(self.run.id, "copied", cls=lane.route.cls, **copied)
                self.scene.retry(lane.route.target.settle)
            if self._copying is not None:
                self.scene.watcher.ends("backfill", self._copying.route.cls)
            self.reach(Phase.BACKFILLED)
            return
        if not self.throttle.ready():
            return  # touches alone are acted on
        lane, task = found
        if self._copying is not lane:
            self._copying = lane
            read = _counts(self._tasks(lane)).get("read", 0)
            self.scene.watcher.begins(
                "backfill", lane.route.cls, read, self.scene.planned(lane.route).read
            )
        route, limit = lane.route, self.throttle.limit(self.scene.planned(lane.route).page)
        began = time.monotonic()
        page = lane.copying.copy(task.range, task.position, limit)
        reached("page.written")
        counts = {"read": page.read, **page.done.__dict__}
        further = replace(
            task,
            position=page.next,
            done=page.next is None,
            counts={name: task.counts.get(name, 0) + n for name, n in counts.items()},
        )
        self.scene.retry(self.scene.control.checkpoint, self.run.id, further)
        ranges = self._ranges[route.number]
        ranges[ranges.index(task)] = further
        reached("page.checkpointed")
        self.throttle.copied(page.blocks)
        touched = sum(each.touched for each in self.lanes)
        self.throttle.yields(time.monotonic() - began, touched)
        self.scene.watcher.advances("backfill", route.cls, page.read, page.bytes)

    # ------------------------------------------------------------------ comparing

    def _compare(self) -> None:
        """Compare both sides beside the mirror; only equal sides go on."""
        if any(lane.scanning for lane in self.lanes):
            return
        if self._verifying is None:
            self._verify()
            return
        verifying = self._verifying
        if verifying.thread.is_alive():
            return
        verifying.thread.join()
        self._verifying = None
        if verifying.error is not None:
            raise verifying.error
        self._verified = verifying.found
        record_verified(self.scene, verifying.found, verifying.since)
        revision = self.scene.plan.revision
        mended = f"\nhave the mirror reconcile them:  migrator verify {revision} --mend"
        refuse_unequal(verifying.found, revision, mended)
        self.reach(Phase.SHADOW_READ)

    def _verify(self) -> None:
        stop = threading.Event()
        # Who ends it waits for no store's sake: the owner has other things to do.
        retry = Retry(stop=stop, check=self.scene.retry.check)
        scene = replace(self.scene, stop=stop, retry=retry)
        scene.settle = lambda: self.settle(scene.check)

        def compare() -> None:
            try:
                for route in self.scene.routes:
                    verifying.found.append(verify(scene, route))
            except BaseException as error:  # noqa: BLE001 - raised again by the owner's thread
                verifying.error = error

        verifying = _Verifying(
            threading.Thread(target=copy_context().run, args=[compare], name="verify", daemon=True),
            self.scene.control.newest(self.run.id),
        )
        self._verifying = verifying
        self._stop_compare = stop
        verifying.thread.start()

    def _stop_verifying(self) -> None:
        if self._verifying is not None:
            self._stop_compare.set()
            self._verifying.thread.join()
            self._verifying = None

    def settle(self, check: Callable[[], None]) -> None:
        """Wait, in another thread than the owner's, until the mirror holds all that has been
        written to the primary until now. ``check`` raises where that is to be given up."""
        with self._settling:
            primary = self.run.primary
            for lane in self.lanes:
                losses, mark = -1, settling()
                # Of a feed that was lost it proves nothing until both sides are scanned.
                while lane.scanning or not lane.has_mark(primary, mark):
                    check()
                    if losses != lane.losses(primary):
                        losses = lane.losses(primary)  # a marker went with the feed that was lost
                        self.scene.retry(lane.journal(primary).mark, mark)
                    time.sleep(0.002)

    # ------------------------------------------------------------------ swapping, leaving, ending

    def _swap(self, to: str, phase: Phase, terms: SwapTerms) -> None:
        self._swapped = swap(self, to, phase, terms)
        self.swapped(self._swapped)

    def swapped(self, done: Swap) -> None:
        """Keep in the run's record what a swap took."""
        self.scene.control.record(
            self.run.id, "rehearsed" if done.rehearsed else "swapped", to=done.to,
            pause=done.pause, **done.steps,
        )  # fmt: skip

    def _abort(self, request: Request, terms: SwapTerms) -> None:
        drop_target, leaving = terms.drop_target, self._left(request)
        refuse_abort(self.scene, drop_target=drop_target)
        self._stop_verifying()
        for lane in self.lanes:
            lane.drop(leaving=leaving)
        drop_copies(self.scene, drop_target=drop_target, leaving=leaving)
        self.epochs.drop(leaving=leaving)
        if leaving:
            self.scene.control.record(self.run.id, "left as it is", side=leaving)
        if self.run.fence:
            let_go(self)
        how = aborted(drop_target=drop_target, leaving=leaving)
        self.reach(Phase.ABORTED, fence="", request=request.number, **how)

    def _finish(self, request: Request, terms: SwapTerms) -> None:
        refuse_not_cut_over(self.run)
        if not terms.keep_source:
            refuse_left_out(self.scene, terms.accept_keys)
            self._dropping = None  # asked anew, should this fail midway
            drop_sources(self.scene)
        for lane in self.lanes:
            lane.drop()
        self.epochs.drop()
        how = finished(keep_source=terms.keep_source)
        self.reach(Phase.FINISHED, request=request.number, **how)

    # ------------------------------------------------------------------ telling

    def _marks(self) -> list[str]:
        """The markers of who waits for the mirror to hold what was written before them; none of
        those of a feed that was lost, until both sides are scanned."""
        lanes = (lane for lane in self.lanes if not lane.scanning)
        marks = (mark for lane in lanes for mark in lane.marks(self.run.primary))
        return [mark for mark in marks if mark.startswith(_SETTLING)]

    def lag(self) -> float:
        """Seconds by which the mirror is behind, of the worst lane."""
        return max((lane.lag for lane in self.lanes), default=0.0)

    def tell(self, *, waits: str = "", lag: float = 0.0) -> None:
        """Say how things stand, where that was not done just now; ``waits`` as in LiveStatus."""
        marks = self._marks()
        if self._told + TELL_EVERY > time.monotonic() and marks == self._settled:
            return
        self._settled = marks
        self._told = time.monotonic()
        total = Done()
        for lane in self.lanes:
            total.add(lane.reconciler.total)
        copied = [_counts(self.scene.control.tasks(self.run.id, lane.route.number, "backfill"))
                  for lane in self.lanes]  # fmt: skip
        self._say(
            settled=marks, lag=round(max(lag, self.lag()), 3),
            scanning=any(lane.scanning for lane in self.lanes),
            read=sum(c.get("read", 0) for c in copied), mirrored=total.__dict__,
            touched=sum(lane.touched for lane in self.lanes),
            brackets=sum(lane.brackets for lane in self.lanes), waits=waits,
            holders=self.holders.waits,
            unfenced=[side for side in OTHER if any(unfenced(lane, side) for lane in self.lanes)],
            reading={lane.route.cls: lane.is_reading(self.run.primary) for lane in self.lanes
                     if self.run.phase.rank >= Phase.DUAL_WRITE.rank},
        )  # fmt: skip

    @property
    def waits(self) -> str:
        """The stores that it waits for, and why; empty for none."""
        all_ = self.scene.retry.waits, *(lane.reconciler.waits for lane in self.lanes)
        return "; ".join(filter(None, all_)) or self._waits

    def still_there(self, feeds: list[dict[str, object]]) -> None:
        """Say the same from the guard's thread, while this one may wait for a store: by how much
        the mirror is behind by now, what it waits for, and what feeds keep."""
        if time.monotonic() > self._said + _ALIVE_EVERY:
            self._say(lag=round(self.lag(), 3), waits=self.waits, feeds=feeds)
        elif feeds != self._state.get("feeds", []):
            self._say(feeds=feeds)

    def _say(self, **changes: object) -> None:
        with self._telling:
            self._state |= changes
            self._state["held"] = self.held.told()
            self.live.tell(**self._state)
            self._said = time.monotonic()


def settling() -> str:
    """A new marker for the feed of a primary: the mirror tells when it has met it."""
    return f"{_SETTLING}{secrets.token_hex(8)}"


def _counts(tasks: list[Task]) -> dict[str, int]:
    total: dict[str, int] = {}
    for task in tasks:
        for name, count in task.counts.items():
            total[name] = total.get(name, 0) + count
    return total


__all__ = ["Answer", "Mirror", "settling"]

"""The owner of a live run: the one process that writes its mirror (R2).

    planned -> prepared -> dual_write -> backfilled -> shadow_read <-> cut_over -> finished

It goes on, for days if need be: it acts on touches, and beside them takes the run to the phase
that was asked for. One batch is in work at a time, so what a page lists is never older than what
was last written for its keys (R4).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
import structlog

from migrator.engine.catalogues import Catalogues
from migrator.engine.comparing import Comparing
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
from migrator.engine.pages import Pages
from migrator.engine.points import reached
from migrator.engine.requests import Requests
from migrator.engine.run import refuse_filled, refuse_unequal
from migrator.engine.spread import acquaint
from migrator.engine.swap import Swap, SwapTerms, let_go, mend, swap
from migrator.engine.telling import Telling
from migrator.engine.throttle import Throttle
from migrator.engine.work import Scene
from migrator.errors import Interrupted, MigratorError, Refused, Terminal, Transient
from migrator.journal import OTHER
from migrator.model.phase import Phase
from migrator.state import LiveState, Quarantined, Request, Run, read_pace
from migrator.state.database import CONTROL

log = structlog.get_logger("migrator.mirror")

_IDLE = 0.05
# Seconds after a store did not answer for as long as a request is repeated, or had no time.
_PAUSE = 0.5


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
        self.request_life = request_life
        self.comparing = Comparing(scene, self.lanes)
        self.requests = Requests(scene, self.live, mine, self.comparing.stop)
        self.holders = Holders(self)
        self.pages = Pages(scene, self.lanes, self.throttle, self.holders.know)
        self.epochs = Epochs(scene)
        self.catalogues = Catalogues(scene, self.lanes, self.comparing.stop)
        self.mending = Mending(scene, self.lanes)
        self.held = Held(lambda run: self.live.read_share().of(run) > 0)
        self.telling = Telling(scene, self.live, self.lanes, self.holders, self.held)
        self.guard = None if bounds is None else Guard(scene, self.lanes, self.telling, bounds)
        # Whether the source is being dropped, as the control database holds it: nobody but the
        # owner changes it there.
        self._dropping: bool | None = None
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
            self.comparing.stop()

    def _begin(self) -> None:
        """Take over from the owner before."""
        lease = self.scene.lease
        # Whoever comes after this process has to outwait them, too, where it does not come so far.
        lease.doubtful = lease.succeeded
        request = self.requests.take()
        self._agree(request)
        if self._mirrors(request):
            self.catalogues.begin()
        self._mend(request)
        if lease.succeeded and self.run.phase is not Phase.PLANNED:
            self._outwait()
        lease.doubtful = False
        self._take_up()

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
            self.requests.refuse(error)
            raise

    def _mend(self, request: Request | None) -> None:
        """End a swap that was begun. One back that was flipped has to be ended on both sides: where
        one is left as it is, the end of the run does so."""
        flipped = self.run.fence in ("flipped", "marked")
        if self.run.fence and not (flipped and self._left(request)):
            mend(self)

    def _take_up(self) -> None:
        """What was refused before may go over now: look at everything once more."""
        if self.run.phase.rank >= Phase.BACKFILLED.rank:
            self._look_again([*self.scene.control.quarantined(self.run.id), *self.live.ledger()])

    def _look_again(self, items: Sequence[Quarantined]) -> None:
        moves = {item.move for item in items}
        for lane in self.lanes:
            if lane.route.number in moves:
                lane.take_up()

    def _outwait(self) -> None:
        """Wait until no request of an owner that died can be carried out any more (R2, R6)."""
        log.warning("waits for the last requests of the mirror before", seconds=self.request_life)
        began = time.monotonic()
        while (waited := time.monotonic() - began) < self.request_life:
            self.scene.check()
            # What is written to the primary meanwhile is not read, and so far it is behind.
            self.telling.tell(waits="the last requests of the mirror before", lag=waited)
            time.sleep(_IDLE)

    def turn(self) -> None:
        """Act on what there is of touches, and take one step of what was asked for."""
        self.epochs.look()
        if self.run.fence:
            self._mend(self.requests.take())  # an attempt whose end could not be written
        request = self.requests.current = self.requests.take(patient=True)
        if not (mirrors := self._mirrors(request)):
            self.telling.stalled = ""
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
                self.telling.stalled = error.head
                log.warning("mirror waits", where=error.where, error=error.what, seconds=_PAUSE)
                self.scene.stop.wait(_PAUSE)
            else:
                self.telling.stalled = ""
            if self.run.phase.rank >= Phase.BACKFILLED.rank:
                self.mending.turn(time.monotonic())
            if self.run.phase is Phase.SHADOW_READ:
                self.held.turn(self.run, self.lanes)
        self.telling.tell(waits=self.telling.stalled)
        if request is None:
            if self.run.phase.rank < Phase.DUAL_WRITE.rank:
                time.sleep(_IDLE)
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
            self.requests.answer(request, error)
            if self._left(request):
                raise  # the epoch of that side was not looked at: nothing may be mirrored
        else:
            if done:
                self.requests.answer(request)

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
        copies = self.run.phase is Phase.DUAL_WRITE and self.requests.current is not None
        more = scans or (copies and self.pages.next() is not None)
        return 0.0 if more and self.throttle.ready() else _IDLE

    # ------------------------------------------------------------------ towards a phase

    def _step(self, wanted: Phase, request: Request) -> bool:
        """One step towards a phase; whether it is reached."""
        terms = msgspec.convert(request.terms, SwapTerms)
        phase = self.run.phase
        if wanted.ended and not self.requests.still_wanted(patient=True):
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
            Phase.DUAL_WRITE: self._copy,
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

    def _copy(self) -> None:
        if self.pages.turn():
            self.reach(Phase.BACKFILLED)

    def _compare(self) -> None:
        """Only equal sides go on."""
        if any(lane.scanning for lane in self.lanes):
            return
        found = self.comparing.turn()
        if found is None:
            return
        self.requests.verified = found
        revision = self.scene.plan.revision
        mended = f"\nhave the mirror reconcile them:  migrator verify {revision} --mend"
        refuse_unequal(found, revision, mended)
        self.reach(Phase.SHADOW_READ)

    # ------------------------------------------------------------------ swapping, leaving, ending

    def _swap(self, to: str, phase: Phase, terms: SwapTerms) -> None:
        self.requests.swap = done = swap(self, to, phase, terms)
        self.swapped(done)

    def swapped(self, done: Swap) -> None:
        """Keep in the run's record what a swap took."""
        self.scene.control.record(
            self.run.id, "rehearsed" if done.rehearsed else "swapped", to=done.to,
            pause=done.pause, **done.steps,
        )  # fmt: skip
        if done.to == "source" and not done.rehearsed:
            # What was accepted by name lies on the target as it was not written back, and no touch
            # will tell: the next cut-over would make it the truth.
            self._look_again(self.live.ledger())

    def _abort(self, request: Request, terms: SwapTerms) -> None:
        drop_target, leaving = terms.drop_target, self._left(request)
        refuse_abort(self.scene, drop_target=drop_target)
        self.comparing.stop()
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


__all__ = ["Mirror"]

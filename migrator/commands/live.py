"""Live moves: the mirror, and what is asked of it.

The mirror is the one process that carries a live run on. A command asks it for a phase and waits
for the answer; where no mirror is running, the command is the mirror until then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import msgspec
import structlog

from migrator import errors
from migrator.commands.feeds import feed_bound
from migrator.commands.patience import LONG, is_next, only_waits, patient
from migrator.commands.project import Project
from migrator.commands.started import (
    Applied,
    Terms,
    applied,
    frozen_plan,
    refuse_changed,
    taken_up,
    unfinished,
)
from migrator.engine.asker import RENEW_EVERY
from migrator.engine.ending import ended
from migrator.engine.followers import Followers
from migrator.engine.guard import Bounds
from migrator.engine.mirror import Mirror
from migrator.engine.requests import Answer
from migrator.engine.settled import GONE, Heard
from migrator.engine.swap import SwapTerms
from migrator.engine.work import Nobody, Scene, Watcher
from migrator.errors import Interrupted, MigratorError, Refused, Transient, Waiting
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.retry import Retry
from migrator.state import Lease, LiveState, Run
from migrator.state.database import CONTROL
from migrator.state.gateways import Gateways

_LOOK = 0.1
_STAND_BY = 1.0

log = structlog.get_logger("migrator.mirror")


def apply_live(
    project: Project,
    made: Plan,
    until: Phase,
    terms: Terms,
    watcher: Watcher | None,
    stop: threading.Event | None,
) -> Applied:
    """Carry a live plan out up to a phase."""
    with Lease(project.control, f"{project.settings.env}/{made.revision}"):
        if unfinished(project, made.revision) is None:
            _able(project, made, stop)
        taken_up(project, made.revision, made, terms)
    swap = msgspec.structs.replace(terms.swap, accept_keys=tuple(terms.accept_keys))
    return ask(project, made.revision, until, swap, watcher, stop)


def _able(project: Project, made: Plan, stop: threading.Event | None) -> None:
    """See that all that hold leases can follow, before a run begins: those of older versions would
    refuse their calls from its beginning. Raises Waiting."""

    def check() -> None:
        if stop is not None and stop.is_set():
            raise Interrupted("stopped, nothing has begun")

    routes = project.routes(made.revision, made)
    followers = Followers(Gateways(project.control), made.revision, routes)
    followers.gate(Phase.DUAL_WRITE, check)


def end_live(project: Project, revision: str, wanted: Phase, terms: SwapTerms) -> Run:
    """Abort or finish a live run."""
    return project.control.run(ask(project, revision, wanted, terms).run)


def ask(
    project: Project,
    revision: str,
    wanted: Phase,
    terms: SwapTerms,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
) -> Applied:
    """Ask a run's mirror for a phase, and wait. Raises what kept the mirror from it."""
    run = project.control.run(revision)
    if run.phase.ended:
        raise ended(project.control, run)[0]
    structlog.contextvars.bind_contextvars(run=run.id)
    asked = _Asked(project, run, wanted, terms)
    told = asked.answer(watcher or Nobody(), stop or threading.Event())
    answer = msgspec.convert(told, Answer)
    if (problem := answer.problem) is not None:
        made: type[MigratorError] = getattr(errors, problem.kind, errors.Failed)
        raise made(problem.what, where=problem.where, hint=problem.hint)
    return applied(project.control.run(asked.run.id), answer.verified, answer.swap)


class _Asked:
    """A request, and who waits for it: until then another process is the mirror, or this one."""

    def __init__(self, project: Project, run: Run, wanted: Phase, terms: SwapTerms) -> None:
        self.run = run
        self._project = project
        self._wanted = wanted
        self._terms = terms
        self._live = LiveState(project.control, run.id)
        self._heard = Heard(self._live)
        # What only copies may go on when nobody waits for it any more.
        self._copies = run.phase is not Phase.CUT_OVER and wanted.rank < Phase.CUT_OVER.rank
        # Before an abort nothing is mirrored, so that no store keeps it from being begun.
        self._patient = not self._copies and wanted is not Phase.ABORTED
        plain = msgspec.to_builtins(terms)
        self._number = self._live.ask(wanted.value, plain, renewed=not self._copies)
        self._renewed = time.monotonic()

    def answer(self, watcher: Watcher, stop: threading.Event) -> dict[str, object]:
        """What became of it. A swap or an end of a run that nobody waits for is taken back."""
        try:
            while (told := self._answered()) is None:
                try:
                    self._be_the_mirror(watcher, stop)
                except Owned:
                    self._look_on(watcher, stop)
        except BaseException:
            if not self._copies:
                with suppress(MigratorError):
                    self._live.withdraw(self._number)
            raise
        return told

    def _answered(self) -> dict[str, object] | None:
        return self._live.answered(self._number)

    def _be_the_mirror(self, watcher: Watcher, stop: threading.Event) -> None:
        project = self._project
        with ExitStack() as stack:
            if self._patient:
                stop, watched = stack.enter_context(patient(self.run, stop))
            scene = stack.enter_context(owning(project, self.run, watcher, stop))
            life, bounds = project.settings.request_life, _bounds(project)
            if not scene.run.phase.ended:
                owner = Mirror(scene, life, bounds, mine=self._number)
                if self._patient:
                    watched(owner)
                owner.work(lambda: self._answered() is not None)
            if scene.run.phase.ended and self._answered() is None:
                # By what somebody else asked for, or a mirror died before it could say so.
                over, number = ended(project.control, scene.run)
                if number != self._number:
                    raise over
                self._live.answer(self._number, {})

    def _look_on(self, watcher: Watcher, stop: threading.Event) -> None:
        """Look on while another process carries it out, as long as that does. Raises Waiting where
        it holds its lease and does not, for long."""
        run = self.run
        if self._terms.leave_target:  # it may wait for that very store, and look at nothing else
            raise Waiting(
                "the mirror is running", hint="stop it, then run the same command again"
            ) from None
        if not self._wait(watcher, stop):
            raise _silent(run, copies=self._copies) from None
        moves = self._project.moves(run.revision)
        stores = {move.target.store for move in moves}
        if self._wanted is Phase.ABORTED:
            waits = self._heard.waits(stores)
            if waits and self._answered() is None:
                raise _stuck(run, waits) from None
        elif self._patient:
            stores |= {at.store for move in moves for at in move.reads().values()}
            waits = self._heard.waits(stores, LONG)
            left = waits and self._answered() is None
            if left and is_next(self._project.control.run(run.id)):
                raise only_waits(run, waits) from None

    def _wait(self, watcher: Watcher, stop: threading.Event) -> bool:
        """Until it is answered, or the mirror has perhaps ended: who asks takes its place then.
        False where it has said nothing for long."""
        phase = self.run.phase
        while self._answered() is None:
            self._renew()
            if stop.wait(_LOOK):
                raise Interrupted(
                    "stopped looking; the mirror goes on"
                    if self._copies
                    else "stopped, and taken back; what the mirror has begun of it goes on"
                )
            silent, _ = self._heard.look()
            if silent > GONE:
                return False
            if silent > _STAND_BY:
                return True
            run = self._project.control.run(self.run.id)
            if run.phase is not phase:
                phase = run.phase
                watcher.phase(run)
        return True

    def _renew(self) -> None:
        """Say that somebody still waits for it."""
        if not self._copies and time.monotonic() >= self._renewed + RENEW_EVERY:
            self._live.renew(self._number)
            self._renewed = time.monotonic()


def mirror(
    project: Project,
    revision: str,
    *,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
) -> Run:
    """Be the mirror of a run until it ends; stand by while another process is."""
    stop = stop or threading.Event()
    revision = project.revision_id(revision)
    if not project.control.runs(revision):
        raise Refused(
            f"no run of {revision} has begun in environment {project.settings.env}",
            hint=f"begin it:  migrator apply {revision} --live --until prepared",
        )
    run = project.control.run(revision)
    if not run.live:
        raise Refused(
            f"{revision} is moved at rest: there is no mirror to run",
            hint=f"plan it live:  migrator plan {revision} --live",
        )
    told = ""
    while True:
        try:
            if (run := project.control.run(run.id)).phase.ended:
                return run
            with owning(project, run, watcher or Nobody(), stop) as scene:
                log.info("mirroring", run=run.id, pid=os.getpid())
                Mirror(scene, project.settings.request_life, _bounds(project)).work()
        except Owned:
            if told != (now := "standing by"):
                log.info(now, run=run.id)
        except Transient as error:
            if error.where != CONTROL:
                raise
            if told != (now := "waits for the control database"):
                log.warning(now, run=run.id, error=error.what)
        else:
            continue
        told = now
        if stop.wait(_STAND_BY):
            raise Interrupted("stopped standing by: it was not the mirror") from None


def _bounds(project: Project) -> Bounds:
    return Bounds(feed_bound(project))


class Owned(Exception):
    """Another process is the mirror."""


@contextmanager
def owning(project: Project, run: Run, watcher: Watcher, stop: threading.Event) -> Iterator[Scene]:
    """The scene of a live run, under the mirror's own lease. Raises Owned."""
    control, revision = project.control, run.revision
    refuse_changed(project, run)
    lease = Lease(control, f"{project.settings.env}/{revision}/mirror")
    try:
        lease.__enter__()
    except Refused:
        raise Owned from None
    try:
        structlog.contextvars.bind_contextvars(run=run.id)
        frozen = frozen_plan(run)
        yield Scene(
            control.run(run.id), frozen, project.routes(revision, frozen), control, lease, 1,
            watcher, Retry(stop=stop, check=lease.check), stop,
        )  # fmt: skip
    finally:
        lease.__exit__(None, None, None)


def _silent(run: Run, *, copies: bool) -> Waiting:
    then = (
        "what it was asked for it does when it goes on"
        if copies
        else f"the request was taken back: see that nothing of it was done, with migrator status "
        f"{run.revision}, and ask again"
    )
    return Waiting(f"the mirror has said nothing for {GONE:.0f} s", hint=f"look at its log; {then}")


def _stuck(run: Run, waits: str) -> Waiting:
    return Waiting(
        f"the mirror waits for {waits}",
        hint="ask again once that answers; where it is down for good, stop the mirror, and leave "
        f"it as it is:  migrator abort {run.revision} --leave-target",
    )

"""The swap of primary and mirror: cut-over, and rollback, which is the same the other way.

    gates -> arm -> fence -> drain -> flip -> mark -> release

Until the flip is persisted an attempt is undone, within its bound; after that only forward. The
control row says how far an attempt came, so that whoever comes after a crash knows which.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, cast

import msgspec
import structlog

from migrator.engine import hook
from migrator.engine.bound import Bound, call, fences, unfenced
from migrator.engine.lane import Lane
from migrator.engine.points import reached
from migrator.engine.proof import prove
from migrator.engine.steady import steady
from migrator.errors import MigratorError, Refused, Waiting
from migrator.journal import OTHER, Numbering, Staged
from migrator.model.phase import Phase
from migrator.state import Quarantined, ShadowReads, add_up, highest_number

if TYPE_CHECKING:
    from migrator.engine.mirror import Mirror

log = structlog.get_logger("migrator.swap")

BOUND = 5.0
LAG = 0.5
# For so many seconds a mirror that is behind is waited for, before writes are stopped.
CATCHING_UP = 60.0
# Of what looks like an attempt, and only ends one reign more that a repair has begun.
REPAIRED = "repaired"


class SwapTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered beside a request. ``bound`` and ``lag`` are seconds; ``hook`` is a
    command or an address that stops the applications' writes and lets them go on, ``gateways``
    says that all of them write by the gateway; ``shadow_reads`` is how many different keys must
    have been found the same on both sides; ``why`` is said for the record, beside what is
    accepted. ``leave_target``: an abort asks nothing of the target's store, which is down for
    good. Raises Refused for a hook that can't be kept."""

    accept_keys: tuple[str, ...] = ()
    drop_target: bool = False
    leave_target: bool = False
    keep_source: bool = True
    hook: str = ""
    gateways: bool = False
    bound: float = BOUND
    lag: float = LAG
    dry_run: bool = False
    shadow_reads: int = 0
    why: str = ""

    def __post_init__(self) -> None:
        hook.refuse_wrong(self.hook)


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """What a swap of the sides of a live move took: seconds from the fence to the release, and
    to the end of its steps; from the flip, without steps, where a crash came between.
    ``rehearsed``: all was done but the swap itself.
    """

    to: str
    pause: float
    steps: dict[str, float]
    rehearsed: bool = False


def swap(mirror: Mirror, to: str, phase: Phase, terms: SwapTerms) -> Swap:
    """Make ``to`` the primary. Raises Waiting or Refused with nothing changed, where it is not
    done; what is raised after the flip leaves the run to be mended when the mirror starts again.
    """
    old = OTHER[to]
    mirror.holders.able(phase)
    _gates(mirror, to, terms)
    # Whoever has to mend this after a crash needs the hook, too.
    mirror.scene.control.record(mirror.run.id, "armed", to=to, **msgspec.to_builtins(terms))
    mirror.scene.run = mirror.live.arm(mirror.run)
    reached("swap.armed")
    began = time.monotonic()
    bound = Bound(mirror, old, terms, began)
    steps: dict[str, float] = {}
    try:
        mirror.epochs.arm()
        mirror.holders.arm(phase, denied=_denied(mirror, old))
        # What may take its time comes before the catching up: the writers go on meanwhile.
        for fence in fences(mirror, old):
            if isinstance(fence, Staged):
                fence.prepare(terms.bound)
        for lane in mirror.lanes:
            mirror.scene.retry(lane.side(to).settle)
        _catch_up(mirror, terms)
        began = time.monotonic()
        bound = Bound(mirror, old, terms, began)
        mirror.scene.run = mirror.live.raise_fence(mirror.run)
        reached("swap.raised")
        _hold(mirror, old, terms, bound)
        with bound.kept():
            marks = _fence(mirror, old, bound)
            steps["fence"] = time.monotonic() - began
            reached("swap.fenced")
            columns = mirror.catalogues.under_fence()
            _drain(mirror, old, marks, bound, columns)
            columns(bound.check)
            aside = _aside(mirror)
            _refuse_unlike(mirror, to, terms, aside)
            for lane in mirror.lanes:
                side = lane.side(to)
                if isinstance(side, Numbering):
                    mirror.scene.retry(side.number_on, _left_out_number(mirror, lane, aside))
            steps["drain"] = time.monotonic() - began
            reached("swap.drained")
            if terms.dry_run:
                raise _Rehearsed
            bound.check()
            with steady(mirror, old, bound):
                bound.check()
                mirror.reach(phase, primary=to, fence="flipped")
    except _Rehearsed:
        bound.undo()
        return _took(to, began, steps, rehearsed=True)
    except BaseException:
        # The flip itself may have been carried out: the control row alone knows.
        mirror.scene.run = mirror.scene.retry(mirror.scene.control.run, mirror.run.id)
        if mirror.run.fence != "flipped" and bound.undo():
            raise
        log.warning("flipped, though the answer was lost", run=mirror.run.id)
    reached("swap.flipped")
    _go_on(mirror, terms)
    done = _took(to, began, steps)
    reached("swap.released")
    return done


def _took(to: str, began: float, steps: dict[str, float], *, rehearsed: bool = False) -> Swap:
    pause = round(time.monotonic() - began, 6)
    told = {name: round(took, 6) for name, took in steps.items()}
    return Swap(to=to, pause=pause, steps=told, rehearsed=rehearsed)


class _Rehearsed(Exception):
    """All was done but the flip."""


def mend(mirror: Mirror) -> None:
    """End an attempt that a crash left behind: forward where it was flipped, else undone.

    As long as requests of the mirror before may still be carried out, one of them may raise its
    fence: the attempt is over once that is lowered, too.
    """
    run, control = mirror.run, mirror.scene.control
    log.warning("mending", run=run.id, attempt=run.attempt, fence=run.fence, primary=run.primary)
    control.record(run.id, "mended", attempt=run.attempt, fence=run.fence)
    armed = _armed(mirror)
    terms = msgspec.convert(armed, SwapTerms)
    bound = Bound(mirror, run.primary, terms, time.monotonic())
    late = mirror.scene.lease.doubtful
    if run.fence in ("flipped", "marked") or not bound.undo(late=late):
        for lane in mirror.lanes:
            lane.attach("source")
            lane.attach("target")
        _go_on(mirror, terms)
        if REPAIRED not in armed:
            # By the clocks of two hosts perhaps: it is told, and nothing depends on it.
            pause = max(0.0, time.time() - run.changed)
            mirror.swapped(Swap(to=run.primary, pause=round(pause, 6), steps={}))
        return
    request = None if late else mirror.live.asked()
    if request is not None and Phase(request.wanted) in (Phase.CUT_OVER, Phase.SHADOW_READ):
        # Not tried again by itself: nobody may be looking any more.
        problem = Waiting(
            "the mirror ended in the middle of it, and it was undone: nothing is lost",
            hint=f"see that it is done:  migrator status {run.revision}; then ask for it again",
        )
        mirror.requests.answer(request, problem)


def let_go(mirror: Mirror) -> None:
    """Tell applications to go on, after a flip whose old side is left as it is."""
    _tell_release(mirror, msgspec.convert(_armed(mirror), SwapTerms))


def _armed(mirror: Mirror) -> dict[str, object]:
    """What was noted of the attempt that was armed last."""
    (armed,) = mirror.scene.control.events(mirror.run.id, "armed", last=1)
    return cast("dict[str, object]", armed["detail"])


# ---------------------------------------------------------------------- before the fence


def _aside(mirror: Mirror) -> list[Quarantined]:
    """What is in quarantine."""
    return mirror.scene.control.quarantined(mirror.run.id)


def _refuse_unlike(mirror: Mirror, to: str, terms: SwapTerms, aside: Sequence[Quarantined]) -> None:
    """Raise Waiting where the mirror lacks something that nobody accepted."""
    revision = mirror.scene.plan.revision
    lacks = {q.shown for q in aside}
    if to == "source":
        lacks -= _left_out(mirror)
    _accepted(lacks, terms, "in quarantine", f"migrator quarantine list {revision}")
    if to == "source":
        _accepted({q.shown for q in mirror.live.ledger()}, terms, "not written back", "mend them")
    if any(lane.scanning for lane in mirror.lanes):
        raise _unscanned(mirror)


def _left_out_number(mirror: Mirror, lane: Lane, aside: Sequence[Quarantined]) -> int:
    """Up to which number a new block would take the place of one that lies on the old side alone
    (C50)."""
    if lane.route.changes_key:
        return 0
    return highest_number([*aside, *mirror.live.ledger()], lane.route.number)


def _unscanned(mirror: Mirror) -> Waiting:
    hint = f"watch it: migrator status {mirror.scene.plan.revision}"
    return Waiting("a re-scan is not done", hint=hint)


def _wait_for_wholes(mirror: Mirror, to: str, terms: SwapTerms) -> None:
    """Parts may be written back a moment before the whole is there that they belong to, which
    another move brings; or stand in two wholes for a moment."""
    if to == "target" or all(lane.route.translation.regrouping is None for lane in mirror.lanes):
        return
    until = time.monotonic() + terms.bound
    while time.monotonic() < until:
        try:
            _refuse_unlike(mirror, to, terms, _aside(mirror))
        except Waiting:
            mirror.scene.check()
            mirror.mirror()
        else:
            return


def _left_out(mirror: Mirror) -> set[str]:
    """The keys that the cut-over left out by name: they lie where a rollback goes back to.

    The next cut-over asks for them again: what they hold may have been written since.
    """
    armed = [event["detail"] for event in mirror.scene.control.events(mirror.run.id, "armed")]
    terms = [msgspec.convert(each, _Armed) for each in armed]
    there = [each for each in terms if each.to == "target"]
    return set(there[-1].accept_keys) if there else set()


class _Armed(SwapTerms, frozen=True, kw_only=True):
    """The terms of an attempt, as they stand in the log."""

    to: str


def _gates(mirror: Mirror, to: str, terms: SwapTerms) -> None:
    """All that can be known before writes are stopped."""
    mirror.catalogues.look(now=True)
    _wait_for_wholes(mirror, to, terms)
    _refuse_unlike(mirror, to, terms, _aside(mirror))
    _shadowed(mirror, terms)
    for lane in mirror.lanes:
        if unfenced(lane, OTHER[to]) and not terms.hook and not terms.gateways:
            raise Refused(
                "nothing stops the applications' writes here",
                where=str(lane.side(OTHER[to]).at),
                hint="name a command or an address that does: --hook COMMAND; or say that all of "
                "them write by the gateway: --gateways",
            )
        lane.attach(to)
        prove(lane.route, to, mirror.scene.retry)


def _shadowed(mirror: Mirror, terms: SwapTerms) -> None:
    """Raise Waiting where the sides differed when all was last compared, or in shadow reads since,
    or where those were too few."""
    kept, revision = ShadowReads(mirror.scene.control, mirror.run.id), mirror.scene.plan.revision
    open_ = {key for keys in kept.open().values() for key in keys}
    how = f"have the mirror reconcile them, and compare all:  migrator verify {revision} --mend"
    _accepted(open_, terms, "different on both sides", how)
    if not terms.shadow_reads:
        return
    for lane in mirror.lanes:
        number = add_up(kept.found(lane.route.number, mirror.run.epoch)).agreed.count
        if number < terms.shadow_reads:
            raise Waiting(
                f"shadow reads found {number:,} keys of {lane.route.cls} the same on both sides, "
                f"and {terms.shadow_reads:,} are wanted",
                hint=f"let gateways make more:  migrator shadow {revision} --share 0.1; "
                f"or make them here:  migrator shadow {revision} --sample {terms.shadow_reads}",
            )


def _accepted(keys: set[str], terms: SwapTerms, what: str, how: str) -> None:
    left = sorted(keys - set(terms.accept_keys))
    if left:
        more = "" if len(left) <= 5 else f" and {len(left) - 5} more"
        raise Waiting(
            f"{len(left)} blocks are {what}: {', '.join(left[:5])}{more}",
            hint=f"{how}; or accept each by name: --accept-key KEY",
        )


def _catch_up(mirror: Mirror, terms: SwapTerms) -> None:
    """The lag lies below the bound twice running, and somebody still waits for the swap."""
    until = time.monotonic() + CATCHING_UP
    good = 0
    while good < 2 or not mirror.requests.still_wanted():
        mirror.scene.check()
        mirror.telling.tell()
        if time.monotonic() > until:
            raise Waiting(
                f"the mirror is {mirror.telling.lag:.1f} s behind, and {terms.lag:g} s are allowed",
                hint="try again when the applications write less, or allow more: --lag SECONDS",
            )
        # By turns: under steady writes to one of them there is always a touch to act on.
        for lane in mirror.lanes:
            lane.turn(mirror.run.primary, 0.02, hurry=True)
        near = mirror.telling.lag <= terms.lag
        for lane in mirror.lanes if near else ():
            lane.overhear(mirror.run.primary)  # under the fence writers would wait for that
        scanning = any(lane.scanning for lane in mirror.lanes)
        good = good + 1 if near and not scanning else 0


# ---------------------------------------------------------------------- under the fence


def _hold(mirror: Mirror, old: str, terms: SwapTerms, bound: Bound) -> None:
    """Have the applications stop their writes, by the hook and by their gateways (R16)."""
    if terms.hook:
        call(mirror, terms, "fence", round(max(0.1, bound.until - time.monotonic()), 1))
    mirror.holders.hold(bound.until, denied=_denied(mirror, old))


def _fence(mirror: Mirror, old: str, bound: Bound) -> list[tuple[Lane, str]]:
    """Have the stores deny all writes to the old primary, and write a marker behind the last."""
    marks = []
    for number, lane in enumerate(mirror.lanes):
        mark = f"{mirror.run.id} {mirror.run.attempt} {number}"
        fence = lane.fence(old)
        bound.check()
        if fence is not None:
            fence.raise_(mark, max(0.001, bound.until - time.monotonic()))
        else:
            lane.mark(old, mark)
        marks.append((lane, mark))
    bound.fenced = True
    return marks


def _denied(mirror: Mirror, side: str) -> bool:
    """Whether the store itself denies writes under the fence."""
    return all(lane.fence(side) is not None for lane in mirror.lanes)


def _drain(
    mirror: Mirror, old: str, marks: list[tuple[Lane, str]], bound: Bound,
    columns: Callable[[Callable[[], None]], None],
) -> None:  # fmt: skip
    """Act on every touch before the markers. Raises Waiting where that takes too long, or a feed
    was lost; ``columns`` tells where that is why."""
    for lane, mark in marks:
        while not lane.has_mark(old, mark):
            mirror.scene.check()
            bound.check()
            lane.turn(old, 0.05, hurry=True, mark=mark)
            if lane.scanning:  # its feed was lost, and the marker with it
                columns(bound.check)
                raise _unscanned(mirror)
        lane.drained(old, bound.check)


# ---------------------------------------------------------------------- after the flip


def _go_on(mirror: Mirror, terms: SwapTerms) -> None:
    """Mark where the reverse journal starts, let the new primary be written, note the end."""
    new = mirror.run.primary
    if mirror.run.fence == "flipped":
        # Both are done before anybody writes, in whatever order.
        with _beside(mirror, mirror.epochs.crowning()):
            for number, lane in enumerate(mirror.lanes):
                reign = f"{mirror.run.id} {mirror.run.attempt} {number} reign"
                _begin_reign(mirror, lane, new, reign)
        reached("swap.crowned")
    raised = fences(mirror, new)
    if mirror.run.fence == "flipped" and (raised or terms.hook):
        # Before anybody writes: what lies behind the marker is not thrown away after a crash. Where
        # nobody can before the release, that says so by itself.
        mirror.scene.run = mirror.live.marked(mirror.run)
    reached("swap.marked")
    for fence in raised:
        mirror.scene.retry(fence.open if isinstance(fence, Staged) else fence.lower)
    _tell_release(mirror, terms)
    mirror.scene.run = mirror.live.release(mirror.run)
    for fence in raised:
        if isinstance(fence, Staged):
            try:
                mirror.scene.retry(fence.lower)
            except MigratorError as error:  # it lets all pass; the end of the move removes it, too
                log.warning("not removed yet", where=error.where, error=error.what)


def _tell_release(mirror: Mirror, terms: SwapTerms) -> None:
    if not terms.hook:
        return
    try:
        call(mirror, terms, "release", 60.0)
    except MigratorError as error:
        log.error("hook failed after the flip", error=error.what)
        mirror.scene.control.record(mirror.run.id, "hook failed", error=error.what)


@contextmanager
def _beside(mirror: Mirror, works: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Do these side by side, and beside what is done here, where a process has threads; else
    before, one after another. Raises what any of them raises."""
    raised: list[BaseException] = []

    def do(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by the owner's thread
            raised.append(error)

    if mirror.guard is None:
        for work in works:
            work()
        yield
        return
    threads = [
        threading.Thread(target=copy_context().run, args=[do, work], name="beside", daemon=True)
        for work in works
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    if raised:
        raise raised[0]


def _begin_reign(mirror: Mirror, lane: Lane, new: str, mark: str) -> None:
    """Read the new primary's feed up to a marker. What it shows before were writes of ours."""
    losses = -1
    while not lane.has_mark(new, mark):
        mirror.scene.check()
        if losses != lane.losses(new):
            losses = lane.losses(new)  # a marker went with the feed that was lost
            mirror.scene.retry(lane.mark, new, mark)
        lane.pass_over(new, 0.05, mark)
    lane.acknowledge(new)  # what was ours there is not to pass for the application's


__all__ = ["BOUND", "LAG", "REPAIRED", "Swap", "SwapTerms", "let_go", "mend", "swap"]

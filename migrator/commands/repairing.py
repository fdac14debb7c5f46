"""``repair``: what a control database and both stores say of who is the primary, and the way on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import msgspec
import structlog

from migrator.commands.live import Owned, owning
from migrator.commands.project import Project
from migrator.commands.records import RunStatus, status
from migrator.commands.started import claims, frozen_plan, refuse_changed
from migrator.engine.epochs import Kept, expected, kept, write
from migrator.engine.mirror import Mirror
from migrator.engine.swap import REPAIRED, SwapTerms
from migrator.engine.work import Nobody, Scene
from migrator.errors import Interrupted, MigratorError, Refused
from migrator.journal import Fenced, journal_name
from migrator.model.epoch import Epoch
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.model.verdict import Known, Noted, State, Verdict, judge
from migrator.planning.file import encode_plan, read_plan
from migrator.retry import Retry
from migrator.route import Route
from migrator.state import Lease, LiveState, Run
from migrator.state.gateways import Gateways
from migrator.state.rebuild import forget_positions, insert_run, replace_run

log = structlog.get_logger("migrator.repair")

Way: TypeAlias = Literal["go-on", "rebuild", "forget"]
# A gateway's lease in quiet phases: who lost its control database writes no longer than that.
LEASE = 15.0


class SideFound(msgspec.Struct, frozen=True, kw_only=True):
    """What one side says. ``epoch`` is null where nothing is noted, ``keeps`` false where its store
    keeps no notes, ``fenced`` whether the store denies writes (null where it has no fence),
    ``prepared`` whether the control database knows a position in its feed, and ``scanning`` whether
    all keys are being compared anew. ``problem``: why it could not be asked."""

    side: str
    at: str
    keeps: bool
    epoch: Epoch | None
    fenced: bool | None
    prepared: bool
    scanning: bool
    problem: str


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway, as this control database knows it."""

    instance: str
    cls: str
    run: str
    epoch: int
    attempt: int
    acknowledged: int


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A way on: the command, and what it does."""

    command: str
    does: str


class Inspected(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. ``control`` is what the control database says of the unfinished run, null
    where there is none. ``state`` is one of agreed, swap in hand, divided, unclear, another run,
    left behind, or not known (a side could not be asked)."""

    revision: str
    state: str
    why: str
    control: RunStatus | None
    attempt: int
    asked: str
    sides: list[SideFound]
    holders: list[Holder]
    choices: list[Choice]

    @property
    def settled(self) -> bool:
        return not self.choices and self.state == State.AGREED


def inspect(project: Project, revision: str) -> Inspected:
    """Ask both sides and the control database who is the primary; nothing is changed."""
    return _Repair(project, revision).inspected()


def repair(
    project: Project,
    revision: str,
    way: Way,
    *,
    primary: str | None = None,
    hook: str = "",
    stop: threading.Event | None = None,
) -> Inspected:
    """Take one of the ways on that ``inspect`` names, and look again.

    Raises Refused for another one, and Waiting or Transient with nothing lost: then look again.
    """
    stop = stop or threading.Event()
    found = _Repair(project, revision)
    with Lease(project.control, f"{project.settings.env}/{found.revision}"):
        try:
            found.take(way, primary, hook, stop)
        except Owned:
            raise Refused(
                f"a mirror of {found.revision} is at work",
                hint="stop it first, then run the same command again",
            ) from None
    return inspect(project, revision)


class _Repair:
    """One revision, looked at once."""

    def __init__(self, project: Project, revision: str) -> None:
        self.project = project
        self.revision = project.revision_id(revision)
        runs = project.control.runs(self.revision)
        last = runs[-1] if runs else None
        if last is not None and not last.live and not last.phase.ended:
            raise Refused(
                f"{self.revision} is moved at rest: only its run says which side is the primary",
                hint=f"go on with it:  migrator apply {self.revision}",
            )
        self.run = last if last is not None and not last.phase.ended else None
        if self.run is not None:
            refuse_changed(project, self.run)  # of other stores it would tell what is lost
        self.ended = {run.id for run in project.control.runs() if run.phase.ended}
        self.plan = None if self.run is None else frozen_plan(self.run)
        self.routes: Sequence[Route] = project.routes(self.revision, self.plan)
        self.notes = kept(self.routes)
        self.problems: dict[str, str] = {}
        for note in self.notes:
            try:
                note.text = Retry(5.0)(note.note.read)
            except MigratorError as error:
                self.problems[note.where] = error.what
        self.verdict = self._judge()

    def _judge(self) -> Verdict:
        run = self.run
        known = None
        if run is not None:
            known = Known(run.id, run.epoch, run.primary, run.attempt, run.fence)
        notes = [
            Noted(n.side, n.where, n.epoch) for n in self.notes if n.where not in self.problems
        ]
        told = run is not None and expected(self.project.control, run)
        return judge(known, notes, expected=told, ended=self.ended)

    # ------------------------------------------------------------------ telling

    def inspected(self) -> Inspected:
        run, verdict, control = self.run, self.verdict, self.project.control
        classes = sorted({c for r in self.routes for c in (r.cls, r.move.source_cls)})
        request = None if run is None else LiveState(control, run.id).asked()
        return Inspected(
            revision=self.revision,
            state="not known" if self.problems else verdict.state.value,
            why="a side could not be asked" if self.problems else verdict.why,
            control=None if run is None else status(self.project, run.id)[0],
            attempt=0 if run is None else run.attempt,
            asked="" if request is None else request.wanted,
            sides=[self._side(route, side) for route in self.routes for side in _SIDES],
            holders=[
                Holder(
                    instance=g.instance, cls=g.cls, run=g.run, epoch=g.epoch, attempt=g.attempt,
                    acknowledged=g.acknowledged,
                )
                for g in Gateways(control).leases(classes)
            ],
            choices=[] if self.problems else self._choices(),
        )  # fmt: skip

    def _side(self, route: Route, side: str) -> SideFound:
        collection = route.followed.source if side == "source" else route.target
        where = str(collection.at)
        note = next((n for n in self.notes if (n.side, n.where) == (side, where)), None)
        position, fenced, problem = None, None, self.problems.get(where, "")
        if self.run is not None:
            position = LiveState(self.project.control, self.run.id).position(route.number, side)
            name = journal_name(self.run.id, route.number, side)
            fence = collection.fence(name) if isinstance(collection, Fenced) else None
            try:
                fenced = None if fence is None or problem else Retry(5.0)(fence.is_up)
            except MigratorError as error:
                problem = error.what
        return SideFound(
            side=side, at=where, keeps=note is not None, epoch=note.epoch if note else None,
            fenced=fenced, prepared=position is not None,
            scanning=position is not None and position.scan is not None, problem=problem,
        )  # fmt: skip

    def _choices(self) -> list[Choice]:
        verdict, call = self.verdict, f"migrator repair {self.revision}"
        reign = f"epoch {verdict.number}"
        anew = "writes by gateways wait for it, then all keys are compared anew"
        match verdict.state:
            case State.SWAP:
                does = "undo the swap, or carry it through, as the control database says"
                return [Choice(command=f"{call} --go-on", does=does)]
            case State.DIVIDED:
                does = f"make it {reign}, primary {verdict.primary}, everywhere: {anew}"
                forget = self._forgetting(call) if self.run is None and self._may_forget else []
                return [Choice(command=f"{call} --rebuild", does=does), *forget]
            case State.UNCLEAR:
                return [
                    Choice(
                        command=f"{call} --rebuild --primary {side}",
                        does=f"make it {reign}, primary {side}, everywhere, and the other side "
                        f"equal to it: {anew}",
                    )
                    for side in _SIDES
                ]
            case State.LEFT:
                return [Choice(command=f"{call} --forget", does="remove what is noted of it")]
            case State.STRANGER if self._may_forget:
                return self._forgetting(call)
        return []

    def _forgetting(self, call: str) -> list[Choice]:
        does = "remove what is noted of it; only if nobody works on it any more"
        return [Choice(command=f"{call} --forget", does=does)]

    @property
    def _may_forget(self) -> bool:
        """Whether what a stranger's note tells is where the data is found without it."""
        return all(n.epoch is None or n.epoch.primary == "source" for n in self._foreign)

    @property
    def _foreign(self) -> list[Kept]:
        mine = "" if self.run is None else self.run.id
        return [n for n in self.notes if n.epoch is not None and n.epoch.run != mine]

    # ------------------------------------------------------------------ doing

    def take(self, way: Way, primary: str | None, hook: str, stop: threading.Event) -> None:
        """Take a way on. Raises Refused where it is none of the choices."""
        state = "not known" if self.problems else self.verdict.state
        for where, problem in self.problems.items():
            raise Refused(f"it can't be asked: {problem}", where=where, hint="bring it back first")
        lost = state is State.STRANGER or (state is State.DIVIDED and self.run is None)
        if way == "forget" and (state is State.LEFT or (lost and self._may_forget)):
            for note in self._foreign:
                Retry()(note.note.change, note.text, None)
        elif way == "go-on" and state is State.SWAP:
            self._go_on(stop)
        elif way == "rebuild" and state in (State.DIVIDED, State.UNCLEAR):
            self._rebuild(self._chosen(primary), hook, stop)
        else:
            raise self._no(way)

    def _no(self, way: Way) -> Refused:
        return Refused(
            f"--{way} is no way on: {self.verdict.why or 'all agree'}",
            hint=f"see what there is to do:  migrator repair {self.revision}",
        )

    def _chosen(self, primary: str | None) -> str:
        sure = self.verdict.primary
        if sure and primary not in (None, sure):
            raise Refused(f"the {sure} is the primary: {self.verdict.why}")
        if not sure and primary is None:
            raise Refused(
                f"{self.verdict.why}: which side's data is to be kept?",
                hint=f"say it:  migrator repair {self.revision} --rebuild --primary source, "
                "or target",
            )
        return sure or str(primary)

    def _go_on(self, stop: threading.Event) -> None:
        run = self.project.control.run(self.revision)
        with owning(self.project, run, Nobody(), stop) as scene:
            owner = Mirror(scene, self.project.settings.request_life)
            owner.work(lambda: not owner.run.fence)

    def _rebuild(self, primary: str, hook: str, stop: threading.Event) -> None:
        """One reign more, everywhere. The control row goes first: it stops the gateways, and until
        the stores say the same nobody acts by it."""
        terms = msgspec.to_builtins(SwapTerms(hook=hook, gateways=True))
        old, new, made = self.run, self._reign(primary), self.plan
        if old is None:
            made = self._planned()
            insert_run(self.project.control, new, claims(self.project, made))
        run = self.project.control.run(self.revision)
        with owning(self.project, run, Nobody(), stop) as scene:
            if old is not None:
                scene.run = replace_run(self.project.control, old, new)
            self._wait(scene)
            owner = Mirror(scene, self.project.settings.request_life)
            # Both feeds from now on, and all keys anew: what was missed is not known.
            forget_positions(scene.control, scene.run.id)
            for lane in owner.lanes:
                lane.attach(primary)
                lane.scan()
            for note in sorted(self.notes, key=lambda note: note.side != primary):
                write(scene, note, "repair")  # its own first: a crash in between leaves no doubt
            terms[REPAIRED] = True
            scene.control.record(scene.run.id, "armed", to=primary, **terms)
            owner.requests.refuse(Refused("the run was repaired meanwhile", hint="ask again"))
            owner.work(lambda: not owner.run.fence)

    def _reign(self, primary: str) -> Run:
        verdict, old = self.verdict, self.run
        phase = Phase.CUT_OVER if primary == "target" else Phase.SHADOW_READ
        if old is None:
            (first, *_) = [n.epoch for n in self.notes if n.epoch is not None]
            if primary == "source" and verdict.number <= 2:
                phase = Phase.DUAL_WRITE  # it may never have been copied whole
            now = time.time()
            plan = encode_plan(self._planned()).decode()
            return Run(
                first.run, first.env, self.revision, first.fingerprint, plan, phase, primary,
                verdict.number, now, now, True, verdict.attempt, "marked",
            )  # fmt: skip
        if primary == "source" and verdict.number <= 2 and old.phase.rank < phase.rank:
            phase = max(old.phase, Phase.DUAL_WRITE, key=lambda each: each.rank)
        return replace(
            old, phase=phase, primary=primary, epoch=verdict.number, attempt=verdict.attempt,
            fence="marked",
        )  # fmt: skip

    def _planned(self) -> Plan:
        """The plan that the lost run was begun with, from its file."""
        (first, *_) = [n.epoch for n in self.notes if n.epoch is not None]
        path = self.project.plan_path(self.revision)
        found = read_plan(path) if path.exists() else None
        if found is None or found.fingerprint != first.fingerprint:
            raise Refused(
                f"run {first.run} was begun with another plan, which is needed to rebuild it"
                if found is not None
                else f"the plan that run {first.run} was begun with is needed to rebuild it",
                where=str(path), hint="restore that file, then run the same command again",
            )  # fmt: skip
        return found

    def _wait(self, scene: Scene) -> None:
        """Until no gateway of before writes any more, nor a request of one, or of a mirror."""
        classes = sorted({c for r in scene.routes for c in (r.cls, r.move.source_cls)})
        leases = Gateways(scene.control).leases(classes)
        longest = max([LEASE, *(lease.lasts for lease in leases)])
        until = time.monotonic() + longest + self.project.settings.request_life
        log.warning("waits for the last writes of before", seconds=until - time.monotonic())
        while time.monotonic() < until:
            scene.check()
            if scene.stop.wait(0.05):
                raise Interrupted("stopped; run the same command again")


_SIDES = ("source", "target")


__all__ = ["Choice", "Holder", "Inspected", "SideFound", "Way", "inspect", "repair"]

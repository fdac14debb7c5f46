"""A schedule of the real engine, drawn from a seed: an application, faults, clocks of its own.

The owner (`migrator.engine.mirror`, its lanes, reconciler and swap, on a control database in
memory) runs in this thread. Wherever it asks a server or the control database for something, the
world may act: the application writes, a request without an answer is carried out late, the feed
breaks, is late, shows something again or is lost, a clock jumps, or the process loses its lease or
is killed, and another one takes its place. Nothing depends on real time, so a seed gives one
schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar, cast

import pytest
import sqlalchemy as sa
import tenacity.wait

from migrator import retry
from migrator.engine import (
    access,
    aside,
    batch,
    bound,
    epochs,
    holders,
    hook,
    lane,
    mirror,
    overhearing,
    pages,
    points,
    reading,
    reconcile,
    requests,
    strangers,
    swap,
    telling,
)
from migrator.engine.asker import Asker
from migrator.engine.held import Held
from migrator.engine.mirror import Mirror
from migrator.engine.throttle import Throttle
from migrator.engine.work import Scene
from migrator.errors import Interrupted, MigratorError, Refused, Transient
from migrator.journal import OTHER
from migrator.model.block import Block
from migrator.model.move import At, Move
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.ports import Store
from migrator.route import Route, open_route
from migrator.state import Control, LiveState, Run
from migrator.state.tables import metadata
from migrator.stores.sqlite import CAPABILITIES
from tests.protocol.draws import Decisions, Draws
from tests.protocol.memory import (
    BEGUN,
    MemoryControl,
    MemoryGateways,
    MemoryLive,
    Rows,
    memory_pace,
)
from tests.protocol.server import LARGE, Fate, Server

T = TypeVar("T")
LIFE = 2.0  # for how long a request may be carried out whose answer never came
KEYS = "012"
ENOUGH = 12_000  # steps of one schedule


class Killed(BaseException):
    """The engine's process is gone; what it would still do does not happen."""


@dataclass(frozen=True)
class Chances:
    """How often things happen at a step, and how many may."""

    writes: int = 40
    faults: int = 8
    write: float = 0.1
    fault: float = 0.012
    kill: bool = True
    lose: bool = True
    truncate: bool = True
    again: bool = True  # the feed shows something again, or is late
    clocks: bool = True  # the wall clock jumps, a host was started lately, a lease is lost
    strangers: bool = False  # somebody who takes no part writes to the mirror
    hook: bool | None = None  # applications are stopped by a hook, by the store, or as drawn
    life: float = LIFE


@dataclass
class _Late:
    server: Server
    put: Sequence[Block]
    gone: Sequence[Value]
    until: float
    lands: bool
    fence: bool = False  # it raises that


class _AtOnce(Executor):
    """What it is given is done at once, by the thread that gives it."""

    def submit(self, do: Callable[..., T], /, *args: Any, **how: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(do(*args, **how))
        except Exception as error:  # noqa: BLE001 - raised where the answer is asked for
            done.set_exception(error)
        return done


@dataclass
class World:
    """Everything outside the engine."""

    keys: ClassVar[Sequence[str]] = KEYS  # which the application writes

    seed: int
    chances: Chances = field(default_factory=Chances)
    given: Decisions | None = None  # instead of drawing them
    now: float = 0.0
    boot: float = 0.0  # by how much the clock of the process is ahead of that
    skew: float = 0.0  # and the wall clock
    dead: bool = False
    stopping: bool = False  # somebody asked the process to end
    steps: int = 0
    told: list[str] = field(default_factory=list)  # what happened, in order
    script: dict[str, Callable[[], None]] = field(default_factory=dict)  # once, at a step
    listener: Callable[[str, Server | None, Any], None] | None = None
    fates: list[Fate] = field(default_factory=list)  # of the next requests that write

    def __post_init__(self) -> None:
        self.draws = Draws(self.seed, self.given)
        hook = self.chances.hook
        self.hook = self.draws.chance(0.5) if hook is None else hook
        self.writes, self.faults = self.chances.writes, self.chances.faults
        # What may go wrong at any step, each as often as it stands here.
        chances = self.chances
        clocks = ("the wall clock jumps", "the process is asked to end") * chances.clocks
        self._kinds = (
            *clocks, *("feed lost",) * chances.lose, *("stranger",) * (3 * chances.strangers),
            *("killed",) * (2 * chances.kill),
        )  # fmt: skip
        self._wrong = chances.fault * 0.1 * len(self._kinds)
        self.late: list[_Late] = []
        self.history: dict[str, int] = {}  # what the application was told is stored
        self.version = 0
        self.strange = 0  # writes of somebody who takes no part: their values lie below 0
        self.stopped = False  # by the hook
        self.side = "source"  # where the application writes
        self.run: Callable[[], tuple[str, str]]  # the control row's primary and fence
        self.strangers: Callable[[], list[str]]  # whose keys the record tells
        at = {side: At(side, "games") for side in ("source", "target")}
        self.servers = {side: Server(at[side], "Game", self, fences=not self.hook) for side in at}
        for server in self.servers.values():
            server.counts = self.seed % 2 == 0

    # ------------------------------------------------------------------ what the engine meets

    def step(self, where: str) -> None:
        if self.dead:
            raise Killed(where)
        self.draws.step()
        self.now += 0.001
        self.steps += 1
        if self.steps > ENOUGH:
            raise AssertionError(f"seed {self.seed}: {where} again and again")
        self._land()
        if (scripted := self.script.pop(where, None)) is not None:
            self.told.append(f"at {where}:")
            scripted()
        while self.writes and self.draws.chance(self.chances.write):
            self._write()
        if self.faults and self.draws.chance(self._wrong):
            self._goes_wrong(where)

    def _goes_wrong(self, where: str) -> None:
        """Something does that no request has to do with."""
        what = self.draws.choice(self._kinds)
        if what == "stranger" and not self._meets_strangers():
            return
        self.faults -= 1
        self.told.append(f"{what} at {where}")
        if what == "the wall clock jumps":
            self.skew += self.draws.choice((3600.0, -3600.0))
        elif what == "the process is asked to end":
            self.stopping = True
        elif what == "stranger":
            self.foreign(self._mirror(), self.draws.choice(KEYS))
        elif what == "feed lost":
            self.servers[self.draws.choice(("source", "target"))].lose_feed()
        else:
            self.kill()

    def loses_lease(self) -> bool:
        """Whether a process has to end, since its lease could not be renewed in time."""
        return self.chances.clocks and self._draws("lease lost", 0.2)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def repeats(self) -> int:
        """How many events of before a feed shows again."""
        if not self.chances.again or not self._draws("the feed shows something again", 2.0):
            return 0
        return 1 + self.draws.below(3)

    def is_late(self) -> bool:
        """Whether what is in a feed is not shown yet."""
        return self.chances.again and self._draws("the feed is late", 2.0)

    def hears(self, what: str, server: Server | None, about: object) -> None:
        if self.listener is not None:
            self.listener(what, server, about)

    def flip(self, what: str) -> bool:
        return self._draws(f"{what} fails", 1.0)

    def fate(self, what: str) -> Fate:
        if self.fates:
            self.told.append(f"{what}: {self.fates[0]}")
            return self.fates.pop(0)
        if not self._draws(f"{what} fails", 8.0):
            return "done"
        kills: list[Fate] = ["killed"] if self.chances.kill else []
        fates: list[Fate] = ["refused", "lost", "late", "late", *kills]
        fate = self.draws.choice(fates)
        self.told.append(f"  {fate}")
        return fate

    def later(self, server: Server, put: Sequence[Block], gone: Sequence[Value]) -> None:
        life = self.chances.life
        until, lands = self.now + life - 0.1, True
        if self.chances.faults:
            until = self.now + self.draws.choice((0.01, life / 4, life - 0.1))
            lands = not self.draws.chance(0.3)
        self.late.append(_Late(server, put, gone, until, lands))
        self.hears("late", server, [*(block.id for block in put), *gone])

    def fences_late(self, side: str) -> None:
        """The process is killed, and its request to raise a fence is carried out after a while."""
        until = self.now + self.chances.life - 0.1
        self.late.append(_Late(self.servers[side], (), (), until, lands=True, fence=True))
        self.kill()

    def kill(self) -> None:
        self.dead = True
        self.hears("killed", None, None)
        raise Killed

    def _draws(self, what: str, times: float) -> bool:
        if not self.faults or not self.draws.chance(self.chances.fault * times):
            return False
        self.faults -= 1
        self.told.append(what)
        return True

    def _land(self) -> None:
        """Late requests are carried out at some time, or never."""
        for request in [r for r in self.late if r.until <= self.now]:
            self.late.remove(request)
            keys = [*(block.id for block in request.put), *request.gone]
            self.hears("lands" if request.lands else "dies", request.server, keys)
            if request.lands:
                self.told.append(f"late request lands on the {request.server.at.store}")
                request.server.carry_out(request.put, request.gone)
                request.server.fenced |= request.fence

    # ------------------------------------------------------------------ the application

    def _write(self) -> None:
        self.writes -= 1
        key = self.draws.choice(self.keys)
        if self.chances.truncate and self.draws.chance(0.05):
            self.truncate()
        elif self.draws.chance(0.25):
            self.delete(key)
        else:
            self.put(key, large=self.is_large())

    def is_large(self) -> bool:
        """Whether what is written next does not fit the mirror."""
        return False

    def mends(self) -> None:
        """The application does what it can for a swap that was not done."""

    def put(self, key: str, *, large: bool = False, blindly: bool = False) -> None:
        """The application writes a new version, unless it is stopped or denied.

        ``large``: the other side does not take it. ``blindly``: it asks nobody, and writes where
        it is not denied.
        """
        self.version += 1
        if not (blindly or self._follows()):
            return
        value: dict[str, Any] = {"n": self.version} | ({LARGE: OTHER[self.side]} if large else {})
        if self.servers[self.side].put(key, {"": value}):
            self._said(f"write {'large ' * large}{key} = {self.version}")
            self.history[key] = self.version

    def delete(self, key: str) -> None:
        if self._follows() and self.servers[self.side].remove(key):
            self._said(f"delete {key}")
            self.history.pop(key, None)

    def truncate(self) -> None:
        if self._follows() and self.servers[self.side].truncate():
            self._said("truncate")
            self.history.clear()

    def _meets_strangers(self) -> bool:
        """Once the mirror's feed is read: before that the comparison finds them."""
        return self.chances.strangers and self.servers["target"].attached

    def _mirror(self) -> str:
        return "target" if self.run()[0] == "source" else "source"

    def foreign(self, side: str, key: str) -> None:
        """Somebody who takes no part writes to a side."""
        self.told.append(f"somebody else: write {key} on the {side}")
        self.strange += 1
        self.servers[side].put(key, {"": {"n": -self.strange}})

    def _follows(self) -> bool:
        """An application without a hook goes where the control row says, once it is denied."""
        if self.hook:
            return not self.stopped
        primary, fence = self.run()
        if self.side != primary and fence in ("", "lowering"):
            self.side = primary
        return self.side == primary and fence in ("", "armed", "raised", "lowering")

    def _said(self, what: str) -> None:
        self.told.append(f"application: {what} on the {self.side}")

    def hooked(self, event: str, primary: str) -> None:
        """The user's command, which stops the application and lets it go on."""
        self.step(f"hook {event}")
        self.told.append(f"hook: {event}")
        self.stopped = event == "fence"
        self.side = primary
        self.step(f"hooked {event}")

    # ------------------------------------------------------------------ judging

    def held(self, side: str) -> dict[str, int]:
        """What a side holds: the number of the write behind each key."""
        blocks = self.servers[side].blocks
        return {key: cast("dict[str, int]", entries[""])["n"] for key, entries in blocks.items()}

    def lacks(self, side: str) -> str:
        """How a side differs from what the application was told, empty where it does not.

        A write of somebody else may stand where it was told of: it came while the sides swapped.
        """
        held = self.held(side)
        told = {key for key in held if f"Game:{key}" in self.strangers()}
        if held == self.history | {key: held[key] for key in told if held[key] < 0}:
            return ""
        return f"the {side} holds {held}, and the application was told {self.history}"

    def differ(self) -> bool:
        """Whether the sides do, where they must not."""
        return self.held("source") != self.held("target")


class _Clock:
    """The module ``time`` of the engine."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now + self._world.boot

    def time(self) -> float:
        return self._world.now + self._world.skew

    def monotonic_ns(self) -> int:
        return int(self.monotonic() * 1e9)

    def sleep(self, seconds: float) -> None:
        self._world.now += seconds
        self._world.step("sleep")


class _Stop:
    """The event that ends a process in good order; waiting for it takes the clock on."""

    def __init__(self, world: World, clock: _Clock) -> None:
        self._world = world
        self._clock = clock

    def is_set(self) -> bool:
        return self._world.stopping

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.sleep(timeout or 0.0)
        return self._world.stopping


class _Control(Control):
    """A control database that a process which was killed does not reach."""

    world: World
    loses_flip = False
    lost: Callable[[Control], Run] | None = None  # a flip that is on its way

    def advance(
        self, run: Run, phase: Phase, *, primary: str | None = None, fence: str | None = None,
        **detail: object,
    ) -> Run:  # fmt: skip
        if fence == "flipped" and self.loses_flip:
            self.loses_flip = False
            self.lost = lambda control: control.advance(
                run, phase, primary=primary, fence=fence, **detail
            )
            raise Transient("no answer in time", where="control database", unknown=True)
        return super().advance(run, phase, primary=primary, fence=fence, **detail)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        self.world.step("control")
        with super().transaction() as c:
            yield c
        self.world.hears("committed", None, None)
        self.world.step("controlled")


class _Quiet:
    """A log that nobody reads."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _Lease:
    """The lease of a process. It ends with it, or is lost before."""

    def __init__(self, world: World, *, succeeded: bool) -> None:
        self._world = world
        self.succeeded = succeeded
        self.doubtful = False
        self.lost = False

    def check(self) -> None:
        self.lost = self.lost or self._world.loses_lease()
        if self.lost:
            raise Interrupted("the lease ran out before it could be renewed")


class _Opened:
    """A store with one collection."""

    capabilities = CAPABILITIES

    def __init__(self, server: Server) -> None:
        self._server = server

    def collection(self, cls: str, at: At) -> Server:
        return self._server


class Schedule:
    """A run of the engine in a world."""

    page = 2  # blocks in one
    accepts: Sequence[str] = ()  # keys that may be left out, by name
    beside: Sequence[Route] = ()  # further moves
    why = ""  # what was asked for last was not done

    def __init__(self, world: World, patch: pytest.MonkeyPatch, *, in_memory: bool = False) -> None:
        self.world = world
        self.clock = clock = _Clock(world)
        self._lease = _Lease(world, succeeded=False)
        self._processes = 0
        quiet = _Quiet()
        for module in (
            batch, bound, epochs, holders, lane, mirror, overhearing, pages, reading, reconcile,
            requests, swap, telling,
        ):  # fmt: skip
            patch.setattr(module, "time", clock)
            patch.setattr(module, "log", quiet, raising=False)
        for module in (access, aside, retry, strangers):
            patch.setattr(module, "log", quiet)
        patch.setattr(mirror, "Throttle", partial(Throttle, clock=clock.monotonic))
        patch.setattr(requests, "Asker", partial(Asker, clock=clock.monotonic))
        # Nobody reads the mirror here, but where a test says so.
        patch.setattr(mirror, "Held", lambda _: Held(lambda run: False, clock.monotonic))
        patch.setattr(tenacity.wait, "random", world.draws)
        patch.setattr(hook, "call", self._hooked)
        patch.setattr(points, "hook", world.step)
        self._live: type[LiveState] = LiveState
        self._plain: Control
        self._control: Control
        if in_memory:
            self._keep_in_memory(patch)
        else:
            engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
            metadata.create_all(engine)
            self._plain, told = Control(engine, "test"), _Control(engine, "test")
            told.world = world
            self._control = told
        self._run = "run"
        if not in_memory:
            self._run = self._plain.start("0001", "", "", [("Game", "a", "b")], live=True).id
        world.run = self._row
        world.strangers = self.strangers
        stores = {side: cast("Store", _Opened(s)) for side, s in world.servers.items()}
        move = Move("Game", target=At("target", "games"))
        self._route = open_route(0, move, At("source", "games"), stores.__getitem__)

    def _keep_in_memory(self, patch: pytest.MonkeyPatch) -> None:
        world, rows = self.world, Rows(BEGUN)

        def ends() -> None:
            world.hears("committed", None, None)
            world.step("controlled")

        self._plain = MemoryControl(rows)
        self._control = MemoryControl(rows, partial(world.step, "control"), ends)
        self._live = MemoryLive
        patch.setattr(mirror, "LiveState", MemoryLive)
        patch.setattr(mirror, "read_pace", memory_pace)
        patch.setattr(holders, "Gateways", MemoryGateways)

    def _row(self) -> tuple[str, str]:
        run = self._plain.run(self._run)
        return run.primary, run.fence

    def _hooked(self, _: str, event: str, facts: Mapping[str, str], seconds: float) -> None:
        self.world.hooked(event, facts["primary"])

    # ------------------------------------------------------------------ one process after another

    def _process(self) -> Mirror:
        """A new process, which finds the lease of one that was killed, or left it in doubt."""
        world, before = self.world, self._lease
        succeeded = world.dead or before.doubtful or before.lost
        world.dead = world.stopping = False
        self._lease = _Lease(world, succeeded=succeeded)
        self._processes += 1
        if world.chances.clocks:
            world.boot = 1000.0 * (self._processes % 2)  # each on a host of its own
        world._land()
        routes = [self._route, *self.beside]
        planned = SimpleNamespace(page=self.page, ranges=2, read=0, fresh=True)
        plan = SimpleNamespace(moves=[planned] * len(routes), revision="0001")
        stop = cast("Any", _Stop(world, self.clock))
        scene = Scene(
            self._plain.run(self._run), cast("Any", plan), routes, self._control,
            cast("Any", self._lease), 1,
            retry=retry.Retry(stop=stop), stop=stop,
        )  # fmt: skip
        made = Mirror(scene, world.chances.life)
        for each in made.lanes if world.seed // 2 % 2 else ():
            # In every second pair of seeds both sides are asked together, the mirror first.
            each.reconciler.at_once = True
            each.reconciler.__dict__["_pool"] = _AtOnce()
        return made

    def work(self, enough: Callable[[], bool]) -> None:
        """The owner, and its successors, until something is reached."""
        for _ in range(50):
            try:
                self._process().work(enough)
            except Killed:
                self.world.told.append("a successor starts")
            except MigratorError as error:
                self.world.hears("killed", None, None)
                self.world.told.append(f"the process ended: {error}; another one starts")
            else:
                return
        raise AssertionError("no process came through")

    def ask(self, phase: Phase) -> bool:
        """Ask for a phase until it is answered; whether it was reached."""
        live = self._live(self._plain, self._run)
        terms: dict[str, object] = {"hook": "stop"} if self.world.hook else {}
        terms["accept_keys"] = self.accepts
        number = live.ask(phase.value, terms)
        self.world.told.append(f"asked for {phase.words}")
        self.work(lambda: live.answered(number) is not None)
        problem = (live.answered(number) or {}).get("problem")
        self.why = str(problem or "")
        if problem:
            self.world.told.append(f"not done: {problem}")
        return self.phase is phase

    @property
    def run(self) -> str:
        """The run's id."""
        return self._run

    @property
    def control(self) -> Control:
        """The control database, for who has nothing to do with any process."""
        return self._plain

    @property
    def phase(self) -> Phase:
        return self._plain.run(self._run).phase

    def aside(self) -> list[str]:
        """What lies in quarantine."""
        return [item.shown for item in self._plain.quarantined(self._run)]

    def reasons(self) -> list[str]:
        """Why it lies there."""
        return [item.reason for item in self._plain.quarantined(self._run)]

    def ledger(self) -> list[str]:
        """What was not written back."""
        return [item.shown for item in self._live(self._plain, self._run).ledger()]

    def strangers(self) -> list[str]:
        """The keys that somebody else was found to have written, or by whom nobody can tell."""
        events = self._plain.events(self._run)
        details = [cast("dict[str, str]", e["detail"]) for e in events]
        kinds = [e["event"] for e in events]
        told = ("foreign write", "reconciled")
        return [d["key"] for d, kind in zip(details, kinds, strict=True) if kind in told]

    def lose_flip(self) -> None:
        """The next flip has no answer, and may be carried out late."""
        cast("_Control", self._control).loses_flip = True

    def flip_late(self) -> None:
        """The control database carries that flip out, unless its condition holds no more."""
        lost = cast("_Control", self._control).lost
        assert lost is not None
        with suppress(Refused):
            lost(self._plain)

    def compared(self) -> None:
        """As the comparison does, which has tests of its own."""
        self._plain.advance(self._plain.run(self._run), Phase.SHADOW_READ)

    def settle(self) -> None:
        """Nothing goes wrong any more and nobody writes, until the owner has nothing to do."""
        world = self.world
        world.writes = world.faults = 0
        idle = 0

        def looks() -> bool:
            nonlocal idle
            idle += 1
            return idle > 15 and not world.late

        self.work(looks)

    def go_on(self) -> None:
        """The application, and what goes wrong, begin again."""
        self.world.writes, self.world.faults = self.world.chances.writes, self.world.chances.faults


def filled(
    seed: int,
    patch: pytest.MonkeyPatch,
    chances: Chances,
    given: Decisions | None = None,
    *,
    in_memory: bool = False,
    kind: type[World] = World,
) -> Schedule:
    """A schedule whose source holds some blocks."""
    world = kind(seed, chances, given)
    for key in KEYS[: 1 + world.draws.below(len(KEYS))]:
        world.version += 1
        world.servers["source"].put(key, {"": {"n": world.version}})
        world.history[key] = world.version
    return Schedule(world, patch, in_memory=in_memory)


def level(patch: pytest.MonkeyPatch, *, hook: bool = False, seed: int = 1) -> Schedule:
    """A move whose sides are equal, with nothing drawn."""
    schedule = filled(seed, patch, Chances(writes=0, faults=0, hook=hook))
    for key in KEYS:
        schedule.world.put(key)
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    schedule.settle()
    return schedule


def mirrored(schedule: Schedule) -> None:
    """From nothing to equal sides."""
    reach(schedule, Phase.BACKFILLED)
    schedule.settle()
    equal(schedule.world)
    schedule.go_on()
    schedule.work(lambda: not schedule.world.writes)
    schedule.settle()
    equal(schedule.world)
    schedule.compared()


def whole_life(seed: int, patch: pytest.MonkeyPatch, chances: Chances) -> None:
    """A move there, back and there again, checked at each end."""
    schedule = filled(seed, patch, chances)
    mirrored(schedule)
    for phase in (Phase.CUT_OVER, Phase.SHADOW_READ, Phase.CUT_OVER):
        schedule.go_on()
        reach(schedule, phase)
        schedule.settle()
        equal(schedule.world)


def reach(schedule: Schedule, phase: Phase) -> None:
    """Ask for a phase until it is reached; at last with nothing in the way."""
    for attempt in range(6):
        if schedule.ask(phase):
            return
        if attempt == 3:
            schedule.settle()
        schedule.world.mends()
    raise AssertionError(_tale(schedule.world, f"{phase.words} is not reached"))


def equal(world: World) -> None:
    """Both sides hold what the application was told."""
    for side in ("source", "target"):
        lacks = world.lacks(side)
        assert not lacks, _tale(world, lacks)
    assert not world.differ(), _tale(world, "the sides differ")


def _tale(world: World, what: str) -> str:
    return "\n".join([f"seed {world.seed}: {what}, after", *world.told])

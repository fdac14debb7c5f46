"""What the real engine does in swaps of the sides, told step by step to the model of `cutover.py`.

The application of a schedule is the model's one gateway, and its one key stands for all data. The
recorder listens at the servers, at the control row and at the engine's own steps; the model has to
allow each. Two things are said otherwise there, and do no more (docs/protocol.md): the mirror's
feed holds a marker, too, where the engine has looked into it right before; and of a crash after a
write the touch does not come again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from migrator.engine.lane import Lane
from migrator.engine.reconcile import Done, Reconciler
from migrator.journal import Touches
from migrator.model.epoch import from_text
from migrator.model.phase import Phase
from tests.protocol.checker import Action
from tests.protocol.cutover import FENCED, FLIPPED, FOREIGN, NONE, WRITE, Bounds, Cutover, State
from tests.protocol.replay import NotInTheModel
from tests.protocol.schedule import Chances, Schedule, World, filled, reach
from tests.protocol.server import Server
from tests.protocol.test_epochs import keeping

KEY = "0"
SIDES = ("source", "target")
_MANY = 10_000
WHO = "coordinator"


@dataclass
class Swaps:
    """The model beside a schedule: what the engine did, and where that leaves the model."""

    schedule: Schedule
    told: list[str] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)  # of the writes, by version
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)  # by name: store, and number
    reading: int | None = None  # the store from which a batch is read
    unseen: bool = False  # whether something was written since
    down: bool = False
    row: tuple[str, str] = ("source", "")

    def __post_init__(self) -> None:
        self.world = self.schedule.world
        self.model = Cutover(Bounds(1, _MANY, _MANY, ("mirror.crash",) * 100))
        # Numbers of writes begin behind the one that stands for somebody else's.
        self.state: State = self.model.initial()._replace(writes=_MANY - FOREIGN)
        self.numbers[self._version(0)] = 0
        self.epochs = [1, 1]

    def _version(self, store: int) -> int:
        held: Any = self.world.servers[SIDES[store]].blocks[KEY][""]
        return int(held["n"])

    def step(self, name: str, key: Any = (), *arguments: Any) -> None:
        """Take the model on. Raises where it does not allow the step, or is broken by it."""
        action = Action(name, key, arguments)
        after = self.model.step(self.state, action)
        self.told.append(str(action))
        wrong = "the model refuses it" if after is None else self.model.broken(after)
        if after is None or wrong:
            tale = "\n".join([*self.told[-30:], "", *self.world.told])
            raise NotInTheModel(f"seed {self.world.seed}: {action}: {wrong}, after\n{tale}")
        self.state = after

    # ------------------------------------------------------------------ the application

    def puts(self, store: int) -> None:
        """It wrote a new version."""
        if self.state.gateways[0].lease == NONE:
            self.step("gateway.lease", 0)
        assert self.state.gateways[0].lease == store, self.told
        self.step("gateway.begin", 0)
        self.numbers[self._version(store)] = self.state.gateways[0].call[2]
        self.step("gateway.lands", 0)
        self.step("gateway.answer", 0)
        self.unseen = True

    def holds(self) -> None:
        """It has stopped, and said so."""
        if self.state.gateways[0].lease != NONE and self.state.control.state == FENCED:
            self.step("gateway.hold", 0)
            self.step("gateway.acknowledge", 0)

    # ------------------------------------------------------------------ the owner

    def reads(self, store: int, met: list[str]) -> None:
        if self.state.owner:
            if not self.unseen:
                return
            self.step("mirror.write")  # read again in the same batch, and something else is there
        self.unseen = False
        self._meets(store, met)
        if self.state.feeds[store][:1] == (WRITE,):
            self.step("mirror.read", store)
        else:  # it was shown once more
            assert len(set(self.state.values)) == 1, self.told

    def writes(self, store: int) -> None:
        if self.state.owner:
            self.step("mirror.write")
        assert self.numbers[self._version(store)] == self.state.values[store], self.told

    def finishes(self, store: int, met: list[str]) -> None:
        """A batch was acted on, with all that had come until it was read."""
        if self.state.owner:
            self.step("mirror.write")  # what lay there was the same already
        self._meets(store, met)
        while self.state.feeds[store][:1] == (WRITE,) and not self.unseen:
            self.step("mirror.read", store)
            self.step("mirror.write")
            self._meets(store, met)

    def _meets(self, store: int, met: list[str]) -> None:
        """Pass the markers that were met, and those that nobody waits for any more."""
        found = {self.marks.get(name) for name in met}
        while (feed := self.state.feeds[store]) and feed[0] != WRITE:
            control = self.state.control
            waits = control.state in (FENCED, FLIPPED) and abs(feed[0]) == control.attempt
            if waits and (store, feed[0]) not in found:
                return
            self.step("mirror.mark", store)

    def dies(self) -> None:
        if self.state.owner:
            self.step("mirror.crash")
            self.step("mirror.dies")
            self.down = True
        self.reading = None

    # ------------------------------------------------------------------ the swap

    def marked(self, store: int, name: str) -> None:
        """A marker of an attempt is in a feed: behind the old primary's last write, or where the
        reverse journal begins."""
        n = self.state.control.attempt
        if name.endswith(" reign"):
            if name not in self.marks:
                self.step("cutover.start", WHO)
                self.marks[name] = store, -n
        elif self.state.control.state == FENCED and name.startswith(f"{self.schedule.run} "):
            self.step("cutover.held", WHO)
            self.step("cutover.mark", WHO)
            self.marks[name] = store, n
            self.step("mirror.mark", 1 - store)

    def noted(self, store: int, text: str) -> None:
        number = from_text(text).number
        if number > self.epochs[store]:
            self.epochs[store] = number
            self.step("cutover.stamp", WHO, store)

    def releases(self) -> None:
        if self.state.control.state == FLIPPED:
            self.step("cutover.release", WHO)

    def commits(self) -> None:
        """The control row may have changed."""
        if self.down:
            self.down = False
            self.step("mirror.start")
        before, self.row = self.row, self.world.run()
        if before == self.row:
            return
        match self.row[1]:
            case "raised":
                self.step("cutover.fence")
            case "undoing":
                self.step("cutover.undo", WHO)
            case "flipped":
                self.step("cutover.flip", WHO)
            case "":
                self.releases()

    def agrees(self) -> None:
        """At rest the model is at rest, and holds what the servers hold."""
        assert self.model.quiet(self.state), (self.state, self.told[-20:])
        assert self.model.unequal(self.state) is None
        held = tuple(self.numbers[self._version(store)] for store in (0, 1))
        assert held == self.state.values


def replayed(seed: int, patch: pytest.MonkeyPatch) -> Swaps:
    """There, back and there again, carried out by the engine and by the model."""
    keeping(patch)
    patch.setattr(World, "keys", KEY)
    patch.setattr(World, "delete", World.put)
    patch.setattr(World, "fate", lambda self, what: "done")  # lost answers are in `replay.py`
    patch.setattr(World, "flip", lambda self, what: False)
    chances = Chances(lose=False, truncate=False, write=0.05, fault=0.02)
    schedule = filled(seed, patch, chances, in_memory=True)
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    schedule.settle()
    swaps = Swaps(schedule)
    _listen(swaps, patch)
    for phase in (Phase.CUT_OVER, Phase.SHADOW_READ, Phase.CUT_OVER):
        schedule.go_on()
        reach(schedule, phase)
        schedule.settle()
    swaps.agrees()
    return swaps


def _listen(swaps: Swaps, patch: pytest.MonkeyPatch) -> None:
    """Hear what is done at the servers, and what the engine itself begins and ends."""
    world = swaps.world
    met: list[str] = []

    def heard(what: str, server: Server | None, about: Any) -> None:
        if what == "killed":
            swaps.dies()
        elif what == "committed":
            swaps.commits()
        if server is None:
            return
        store = SIDES.index(server.at.store)
        if what == "put":
            swaps.puts(store)
        elif what == "fenced":
            swaps.holds()
            swaps.marked(store, about)
        elif what == "marked":
            swaps.marked(store, about)
        elif what == "noted" and about is not None:
            swaps.noted(store, about)
        elif what == "read" and swaps.reading == store:
            swaps.reads(store, met)
        elif what == "done" and swaps.reading == 1 - store:
            swaps.writes(store)

    world.listener = heard
    step, act, touched = world.step, Lane._act, Reconciler.touched
    pass_over = Lane.pass_over

    def steps(where: str) -> None:
        if where == "hooked fence":
            swaps.holds()
        elif where == "hooked release":
            swaps.releases()
        elif where == "swap.drained":
            swaps.step("cutover.drained", WHO)
        step(where)

    def touches(self: Reconciler, primary: str, given: Any) -> Done:
        swaps.reading = SIDES.index(primary) if given else None
        done = touched(self, primary, given)
        swaps.reading = None
        return done

    def acts(self: Lane, primary: str, given: Touches) -> None:
        met[:] = given.marks
        act(self, primary, given)
        swaps.finishes(SIDES.index(primary), met)
        met.clear()

    def passes(self: Lane, side: str, seconds: float, mark: str = "") -> None:
        pass_over(self, side, seconds, mark)
        swaps.finishes(SIDES.index(side), self.marks(side))

    patch.setattr(world, "step", steps)
    patch.setattr("migrator.engine.points.hook", steps)
    patch.setattr(Lane, "_act", acts)
    patch.setattr(Lane, "pass_over", passes)
    patch.setattr(Reconciler, "touched", touches)

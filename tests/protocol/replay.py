"""What the real engine does while it mirrors, told step by step to the model of `mirror.py`.

The recorder listens at the servers and at the engine's own steps, and names each in the model's
words. The model has to allow every step: where the engine acknowledges too early, reads too late,
or writes while an older request may be carried out, the step is not enabled. At the end both must
hold the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from migrator.engine.positions import Positions
from migrator.engine.reconcile import Done, Reconciler
from migrator.journal import Touch
from migrator.model.block import Block
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.state import Control, Position, Task
from tests.protocol import schedule
from tests.protocol.checker import Action
from tests.protocol.mirror import (
    GONE,
    LISTED,
    QUEUED,
    READ,
    UNKNOWN,
    WAITING,
    Bounds,
    Keys,
    Mirror,
    State,
    bit,
)
from tests.protocol.schedule import KEYS, Chances, Schedule, filled, reach
from tests.protocol.server import Server

PAGES = 2
_ALL = 10_000


class NotInTheModel(AssertionError):
    """The engine did what the protocol does not allow."""


@dataclass
class Recorder:
    """The model beside a schedule: what the engine did, and where that leaves the model."""

    schedule: Schedule
    without: Sequence[str] = ()
    state: State | None = None
    versions: dict[tuple[int, int], int] = field(default_factory=dict)  # by row and of the world
    batch: dict[int, str] = field(default_factory=dict)  # keys in work: "", "done", "late"
    touches: list[int] = field(default_factory=list)  # where in the source's log each lies
    started: bool = True
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        homes = tuple((row, GONE) for row in range(len(KEYS)))
        pages = tuple(
            sum(bit(row) for row in range(len(KEYS)) if row % PAGES == n) for n in range(PAGES)
        )
        bounds = Bounds((GONE,) * len(KEYS), homes, pages, _ALL, _ALL, _ALL, workers=_ALL)
        self.model = Mirror(bounds, self.without)
        self.world = self.schedule.world

    def step(self, name: str, key: Any = (), *arguments: Any) -> None:
        """Take the model on. Raises where it does not allow the step."""
        assert self.state is not None
        action = Action(name, key, arguments)
        after = self.model.step(self.state, action)
        self.told.append(str(action))
        if after is None:
            tale = "\n".join([*self.told[-40:], "", *self.world.told])
            raise NotInTheModel(
                f"seed {self.world.seed}: the model refuses {action}, after\n{tale}"
            )
        self.state = after

    # ------------------------------------------------------------------ the application

    def attached(self, source: Server) -> None:
        """The feed begins: what the source holds now is where the model starts."""
        if self.state is not None:
            return
        rows = []
        for row, key in enumerate(KEYS):
            held = source.blocks.get(key)
            rows.append((row, 1) if held else (GONE, 0))
            if held:
                self.versions[row, 1] = held[""]["n"]  # type: ignore[index]
        first = self.model.initial()
        self.state = first._replace(source=tuple(rows))

    def written(self, source: Server, key: str, home: int) -> None:
        """The application wrote or deleted a key; the log has it already."""
        if self.state is None:
            return
        row = int(key)
        self.touches.append(len(source.log))
        self.step("app.write", row, home)
        if home != GONE:
            version = self.state.source[row][1]
            self.versions[row, version] = source.blocks[key][""]["n"]  # type: ignore[index]

    # ------------------------------------------------------------------ the owner

    def alive(self) -> None:
        """A new process begins to act."""
        if not self.started:
            self.started = True
            self.step("owner.start")

    def takes(self, keys: Sequence[Value], upto: int) -> None:
        """Touched keys go into work, with all touches of them that were read."""
        self.alive()
        assert self.state is not None
        base = self.state.base
        for key in keys:
            row = int(str(key))
            mine = tuple(
                n for n, touch in enumerate(self.state.feed, base)
                if touch.row == row and touch.status == QUEUED and self.touches[n] <= upto
            )  # fmt: skip
            self.step("owner.take", Keys(bit(row)), mine)
            self.batch[row] = ""

    def lists(self, n: int) -> None:
        self.alive()
        self.step("page.list", n)

    def takes_page(self, n: int, keys: Sequence[Value]) -> None:
        for key in keys:
            self.step("page.take", n, int(str(key)))
            self.batch[int(str(key))] = ""

    def reads(self) -> None:
        """The source is read for the keys in work: also anew, after an unknown outcome."""
        assert self.state is not None
        self.fails()
        for row in self.batch:
            keys = Keys(bit(row))
            if self._phase(row) == UNKNOWN:
                self.step("owner.settle", keys)
            work = next(w for w in self.state.works if w.keys == keys)
            if self.model._larger(self.state, work) != (work.keys, work.rows):
                self.step("owner.again", keys)
                self.step("owner.retake", keys)
            self.step("owner.read", keys)
            self.batch[row] = ""

    def _phase(self, row: int) -> int:
        assert self.state is not None
        phases = [w.phase for w in self.state.works if w.keys == bit(row)]
        return phases[0] if phases else WAITING

    def sends(self, keys: Sequence[Value], how: str) -> None:
        """A request that writes the mirror: done, or late."""
        for key in keys:
            row = int(str(key))
            self.batch[row] = how
            if how == "late" and self._phase(row) == READ:
                self.step("owner.unknown", Keys(bit(row)))

    def fails(self) -> None:
        """The batch has no certain outcome: its keys stay in work."""
        for row, how in self.batch.items():
            if self._phase(row) == READ:
                self.step("owner.unknown", Keys(bit(row)))
                self._ends(row, how)

    def _ends(self, row: int, how: str) -> None:
        """What of a request without an answer is known to the world already."""
        if how == "done":
            self.step("request.lands", Keys(bit(row)))
        elif how == "":
            self.step("request.dies", Keys(bit(row)))

    def ends(self, keys: Sequence[Value], *, lands: bool) -> None:
        """A late request is carried out, or dies."""
        for key in keys:
            self.step("request.lands" if lands else "request.dies", Keys(bit(int(str(key)))))

    def finishes(self) -> None:
        for row in self.batch:
            self.step("owner.write", Keys(bit(row)))
        self.batch.clear()

    def keeps(self, offset: int) -> None:
        """A position is durable."""
        assert self.state is not None
        position = sum(1 for at in self.touches if at <= offset)
        if position > self.state.position:
            self.step("owner.acknowledge", position)

    def checkpoints(self, n: int) -> None:
        assert self.state is not None
        if self.state.pages[n].status == LISTED:
            self.step("page.done", n)

    def dies(self) -> None:
        """The process is killed."""
        if self.state is None or not self.started:
            return
        reading = [row for row in self.batch if self._phase(row) == READ]
        self.step("owner.crash")
        self.started = False
        for row in reading:
            self._ends(row, self.batch[row])
        self.batch.clear()

    def agrees(self) -> None:
        """At rest the model is at rest, and holds what the servers hold."""
        assert self.state is not None
        assert self.model.quiet(self.state), self.told
        assert self.model.unequal(self.state) is None
        held = {
            KEYS[row]: self.versions[row, version]
            for row, (_, copies) in enumerate(self.state.mirror)
            for _, version in copies
        }
        assert held == self.world.held("target")


def replayed(
    seed: int, patch: pytest.MonkeyPatch, chances: Chances, without: Sequence[str] = ()
) -> Recorder:
    """A drawn schedule of the mirror, carried out by the engine and by the model."""
    patch.setattr(Schedule, "page", len(KEYS))
    run = filled(seed, patch, chances)
    recorder = Recorder(run, without)
    _listen(recorder, patch)
    reach(run, Phase.BACKFILLED)
    run.go_on()
    run.work(lambda: not run.world.writes)
    run.settle()
    recorder.agrees()
    return recorder


def _listen(recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    """Hear what is done at the servers, and what the engine itself begins and ends."""
    source = recorder.world.servers["source"]
    offset = 0
    durable: list[Callable[[], None]] = []  # what the next commit makes so

    def heard(what: str, server: Server | None, about: Any) -> None:
        nonlocal offset
        if what == "killed":
            durable.clear()
            recorder.dies()
        elif what == "committed":
            if durable:
                durable.pop()()
        elif server is source:
            if what == "attached":
                recorder.attached(source)
            elif what == "put":
                recorder.written(source, about, int(about))
            elif what == "removed":
                recorder.written(source, about, GONE)
            elif what == "polled":
                offset = about
            elif what == "page":
                recorder.lists(about[0])
            elif what == "read" and recorder.batch:
                recorder.reads()
        elif what in ("done", "late"):
            recorder.sends(about, what)
        elif what in ("lands", "dies"):
            recorder.ends(about, lands=what == "lands")

    recorder.world.listener = heard
    touched, page = Reconciler.touched, Reconciler.page
    keep, checkpoint = Positions.keep, schedule._Control.checkpoint

    def touches(self: Reconciler, primary: str, given: Sequence[Touch]) -> Done:
        if not given:
            return touched(self, primary, given)
        recorder.takes([touch.key for touch in given], offset)
        done = touched(self, primary, given)
        recorder.finishes()
        return done

    def pages(self: Reconciler, blocks: Sequence[Block], damaged: Any) -> Done:
        if blocks:
            recorder.takes_page(int(str(blocks[0].id)) % PAGES, [block.id for block in blocks])
        done = page(self, blocks, damaged)
        recorder.finishes()
        return done

    def keeps(self: Positions, side: str, position: Position) -> None:
        if side == "source":
            at = cast("list[int]", position.feed)[1]
            durable.append(lambda: recorder.keeps(at))
        keep(self, side, position)

    def checkpoints(self: Control, run: str, task: Task) -> None:
        durable.append(lambda: recorder.checkpoints(task.number))
        checkpoint(self, run, task)

    patch.setattr(Reconciler, "touched", touches)
    patch.setattr(Reconciler, "page", pages)
    patch.setattr(Positions, "keep", keeps)
    patch.setattr(schedule._Control, "checkpoint", checkpoints)

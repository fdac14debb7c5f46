"""A control database in a dictionary, for schedules that have to be cheap.

It does what `migrator.state` does, transaction by transaction; a test holds the two to each other:
a seed gives the same tale on either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from migrator.errors import Refused
from migrator.model.phase import Phase
from migrator.state import Control, LiveState, Pace, Position, Quarantined, Request, Run, Task
from migrator.state.gateways import GatewayLease, Gateways

BEGUN = Run("run", "test", "0001", "", "", Phase.PLANNED, "source", 1, 0.0, 0.0, live=True)


@dataclass
class Rows:
    """What the database holds, of one run."""

    run: Run
    tasks: dict[tuple[int, str], list[Task]] = field(default_factory=dict)
    aside: dict[tuple[int, str], Quarantined] = field(default_factory=dict)
    ledger: dict[tuple[int, str], Quarantined] = field(default_factory=dict)
    feeds: dict[tuple[int, str], Position] = field(default_factory=dict)
    log: list[dict[str, object]] = field(default_factory=list)
    wanted: tuple[str, dict[str, object]] = ("", {})
    asked: int = 0
    answered: int = 0
    answer: dict[str, object] = field(default_factory=dict)

    def change(self, run: Run, **values: Any) -> Run | None:
        """The compare-and-set on phase, epoch, attempt and fence (R13)."""
        is_ = self.run
        if (is_.phase, is_.epoch, is_.attempt, is_.fence) != (
            run.phase, run.epoch, run.attempt, run.fence,
        ):  # fmt: skip
            return None
        self.run = replace(is_, **values)
        return self.run


class MemoryControl(Control):
    """One way to the rows; ``begin`` and ``end`` are called around each transaction."""

    def __init__(
        self,
        rows: Rows,
        begin: Callable[[], None] = lambda: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.env = "test"
        self.rows = rows
        self._begin, self._end = begin, end

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        self._begin()
        yield self.rows
        self._end()

    def run(self, name: str) -> Run:
        with self.transaction():
            return self.rows.run

    def advance(
        self, run: Run, phase: Phase, *, primary: str | None = None, fence: str | None = None,
        **detail: object,
    ) -> Run:  # fmt: skip
        side = primary or run.primary
        with self.transaction():
            new = self.rows.change(
                run, phase=phase, primary=side, epoch=run.epoch + (side != run.primary),
                fence=run.fence if fence is None else fence,
            )  # fmt: skip
            if new is None:
                raise Refused(
                    f"run {run.id} is no longer {run.phase.words}: somebody else moved it"
                )
            self._append(phase.value, {"primary": side, "epoch": new.epoch, **detail})
        return new

    def tasks(self, run: str, move: int, work: str) -> list[Task]:
        with self.transaction():
            return list(self.rows.tasks.get((move, work), ()))

    def plan_tasks(self, run: str, move: int, work: str, ranges: Sequence[object]) -> list[Task]:
        with self.transaction():
            self.rows.tasks[move, work] = [Task(move, work, n, r) for n, r in enumerate(ranges)]
        return self.tasks(run, move, work)

    def checkpoint(self, run: str, task: Task) -> None:
        with self.transaction():
            self.rows.tasks[task.move, task.work][task.number] = replace(task, intent=None)

    def set_aside(self, run: str, item: Quarantined) -> None:
        with self.transaction():
            self.rows.aside[item.move, item.key] = item

    def take_up(self, run: str, move: int, key: str) -> None:
        with self.transaction():
            self.rows.aside.pop((move, key), None)

    def quarantined(self, run: str) -> list[Quarantined]:
        with self.transaction():
            return sorted(self.rows.aside.values(), key=lambda item: (item.at, item.key))

    def record(self, run: str, event: str, **detail: object) -> None:
        with self.transaction():
            self._append(event, detail)

    def _append(self, event: str, detail: Mapping[str, object]) -> None:
        self.rows.log.append({"event": event, "detail": detail})

    def events(
        self, run: str, event: str | None = None, last: int | None = None
    ) -> list[dict[str, object]]:
        with self.transaction():
            found = [e for e in self.rows.log if event in (None, e["event"])]
            return found if last is None else found[-last:]


class MemoryLive(LiveState):
    """What a live move keeps beside its run."""

    def __init__(self, control: Control, run: str) -> None:
        super().__init__(control, run)
        self._rows = cast("MemoryControl", control).rows

    def position(self, move: int, side: str) -> Position | None:
        with self._control.transaction():
            return self._rows.feeds.get((move, side))

    def keep(self, move: int, side: str, position: Position) -> None:
        with self._control.transaction():
            self._rows.feeds[move, side] = position

    def _fence(self, run: Run, fence: str, attempt: int | None = None) -> Run:
        with self._control.transaction():
            number = run.attempt if attempt is None else attempt
            new = self._rows.change(run, fence=fence, attempt=number)
        if new is None:
            raise Refused(f"run {run.id} was moved by somebody else")
        return new

    def enter(self, item: Quarantined) -> None:
        with self._control.transaction():
            self._rows.ledger[item.move, item.key] = item

    def strike(self, move: int, keys: Iterable[str]) -> None:
        with self._control.transaction():
            for key in keys:
                self._rows.ledger.pop((move, key), None)

    def ledger(self) -> list[Quarantined]:
        with self._control.transaction():
            return sorted(self._rows.ledger.values(), key=lambda item: (item.at, item.key))

    def ask(self, wanted: str, terms: dict[str, object]) -> int:
        with self._control.transaction():
            self._rows.wanted = (wanted, terms)
            self._rows.asked += 1
            return self._rows.asked

    def asked(self) -> Request | None:
        rows = self._rows
        with self._control.transaction():
            if rows.answered >= rows.asked:
                return None
            return Request(rows.asked, *rows.wanted)

    def answer(
        self, number: int, answer: dict[str, object], undone: Mapping[str, object] | None = None
    ) -> None:
        with self._control.transaction():
            self._rows.answered, self._rows.answer = number, answer
            if undone is not None:
                self._control._append("not done", undone)

    def answered(self, number: int) -> dict[str, object] | None:
        with self._control.transaction():
            return self._rows.answer if self._rows.answered >= number else None

    def tell(self, **state: object) -> None:
        with self._control.transaction():
            pass


class MemoryGateways(Gateways):
    """Applications of a schedule are asked by a hook, or stopped by the store."""

    def leases(self, classes: Iterable[str]) -> list[GatewayLease]:
        with self._control.transaction():
            return []


def memory_pace(control: Control, run: str) -> Pace:
    """As fast as it goes."""
    with control.transaction():
        return Pace()

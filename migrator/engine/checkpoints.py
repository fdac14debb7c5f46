"""How far the passes of a verification are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from migrator.engine.work import Scene
from migrator.ports import Json
from migrator.route import Route
from migrator.state import Task


class Checkpoints(Protocol):
    """The ranges of each pass, and what was found in them so far. Threads may share it."""

    def listed(self, work: str, ranges: Callable[[], list[Json]]) -> list[Task]:
        """The ranges of a pass, listed once."""

    def tasks(self, work: str) -> list[Task]:
        """How far they are; none where they were not listed."""

    def keep(self, task: Task) -> None:
        """Note how far one of them is."""

    def forget(self, works: Sequence[str]) -> None:
        """Remove the lists of some passes."""


class Durable:
    """Those of a move at rest, in the control database: who was interrupted can go on."""

    def __init__(self, scene: Scene, route: Route) -> None:
        self._scene = scene
        self._route = route

    def listed(self, work: str, ranges: Callable[[], list[Json]]) -> list[Task]:
        return self._scene.tasks(self._route, work, ranges)

    def tasks(self, work: str) -> list[Task]:
        return self._scene.control.tasks(self._scene.run.id, self._route.number, work)

    def keep(self, task: Task) -> None:
        self._scene.retry(self._scene.control.checkpoint, self._scene.run.id, task)

    def forget(self, works: Sequence[str]) -> None:
        self._scene.control.forget_tasks(self._scene.run.id, self._route.number, works)


class Passing:
    """Those of a live move: its mirror and a command may compare it at the same time, and neither
    may count what the other has found. None goes on where another one was."""

    def __init__(self, number: int) -> None:
        self._move = number
        self._tasks: dict[str, list[Task]] = {}

    def listed(self, work: str, ranges: Callable[[], list[Json]]) -> list[Task]:
        if work not in self._tasks:
            self._tasks[work] = [
                Task(self._move, work, number, range_) for number, range_ in enumerate(ranges())
            ]
        return self.tasks(work)

    def tasks(self, work: str) -> list[Task]:
        return list(self._tasks.get(work, ()))

    def keep(self, task: Task) -> None:
        self._tasks[task.work][task.number] = task

    def forget(self, works: Sequence[str]) -> None:
        for work in works:
            self._tasks.pop(work, None)


def checkpoints(scene: Scene, route: Route) -> Checkpoints:
    """Where a verification of a move notes how far it is."""
    return Passing(route.number) if scene.run.live else Durable(scene, route)


__all__ = ["Checkpoints", "checkpoints"]

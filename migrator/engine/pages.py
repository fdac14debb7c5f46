"""The backfill of a live move: what was there before, page by page between batches of touches.

Each page lies behind a checkpoint, and a crash begins at most one of them again (R4). None is
copied before every write leaves a touch (R9).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from migrator.engine.lane import Lane
from migrator.engine.occupied import WORK as CLEARED
from migrator.engine.occupied import clear
from migrator.engine.points import reached
from migrator.engine.throttle import Throttle
from migrator.engine.work import Scene
from migrator.state import Task


class Pages:
    """Copies all moves of a run. ``may_begin`` says whether every write leaves a touch by now."""

    def __init__(
        self,
        scene: Scene,
        lanes: Sequence[Lane],
        throttle: Throttle,
        may_begin: Callable[[], bool],
    ) -> None:
        self._scene = scene
        self._lanes = lanes
        self._throttle = throttle
        self._may_begin = may_begin
        self._begun = False
        self._copying: Lane | None = None
        # By move, as the control database holds them: nobody but the owner changes them there.
        self._ranges: dict[int, list[Task]] = {}

    def next(self) -> tuple[Lane, Task] | None:
        """The next range to copy from, None where all are copied."""
        for lane in self._lanes:
            for task in self._tasks(lane):
                if not task.done:
                    return lane, task
        return None

    def _tasks(self, lane: Lane) -> list[Task]:
        route = lane.route
        if route.number not in self._ranges:
            planned = self._scene.planned(route)
            self._ranges[route.number] = self._scene.tasks(
                route, "backfill", lambda: lane.copying.split(planned.ranges)
            )
        return self._ranges[route.number]

    def turn(self) -> bool:
        """Copy one page, where it may be; whether there is nothing more to be done."""
        self._begun = self._begun or self._may_begin()
        if not self._begun:
            return False
        found = self.next()
        if found is None:
            if any(clear(self._scene, lane) for lane in self._lanes):
                return False
            self._end()
            return True
        if self._throttle.ready():  # else touches alone are acted on
            self._copy(*found)
        return False

    def _copy(self, lane: Lane, task: Task) -> None:
        scene, route = self._scene, lane.route
        planned = scene.planned(route)
        if self._copying is not lane:
            self._copying = lane
            read = counts(self._tasks(lane)).get("read", 0)
            scene.watcher.begins("backfill", route.cls, read, planned.read)
        began = time.monotonic()
        page = lane.copying.copy(task.range, task.position, self._throttle.limit(planned.page))
        reached("page.written")
        new = {"read": page.read, **page.done.__dict__}
        further = replace(
            task,
            position=page.next,
            done=page.next is None,
            counts={name: task.counts.get(name, 0) + n for name, n in new.items()},
        )
        scene.retry(scene.control.checkpoint, scene.run.id, further)
        ranges = self._ranges[route.number]
        ranges[ranges.index(task)] = further
        reached("page.checkpointed")
        self._throttle.copied(page.blocks)
        touched = sum(each.touched for each in self._lanes)
        self._throttle.yields(time.monotonic() - began, touched)
        scene.watcher.advances("backfill", route.cls, page.read, page.bytes)

    def _end(self) -> None:
        scene = self._scene
        for lane in self._lanes:
            route = lane.route
            cleared = scene.control.tasks(scene.run.id, route.number, CLEARED)
            copied = counts([*self._tasks(lane), *cleared])
            scene.control.record(scene.run.id, "copied", cls=route.cls, **copied)
            scene.retry(route.target.settle)
        if self._copying is not None:
            scene.watcher.ends("backfill", self._copying.route.cls)


def counts(tasks: Sequence[Task]) -> dict[str, int]:
    """What some tasks have counted, all in all."""
    total: dict[str, int] = {}
    for task in tasks:
        for name, count in task.counts.items():
            total[name] = total.get(name, 0) + count
    return total


__all__ = ["Pages", "counts"]

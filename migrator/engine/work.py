"""Tasks: ranges of work with checkpoints, run by several threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from migrator.errors import Interrupted
from migrator.model.plan import MovePlan, Plan
from migrator.ports import Json
from migrator.retry import Retry
from migrator.route import Route
from migrator.state import Control, Lease, Run, Task

log = structlog.get_logger("migrator.engine")


class Watcher(Protocol):
    """Who is told how far a run is: the CLI's progress bars, or nobody."""

    def phase(self, run: Run) -> None:
        """A phase was reached."""

    def begins(self, work: str, cls: str, done: int, of: int) -> None:
        """Some work on a class begins, perhaps where it was left off."""

    def advances(self, work: str, cls: str, blocks: int, bytes: int) -> None:
        """So many blocks and bytes more."""

    def ends(self, work: str, cls: str) -> None:
        """That work is done."""


class Nobody:
    """A watcher that does not look."""

    def phase(self, run: Run) -> None:
        pass

    def begins(self, work: str, cls: str, done: int, of: int) -> None:
        pass

    def advances(self, work: str, cls: str, blocks: int, bytes: int) -> None:
        pass

    def ends(self, work: str, cls: str) -> None:
        pass


@dataclass
class Scene:
    """Everything that the steps of one run share."""

    run: Run
    plan: Plan
    routes: Sequence[Route]
    control: Control
    lease: Lease
    workers: int = 2
    watcher: Watcher = field(default_factory=Nobody)
    retry: Retry = field(default_factory=Retry)
    stop: threading.Event = field(default_factory=threading.Event)
    # Of a live run: waits until the mirror holds all that was written until now.
    settle: Callable[[], None] | None = None
    # For so many seconds a request may live on whose sender has died.
    request_life: float = 61.0

    def planned(self, route: Route) -> MovePlan:
        """The plan of one of the moves."""
        return self.plan.moves[route.number]

    def check(self) -> None:
        """Raise Interrupted where the run was asked to stop or may no longer act."""
        if self.stop.is_set():
            raise Interrupted(
                "stopped, nothing lost", hint="go on with the same command from where it was"
            )
        self.lease.check()

    def tasks(self, route: Route, work: str, ranges: Callable[[], list[Json]]) -> list[Task]:
        """The tasks of a piece of work; listed once, whole, and found again after a crash."""
        found = self.control.tasks(self.run.id, route.number, work)
        if found:
            return found
        return self.control.plan_tasks(self.run.id, route.number, work, ranges())


def keys_aside(scene: Scene, route: Route) -> frozenset[str]:
    """The keys of a move that are in quarantine."""
    return scene.control.keys_aside(scene.run.id, route.number)


def carry_out(
    scene: Scene, tasks: Sequence[Task], do: Callable[[Task], None], workers: int | None = None
) -> None:
    """Do all unfinished tasks, several at once. The first error stops the others.

    ``workers`` is how many instead of the run's own number, for work that threads can't share.
    Nothing is left running in the background when this returns or raises (C71).
    """
    waiting = [task for task in tasks if not task.done]
    if not waiting:
        return
    failed = threading.Event()

    def guarded(task: Task) -> None:
        if failed.is_set():
            return
        try:
            do(task)
        except BaseException:
            # Here and now: this thread would begin the next one before anybody looks.
            failed.set()
            raise

    with (
        _few_collections(),
        ThreadPoolExecutor(workers or scene.workers, thread_name_prefix="task") as executor,
    ):
        # What is bound to the log (the run's id) goes along into the threads.
        pending = {executor.submit(copy_context().run, guarded, task) for task in waiting}
        try:
            while pending:
                done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                scene.check()
        except BaseException:
            failed.set()
            scene.stop.set()
            raise


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let the garbage collector look less often: pages are many containers without cycles."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)

"""The bound of a swap: an attempt is taken back within it, whatever store does not answer.

    raised -> undoing -> lowering -> none

It is taken back in the control row first: after that no flip that is still on its way can be
carried out. Then fences are lowered, and applications told. A store that does not answer keeps
nobody else waiting: they go on, and what may still stop writes there is lowered once it answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING

import structlog

from migrator.engine import hook
from migrator.errors import MigratorError, Refused, Waiting
from migrator.journal import Bracketed, Fence, Staged
from migrator.state import Run

if TYPE_CHECKING:
    from migrator.engine.lane import Lane
    from migrator.engine.mirror import Mirror
    from migrator.engine.swap import SwapTerms

log = structlog.get_logger("migrator.swap")

# After so much of the bound an attempt is undone: what is left is for the undoing.
_ENOUGH = 0.9


class Bound:
    """One attempt, from its fence on. ``until`` is when it is given up, ``began`` when writes were
    stopped (both on the monotonic clock)."""

    def __init__(self, mirror: Mirror, old: str, terms: SwapTerms, began: float) -> None:
        self._mirror = mirror
        self._old = old
        self._terms = terms
        self._began = began
        self.until = began + _ENOUGH * terms.bound
        # Whether the owner raises no fence any more that it has not raised yet.
        self.fenced = False
        self._lowering: list[threading.Thread] = []

    def check(self) -> None:
        """Raise Waiting where it took too long."""
        if time.monotonic() > self.until:
            raise self._too_long()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """What is done here ends with Waiting where it takes too long.

        A fence, a marker and a turn wait for a store for as long as that does not answer, which
        the writers must not. So another thread undoes the attempt meanwhile: where the flip is
        sent at that very moment, the control row knows which of the two came first (R13).
        """
        ends, undone = threading.Event(), threading.Event()
        run = self._mirror.run

        def watch() -> None:
            if ends.wait(max(0.0, self.until - time.monotonic())):
                return
            log.warning("undone while the mirror waits for a store", run=run.id)
            try:
                if self._let_go(run, late=not self.fenced).fence != "flipped":
                    undone.set()
            except MigratorError as error:  # the owner carries it on
                log.error("not undone yet", where=error.where, error=error.what)

        watches = threading.Thread(
            target=copy_context().run, args=[watch], name="bound", daemon=True
        )
        if self._mirror.guard is not None:  # a process, in which more than its thread is at work
            watches.start()
        try:
            yield
        finally:
            ends.set()
            if watches.ident is not None:
                watches.join()
            if undone.is_set():
                raise self._too_long()

    def _too_long(self) -> Waiting:
        return Waiting(
            f"writes would have been stopped for more than {self._terms.bound:g} s: undone",
            hint="see that both stores answer and end long transactions; try again, or allow more: "
            "--bound SECONDS",
        )

    # ------------------------------------------------------------------ taking it back

    def undo(self, *, late: bool = False) -> bool:
        """Let writes go on where they were; False where the attempt turns out to be flipped.

        ``late``: a request to raise a fence may still be carried out. The attempt is not over
        then, and is to be undone once more.
        """
        mirror = self._mirror
        run = mirror.scene.run = self._let_go(mirror.run, late=late)
        if run.fence == "flipped":
            return False
        if run.fence == "lowering" and not late:
            # None of these may be carried out when the next attempt has begun.
            for thread in self._lowering:
                thread.join()
            for fence in fences(mirror, self._old):
                mirror.scene.retry(fence.lower)
            mirror.scene.run = mirror.live.release(run)
        return True

    def _let_go(self, run: Run, *, late: bool) -> Run:
        """The run once its applications may go on, or as it is where that turns out to be flipped.

        ``lowering`` where a fence may still stop writes, or do so again.
        """
        live, retry = self._mirror.live, self._mirror.scene.retry
        if run.fence == "raised":
            run = self._taken_back(run)
        if run.fence == "armed":
            for fence in fences(self._mirror, self._old):
                if isinstance(fence, Staged):
                    retry(fence.lower)
            return live.release(run)
        if run.fence != "undoing":
            return run
        lowered = self._lower()
        if self._terms.hook:
            call(self._mirror, self._terms, "undo", 60.0)
        return live.release(run) if lowered and not late else live.lowering(run)

    def _taken_back(self, run: Run) -> Run:
        live, scene = self._mirror.live, self._mirror.scene
        try:
            return scene.retry(live.undoing, run)
        except Refused:
            run = scene.retry(scene.control.run, run.id)
            if run.fence not in ("flipped", "undoing", "lowering", ""):
                raise
            return run  # flipped, or already taken back, and the answer was lost

    def _lower(self) -> bool:
        """Lower the fences; False where that is not done by the end of the bound."""
        retry, raised = self._mirror.scene.retry, fences(self._mirror, self._old)
        if self._mirror.guard is None:
            for fence in raised:
                retry(fence.lower)
            return True
        end = self._began + self._terms.bound
        end = max(end, time.monotonic() + (1 - _ENOUGH) * self._terms.bound)
        done: list[Fence] = []

        def lower(fence: Fence) -> None:
            try:
                retry(fence.lower)
                done.append(fence)
            except MigratorError as error:  # the owner tries again
                log.warning("fence not lowered yet", where=error.where, error=error.what)

        threads = [
            threading.Thread(
                target=copy_context().run, args=[lower, fence], name="lower", daemon=True
            )
            for fence in raised
        ]
        self._lowering += threads
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        return len(done) == len(raised)


def fences(mirror: Mirror, side: str) -> list[Fence]:
    """The stores' own fences of a side."""
    return [fence for lane in mirror.lanes if (fence := lane.fence(side)) is not None]


def unfenced(lane: Lane, side: str) -> bool:
    """Whether only the applications can stop their writes to a side: neither does its store deny
    them, nor does every writer leave what tells of it."""
    return lane.fence(side) is None and not isinstance(lane.side(side), Bracketed)


def call(mirror: Mirror, terms: SwapTerms, event: str, seconds: float) -> None:
    """Tell the user's hook what happens. Raises Waiting or Transient where it did not do it."""
    run = mirror.run
    facts = {
        "run": run.id, "revision": mirror.scene.plan.revision, "primary": run.primary,
        "epoch": str(run.epoch), "attempt": str(run.attempt),
    }  # fmt: skip
    hook.call(terms.hook, event, facts, seconds)


__all__ = ["Bound", "call", "fences", "unfenced"]

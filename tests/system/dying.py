"""Processes of a live move that may be killed: its owners, at named points, and its writers.

A server forks them that has no threads and nothing open: what another thread holds at a fork is
never let go in the child. It imports what they need once, for all tests of a process.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from pkgutil import walk_packages
from typing import TypeAlias

from migrator import commands, stores
from migrator.engine import points
from migrator.errors import Transient, Waiting
from migrator.gateway import Gateway
from migrator.model.phase import Phase
from tests.gateway.kit import QUICK, opened
from tests.gateway.test_live import swapped
from tests.gateway.writers import Writer

LONG = 120.0  # seconds; as long as a loaded machine may take
FORKED = multiprocessing.get_context("forkserver")
_STORES = walk_packages(stores.__path__, f"{stores.__name__}.")
_USED = (
    __name__, "tests.system.warm", "tests.system.cut_short", "migrator.cli.runs", "alembic.script"
)  # fmt: skip
FORKED.set_forkserver_preload([*_USED, *(module.name for module in _STORES)])


def owners_die(config: Path, word: str, *points: str) -> None:
    """Let owners do what a word says, all at once, and see that each was killed at its point."""
    die(*((partial(own, config, word), point, 1) for point in points))


Doomed: TypeAlias = tuple[Callable[[], object], str, int]
"""Some work, a point of it, and how manieth time: then its process is killed. What it does is to be
known by name: it shares nothing with this process."""


def dies(work: Callable[[], object], point: str, nth: int = 1) -> None:
    """Let a process do some work, and see that it was killed as it came to a point."""
    die((work, point, nth))


def die(*doomed: Doomed) -> None:
    """The same of several at once. One thread waits for all: of two that look after processes each
    may take how one of them ended away from the other, who is told that it is not known."""
    processes = [FORKED.Process(target=_die_at, args=each) for each in doomed]
    for process in processes:
        process.start()
    for process, (_, point, _) in zip(processes, doomed, strict=True):
        code = joined(process, 2 * LONG)
        assert code == -signal.SIGKILL, f"{point} was not reached: {code}"


def _die_at(work: Callable[[], object], point: str, nth: int) -> None:
    faulthandler.enable()
    left = nth

    def hook(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    points.hook = hook
    work()


def joined(process: BaseProcess, seconds: float) -> int | None:
    """How a process ended. One that does not tells its stacks, is killed, and fails the test."""
    process.join(seconds)
    if process.exitcode is None:
        os.kill(process.pid or 0, signal.SIGCONT)
        os.kill(process.pid or 0, signal.SIGABRT)
        process.join(LONG)
        raise AssertionError(f"{process.name} did not end within {seconds:g} s")
    return process.exitcode


def own(config: Path, word: str) -> None:
    """Be the owner of a move until what a word says is done."""
    with commands.Project(config, "test") as project:
        if word == "apply":
            _apply(project)
        elif word == "mirror":
            commands.mirror(project, "0001")
        else:
            swapped(getattr(commands, word), project)


def _apply(project: commands.Project) -> None:
    """Come to shadow reads; again where that has to wait."""
    run = commands.unfinished(project, "0001")
    plan = commands.frozen_plan(run) if run else commands.plan(project, "0001", live=True)
    assert plan.errors == []
    terms = commands.Terms(accept=[finding.code for finding in plan.findings])
    end = time.monotonic() + LONG
    while True:
        try:
            commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        except Waiting:
            assert time.monotonic() < end
        else:
            return


def _patient(config: Path) -> Gateway:
    """A gateway that outlasts the deaths of owners."""
    return opened(config, replace(QUICK, bound=LONG))


@dataclass
class Mortal(Writer):
    """A writer for a long life. Once it was stopped it may go on."""

    pace: float = 0.03
    process: BaseProcess | None = None

    def start(self) -> Mortal:
        self._stop.unlink(missing_ok=True)
        self.waited = False
        process = FORKED.Process(target=_mortal, args=(type(self), self.config, self.name))
        process.start()
        self.process, self.pid = process, process.pid or 0
        return self

    def _key(self, n: int) -> str:
        """Each is written twice: no later write hides the loss of its last."""
        return f"{super()._key(n)}-{n // 14}"

    def live(self) -> None:
        """What its process does."""
        faulthandler.enable()
        try:
            self._run()
        except BaseException as error:
            self._history.with_suffix(".error").write_text(repr(error))
            raise

    def join(self) -> int:
        assert self.process is not None
        self.waited = True
        return joined(self.process, LONG) or 0


class Stubborn(Mortal):
    """One that goes on whatever becomes of its store: a write that failed may be there in part."""

    def _goes_on(self, error: Transient) -> bool:
        return True


def _mortal(kind: type[Mortal], config: Path, name: str) -> None:
    kind(config, name, _patient).live()

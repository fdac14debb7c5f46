"""The processes of a drill: writers, and ``migrator mirror``. They are killed and started again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from migrator.drill import traffic
from migrator.errors import Failed

_START = 120.0
_END = 60.0
_LOOK = 0.01


class Killable(Protocol):
    """What a drill ends by SIGKILL."""

    name: str

    def kill(self) -> None:
        """End it, with no chance to say goodbye."""

    def start(self) -> None:
        """Start it, once more where it ran before."""

    def wait(self) -> None:
        """Until it is at work. Raises Failed where it ended, or did not come to it."""


class Writer:
    """A process that calls the gateway."""

    def __init__(self, orders: traffic.Orders) -> None:
        self.name = f"writer {orders.writer}"
        self._orders = orders
        self._log = orders.folder / f"writer-{orders.writer}.log"
        self._process: BaseProcess | None = None
        self._before = 0

    def start(self) -> None:
        self._before = len(traffic.histories(self._orders.folder, self._orders.writer))
        # Not forked: this process has threads and connections.
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_write, args=(self._orders, self._log))
        self._process.start()

    def wait(self) -> None:
        def at_work() -> bool:
            self.check()
            files = traffic.histories(self._orders.folder, self._orders.writer)
            # A line before its first call, and one after it.
            return len(files) > self._before and files[-1].read_bytes().count(b"\n") > 1

        _wait(at_work, self.name, self._log)

    def check(self) -> None:
        """Raise Failed where it ended by itself."""
        if self._process is not None and self._process.exitcode is not None:
            raise _ended(self.name, self._log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def stop(self) -> None:
        """Let it end its call, and no other follow. Raises Failed where it had ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return
        ended = process.exitcode is not None
        process.terminate()
        process.join(_END)
        if process.exitcode is None:
            process.kill()
            process.join()
        if ended:
            raise _ended(self.name, self._log)


def _write(orders: traffic.Orders, log: Path) -> None:
    """The first function of a writer's process: what it prints goes to its own log."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    traffic.write(orders)


class MirrorProcess:
    """``migrator mirror``. ``told`` is when the mirror of the run said something last."""

    name = "mirror"

    def __init__(self, revision: str, config: Path, env: str, log: Path,
                 told: Callable[[], float]) -> None:  # fmt: skip
        self._words = [
            sys.executable, "-m", "migrator", "mirror", revision, "--config", str(config),
            "--env", env, "--log-level", "info",
        ]  # fmt: skip
        self._root = config.parent
        self._log = log
        self._told = told
        self._process: subprocess.Popen[bytes] | None = None
        self._since = 0.0

    def start(self) -> None:
        with self._log.open("ab") as log:
            # In a session of its own: a person's Ctrl-C is for the drill, which ends it.
            self._process = subprocess.Popen(  # noqa: S603
                self._words, cwd=self._root, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._since = time.time()

    def wait(self) -> None:
        def at_work() -> bool:
            if self._process is not None and self._process.poll() is not None:
                raise _ended(self.name, self._log)
            return self._told() > self._since

        _wait(at_work, self.name, self._log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, patience: float = 0.0) -> None:
        """Let it stop, after it had time to end by itself."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(done: Callable[[], bool], name: str, log: Path) -> None:
    until = time.monotonic() + _START
    while not done():
        if time.monotonic() > until:
            raise Failed(f"{name} did not come to work in {_START:g} s", hint=f"see {log}")
        time.sleep(_LOOK)


def _ended(name: str, log: Path) -> Failed:
    said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return Failed(f"{name} ended by itself" + (f": {said[-1]}" if said else ""), hint=f"see {log}")

"""Processes that write through a gateway, and note what was acknowledged to them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from migrator.errors import Transient
from migrator.gateway import Gateway
from migrator.model.value import Record
from tests.ending import waited
from tests.gateway.kit import opened, until


def is_free(file: Path) -> bool:
    """Whether nobody has a lock on a SQLite file."""
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as plain:
        try:
            plain.execute("BEGIN EXCLUSIVE")
            plain.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        return True


@dataclass
class Writer:
    """A process that puts, appends, updates and deletes under keys of its own until it is told to
    stop; ``whole`` aggregates alone, where a store can do no more. Each line of its history is
    written after the gateway has acknowledged it. It goes on with another key where the outcome of
    a write is unknown, as one is whose lease ran out on a busy machine in the middle of a swap.
    Between two keys it leaves the machine to others for ``pace`` seconds."""

    config: Path
    name: str
    open: Callable[[Path], Gateway] = opened
    whole: bool = False
    pace: float = 0.01
    pid: int = 0
    waited: bool = False
    _stop: Path = field(init=False)
    _history: Path = field(init=False)

    def __post_init__(self) -> None:
        self._stop = self.config.parent / f"{self.name}.stop"
        self._history = self.config.parent / f"{self.name}.history"
        self._history.touch()

    def start(self) -> Writer:
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self._run()
                code = 0
            except BaseException as error:  # noqa: BLE001 - told to the test, which reads it
                self._history.with_suffix(".error").write_text(repr(error))
            finally:
                os._exit(code)
        return self

    def _run(self) -> None:
        with self.open(self.config) as games, self._history.open("a") as history:
            n = self._history.read_text().count("\n")  # it may begin again
            while not self._stop.exists():
                n += 1
                time.sleep(self.pace)
                key = self._key(n)
                history.write(json.dumps([key, "begun"]) + "\n")
                history.flush()
                try:
                    value = self._write(games, key, n)
                except Transient as error:
                    if not self._goes_on(error):
                        raise
                    continue
                history.write(json.dumps([key, value]) + "\n")
                history.flush()

    def _goes_on(self, error: Transient) -> bool:
        """Whether it goes on with another key where a write failed."""
        return error.unknown

    def _key(self, n: int) -> str:
        """The key of the n-th write."""
        return f"{self.name}-{n % 7}"

    def _write(self, games: Gateway, key: str, n: int) -> Record | None:
        value: Record = {"id": key, "n": -n, "rounds": [{"pos": 0, "n": n}]}
        if self.whole:
            games.put(key, value)
        else:
            games.put(key, {"id": key, "n": n, "rounds": []})
            games.append(key, "rounds", {"pos": 0, "n": n})
            games.update(key, {"n": -n})
        if n % 5 == 0:
            games.delete(key)
            return None
        return value

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def freeze(self, *files: Path) -> None:
        """Stop it where it stands, but not while it has a lock on one of these SQLite files: that
        would keep everybody out until it goes on."""

        def stopped() -> bool:
            self.signal(signal.SIGSTOP)
            # A thread in the middle of a write to the disk stops after it.
            os.waitpid(self.pid, os.WUNTRACED)
            if all(map(is_free, files)):
                return True
            self.signal(signal.SIGCONT)
            return False

        until(stopped)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.join()

    def join(self) -> int:
        self.waited = True
        return waited(self.pid)

    def stop(self) -> None:
        """Let it end, and see that nothing failed in it."""
        self._stop.touch()
        status = self.join()
        error = self._history.with_suffix(".error")
        assert status == 0, error.read_text() if error.exists() else status

    def lines(self) -> int:
        error = self._history.with_suffix(".error")
        assert not error.exists(), error.read_text()
        return self._history.read_text().count("\n")

    def begun(self) -> set[str]:
        """All keys that it wrote, or was about to."""
        return {json.loads(line)[0] for line in self._history.read_text().splitlines()}

    def acknowledged(self) -> dict[str, object]:
        """What it was told last for each key, but the one it was at when it was killed."""
        rows = [json.loads(line) for line in self._history.read_text().splitlines()]
        told = dict(rows)
        return {key: value for key, value in told.items() if value != "begun"}

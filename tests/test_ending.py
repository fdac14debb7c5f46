"""What does not end when it is to is killed, and its stacks are told."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import threading

import pytest

from tests.ending import PATIENCE, PYTHON, ended, joined, terminated, waited

STUBBORN = """
import signal, threading
def hangs():
    print("there", flush=True)
    threading.Event().wait()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hangs()
"""


def test_a_process_that_does_not_end_tells_where_it_is() -> None:
    process = subprocess.Popen(
        [*PYTHON, "-c", STUBBORN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    with pytest.raises(AssertionError, match=r"within 0\.1 s:\n(.|\n)*in hangs"):
        terminated(process, seconds=0.1)
    assert process.returncode < 0


def test_a_process_that_ends_says_all() -> None:
    process = subprocess.Popen([*PYTHON, "-c", "print(1)"], stdout=subprocess.PIPE, text=True)
    assert ended(process) == ("1\n", "")


@pytest.mark.parametrize("hangs", [False, True])
def test_a_child_is_waited_for_within_bounds(hangs: bool) -> None:
    gone, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(held)
        if hangs:
            faulthandler.disable()  # what it would tell looks like a crash of the tests
            os.read(gone, 1)  # which comes once the parent has gone
        os._exit(3)
    try:
        if hangs:
            with pytest.raises(AssertionError, match=f"{pid} did not end within"):
                waited(pid, 0.1)
        else:
            assert os.waitstatus_to_exitcode(waited(pid)) == 3
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    finally:
        os.close(held)
        os.close(gone)


def test_a_thread_that_does_not_end_tells_where_it_is() -> None:
    there, let_go = threading.Event(), threading.Event()

    def hangs() -> None:
        there.set()
        let_go.wait()

    thread = threading.Thread(target=hangs)
    thread.start()
    assert there.wait(PATIENCE)
    with pytest.raises(AssertionError, match="in hangs"):
        joined(thread, seconds=0.1)
    let_go.set()
    joined(thread)

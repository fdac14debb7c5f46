"""Leases: who is alive, who is gone, and what a holder that lost his may still send."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from migrator import commands
from migrator.errors import Interrupted, Refused, Transient
from migrator.retry import Retry
from migrator.state import Control, Lease, lease, tables
from tests.ending import waited
from tests.engine.games import make_project


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    with commands.Project(make_project(tmp_path), "test") as project:
        yield project.control


def held_by(control: Control, **who: object) -> None:
    """Note a holder in the control database."""
    holder = json.loads(lease._me()) | who
    with control.transaction() as c:
        row = {"name": "x", "generation": 1, "counter": 0, "seconds": 0.2}
        c.execute(tables.lease.insert().values(holder=json.dumps(holder), **row))


def test_the_lease_of_a_process_that_ended_is_taken_over_at_once(control: Control) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    held_by(control, pid=child.pid, started="1")
    with Lease(control, "x") as taken:
        taken.check()
        assert taken.succeeded


def test_a_lease_that_its_holder_left_is_nobodys(control: Control) -> None:
    for _ in range(2):
        with Lease(control, "x") as taken:
            assert not taken.succeeded


def test_a_lease_that_others_had_meanwhile_is_not_renewed(control: Control) -> None:
    with Lease(control, "x", seconds=0.5) as slept:
        with control.transaction() as c:  # as by one that took it over, and left it
            c.execute(tables.lease.delete())
        held_by(control)
        waited_for = time.monotonic() + 5
        while time.monotonic() < waited_for:
            try:
                slept.check()
            except Interrupted:
                break
            time.sleep(0.02)
        else:
            pytest.fail("it goes on beside another holder")
    with control.transaction() as c:
        assert c.execute(tables.lease.select()).first() is not None, "it left another's"


class Clock:
    """One that goes on by a second with each look, or where the test says so."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 100.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_nothing_is_sent_in_the_last_moment_of_a_lease_nor_by_a_forked_child(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with Lease(control, "x", clock=clock) as held:
        clock.now += lease.SECONDS - lease.MARGIN - 0.001
        held.check()
        with monkeypatch.context() as patch:
            patch.setattr(held, "_pid", -1)
            with pytest.raises(Interrupted):
                held.check()
        clock.now += 0.001
        with pytest.raises(Interrupted):
            held.check()


def test_a_lease_counts_from_before_it_was_asked_for(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(step=1.0)
    with Lease(control, "x", clock=clock) as held:
        assert held._until == 102.0 + lease.SECONDS  # as it was looked at the second time
        turns = iter([False, True, False])
        with monkeypatch.context() as patch:
            patch.setattr(held, "_stop", SimpleNamespace(wait=lambda _: next(turns)))
            asked = clock.now + 1
            held._renew()
            assert held._until == asked + lease.SECONDS
            with control.transaction() as c:  # as by one that took it over
                c.execute(tables.lease.delete())
            held._renew()
        with pytest.raises(Interrupted):
            held.check()


def test_a_holder_elsewhere_is_succeeded_once_it_stood_still_for_as_long_as_it_holds(
    control: Control,
) -> None:
    """However long who takes it over will hold it (R14)."""
    clock = Clock()
    held_by(control, boot="elsewhere")
    with control.transaction() as c:
        c.execute(tables.lease.update().values(seconds=30.0, counter=7))
    with Lease(control, "x", seconds=5.0, clock=clock, sleep=clock.sleep) as taken:
        assert 130.0 <= clock.now < 132.0
        assert taken.succeeded
        assert taken._until == clock.now + 5.0


def test_a_holder_elsewhere_that_renewed_is_not_succeeded_however_long_nobody_looked(
    control: Control,
) -> None:
    clock = Clock()
    held_by(control, boot="elsewhere")

    def sleeps(_: float) -> None:
        clock.now += 1_000.0
        with control.transaction() as c:
            c.execute(tables.lease.update().values(counter=tables.lease.c.counter + 1))

    waits = Lease(control, "x", clock=clock, sleep=sleeps)
    with pytest.raises(Refused, match="another host"), waits:
        pass


def test_a_lease_is_succeeded_by_one_of_those_that_saw_it_stand_still(control: Control) -> None:
    held_by(control)
    first, second = Lease(control, "x"), Lease(control, "x")
    with control.transaction() as c:
        assert not first._succeed(c, 1, 5)  # it was renewed since
        assert not first._succeed(c, 2, 0)  # others had it since
        assert first._succeed(c, 1, 0)
        assert not second._succeed(c, 1, 0)
        row = c.execute(tables.lease.select()).one()
    assert (row.generation, row.counter, row.holder) == (2, 0, first._holder)


def test_a_lease_that_was_left_in_doubt_is_succeeded(control: Control) -> None:
    with Lease(control, "x") as first:
        first.doubtful = True
    with Lease(control, "x") as second:
        assert second.succeeded
    with Lease(control, "x") as third:
        assert not third.succeeded


def test_one_that_could_not_be_given_back_is_taken_again_by_its_process(
    control: Control, tmp_path: Path
) -> None:
    (file,) = tmp_path.glob(".migrator/*.db")
    with closing(sqlite3.connect(file)) as other, Lease(control, "x") as first:
        other.execute("PRAGMA journal_mode = WAL")
        first._stop.set()  # it renews no more
        with control.engine.connect() as c:
            c.exec_driver_sql("PRAGMA busy_timeout = 1")
        other.execute("BEGIN IMMEDIATE")
        first.__exit__()
        other.execute("ROLLBACK")
        with Lease(control, "x") as second:
            assert second.succeeded  # what it sent last may still be carried out


def test_one_whose_answer_was_lost_is_taken_again_by_its_process(control: Control) -> None:
    def lose(*_: object) -> None:
        if not lost:
            lost.append(True)
            raise sa.exc.OperationalError("", None, Exception("locked"))

    lost: list[bool] = []
    sa.event.listen(control.engine, "checkin", lose)  # what was committed before stays
    with pytest.raises(Transient), Lease(control, "x"):
        pass
    assert lost
    with Lease(control, "x") as second:
        second.check()


@pytest.mark.parametrize("deadly", [True, False])
def test_a_process_that_stood_still_for_longer_than_its_lease_sends_nothing_more(
    tmp_path: Path, deadly: bool
) -> None:
    config, sent = make_project(tmp_path), tmp_path / "sent"
    for _ in range(60):
        pid = stands_still(config, sent, deadly)
        if os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]):
            break  # else a busy machine did not let it come to that within its lease
    time.sleep(1.2)
    os.kill(pid, signal.SIGCONT)
    status = waited(pid)
    assert (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM) is deadly
    assert sent.exists() is not deadly


def stands_still(config: Path, sent: Path, deadly: bool) -> int:
    """A process that is stopped between its check and what it sends."""
    pid = os.fork()
    if pid == 0:
        try:
            with commands.Project(config, "test") as project:
                patch = pytest.MonkeyPatch()
                patch.setattr(Lease, "deadly", deadly)
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                with Lease(project.control, "x", seconds=1.0) as held:
                    held.check()
                    # Checked, and not sent yet: there it is stopped.
                    os.kill(os.getpid(), signal.SIGSTOP)
                    sent.write_text("too late")
        finally:
            os._exit(0)
    return pid


def test_another_process_with_the_same_number_does_not_hold_it(control: Control) -> None:
    held_by(control, started="1")
    with Lease(control, "x") as taken:
        taken.check()


def test_a_process_of_another_container_is_not_taken_for_dead(control: Control) -> None:
    """Containers share the boot of their host, and each counts its processes from 1."""
    boot = json.loads(lease._me())["boot"].split()[0]
    held_by(control, boot=f"{boot} pid:[1]", pid=2**22 - 1, started="1")
    waited: list[float] = []

    def renews(seconds: float) -> None:
        waited.append(seconds)
        with control.transaction() as c:
            c.execute(tables.lease.update().values(counter=tables.lease.c.counter + 1))

    with pytest.raises(Refused, match="another host"), Lease(control, "x", sleep=renews):
        pass
    assert waited


def test_a_process_whose_parent_does_not_ask_for_it_is_dead_all_the_same(control: Control) -> None:
    ended = os.fork()
    if not ended:
        signal.pause()
    held_by(control, pid=ended, started=lease._stat(ended)[19])
    with pytest.raises(Refused, match="on this host"), Lease(control, "x"):
        pass
    os.kill(ended, signal.SIGKILL)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    try:
        with Lease(control, "x") as taken:
            taken.check()
    finally:
        os.waitpid(ended, 0)


def test_a_process_is_not_dead_as_long_as_one_of_its_threads_is_at_work(control: Control) -> None:
    alive = os.fork()
    if not alive:
        threading.Thread(target=threading.Event().wait).start()
        ctypes.CDLL(None).pthread_exit(None)
    try:
        while lease._stat(alive)[0] != "Z":
            time.sleep(0.001)
        held_by(control, pid=alive, started=lease._stat(alive)[19])
        with pytest.raises(Refused, match="on this host"), Lease(control, "x"):
            pass
    finally:
        os.kill(alive, signal.SIGKILL)
        waited(alive)


def test_a_process_that_proc_hides_is_not_taken_for_dead(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_by(control, pid=os.getppid(), started="1")
    tells = lease._stat
    monkeypatch.setattr(lease, "_stat", lambda pid: tells(pid) if pid == os.getpid() else [])
    with pytest.raises(Refused, match="on this host"), Lease(control, "x"):
        pass


def test_a_request_is_not_repeated_after_the_lease_was_lost() -> None:
    sent: list[str] = []

    def check() -> None:
        if sent:
            raise Interrupted("the lease ran out")

    def write() -> None:
        sent.append("a page")
        raise Transient("no answer", unknown=True)

    with pytest.raises(Interrupted):
        Retry(check=check)(write)
    assert sent == ["a page"]

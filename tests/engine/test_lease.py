"""Leases: who is alive, who is gone, and what a holder that lost his may still send."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Interrupted, Refused, Transient
from migrator.retry import Retry
from migrator.state import Control, Lease, lease, tables
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


def test_a_process_that_proc_hides_is_not_taken_for_dead(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_by(control, pid=os.getppid(), started="1")
    monkeypatch.setattr(lease, "_started", lambda pid: "")
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

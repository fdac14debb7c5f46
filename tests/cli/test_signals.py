"""SIGINT and SIGTERM in the middle of an apply: stopped at once, nothing lost, and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.kit import Project, new_shop
from tests.ending import ended

GAMES = 3_000
# Tells when it is there, and waits until it is let go.
WAIT = """
import sys, time
from pathlib import Path
from migrator.cli import main

def wait():
    Path("reached").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""
AT_A_POINT = """
from migrator.engine import points

points.hook = lambda point: wait() if point == "{point}" else None
sys.exit(main())
"""
AT_A_PAGE = """
from migrator.planning.survey import Surveyor

page = Surveyor._page

def held(self, blocks):
    wait()
    return page(self, blocks)

Surveyor._page = held
sys.exit(main())
"""
# A signal that strikes in a callback of the interpreter: what it raises there is lost.
LOST = """
import os, signal
from migrator.cli import entry

command = entry.Commands.get_command

class Struck:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass

def get_command(self, *words):
    Struck()
    wait()
    return command(self, *words)

entry.Commands.get_command = get_command
sys.exit(main())
"""
STOPPING = "stopping at the next page (once more: at once)\n"


def start(shop: Project, code: str, *words: str) -> subprocess.Popen[str]:
    """Start a command that waits somewhere; returns once it is there."""
    process = shop.python("-c", WAIT + code, *words)
    until = time.monotonic() + 60
    while not (shop.root / "reached").exists():
        assert process.poll() is None, ended(process)
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


@pytest.fixture
def big_shop(tmp_path: Path) -> Project:
    return new_shop(tmp_path, games=GAMES, rounds=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("point", ["backfill.checkpointed", "verify.checkpointed"])
def test_stopped_and_resumed(big_shop: Project, number: signal.Signals, point: str) -> None:
    process = start(big_shop, AT_A_POINT.format(point=point), "apply", "0001", "--yes")
    signalled(process, number)
    go_on(big_shop)
    out, err = ended(process)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines() == [
        "stopped, nothing lost",
        "go on with:  migrator apply 0001",
    ]
    assert "cut over" not in out
    resumes(big_shop)


def test_a_second_sigint_ends_it_at_once(big_shop: Project) -> None:
    at = AT_A_POINT.format(point="backfill.written")
    process = start(big_shop, at, "apply", "0001", "--yes")
    signalled(process, signal.SIGINT)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = ended(process)
    assert process.returncode == 130
    assert "stopped at once" in err
    resumes(big_shop)


def signalled(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal, and wait until it is heard."""
    process.send_signal(number)
    assert process.stderr is not None
    assert process.stderr.readline() == STOPPING


def go_on(shop: Project) -> None:
    (shop.root / "go").touch()


def resumes(shop: Project) -> None:
    """Check that the same command goes on, and that nothing is lost or doubled."""
    done = shop.done("apply", "0001")
    assert "going on with run 0001-" in done.out
    assert f"{GAMES:,} blocks equal on both sides, 0 differ" in done.out
    copied = next(
        event["detail"]
        for event in reversed(shop.done("log", "0001", "--format", "json").json)
        if event["event"] == "copied"
    )
    assert (copied["read"], copied["create"]) == (GAMES, GAMES)


def test_two_applies_exclude_each_other(big_shop: Project) -> None:
    at = AT_A_POINT.format(point="backfill.checkpointed")
    process = start(big_shop, at, "apply", "0001", "--yes")
    answer = big_shop("apply", "0001")
    assert answer.code == 3
    assert f"in the hands of process {process.pid} on this host" in answer.err
    assert "Traceback" not in answer.err
    go_on(big_shop)
    ended(process)
    assert process.returncode == 0
    assert os.path.exists(big_shop.root / "docs.db")


def test_ctrl_c_among_the_imports_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.run(
        [sys.executable, "-m", "migrator"], env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (process.returncode, process.stderr) == (-signal.SIGINT, "")


def test_stopped_while_it_only_reads(big_shop: Project) -> None:
    process = start(big_shop, AT_A_PAGE, "plan")
    signalled(process, signal.SIGTERM)
    go_on(big_shop)
    _, err = ended(process)
    assert process.returncode == 130
    assert "stopped; nothing was changed" in err
    assert not list(big_shop.root.glob("plans/*"))


@pytest.mark.parametrize("command", [["apply", "--yes"], ["mirror"], ["plan"]])
def test_a_signal_whose_exception_is_lost_stops_it_all_the_same(
    tmp_path: Path, command: list[str]
) -> None:
    shop = new_shop(tmp_path, games=1, rounds=1)
    process = start(shop, LOST, *command, "0001")
    go_on(shop)
    _, err = process.communicate(timeout=60)
    assert "Exception ignored" in err
    assert "stopped before the end" in err
    assert process.returncode == 130
    assert not list(shop.root.glob("plans/*"))

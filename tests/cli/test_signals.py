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

GAMES = 3_000
# Slows the run at a named point, and tells when it is there.
SLOW = """
import sys, time
from pathlib import Path
from migrator.cli import main
from migrator.engine import points

def hook(point):
    if point == "{point}":
        Path("reached").touch()
        time.sleep({seconds})

points.hook = hook
sys.exit(main())
"""


def start(shop: Project, point: str, seconds: float, *words: str) -> subprocess.Popen[str]:
    """Start a slow apply; returns once it is at the point."""
    (shop.root / "reached").unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW.format(point=point, seconds=seconds), *words],
        cwd=shop.root, env=shop.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (shop.root / "reached").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


@pytest.fixture
def big_shop(tmp_path: Path) -> Project:
    return new_shop(tmp_path, games=GAMES, rounds=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("point", ["backfill.checkpointed", "verify.checkpointed"])
def test_stopped_and_resumed(big_shop: Project, number: signal.Signals, point: str) -> None:
    process = start(big_shop, point, 0.2, "apply", "0001", "--yes")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines() == [
        "stopping at the next page (once more: at once)",
        "stopped, nothing lost",
        "go on with:  migrator apply 0001",
    ]
    assert "cut over" not in out
    resumes(big_shop)


def test_a_second_sigint_ends_it_at_once(big_shop: Project) -> None:
    process = start(big_shop, "backfill.written", 60, "apply", "0001", "--yes")
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "stopped at once" in err
    resumes(big_shop)


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
    process = start(big_shop, "backfill.checkpointed", 1, "apply", "0001", "--yes")
    answer = big_shop("apply", "0001")
    assert answer.code == 3
    assert f"in the hands of process {process.pid} on this host" in answer.err
    assert "Traceback" not in answer.err
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert os.path.exists(big_shop.root / "docs.db")


def test_stopped_while_it_only_reads(big_shop: Project) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from migrator.cli import main\n"
        "from migrator.planning.survey import Surveyor\n"
        "page = Surveyor._page\n"
        "def slow(self, blocks):\n"
        "    Path('reached').touch()\n"
        "    time.sleep(0.3)\n"
        "    return page(self, blocks)\n"
        "Surveyor._page = slow\n"
        "sys.exit(main())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "plan"], cwd=big_shop.root, env=big_shop.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (big_shop.root / "reached").exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped; nothing was changed" in err
    assert not list(big_shop.root.glob("plans/*"))

"""The last lines of a run name what was tried again, and what failed, whatever else it tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TRIED = """
import pytest

LONG = "\\n".join(["it is wrong", *(f"so says line {number}" for number in range(50))])
tries = []

@pytest.mark.parametrize("number", range(50))
def test_skipped(number):
    pytest.skip(f"for reason {number}")

def test_that_passes_at_its_second_try():
    tries.append(None)
    assert len(tries) == 2, LONG

def test_that_fails_twice():
    pytest.fail(LONG, pytrace=False)

@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("number", range(14))
def test_that_is_certain(number):
    raise ValueError(LONG)
"""


def test_the_end_of_a_run_names_what_was_tried_again_and_what_failed(tmp_path: Path) -> None:
    (tmp_path / "test_tried.py").write_text(TRIED)
    # The options of the house are in force, and CI is set, by which pytest tells more.
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['tests.unsteady']")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--reruns", "1", "-n", "1"]
    command += ["-c", "pyproject.toml", f"--rootdir={tmp_path}", str(tmp_path / "test_tried.py")]
    env = {**os.environ, "CI": "true"}
    for name in ("MIGRATOR_REQUIRE_SERVICES", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        env.pop(name, None)

    done = subprocess.run(
        command, cwd=Path(__file__).parent.parent, env=env, capture_output=True, text=True,
        timeout=240,
    )  # fmt: skip

    assert done.returncode == 1, done.stdout + done.stderr
    *_, named, first, second = lines = done.stdout.splitlines()[:-15]
    assert all(line.startswith("FAILED ") for line in lines[-17:-2])
    assert "test_that_is_certain[13]" in named
    *certain, more, end = done.stdout.splitlines()[-15:]
    assert "15 failed, 1 passed, 50 skipped, 2 rerun" in end
    assert more == "and 1 more"
    assert certain == [
        f"failed: test_tried.py::test_that_is_certain[{number}] - ValueError: it is wrong"
        for number in range(13)
    ]
    assert first == (
        "unsteady: test_tried.py::test_that_passes_at_its_second_try - AssertionError: it is wrong"
    )
    assert second == "failed again: test_tried.py::test_that_fails_twice - Failed: it is wrong"

"""What hangs fails and tells where, also in what cleans up behind it; and is tried again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HANGING = """
import threading
import pytest
from tests import limit

limit.AGAIN = 0.3
tries = []

def elsewhere():
    threading.Event().wait()

def hangs():
    try:
        threading.Event().wait()
    finally:
        threading.Event().wait()

def test_the_first_try():
    tries.append(None)
    if len(tries) == 1:
        threading.Thread(target=elsewhere, daemon=True).start()
        hangs()

@pytest.fixture
def left():
    yield
    threading.Event().wait()

def test_the_teardown(left):
    pass
"""


def test_what_hangs_fails_with_its_stacks_and_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    words = "-p tests.limit -p tests.unsteady -p no:cacheprovider --timeout 2 --reruns 1 -n 1"
    command = [sys.executable, "-m", "pytest", *words.split(), "-c", os.devnull]
    env = dict(os.environ)
    for name in ("MIGRATOR_REQUIRE_SERVICES", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        env.pop(name, None)

    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", str(tmp_path / "test_hanging.py")],
        cwd=Path(__file__).parent.parent, env=env, capture_output=True, text=True, timeout=240,
    )  # fmt: skip

    said = done.stdout
    assert done.returncode == 1, said + done.stderr
    assert "3 passed, 1 error, 2 rerun" in said, said + done.stderr
    assert said.count("it took more than 2 s, and hung here") > 1
    assert ", in elsewhere\n" in said
    assert "in hangs" in said

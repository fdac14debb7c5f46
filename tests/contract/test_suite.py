"""The contract suite is tried itself: a broken store fails, and so does a skip without reason."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.ports import Cost
from migrator.testing.contract import Traffic
from migrator.testing.contract.costing import judge
from tests.contract.cases import CASES
from tests.contract.mutants import NOTICED_BY

ROOT = Path(__file__).parents[2]

CONFTEST = """
from migrator.testing.matrix import *
"""
MINE = """
import pytest
from migrator.testing.contract import StoreContract
from migrator.testing.contract.case import by_capability
from tests.contract.cases import CASES

class TestMine(StoreContract):
    @pytest.fixture(scope="class", params=CASES[:1], ids=str)
    @classmethod
    def case(cls, request):
        return request.param

    def test_ping_says_who_answers(self, case):
        pytest.skip("I have no time today")

    def test_findings_are_readable(self, case):
        by_capability("it has none")
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A module as an outside adapter would have it."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_mine.py").write_text(MINE)
    return tmp_path / "test_mine.py"


def run(mine: Path, promise: str, *args: str, mutant: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
         f"--rootdir={ROOT}", str(mine), "-k", promise, *args],
        cwd=ROOT,
        env={**os.environ, **({"MUTANT": mutant} if mutant else {})},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("mutant", NOTICED_BY)
def test_a_broken_store_fails_the_promise_it_breaks(mine: Path, mutant: str) -> None:
    promise = NOTICED_BY[mutant]
    said = run(mine, promise, "-p", "tests.contract.mutants", mutant=mutant)
    assert f"F  {promise.replace('_', ' ')}" in said, said[-3000:]


@pytest.mark.parametrize(
    ("said", "is_true"),
    [
        (Cost(5, "", least=2), True),
        (Cost(2, "", pages=3), True),
        (Cost(5, ""), False),
        (Cost(4, "", least=2), False),
        (Cost(6, "", least=2), False),
        (Cost(5, "", least=1), False),
        (Cost(5, "", least=2, pages=1), False),
        (Cost(3, "", least=2, extra={"x": 2}), False),
    ],
)
def test_a_cost_that_is_stated_too_low_or_too_high_fails(said: Cost, is_true: bool) -> None:
    counted = [(Traffic(2), 3), (Traffic(5), 30)]
    if is_true:
        judge("put", said, CASES[0], counted)
    else:
        with pytest.raises(AssertionError):
            judge("put", said, CASES[0], counted)
    with_more = replace(CASES[0], has=frozenset({"x"}))
    judge("put", Cost(3, "", least=2, extra={"x": 2}), with_more, counted)


def test_a_skip_without_reason_fails(mine: Path) -> None:
    said = run(mine, "ping")
    assert "F  ping says who answers" in said, said
    assert "capabilities do not explain: Skipped: I have no time today" in said


def test_a_skip_by_capability_is_shown_as_such(mine: Path) -> None:
    said = run(mine, "findings")
    assert "-  findings are readable" in said, said
    assert "1 skipped" in said

"""Hooks for a ``conftest.py`` beside contract tests: promise x store, and no unexplained skip.

from migrator.testing.matrix import *
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Generator

import pytest

from migrator.testing.contract.case import ContractCase

__all__ = ["pytest_runtest_makereport", "pytest_terminal_summary"]

_EXPLAINED = re.compile(r"(Skipped: )?(capabilities: |declared: |no \w+ at )")
_PROPERTY = "contract"
_MARKS = {"passed": "+", "capabilities": "-", "declared": "d", "absent": "?", "failed": "F"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the outcome of a promise; a skip that nothing explains is a failure."""
    report = yield
    case = getattr(item, "funcargs", {}).get("case")
    if not isinstance(case, ContractCase):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    outcome: str = report.outcome
    if report.skipped:
        if not _EXPLAINED.match(reason):
            report.outcome = "failed"
            report.longrepr = f"a skip that the store's capabilities do not explain: {reason}"
            outcome = "failed"
        else:
            word = reason.removeprefix("Skipped: ").partition(":")[0]
            outcome = word if word in _MARKS else "absent"
    if report.when == "call" or outcome != "passed":
        promise = getattr(item, "originalname", item.name).removeprefix("test_")
        report.user_properties.append((_PROPERTY, [promise, str(case), outcome]))
    return report


def _outcomes(reporter: pytest.TerminalReporter) -> dict[tuple[str, str], Counter[str]]:
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for reports in reporter.stats.values():
        for report in reports:
            for name, held in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    promise, case, outcome = held
                    found[promise, case][outcome] += 1
    return found


def _mark(outcomes: Counter[str]) -> str:
    """The worst of a promise's tests: a failure, else what was tried, else why it was not."""
    for outcome in ("failed", "passed", "declared", "capabilities", "absent"):
        if outcomes[outcome]:
            return _MARKS[outcome]
    return " "


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each promise, one column for each case."""
    found = _outcomes(terminalreporter)
    if not found:
        return
    cases = list(dict.fromkeys(case for _, case in found))
    promises = list(dict.fromkeys(promise for promise, _ in found))
    terminalreporter.section("contract: promise x store")
    for i, case in enumerate(cases):
        terminalreporter.write_line("  " + "| " * i + case)
    for promise in promises:
        marks = " ".join(_mark(found[promise, case]) for case in cases)
        terminalreporter.write_line(f"  {marks}  {promise.replace('_', ' ')}")
    terminalreporter.write_line(
        "  + holds, F fails, - left out by capabilities, d by declaration, ? server absent"
    )

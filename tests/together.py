"""Which tests stay together in one worker, and in which order they go."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any

import pytest

_LONGEST_FIRST = {"system": 0, "contract": 1, "engine": 2, "tests": 3}
_LEFT_BY_A_CRASH = 3
_WITH_SERVERS = "test_server_kill.py"
# Behind the case of the contract: the representation, or how many blocks there are.
_CASE = re.compile(r"\[(.+?)(-[A-Z0-9][A-Z+0-9]*)?\]$")


def together(nodeid: str) -> str:
    """What is one here stays in one worker.

    A file does, for what it sets up; a store of the contract; a test of the whole system alone,
    unless its file starts servers of its own.
    """
    file = nodeid.partition("::")[0]
    path = PurePosixPath(file)
    if path.parent.name == "system" and path.name != _WITH_SERVERS:
        return nodeid
    if path.parent.name == "contract" and (case := _CASE.search(nodeid)):
        return f"{file}:{case[1]}"
    return file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=lambda item: _LONGEST_FIRST.get(item.path.parent.name, len(_LONGEST_FIRST)))


class Workers:
    """Of the process that hands out the tests, and sees to it that they stay together."""

    def __init__(self, config: pytest.Config) -> None:
        self.grouped = config.getoption("dist", "no") == "loadgroup"
        self.of: dict[str, set[str]] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """xdist 3.8 finds no groups under pytest 9.2, where an item's id is not what it was."""
        if not self.grouped:
            return None
        from xdist.scheduler import LoadScopeScheduling

        class Together(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                return together(nodeid)

        return Together(config, log)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.grouped and (worker := getattr(report, "worker_id", "")):
            self.of.setdefault(together(report.nodeid), set()).add(worker)

    def _torn(self) -> list[str]:
        return [group for group, workers in self.of.items() if len(workers) > 1]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for group in self._torn():
            terminalreporter.write_line(f"not kept in one worker: {group}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        # Else nobody sees it: each worker then starts the servers of a file for itself. A worker
        # that crashed leaves what it had to others.
        if exitstatus == 0 and len(self._torn()) > _LEFT_BY_A_CRASH:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

"""What passed at its second try alone, and which servers died: told at the end (ADR 34)."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests import revival

_MOST_UNSTEADY = 3
_MOST_TOLD, _WIDTH = 15, 200  # tests in the last lines, and characters of their messages
_DIED = "died"
_before = pytest.StashKey[int]()


def pytest_sessionstart() -> None:
    if os.environ.get("MIGRATOR_REQUIRE_SERVICES"):
        revival.begin()


def pytest_unconfigure() -> None:
    revival.end()


def _deaths() -> list[revival.Death]:
    watch = revival.current()
    return watch.deaths() if watch else []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if watch := revival.current():
        watch.wait()
    item.stash[_before] = len(_deaths())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where a test fails, have its second try find the servers, and note whether one had died."""
    report = yield
    if report.failed and (watch := revival.current()):
        watch.revive_all()
        dead = watch.deaths()[item.stash.get(_before, 0) :]
        if dead:
            report.user_properties.append((_DIED, ", ".join(each.name for each in dead)))
    return report


def _tried_again(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    return reporter.stats.get("rerun", [])


def _count(reporter: pytest.TerminalReporter) -> int:
    """A server that dies takes the tests of all workers with it: that counts as one."""
    own = [each for each in _tried_again(reporter) if _DIED not in dict(each.user_properties)]
    return len(own) + len(_deaths())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    _tell(terminalreporter)
    yield
    # Behind pytest's own summary, a line each: of a long log often just the end is kept.
    for line in _in_short(terminalreporter):
        terminalreporter.write_line(line)


def _in_short(reporter: pytest.TerminalReporter) -> Generator[str, None, None]:
    bad = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    tried, failed = _tried_again(reporter), {each.nodeid for each in bad}
    twice = {each.nodeid for each in tried}
    told = [("failed again" if each.nodeid in failed else "unsteady", each) for each in tried]
    told += [("failed", each) for each in bad if each.nodeid not in twice]
    for word, report in told[:_MOST_TOLD]:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message if crash else report.longreprtext
        yield f"{word}: {report.nodeid} - {why.strip().partition(chr(10))[0][:_WIDTH]}"
    if len(told) > _MOST_TOLD:
        yield f"and {len(told) - _MOST_TOLD} more"
    for death in _deaths():
        yield f"unsteady: {death.name} died"
    if _count(reporter) > _MOST_UNSTEADY:
        yield f"more than {_MOST_UNSTEADY} unsteady: the run failed"


def _tell(terminalreporter: pytest.TerminalReporter) -> None:
    for report in _tried_again(terminalreporter):
        terminalreporter.section(f"unsteady, to be looked into: {report.nodeid}")
        for _, names in (each for each in report.user_properties if each[0] == _DIED):
            terminalreporter.write_line(f"while it ran, a server died: {names}")
        terminalreporter.write_line(report.longreprtext)
    for death in _deaths():
        terminalreporter.section(f"unsteady, to be looked into: {death.name} died")
        terminalreporter.write_line(f"pid {death.pid}; the end of its log:")
        for line in death.said:
            terminalreporter.write_line(f"  {line}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter and _count(reporter) > _MOST_UNSTEADY:
        # Once in a thousand a busy machine may be to blame; more often it is not.
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

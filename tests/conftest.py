"""Servers for tests: clear skips without them, failures where MIGRATOR_REQUIRE_SERVICES is set."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

# Before the suite is imported, so that its assertions are told in full.
pytest.register_assert_rewrite("migrator.testing.contract")

import migrator.testing.matrix  # noqa: E402
import tests.limit  # noqa: E402
import tests.system.matrix  # noqa: E402
import tests.together  # noqa: E402
import tests.unsteady  # noqa: E402
from tests import revival  # noqa: E402

SERVERS = {
    "postgresql": "postgresql://migrator:migrator@127.0.0.1:15432/postgres",
    "mariadb": "mariadb://migrator:migrator@127.0.0.1:13306/mysql",
    "mongodb": "mongodb://127.0.0.1:27117/?directConnection=true",
    "redis": "redis://127.0.0.1:16379/0",
    "rediscluster": "rediscluster://127.0.0.1:17001",
    "dynamodb": "dynamodb://127.0.0.1:15000?region=eu-west-1",  # moto
    "dynalite": "dynamodb://127.0.0.1:15001?region=eu-west-1",
    "cassandra": "cassandra://127.0.0.1:19042",
}
# A busy machine makes no example wrong. What CI has of its own in the default stays.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

_TESTS = Path(__file__).parent
_ABSENT = re.compile(r"no (\w+) at [^ ]+ \(start it: ")

# Of these nothing hangs on time, servers or other processes: what fails once is wrong.
_CERTAIN = ("unit", "protocol", "test_house.py")

# What the tests left on servers that everybody shares is removed by these.
at_the_end: list[Callable[[], object]] = []
_sessions: list[None] = []


def server_url(name: str) -> str:
    """The URL of a test server; skips (or fails, where servers are required) without it.

    One that died since the tests began is started again first, and that is told at the end.
    """
    url = os.environ.get(f"MIGRATOR_TEST_{name.upper()}", SERVERS[name])
    watch = revival.current()
    if revival.answers(url) or (watch and watch.revive(name, url)):
        return url
    host, port = revival.place(url)
    message = f"no {name} at {host}:{port} (start it: scripts/services up {name})"
    if trouble := watch and watch.trouble(name):
        message += f"; it died, and did not come up again: {trouble}"
    if os.environ.get("MIGRATOR_REQUIRE_SERVICES"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def tidy(name: str, remove: Callable[[], object]) -> None:
    """Remove what tests left on a server; where it dies meanwhile, that is no test's failure."""
    watch = revival.current()
    before = len(watch.deaths()) if watch else 0
    try:
        remove()
    except Exception:
        server_url(name)
        if watch is None or len(watch.deaths()) == before:
            raise
        with suppress(Exception):  # it may have gone before the server did
            remove()


@pytest.fixture(scope="session")
def postgresql_url() -> str:
    return server_url("postgresql")


@pytest.fixture(scope="session")
def mariadb_url() -> str:
    return server_url("mariadb")


@pytest.fixture(scope="session")
def mongodb_url() -> str:
    return server_url("mongodb")


@pytest.fixture(scope="session")
def redis_url() -> str:
    return server_url("redis")


@pytest.fixture(scope="session")
def rediscluster_url() -> str:
    return server_url("rediscluster")


@pytest.fixture(scope="session")
def dynamodb_url() -> str:
    return server_url("dynamodb")


@pytest.fixture(scope="session")
def dynalite_url() -> str:
    return server_url("dynalite")


@pytest.fixture(scope="session")
def cassandra_url() -> str:
    return server_url("cassandra")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where others are tried a second time (--reruns), those that are certain are not."""
    for item in items:
        if item.path.relative_to(_TESTS).parts[0] in _CERTAIN:
            item.add_marker(pytest.mark.flaky(reruns=0))


def pytest_configure(config: pytest.Config) -> None:
    # Here and not beside the contract tests: the process that prints collects no tests itself
    # where others run them.
    config.pluginmanager.register(migrator.testing.matrix, "promises")
    config.pluginmanager.register(tests.limit, "limit")
    config.pluginmanager.register(tests.unsteady, "unsteady")
    config.pluginmanager.register(tests.together, "together")
    config.pluginmanager.register(tests.together.Workers(config), "workers")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # From the reports, not from a set of ours: the tests may have run in other processes.
    reports = [each for found in terminalreporter.stats.values() for each in found]
    if pairs := list(tests.system.matrix.lines(reports)):
        terminalreporter.section("pairs: source x target")
        for line in pairs:
            terminalreporter.write_line(line)
    texts = [str(each.longrepr) for each in reports if getattr(each, "longrepr", None)]
    for name in sorted({found[1] for found in map(_ABSENT.search, texts) if found}):
        terminalreporter.write_line(f"not exercised, server absent: {name}")


def pytest_runtest_logfinish() -> None:
    """What a command has set of the log, its level too, is for the test alone that called it."""
    structlog.reset_defaults()
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    for handler in [each for each in root.handlers if type(each) is logging.StreamHandler]:
        root.removeHandler(handler)


def pytest_sessionstart() -> None:
    _sessions.append(None)


def pytest_sessionfinish() -> None:
    _sessions.pop()
    # A test of the contract suite runs pytest within pytest, whose end is not ours.
    while at_the_end and not _sessions:
        with suppress(Exception):
            at_the_end.pop()()

"""The server of the control database goes away while a mirror stands by, and comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg import sql

from migrator import commands
from migrator.errors import Interrupted
from migrator.model.phase import Phase
from migrator.state import Lease, LiveState
from tests.ending import joined
from tests.engine.games import fill, game, make_project, source
from tests.gateway.kit import control_on, until
from tests.system import servers


class Looks(threading.Event):
    """Never set until the end; counts how often it was waited for."""

    times = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.times += 1
        return super().wait(0.01)


def test_a_mirror_that_stands_by_outlasts_its_control_database(
    tmp_path: Path, database_url: servers.MakeDatabase
) -> None:
    config = make_project(tmp_path)
    control_on(config, database_url)
    stop, raised = Looks(), list[BaseException]()

    def mirror() -> None:
        try:
            with commands.Project(config, "test") as project, suppress(Interrupted):
                commands.mirror(project, "0001", stop=stop)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            raised.append(error)

    def looked() -> Callable[[], bool]:
        before = stop.times
        return lambda: bool(raised) or stop.times > before + 2

    thread = threading.Thread(target=mirror)
    with commands.Project(config, "test") as project:
        fill(source(project), [("1", game(1))])
        plan = commands.plan(project, "0001", live=True)
        commands.apply(project, plan, until=Phase.PREPARED)
        name = project.control.engine.url.database or ""
        told = LiveState(project.control, project.control.run("0001").id).told
        with Lease(project.control, "test/0001/mirror"):
            thread.start()
            until(looked())
            with away(database_url("postgresql"), name):
                until(looked())
                assert raised == []
        at, _ = told()
        until(lambda: bool(raised) or told()[0] > at)
        stop.set()
        joined(thread)
        assert raised == []


@contextmanager
def away(url: str, name: str) -> Iterator[None]:
    """A database that lets nobody in, and from which all were thrown out."""
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    with servers.connect_postgresql(url) as server:
        server.execute(allow(sql.Identifier(name), sql.SQL("false")))
        server.execute(ends, [name])
        try:
            yield
        finally:
            server.execute(allow(sql.Identifier(name), sql.SQL("true")))

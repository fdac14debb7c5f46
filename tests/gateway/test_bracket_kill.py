"""A gateway that is killed in the middle of a bracket, on a real Cassandra (R8)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine.swap import SwapTerms
from migrator.errors import Waiting
from migrator.gateway.noting import Noting
from migrator.model.value import Value
from migrator.ports import Json
from migrator.render.runs import status_lines
from migrator.stores.cassandra import journal
from migrator.stores.cassandra.journal import CassandraBrackets
from migrator.stores.cassandra.table_wire import Wire
from tests.ending import waited
from tests.gateway.kit import LASTING, opened, until
from tests.gateway.test_live import begin, cassandra_to_embedded, ends, held, mirroring, swapped

__all__ = ["cassandra_to_embedded"]


def killed_at(where: type, step: str, config: Path, key: str) -> None:
    """A process that puts a key, and is killed as it comes to a step of that.

    Nothing may be open here: what another thread holds at the fork is never let go in the child.
    """
    pid = os.fork()
    if pid == 0:
        signal.alarm(120)
        try:
            with opened(config) as games:
                setattr(where, step, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
                games.put(key, {"n": 1})
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(waited(pid)) == -signal.SIGKILL


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that need not wait for long: all gateways are dead before it begins."""
    monkeypatch.setattr(journal, "LIFE", 0.1)
    monkeypatch.setattr(journal, "SKEW", 0.1)
    monkeypatch.setattr(Wire, "request_life", 0.3)


@pytest.mark.usefixtures("hasty")
def test_what_a_gateway_wrote_before_it_was_killed_is_mirrored(cassandra_to_embedded: Path) -> None:
    with commands.Project(cassandra_to_embedded, "test") as project:
        begin(project)
    killed_at(CassandraBrackets, "close", cassandra_to_embedded, "written")
    killed_at(Noting, "check", cassandra_to_embedded, "announced")
    with commands.Project(cassandra_to_embedded, "test") as project:
        old, new = ends(project)
        assert (held(old), held(new)) == ({"written": {"n": 1}}, {})

        with mirroring(cassandra_to_embedded):
            until(lambda: held(new) == {"written": {"n": 1}})


def shown(project: commands.Project) -> str:
    return "\n".join(line.text for line in status_lines(commands.status(project, "0001"), str))


@pytest.mark.usefixtures("hasty")
def test_what_a_gateway_wrote_before_it_was_killed_is_there_after_a_cut_over(
    cassandra_to_embedded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commands.Project(cassandra_to_embedded, "test") as project:
        begin(project)
    killed_at(CassandraBrackets, "close", cassandra_to_embedded, "written")
    killed_at(Noting, "check", cassandra_to_embedded, "announced")
    with commands.Project(cassandra_to_embedded, "test") as project:
        old, new = ends(project)
        with monkeypatch.context() as patch:
            patch.setattr(journal.CassandraFeed, "_reap", lambda self: None)
            for _ in range(3):  # also once the leases of the dead have been taken away
                with pytest.raises(Waiting):
                    commands.cutover(project, "0001", swap=SwapTerms(gateways=True, bound=0.5))
            assert project.control.run("0001").primary == "source"
            told = "1 writes of gateways have begun and not ended; a swap waits"
            with mirroring(cassandra_to_embedded):
                until(lambda: told in shown(project))
        assert held(new) == {}
        swapped(commands.cutover, project)
        assert held(new) == {"written": {"n": 1}}
        swapped(commands.rollback, project)
        assert held(old) == held(new) == {"written": {"n": 1}}


def test_without_reaping_it_would_be_missing(
    cassandra_to_embedded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commands.Project(cassandra_to_embedded, "test") as project:
        begin(project)
    killed_at(CassandraBrackets, "close", cassandra_to_embedded, "written")
    with commands.Project(cassandra_to_embedded, "test") as project:
        monkeypatch.setattr(journal.CassandraFeed, "_reap", lambda self: None)
        with opened(cassandra_to_embedded) as games, mirroring(cassandra_to_embedded):
            games.put("later", {"n": 2})
            old, new = ends(project)
            until(lambda: "later" in held(new))
            assert "written" in held(old)
            assert "written" not in held(new)


def test_a_write_that_the_new_primary_takes_otherwise_opens_one_bracket(
    cassandra_to_embedded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was decided how to send it before the sides were swapped."""
    with commands.Project(cassandra_to_embedded, "test") as project:
        begin(project)
    open_, brackets = CassandraBrackets.open, list[object]()

    def opens(self: CassandraBrackets, key: Value, *, deleted: bool = False) -> Json:
        brackets.append(key)
        return open_(self, key, deleted=deleted)

    monkeypatch.setattr(CassandraBrackets, "open", opens)
    monkeypatch.setattr("migrator.gateway.gateway._plainly", lambda *_: True)
    # Neither its lease nor a bracket runs out: then it would be begun anew.
    monkeypatch.setattr(CassandraBrackets, "life", 3_600.0)
    with opened(cassandra_to_embedded, LASTING) as games:
        games.put("one", {"n": 1})
        games.delete("one")
    assert brackets == ["one", "one"]

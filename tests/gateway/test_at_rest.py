"""A move at rest, under gateways that look at it only now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine import backfill as copying
from migrator.engine import run as engine
from migrator.errors import Mismatch, Refused
from migrator.gateway import Stopped, Terms
from migrator.model.phase import Phase
from migrator.render.runs import run_lines
from migrator.stores.sqlite.collection import EntriesCollection
from tests.engine.games import contents, fill, game, make_project, source, target
from tests.gateway.kit import opened, until

# It looks every second, so a move of a few games is over before it has looked.
SELDOM = Terms(lease=5.0, bound=60.0, request_life=1.0)
HASTY = Terms(lease=5.0, bound=0.1, request_life=1.0)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        fill(source(project), [("1", game(1)), ("2", game(2))])
    return config


@pytest.fixture
def project(config: Path) -> Iterator[commands.Project]:
    with commands.Project(config, "test") as project:
        yield project


def apply(project: commands.Project, until: Phase = Phase.CUT_OVER) -> None:
    commands.apply(project, commands.plan(project, "0001"), until=until)


def test_what_an_idle_gateway_writes_lands_on_the_side_that_decides(
    config: Path, project: commands.Project
) -> None:
    with opened(config, SELDOM) as games:
        apply(project)
        games.put("3", {"id": "3", "n": 3})
        assert contents(target(project))["3"] == {"id": "3", "n": 3}
        commands.rollback(project, "0001", carry_back=True)
        games.put("4", {"id": "4", "n": 4})
        assert contents(source(project))["3"] == {"id": "3", "n": 3}
        assert contents(source(project))["4"] == {"id": "4", "n": 4}
        with pytest.raises(Mismatch, match="1 are missing"):
            apply(project)  # written since the rollback
        games.put("5", {"id": "5"})
    assert contents(source(project))["5"] == {"id": "5"}


def test_a_copy_begins_once_what_a_gateway_has_under_way_is_there(
    config: Path, project: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, go_on, copied = threading.Event(), threading.Event(), threading.Event()
    plain, backfill = EntriesCollection.write, copying.backfill

    def slow(self: EntriesCollection, blocks: list[object]) -> object:
        if threading.current_thread().name == "application":
            under_way.set()
            assert go_on.wait(60)
        return plain(self, blocks)  # type: ignore[arg-type]

    def noted(*args: object) -> object:
        copied.set()
        return backfill(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(EntriesCollection, "write", slow)
    monkeypatch.setattr(copying, "backfill", noted)
    with opened(config, SELDOM) as games:
        writer = threading.Thread(
            target=lambda: games.put("3", {"id": "3"}), name="application", daemon=True
        )
        writer.start()
        assert under_way.wait(60)
        mover = threading.Thread(target=apply_alone, args=(config,), daemon=True)
        mover.start()
        follower = games._here.follower
        until(lambda: follower.standing.at_rest and bool(follower.standing.fence))
        assert not copied.is_set()
        go_on.set()
        writer.join(60)
        mover.join(60)
    assert contents(target(project))["3"] == {"id": "3"}


def apply_alone(config: Path) -> None:
    with commands.Project(config, "test") as project:
        apply(project)


def test_a_rollback_that_is_refused_lets_gateways_go_on(
    config: Path, project: commands.Project
) -> None:
    with opened(config, SELDOM) as games:
        apply(project)
        games.put("1", {"id": "1", "changed": True})
        with pytest.raises(Refused, match="were written since the cut-over"):
            commands.rollback(project, "0001")
        games.put("2", {"id": "2", "changed": True})
    assert contents(target(project))["2"] == {"id": "2", "changed": True}


def test_of_a_rollback_that_was_killed_status_tells_and_apply_takes_it_back(
    config: Path, project: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> object:
        monkeypatch.setattr("migrator.engine.stilled.go_on", lambda scene: None)
        raise Killed

    apply(project)
    monkeypatch.setattr(engine, "verify", killed)
    with pytest.raises(Killed):
        commands.rollback(project, "0001")
    monkeypatch.undo()
    (status,) = commands.status(project)
    assert status.stopped
    told = "\n".join(line.text for line in run_lines(status, status.changed, str))
    assert "gateways write nothing" in told
    assert "migrator apply 0001" in told
    with opened(config, HASTY) as games, pytest.raises(Stopped):
        games.put("1", {})
    apply(project)
    with opened(config, SELDOM) as games:
        games.put("1", {"id": "1"})
    assert contents(target(project))["1"] == {"id": "1"}


def test_an_aborted_move_stops_nobody(config: Path, project: commands.Project) -> None:
    with opened(config, SELDOM) as games:
        apply(project, Phase.SHADOW_READ)
        commands.abort(project, "0001", drop_target=True)
        games.put("3", {"id": "3"})
    assert contents(source(project))["3"] == {"id": "3"}


def test_a_revision_is_noted_as_done_once_no_gateway_writes_where_its_data_lay(
    config: Path, project: commands.Project
) -> None:
    long = Terms(lease=20.0)  # which a busy machine does not let run out
    with opened(config, long), pytest.raises(Refused, match="goes on writing"):
        commands.stamp(project, "0001")
    commands.stamp(project, "0001")
    target(project).create()
    with opened(config, SELDOM) as games:
        games.put("3", {"id": "3"})
    assert contents(target(project)) == {"3": {"id": "3"}}

"""C18: a crash while the list of ranges is saved must not make a resumed run do a part of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine import points
from migrator.errors import MigratorError, Refused
from migrator.model.phase import Phase
from tests.engine.games import assert_equal, contents, fill, game, make_project, source, target


class Crash(Exception):
    """Stands for the end of the process at a named point."""


def crash_at(point: str) -> None:
    def hook(reached: str) -> None:
        if reached == point:
            raise Crash

    points.hook = hook


@pytest.fixture
def project(tmp_path: Path) -> commands.Project:
    project = commands.Project(make_project(tmp_path), "test")
    fill(source(project), [(str(n), game(n)) for n in range(3000)])
    return project


@pytest.fixture(autouse=True)
def no_hook() -> object:
    yield
    points.hook = None


def listed_then_crashed(project: commands.Project) -> Path:
    plan = commands.plan(project, "0001")
    crash_at("backfill.listed")
    with pytest.raises(Crash):
        commands.apply(project, plan)
    points.hook = None
    return project.settings.root / ".migrator" / "test.db"


def test_a_list_that_lost_ranges_is_refused(project: commands.Project) -> None:
    database = listed_then_crashed(project)
    with sqlite3.connect(database) as control:
        lost = control.execute("DELETE FROM migrator_task WHERE number = 0").rowcount
    assert lost == 1
    plan = commands.frozen_plan(project.control.run("0001"))
    with pytest.raises(MigratorError, match="list of ranges"):
        commands.apply(project, plan)
    assert project.control.run("0001").phase is Phase.DUAL_WRITE


def test_a_list_that_was_never_written_is_made_anew(project: commands.Project) -> None:
    database = listed_then_crashed(project)
    with sqlite3.connect(database) as control:
        control.execute("DELETE FROM migrator_task")
    plan = commands.frozen_plan(project.control.run("0001"))
    assert commands.apply(project, plan).phase == "cut_over"
    assert_equal(contents(target(project)), contents(source(project)))


def test_an_unknown_run_is_an_error(project: commands.Project) -> None:
    with pytest.raises(Refused, match="no run"):
        project.control.run("0001-20260101-000000-beef")

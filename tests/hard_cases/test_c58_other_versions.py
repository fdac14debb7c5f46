"""C58: state of another version of the tool is refused or read, never thrown away."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Refused
from migrator.model.phase import Phase
from migrator.planning.file import read_plan
from tests.engine.games import fill, game, make_project, source


def control_file(project: commands.Project) -> Path:
    return project.settings.root / ".migrator" / "test.db"


def test_a_control_database_of_a_newer_version_is_left_as_it_is(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        fill(source(project), [("1", game(1))])
        plan = commands.plan(project, "0001")
        commands.apply(project, plan, until=Phase.PREPARED)
        file = control_file(project)
    with sqlite3.connect(file) as control:
        control.execute("UPDATE migrator_state_version SET version_num = '9999'")
    with commands.Project(config, "test") as project, pytest.raises(Refused, match="9999"):
        commands.apply(project, plan)
    with sqlite3.connect(file) as control:
        control.execute("UPDATE migrator_state_version SET version_num = '0001'")
        assert control.execute("SELECT phase FROM migrator_run").fetchone() == ("prepared",)


def test_a_plan_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        fill(source(project), [("1", game(1))])
        path = commands.save_plan(project, commands.plan(project, "0001"))
    path.write_text(path.read_text().replace('"format": 1', '"format": 2', 1))
    with pytest.raises(Refused, match="format 2"):
        read_plan(path)


def test_counts_that_an_older_checkpoint_lacks_are_none(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        fill(source(project), [(str(n), game(n)) for n in range(10)])
        plan = commands.plan(project, "0001")
        commands.apply(project, plan, until=Phase.BACKFILLED)
        with sqlite3.connect(control_file(project)) as control:
            control.execute("UPDATE migrator_task SET counts = '{\"read\": 10}'")
        assert commands.status(project)[0].read == 10
        assert commands.apply(project, plan).phase == "cut_over"

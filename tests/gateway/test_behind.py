"""A swap of the sides that has to wait: for its mirror to catch up, or for a lease to run out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine import holders, points, swap
from migrator.engine.swap import SwapTerms
from migrator.errors import Waiting
from migrator.model.phase import Phase
from migrator.state.gateways import Gateways
from tests.engine.games import fill, game, make_project, source

MANY = 300


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[commands.Project]]:
    """For each project in the list a game is written as soon as the one before was mirrored."""
    projects: list[commands.Project] = []
    left = MANY

    def hook(point: str) -> None:
        nonlocal left
        if point == "mirror.applied" and left:
            left -= 1
            for project in projects:
                fill(source(project), [("1", game(left))])

    monkeypatch.setattr(points, "hook", hook)
    yield projects
    assert left, "the writer has ended before the swap was given up"


def begin(project: commands.Project) -> None:
    fill(source(project), [("1", game(1))])
    made = commands.plan(project, "0001", live=True)
    commands.apply(project, made, until=Phase.SHADOW_READ)


def test_a_swap_is_given_up_where_the_mirror_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[commands.Project]
) -> None:
    monkeypatch.setattr(swap, "CATCHING_UP", 0.2)
    with commands.Project(make_project(tmp_path), "test") as project:
        begin(project)
        fill(source(project), [("1", game(2))])
        written.append(project)
        with pytest.raises(Waiting, match="s behind, and 0 s are allowed"):
            commands.cutover(project, "0001", swap=SwapTerms(gateways=True, lag=0.0))
        written.clear()
        run = project.control.run("0001")
        assert (run.phase, run.fence) == (Phase.SHADOW_READ, "")


def test_a_long_lease_of_who_is_gone_is_outwaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "SECONDS", 0.0)
    monkeypatch.setattr(holders, "_ARMING", 1.0)
    with commands.Project(make_project(tmp_path), "test") as project:
        begin(project)
        Gateways(project.control).enter("h1", "Game", 2.0, away=True)
        commands.cutover(project, "0001", swap=SwapTerms(gateways=True, bound=60.0))
        assert project.control.run("0001").phase is Phase.CUT_OVER

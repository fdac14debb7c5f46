"""Swaps that wait, for their mirror or a lease, and what is left of one that was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator import commands
from migrator.engine import holders, points
from migrator.engine import swap as swapping
from migrator.engine.swap import SwapTerms
from migrator.errors import Waiting
from migrator.model.block import Aggregate, cut
from migrator.model.phase import Phase
from migrator.state import LiveState
from migrator.state.gateways import Gateways
from tests.engine.games import fill, game, make_project, source, target

WRITES = 60.0
"""Seconds after which the writer ends by itself, where a swap is never given up."""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[commands.Project]]:
    """For each project in the list a game is written as soon as the one before was mirrored."""
    projects: list[commands.Project] = []
    count, until = 0, time.monotonic() + WRITES

    def hook(point: str) -> None:
        nonlocal count
        if point == "mirror.applied" and time.monotonic() < until:
            count += 1
            for project in projects:
                fill(source(project), [("1", game(count))])

    monkeypatch.setattr(points, "hook", hook)
    yield projects
    assert time.monotonic() < until, "the writer has ended before the swap was given up"


def begin(project: commands.Project) -> None:
    fill(source(project), [("1", game(1))])
    made = commands.plan(project, "0001", live=True)
    commands.apply(project, made, until=Phase.SHADOW_READ)


def test_a_swap_is_given_up_where_the_mirror_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[commands.Project]
) -> None:
    monkeypatch.setattr(swapping, "CATCHING_UP", 0.2)
    with commands.Project(make_project(tmp_path), "test") as project:
        begin(project)
        fill(source(project), [("1", game(2))])
        written.append(project)
        with pytest.raises(Waiting, match="s behind, and 0 s are allowed") as why:
            commands.cutover(project, "0001", swap=SwapTerms(gateways=True, lag=0.0))
        written.clear()
        run = project.control.run("0001")
        assert (run.phase, run.fence) == (Phase.SHADOW_READ, "")
        told = commands.events(project, "0001")[-1]
        assert told["event"] == "not done"
        assert dict(told["detail"], where="") == {  # type: ignore[call-overload]
            "wanted": "cut_over", "where": "", "why": why.value.what,
        }  # fmt: skip


def test_one_move_of_a_swap_is_not_kept_behind_by_the_writes_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_project(tmp_path)
    script = tmp_path / "migrations" / "0001_rounds.py"
    two = (
        "moves = [games, Move('Player', source=At('old', 'players'), target=At('new', 'players'))]"
    )
    one = script.read_text().replace("move =", "games =")
    script.write_text(f"{one}\n{two}\n")
    with commands.Project(config, "test") as project:
        games, players = (route.source for route in project.routes("0001"))
        mirrored = project.routes("0001")[1].target
        players.create()
        begin(project)
        catch_up, held = swapping._catch_up, list[bool]()

        def hook(point: str) -> None:
            # Of a game that is written as soon as it was mirrored the mirror is always behind.
            if point == "mirror.applied" and len(held) < 200 and held.count(True) < 2:
                held.append(mirrored.read(["ann"]) != [None])
                fill(games, [("1", game(len(held)))])

        def catches_up(*args: Any) -> None:
            players.write([cut(Aggregate("ann", {"id": "ann"}), players.at.rules("Player"))])
            fill(games, [("1", game(1))])
            monkeypatch.setattr(points, "hook", hook)
            catch_up(*args)

        monkeypatch.setattr(swapping, "_catch_up", catches_up)
        commands.cutover(project, "0001", swap=SwapTerms(gateways=True, lag=0.0, bound=60.0))
        assert held.count(True) == 2, "the player waited for the games"


def test_a_long_lease_of_who_is_gone_is_outwaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "SECONDS", 0.0)
    with commands.Project(make_project(tmp_path), "test") as project:
        begin(project)
        wait_for, held = holders.wait_for, []

        def waits(*args: Any, until: float, **more: Any) -> Any:
            if not held:
                assert until > time.monotonic() + holders._ARMING, "not as long as it may last"
                fill(source(project), [("1", game(9))])
            found = wait_for(*args, until=until, **more)
            held.append(target(project).read(["1"]))
            return found

        monkeypatch.setattr(holders, "wait_for", waits)
        Gateways(project.control).enter("h1", "Game", 2.0, away=True)
        commands.cutover(project, "0001", swap=SwapTerms(gateways=True, bound=60.0))
        assert project.control.run("0001").phase is Phase.CUT_OVER
        assert held[0] == target(project).read(["1"]), "it mirrored nothing meanwhile"


@pytest.mark.parametrize(
    "act", [commands.cutover, commands.rollback, commands.finish, commands.abort]
)
def test_what_was_stopped_is_not_done_by_a_later_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[..., object]
) -> None:
    with commands.Project(make_project(tmp_path), "test") as project:
        begin(project)
        swap = SwapTerms(gateways=True, bound=60.0, lag=60.0)
        more: dict[str, object] = {"swap": swap}
        if act in (commands.finish, commands.rollback):
            commands.cutover(project, "0001", swap=swap)
        if act is commands.finish:
            more = {"keep_source": False}
        elif act is commands.abort:
            more = {"drop_target": True}
        phase = project.control.run("0001").phase

        monkeypatch.setattr(points, "hook", stopped)
        with pytest.raises(KeyboardInterrupt):
            act(project, "0001", **more)
        run = project.control.run("0001")
        assert LiveState(project.control, run.id).asked() is None
        assert run.phase is phase


def test_what_only_copies_is_done_by_a_later_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commands.Project(make_project(tmp_path), "test") as project:
        fill(source(project), [("1", game(1))])
        made = commands.plan(project, "0001", live=True)
        commands.apply(project, made, until=Phase.PREPARED)
        monkeypatch.setattr(points, "hook", stopped)
        with pytest.raises(KeyboardInterrupt):
            commands.apply(project, made, until=Phase.SHADOW_READ)
        asked = LiveState(project.control, project.control.run("0001").id).asked()
        assert asked is not None
        assert asked.wanted == Phase.SHADOW_READ.value


def stopped(point: str) -> None:
    """Ctrl-C once the mirror has begun."""
    if point == "run.started":
        raise KeyboardInterrupt

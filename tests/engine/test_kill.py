"""kill -9 at every named point of a run, and 200 times at random: nothing lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine import points
from migrator.model.phase import Phase
from tests.ending import waited
from tests.engine.games import (
    assert_equal,
    contents,
    fill,
    game,
    make_project,
    source,
    target,
)

GAMES = 1200
EXTRA = [("gone-1", game(-1)), ("gone-2", game(-2))]


def apply(project: commands.Project) -> None:
    terms = commands.Terms(accept=["A107"])
    run = commands.unfinished(project, "0001")
    plan = commands.frozen_plan(run) if run else commands.plan(project, "0001")
    commands.apply(project, plan, terms=terms)


def rollback(project: commands.Project) -> None:
    if project.control.run("0001").phase is Phase.CUT_OVER:
        commands.rollback(project, "0001")


def abort(project: commands.Project) -> None:
    if not project.control.run("0001").phase.ended:
        commands.abort(project, "0001", drop_target=True)


def finish(project: commands.Project) -> None:
    if not project.control.run("0001").phase.ended:
        commands.finish(project, "0001", keep_source=False)


def in_child(config: Path, command: Callable[[commands.Project], None], kill: str, nth: int) -> int:
    """Run a command in a process of its own that dies at a point; its wait status."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            seen = 0

            def hook(point: str) -> None:
                nonlocal seen
                seen += point == kill
                if point == kill and seen == nth:
                    os.kill(os.getpid(), signal.SIGKILL)

            points.hook = hook
            with commands.Project(config, "test") as project:
                command(project)
            code = 0
        finally:
            os._exit(code)
    return waited(pid)


def prepared(root: Path, *, occupied: bool, games: int = GAMES) -> Path:
    config = make_project(root)
    with commands.Project(config, "test") as project:
        fill(source(project), [(str(n), game(n, n % 5)) for n in range(games)])
        if occupied:
            same = [(str(n), game(n, n % 5)) for n in range(0, games, 7)]
            other = [(str(n), game(n + 1, 12)) for n in range(1, games, 7)]
            fill(target(project), same + other + EXTRA)
    return config


def check_arrived(config: Path, *, occupied: bool, games: int = GAMES) -> None:
    with commands.Project(config, "test") as project:
        expected = {str(n): game(n, n % 5) for n in range(games)}
        assert_equal(contents(source(project)), expected)
        assert_equal(contents(target(project)), expected)
        run = project.control.runs("0001")[-1]
        planned = commands.frozen_plan(run).moves[0]
        copied = [e["detail"] for e in commands.events(project, "0001") if e["event"] == "copied"]
        done = copied[-1]
        assert isinstance(done, dict)
        assert {name: done[name] for name in ("create", "change", "delete", "leave")} == {
            "create": planned.create,
            "change": planned.change,
            "delete": planned.delete,
            "leave": planned.leave,
        }
        changed = len(range(1, games, 7)) if occupied else 0
        assert (planned.change, planned.delete) == (changed, len(EXTRA) if occupied else 0)


LATER = ("rollback", "abort", "finish")
ONLY_OCCUPIED = ("backfill.intended", "delete.intended", "delete.written")
ONCE = ("run.started", "prepare.created", "backfill.listed", "verify.listed", "delete", "cut_over")
APPLY = [
    (point, occupied, nth)
    for point in points.POINTS
    for occupied in (False, True)
    for nth in (1, 2)
    if not point.startswith(LATER)
    and (occupied or point not in ONLY_OCCUPIED)
    and (nth == 1 or not point.startswith(ONCE))
]


@pytest.mark.parametrize(("point", "occupied", "nth"), APPLY)
def test_apply_goes_on_after_kill_9(tmp_path: Path, point: str, occupied: bool, nth: int) -> None:
    config = prepared(tmp_path, occupied=occupied)
    status = in_child(config, apply, point, nth)
    assert os.WIFSIGNALED(status), f"{point} was not reached"
    assert os.WTERMSIG(status) == signal.SIGKILL
    with commands.Project(config, "test") as project:
        if project.control.run("0001").phase is not Phase.CUT_OVER:
            apply(project)
    check_arrived(config, occupied=occupied)


@pytest.mark.parametrize(
    ("command", "point", "phase"),
    [
        (rollback, "rollback.flipped", Phase.SHADOW_READ),
        (abort, "abort.dropped", Phase.ABORTED),
        (finish, "finish.dropped", Phase.FINISHED),
    ],
)
def test_the_way_back_and_out_go_on_after_kill_9(
    tmp_path: Path, command: Callable[[commands.Project], None], point: str, phase: Phase
) -> None:
    config = prepared(tmp_path, occupied=False)
    with commands.Project(config, "test") as project:
        apply(project)
        if command is abort:
            rollback(project)
    status = in_child(config, command, point, 1)
    assert os.WIFSIGNALED(status), f"{point} was not reached"
    with commands.Project(config, "test") as project:
        command(project)
        assert project.control.run("0001").phase is phase
        kept = {"rollback": (True, True), "abort": (True, False), "finish": (False, True)}
        there = source(project).exists(), target(project).exists()
        assert there == kept[command.__name__]


def test_200_kills_at_random_times(tmp_path: Path) -> None:
    rng = random.Random(20260101)
    games = GAMES // 2  # shorter runs, killed the sooner
    kills = 0
    attempt = 0
    while kills < 200:
        attempt += 1
        root = tmp_path / str(attempt)
        config = prepared(root, occupied=attempt % 2 == 0, games=games)
        finished = False
        while not finished:
            pid = os.fork()
            if pid == 0:
                code = 70
                try:
                    with commands.Project(config, "test") as project:
                        apply(project)
                    code = 0
                finally:
                    os._exit(code)
            time.sleep(rng.uniform(0.0, 0.15))
            if kills < 200:
                os.kill(pid, signal.SIGKILL)
            status = waited(pid)
            if os.WIFSIGNALED(status):
                kills += 1
            else:
                assert os.WEXITSTATUS(status) == 0
                finished = True
        check_arrived(config, occupied=attempt % 2 == 0, games=games)

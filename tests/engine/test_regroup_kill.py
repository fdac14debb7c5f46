"""kill -9 at the named points of runs that regroup: nothing lost, nothing doubled."""

from __future__ import annotations

import datetime as dt
import os
import signal
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine import points
from migrator.model.phase import Phase
from migrator.model.value import Record, Value
from tests.engine.regrouping import (
    BUCKET,
    SPLIT,
    assert_done_as_planned,
    assert_holds,
    collection,
    days_of,
    delete,
    game,
    held,
    put,
    rounds_of,
    without_rounds,
    write_project,
)
from tests.engine.test_kill import apply, in_child

GAMES: dict[Value, Record] = {f"g{n}": game(n, n % 4) for n in range(1_100)}
# Two of a day: more buckets than a page holds.
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
READINGS: dict[Value, Record] = {
    n: {"sensor": "s", "at": START + n * dt.timedelta(hours=12), "value": n} for n in range(2_400)
}
POINTS = [
    point
    for point in points.POINTS
    if point.startswith(("prepare", "backfill", "delete", "verify"))
]


def check_split(config: Path, *, occupied: bool) -> None:
    with commands.Project(config, "test") as project:
        rounds = {id: r for g, v in GAMES.items() for id, r in rounds_of(str(g), v).items()}
        assert_holds(collection(project, "new", "Round", "rounds"), rounds)
        games = {id: without_rounds(value) for id, value in GAMES.items()}
        assert_holds(collection(project, "new", "Game", "games"), games)
        plan = commands.frozen_plan(project.control.run("0001"))
        assert_done_as_planned(project, plan)
        assert (plan.moves[0].change > 0) == occupied


@pytest.mark.parametrize("point", POINTS)
def test_a_split_goes_on_after_kill_9(tmp_path: Path, point: str) -> None:
    config = write_project(tmp_path, SPLIT)
    occupied = point.startswith("delete") or point == "backfill.intended"
    with commands.Project(config, "test") as project:
        put(collection(project, "old", "Game", "games"), GAMES)
        if occupied:
            other: dict[Value, Record] = {f"g{n}-0": {"a": n} for n in range(1_100)}
            put(collection(project, "new", "Round", "rounds"), other)
    goes_on(config, point)
    check_split(config, occupied=occupied)


@pytest.mark.parametrize("point", ["backfill.read", "backfill.written", "backfill.checkpointed",
                                   "verify.checkpointed"])  # fmt: skip
def test_buckets_go_on_after_kill_9(tmp_path: Path, point: str) -> None:
    config = write_project(tmp_path, BUCKET)
    with commands.Project(config, "test") as project:
        put(collection(project, "old", "Reading", "readings"), READINGS)
    goes_on(config, point, 2)
    with commands.Project(config, "test") as project:
        found, wanted = held(collection(project, "new", "Day", "days")), days_of(READINGS)
        assert found == wanted
        assert_done_as_planned(project, commands.frozen_plan(project.control.run("0001")))


def goes_on(config: Path, point: str, nth: int = 1) -> None:
    status = in_child(config, apply, point, nth)
    assert os.WIFSIGNALED(status), f"{point} was not reached"
    assert os.WTERMSIG(status) == signal.SIGKILL
    with commands.Project(config, "test") as project:
        if project.control.run("0001").phase is not Phase.CUT_OVER:
            apply(project)


def carry_back(project: commands.Project) -> None:
    if project.control.run("0001").phase is Phase.CUT_OVER:
        commands.rollback(project, "0001", carry_back=True)


@pytest.mark.parametrize("script", [SPLIT, BUCKET])
def test_a_rollback_goes_on_after_kill_9(tmp_path: Path, script: str) -> None:
    config = write_project(tmp_path, script)
    small = {id: GAMES[id] for id in list(GAMES)[:50]}
    readings = {id: READINGS[id] for id in range(300)}
    with commands.Project(config, "test") as project:
        put(collection(project, "old", "Game", "games"), small)
        put(collection(project, "old", "Reading", "readings"), readings)
        apply(project)
        if script is SPLIT:
            rounds = collection(project, "new", "Round", "rounds")
            put(rounds, rounds_of("g0", game(7, 2)))
            delete(rounds, "g1-0")
        else:
            days = collection(project, "new", "Day", "days")
            delete(days, *[[v["sensor"], v["day"]] for v in list(days_of(readings).values())[:9]])
    assert os.WIFSIGNALED(in_child(config, carry_back, "rollback.flipped", 1))
    with commands.Project(config, "test") as project:
        carry_back(project)
        assert all(found.clean for found in commands.verify_run(project, "0001"))
        if script is SPLIT:
            source = collection(project, "old", "Game", "games")
            after: dict[Value, Record] = {
                **small,
                "g0": {**small["g0"], "rounds": game(7, 2)["rounds"]},
                "g1": {**small["g1"], "rounds": []},
            }
            assert_holds(source, after)
        else:
            assert len(held(collection(project, "old", "Reading", "readings"))) < 300

"""The real engine with a move that gathers, in schedules drawn from seeds.

More of them than here: MIGRATOR_SCHEDULES=10000.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from migrator.model.phase import Phase
from migrator.route import Route
from tests.protocol.gather import GatherSchedule, GatherWorld, filled, level
from tests.protocol.lives import chances
from tests.protocol.locating import alone, noted_late, unknown
from tests.protocol.schedule import equal, reach
from tests.protocol.spread import (
    GAMES,
    MEANWHILE,
    all_go,
    moves,
    primary_is,
    there_and_back,
)

SHARD = 50
SCHEDULES = int(os.environ.get("MIGRATOR_SCHEDULES", "200")) // 2

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("first", range(0, SCHEDULES, SHARD))
def test_no_acknowledged_write_is_lost_in_any_schedule(first: int) -> None:
    for seed in range(first, first + SHARD):
        loses = seed % 4 < 2
        drawn = replace(chances(seed), strangers=False, truncate=loses, lose=loses)
        with pytest.MonkeyPatch.context() as patch:
            there_and_back(filled(seed, patch, drawn, in_memory=True))


@pytest.mark.parametrize("first", range(0, SCHEDULES // 2, SHARD))
def test_no_acknowledged_write_is_lost_where_somebody_else_writes_the_mirror(first: int) -> None:
    for seed in range(first, first + SHARD):
        drawn = replace(chances(seed), strangers=True, truncate=False, lose=False)
        with pytest.MonkeyPatch.context() as patch:
            schedule = filled(seed, patch, drawn, in_memory=True)
            reach(schedule, Phase.BACKFILLED)
            schedule.compared()
            schedule.work(lambda world=schedule.world: not world.writes)
            schedule.settle()
            equal(schedule.world)


@pytest.mark.parametrize("seed", range(3))
def test_no_acknowledged_write_is_lost_there_and_back(seed: int, monkeypatch: Patch) -> None:
    there_and_back(filled(seed, monkeypatch, replace(chances(seed), strangers=False)))


# ---------------------------------------------------------------------- what a round may do


def _ends_with(world: GatherWorld, lies: dict[str, str]) -> None:
    """Both sides are equal, each round is in its game, and no game is empty."""
    equal(world)
    assert world.games == lies
    assert world.servers["target"].blocks.keys() == set(lies.values())


_BOTH = pytest.mark.parametrize("primary", ["source", "target"])


@_BOTH
@pytest.mark.parametrize(("happens", "lies"), MEANWHILE)
def test_a_round_lies_in_the_game_that_it_is_of(
    happens: Callable[[GatherWorld], None],
    lies: dict[str, str],
    primary: str,
    monkeypatch: Patch,
) -> None:
    schedule, world = level(monkeypatch)
    primary_is(primary, schedule)
    happens(world)

    schedule.settle()

    _ends_with(world, lies)


@_BOTH
@pytest.mark.parametrize("step", ["write", "written", "mirror.write", "mirror.deleted"])
def test_a_crash_while_a_round_moves_leaves_it_once(
    step: str, primary: str, monkeypatch: Patch
) -> None:
    schedule, world = level(monkeypatch)
    primary_is(primary, schedule)
    all_go(world)
    world.put("2", to="1")
    world.script[step] = world.kill

    schedule.settle()

    _ends_with(world, {"2": "1"})


@_BOTH
def test_a_round_that_moved_while_the_feed_was_lost_leaves_nothing_behind(
    primary: str, monkeypatch: Patch
) -> None:
    schedule, world = level(monkeypatch)
    primary_is(primary, schedule)
    moves(world)
    world.delete("1")
    world.servers[primary].lose_feed()

    schedule.settle()

    _ends_with(world, {"0": "7", "2": "7"})


def test_a_game_goes_while_its_rounds_are_copied(monkeypatch: Patch) -> None:
    world = GatherWorld(1, replace(chances(1), writes=0, faults=0))
    schedule = GatherSchedule(world, monkeypatch)
    for key, game in zip("012", ("0", "0", "7"), strict=True):
        world.put(key, to=game)
    # Which keys go together is listed then.
    world.script["page.read"] = lambda: (all_go(world), world.put("2", to="1"))  # type: ignore[func-returns-value]
    reach(schedule, Phase.BACKFILLED)

    schedule.settle()

    _ends_with(world, {"2": "1"})


# ---------------------------------------------------------------------- what does not go over


def test_a_game_that_is_refused_keeps_all_its_rounds_on_the_source(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch)
    world.put("1", to="0", large=True)
    schedule.settle()

    # Who accepts one of them does not lose the other without a word.
    assert sorted(schedule.aside()) == ["Round:0", "Round:1"]
    assert sorted(world.servers["target"].blocks) == ["7"]
    schedule.accepts = ["Round:1"]
    assert not schedule.ask(Phase.CUT_OVER)

    schedule.accepts = ["Round:0", "Round:1"]
    reach(schedule, Phase.CUT_OVER)
    world.put("2", to="1")
    schedule.settle()

    assert world.held("source") == world.history

    reach(schedule, Phase.SHADOW_READ)
    world.put("1", to="0")
    schedule.settle()

    assert schedule.aside() == []
    _ends_with(world, {"0": "0", "1": "0", "2": "1"})


def test_a_round_of_no_game_goes_aside_alone(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch)
    held = world.servers["source"].blocks["0"]
    world.servers["source"].put("0", {"": {"n": 7}})
    schedule.settle()

    assert schedule.aside() == ["Round:0"]
    assert world.held("target") == {"1": 2, "2": 3}

    world.servers["source"].put("0", held)
    schedule.settle()

    assert schedule.aside() == []
    _ends_with(world, {"0": "0", "1": "0", "2": "7"})


def test_of_a_round_that_can_not_be_read_the_last_copy_stays_in_its_game(
    monkeypatch: Patch,
) -> None:
    schedule, world = level(monkeypatch)
    source = world.servers["source"]
    source.damage("0")
    assert source.put("0", source.blocks["0"])
    world.put("1", to="0")
    schedule.settle()

    assert schedule.aside() == ["Round:0"]
    assert world.held("target") == world.history

    world.put("1", to="7")
    schedule.settle()

    assert schedule.aside() == ["Round:0"]
    assert world.held("target") == world.history

    world.put("0", to="7")
    schedule.settle()

    assert schedule.aside() == []
    _ends_with(world, {"0": "7", "1": "7", "2": "7"})


def test_a_round_in_two_games_closes_the_way_back_until_it_has_left_one(
    monkeypatch: Patch,
) -> None:
    schedule, world = level(monkeypatch)
    reach(schedule, Phase.CUT_OVER)
    target = world.servers["target"]
    there = dict(target.blocks["7"])
    for n in (8, 9):
        rounds = [{"id": "0", "n": n}, {"id": "2", "n": 3}]
        target.put("7", {"": {"game": "7", "rounds": rounds}})
        schedule.settle()

    assert schedule.ledger() == ["Game:7"]
    assert not schedule.ask(Phase.SHADOW_READ)
    assert world.held("source") == world.history

    target.put("7", there)
    reach(schedule, Phase.SHADOW_READ)
    schedule.settle()

    assert schedule.ledger() == []
    _ends_with(world, {"0": "0", "1": "0", "2": "7"})


@pytest.mark.parametrize("key", ["0", "2"])
def test_a_round_that_changes_nothing_but_its_game_goes_back_into_the_new_one(
    key: str, monkeypatch: Patch
) -> None:
    schedule, world = level(monkeypatch)
    reach(schedule, Phase.CUT_OVER)
    world.keeps = 1.0
    world.put(key, to="7" if key == "0" else "0")
    schedule.settle()

    _ends_with(world, world.games)


def _empty(world: GatherWorld) -> dict[str, Any]:
    return {"game": "7", "rounds": []}


def _strange(world: GatherWorld) -> dict[str, Any]:
    return {"game": "7", "rounds": [{"n": 7}]}


@pytest.mark.parametrize("holds", [_empty, _strange])
def test_a_game_that_can_not_go_back_is_in_the_ledger_until_it_can(
    holds: Callable[[GatherWorld], dict[str, Any]], monkeypatch: Patch
) -> None:
    schedule, world = level(monkeypatch)
    reach(schedule, Phase.CUT_OVER)
    world.servers["target"].put("7", {"": holds(world)})
    schedule.settle()

    assert schedule.ledger() == ["Game:7"]
    assert not schedule.ask(Phase.SHADOW_READ)
    assert world.held("source") == world.history

    world.servers["target"].remove("7")
    world.history.pop("2")
    world.games.pop("2")
    reach(schedule, Phase.SHADOW_READ)
    schedule.settle()

    _ends_with(world, {"0": "0", "1": "0"})


@_BOTH
def test_nobody_swaps_where_the_way_back_is_not_proven(primary: str, monkeypatch: Patch) -> None:
    schedule, _ = level(monkeypatch)
    primary_is(primary, schedule)
    monkeypatch.setattr(Route, "taken_apart", lambda *_: [])

    assert not schedule.ask(Phase.CUT_OVER if primary == "source" else Phase.SHADOW_READ)
    assert "not proven" in schedule.why


# ---------------------------------------------------------------------- writes by somebody else


@_BOTH
@pytest.mark.parametrize("key", ["2", "9"])
def test_a_foreign_write_to_the_mirror_is_told_and_undone(
    key: str, primary: str, monkeypatch: Patch
) -> None:
    schedule, world = level(monkeypatch, hook=True)  # no store denies it then
    primary_is(primary, schedule)
    schedule.settle()
    world.foreign("source" if primary == "target" else "target", key)

    schedule.settle()

    _ends_with(world, {"0": "0", "1": "0", "2": "7"})
    # Both sides' keys are named as the mirror's class is.
    there = world.games.get(key, GAMES[0]) if primary == "source" else key
    assert schedule.strangers() == [f"Game:{there}"]


# ---------------------------------------------------------------------- what each step is for


def _left(schedule: GatherSchedule, world: GatherWorld) -> None:
    moves(world)
    world.delete("1")


def _left_again(schedule: GatherSchedule, world: GatherWorld) -> None:
    def killed() -> None:
        world.delete("9")
        world.kill()

    world.delete("2")
    world.put("9", to="0")
    world.script["mirror.written"] = killed


def _written_alone(schedule: GatherSchedule, world: GatherWorld) -> None:
    world.put("0", to="0")


@pytest.mark.parametrize(
    ("plant", "happens"),
    [
        (unknown, _left),
        (unknown, _written_alone),
        (noted_late, _left_again),
        (alone, _written_alone),
    ],
)
def test_a_step_left_out_loses_a_write_or_takes_ours_for_somebody_elses(
    plant: Callable[[Patch], None], happens: Callable[[GatherSchedule, GatherWorld], None]
) -> None:
    def play(patch: Patch, plant: Callable[[Patch], None] | None = None) -> bool:
        schedule, world = level(patch)
        if plant is not None:
            plant(patch)
        happens(schedule, world)
        schedule.settle()
        held = world.held("source") == world.held("target") == world.history
        return held and schedule.strangers() == []

    with pytest.MonkeyPatch.context() as patch:
        assert play(patch)
    with pytest.MonkeyPatch.context() as patch:
        assert not play(patch, plant)

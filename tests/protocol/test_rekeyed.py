"""The real engine with a move whose keys change, in schedules drawn from seeds.

More of them than here: MIGRATOR_SCHEDULES=10000.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from migrator.errors import DoesNotFit
from migrator.journal import Touch
from migrator.model.evolution import ChangeId, Drop
from migrator.model.phase import Phase
from migrator.route import Route
from tests.protocol.bracketed import BracketedServer, bracketed
from tests.protocol.lives import chances, short_life
from tests.protocol.locating import alone, noted_late, unknown
from tests.protocol.rekeyed import KEYS, RekeyedSchedule, RekeyedWorld, filled, level, whole_life
from tests.protocol.schedule import Chances, equal, mirrored, reach
from tests.protocol.server import Server

SHARD = 50
SCHEDULES = int(os.environ.get("MIGRATOR_SCHEDULES", "200"))
LONG = 3

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("first", range(0, SCHEDULES, SHARD))
def test_no_acknowledged_write_is_lost_in_any_schedule(first: int) -> None:
    for seed in range(first, first + SHARD):
        # What is told of somebody else's writes has tests of its own.
        drawn = replace(chances(seed), strangers=False, lose=True)
        with pytest.MonkeyPatch.context() as patch:
            short_life(filled(seed, patch, drawn, in_memory=True))


@pytest.mark.parametrize("first", range(0, SCHEDULES // 4, SHARD))
def test_no_acknowledged_write_is_lost_where_games_want_one_place(first: int) -> None:
    for seed in range(first, first + SHARD):
        drawn = replace(chances(seed), writes=20, lose=True, truncate=False, strangers=False)
        with pytest.MonkeyPatch.context() as patch:
            _crowded_life(filled(seed, patch, drawn, in_memory=True), empties=seed % 3 == 0)


@pytest.mark.parametrize("first", range(0, SCHEDULES, SHARD))
def test_no_acknowledged_write_is_lost_under_gateways_that_leave_brackets(first: int) -> None:
    for seed in range(first, first + SHARD):
        with pytest.MonkeyPatch.context() as patch:
            short_life(bracketed(seed, patch))


@pytest.mark.parametrize("rule", ["reaps", "marks_wait"])
def test_without_a_rule_of_brackets_a_write_is_lost(rule: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(BracketedServer, rule, False)

    def is_lost(seed: int) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            try:
                short_life(bracketed(seed, patch))
            except AssertionError:
                return True
        return False

    assert any(map(is_lost, range(200)))


def _crowded_life(schedule: RekeyedSchedule, *, empties: bool) -> None:
    """There and back, with who has no place left out; perhaps the others go meanwhile."""
    world = schedule.world
    assert isinstance(world, RekeyedWorld)
    world.crowds = True
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    schedule.work(lambda: not world.writes)
    schedule.settle()
    _first_come(world)

    schedule.accepts = [f"Game:{key}" for key in KEYS]
    reach(schedule, Phase.CUT_OVER)
    for game in world.first_of_place().values() if empties else ():
        world.delete(game)
    schedule.settle()
    assert world.held("source") == world.history, world.told

    reach(schedule, Phase.SHADOW_READ)
    schedule.settle()
    _first_come(world)


def _first_come(world: RekeyedWorld) -> None:
    """The source holds all games, the target one for each place."""
    games = world.first_of_place().values()
    assert world.held("source") == world.history, world.told
    assert world.held("target") == {key: world.history[key] for key in games}, world.told


@pytest.mark.parametrize("seed", range(LONG))
def test_the_mirror_comes_to_hold_every_acknowledged_write(seed: int, monkeypatch: Patch) -> None:
    mirrored(filled(seed, monkeypatch, Chances()))


@pytest.mark.parametrize("seed", range(LONG, 2 * LONG))
def test_no_acknowledged_write_is_lost_there_and_back(seed: int, monkeypatch: Patch) -> None:
    whole_life(seed, monkeypatch, Chances())


# ---------------------------------------------------------------------- what a key may do


def _ends_with(world: RekeyedWorld, lies: dict[str, str]) -> None:
    """Both sides are equal, and each game lies in the target where it should."""
    equal(world)
    blocks = world.servers["target"].blocks
    assert {game: key for key, e in blocks.items() for game in [e[""]["was"]]} == lies  # type: ignore[index]


def _moves(world: RekeyedWorld) -> None:
    world.put("0", to="13")


def _swaps(world: RekeyedWorld) -> None:
    world.put("0", to="13")
    world.put("1", to="10")
    world.put("0", to="11")


def _goes(world: RekeyedWorld) -> None:
    world.delete("0")


def _takes_over(world: RekeyedWorld) -> None:
    world.delete("0")
    world.put("1", to="10")


_MEANWHILE = [
    (_moves, {"0": "13", "1": "11", "2": "12"}),
    (_swaps, {"0": "11", "1": "10", "2": "12"}),
    (_goes, {"1": "11", "2": "12"}),
    (_takes_over, {"1": "10", "2": "12"}),
]


@pytest.mark.parametrize("primary", ["source", "target"])
@pytest.mark.parametrize(("happens", "lies"), _MEANWHILE)
def test_a_block_lies_under_the_key_that_its_value_gives(
    happens: Callable[[RekeyedWorld], None], lies: dict[str, str], primary: str, monkeypatch: Patch
) -> None:
    schedule, world = level(monkeypatch)
    if primary == "target":
        reach(schedule, Phase.CUT_OVER)
    happens(world)

    schedule.settle()

    _ends_with(world, lies)


@pytest.mark.parametrize("step", ["write", "written", "mirror.write", "mirror.deleted"])
def test_a_crash_while_a_block_moves_leaves_it_once(step: str, monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch)
    _swaps(world)
    world.script[step] = world.kill

    schedule.settle()

    _ends_with(world, {"0": "11", "1": "10", "2": "12"})


def test_a_game_that_moved_while_the_feed_was_lost_leaves_nothing_behind(
    monkeypatch: Patch,
) -> None:
    schedule, world = level(monkeypatch)
    _moves(world)
    world.delete("1")
    world.servers["source"].lose_feed()

    schedule.settle()

    _ends_with(world, {"0": "13", "2": "12"})


# ---------------------------------------------------------------------- what does not go over


def test_two_blocks_with_one_key_close_the_gate_until_one_has_left(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch)
    world.put("1", to="10")
    schedule.settle()

    assert schedule.aside() == ["Game:1"]
    assert not schedule.ask(Phase.CUT_OVER)

    _moves(world)
    schedule.settle()

    assert schedule.aside() == []
    _ends_with(world, {"0": "13", "1": "10", "2": "12"})


def test_a_block_without_a_key_over_there_goes_aside_and_its_old_one_goes(
    monkeypatch: Patch,
) -> None:
    schedule, world = level(monkeypatch)
    world.servers["source"].put("0", {"": {"n": 7}})
    schedule.settle()

    assert schedule.aside() == ["Game:0"]
    assert sorted(world.servers["target"].blocks) == ["11", "12"]

    world.put("0", to="13")
    schedule.settle()

    assert schedule.aside() == []
    _ends_with(world, {"0": "13", "1": "11", "2": "12"})


def test_a_block_that_leads_back_to_the_key_of_another_closes_the_way_back(
    monkeypatch: Patch,
) -> None:
    schedule, world = level(monkeypatch)
    reach(schedule, Phase.CUT_OVER)
    world.servers["target"].put("13", {"": {"n": 7, "to": "13", "was": "0"}})
    schedule.settle()

    assert not schedule.ask(Phase.SHADOW_READ)
    assert world.held("source") == world.history

    world.servers["target"].remove("13")
    schedule.settle()

    reach(schedule, Phase.SHADOW_READ)
    _ends_with(world, {"0": "10", "1": "11", "2": "12"})


def _left_out(patch: Patch) -> tuple[RekeyedSchedule, RekeyedWorld]:
    """A cut-over that left out a block whose key another one has."""
    schedule, world = level(patch)
    world.put("1", to="10")
    schedule.settle()
    schedule.accepts = ["Game:1"]
    reach(schedule, Phase.CUT_OVER)
    schedule.settle()
    return schedule, world


def test_a_block_whose_key_another_has_outlives_a_cut_over_that_left_it_out(
    monkeypatch: Patch,
) -> None:
    schedule, world = _left_out(monkeypatch)

    assert world.held("source") == world.history

    world.delete("0")
    schedule.settle()

    assert world.held("source") == world.history
    assert sorted(world.servers["target"].blocks) == ["12"]

    reach(schedule, Phase.SHADOW_READ)
    schedule.settle()

    assert schedule.aside() == []
    _ends_with(world, {"1": "10", "2": "12"})


@pytest.mark.parametrize("point", ["mirror.write", "mirror.written"])
def test_what_replaced_a_block_left_out_goes_from_both_sides_though_its_owner_died(
    point: str, monkeypatch: Patch
) -> None:
    schedule, world = _left_out(monkeypatch)
    target = world.servers["target"]

    def dies() -> None:
        target.truncate()  # no touch tells which keys were there
        world.kill()

    target.put("15", {"": {"n": 7, "to": "15", "was": "1"}})
    world.script[point] = dies
    schedule.settle()

    assert schedule.aside() == []
    assert world.held("source") == world.held("target") == {}


def test_a_block_that_leads_nowhere_does_not_keep_from_a_rollback_once_it_is_accepted(
    monkeypatch: Patch,
) -> None:
    schedule, world = level(monkeypatch)
    reach(schedule, Phase.CUT_OVER)
    world.servers["target"].put("13", {"": {"n": 7, "to": "13"}})
    schedule.settle()

    assert not schedule.ask(Phase.SHADOW_READ)

    schedule.accepts = ["Game:13"]

    assert schedule.ask(Phase.SHADOW_READ)
    assert world.held("source") == world.history


def test_what_a_refused_game_was_before_goes_once_another_makes_way(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch)
    reach(schedule, Phase.CUT_OVER)
    target = world.servers["target"]
    for n in (21, 22):
        # It claims to have been 0, which is that of 10.
        target.put("11", {"": {"n": n, "to": "11", "was": "0"}})
        schedule.settle()

    assert schedule.ledger() == ["Game:11"]
    assert world.held("source") == world.history

    target.remove("10")
    schedule.settle()

    assert schedule.ledger() == []
    assert world.held("source") == world.held("target") == {"0": 22, "2": world.history["2"]}


# ---------------------------------------------------------------------- the way back


class _Poorer(RekeyedSchedule):
    """The target holds less of a game."""

    evolve = (Drop("left", default="none"), ChangeId("to", keep="was"))


@pytest.fixture
def poorer(monkeypatch: Patch) -> _Poorer:
    """After the cut-over of a game; no process is at work."""
    world = RekeyedWorld(1, Chances(writes=0, faults=0))
    schedule = _Poorer(world, monkeypatch)
    world.servers["source"].put("0", {"": {"n": 1, "to": "10", "left": "there"}})
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    reach(schedule, Phase.CUT_OVER)
    return schedule


def _goes_back(schedule: _Poorer, place: str, *gone: str) -> object:
    """What the source holds once a game was written at a place, and others were deleted."""
    target = schedule.world.servers["target"]
    for each in gone:
        target.remove(each)
    target.put(place, {"": {"n": 2, "to": place, "was": "0"}})
    (lane,) = schedule._process().lanes
    touches = [*(Touch(each, deleted=True) for each in gone), Touch(place)]
    lane.reconciler.touched("target", list({each.key: each for each in touches[::-1]}.values()))
    assert schedule.world.servers["source"].blocks.keys() == {"0"}
    return schedule.world.servers["source"].blocks["0"][""]


def test_what_the_target_does_not_hold_stays_on_the_source(poorer: _Poorer) -> None:
    assert _goes_back(poorer, "10") == {"n": 2, "to": "10", "left": "there"}


def test_a_block_that_went_and_came_again_under_another_key_inherits_nothing(
    poorer: _Poorer,
) -> None:
    assert _goes_back(poorer, "13", "10") == {"n": 2, "to": "13", "left": "none"}


@pytest.mark.parametrize("where", [(Route, "returned"), (Server, "write")])
def test_what_can_not_go_back_leaves_the_source_as_it_was(
    where: tuple[type, str], poorer: _Poorer, monkeypatch: Patch
) -> None:
    def refuses(*_: object) -> None:
        raise DoesNotFit("not so", key="0")

    with monkeypatch.context() as patch:
        patch.setattr(*where, refuses)
        left = _goes_back(poorer, "10")
    assert left == {"n": 1, "to": "10", "left": "there"}
    assert poorer.ledger() == ["Game:10"]
    assert _goes_back(poorer, "10") == {"n": 2, "to": "10", "left": "there"}
    assert poorer.ledger() == []


# ---------------------------------------------------------------------- writes by somebody else


@pytest.mark.parametrize("place", ["10", "13"])
def test_a_foreign_write_to_the_mirror_is_told_and_undone(place: str, monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch)
    world.foreign("target", place)

    schedule.settle()

    _ends_with(world, {"0": "10", "1": "11", "2": "12"})
    assert schedule.strangers() == [f"Game:{place}"]


@pytest.mark.parametrize("place", ["10", "13"])
@pytest.mark.parametrize("step", ["swap.armed", "swap.drained", "swap.flipped"])
def test_a_foreign_write_during_a_swap_is_told_and_undone_or_mirrored(
    step: str, place: str, monkeypatch: Patch
) -> None:
    schedule, world = level(monkeypatch)
    world.script[step] = lambda: world.foreign("target", place)

    assert schedule.ask(Phase.CUT_OVER)

    schedule.settle()
    assert world.held("source") == world.held("target")
    assert world.held("target") == world.history or schedule.strangers()


def test_a_block_on_its_way_is_not_taken_for_a_foreign_write(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch)
    world.foreign("target", "10")
    _moves(world)

    schedule.settle()

    _ends_with(world, {"0": "13", "1": "11", "2": "12"})
    assert schedule.strangers() == []


# ---------------------------------------------------------------------- what each step is for


def _left(schedule: RekeyedSchedule, world: RekeyedWorld) -> None:
    world.put("0", to="13")


def _left_again(schedule: RekeyedSchedule, world: RekeyedWorld) -> None:
    def killed() -> None:
        world.put("0", to="12")
        world.kill()

    world.delete("2")
    world.put("0", to="13")
    world.script["mirror.written"] = killed


def _came_and_went(schedule: RekeyedSchedule, world: RekeyedWorld) -> None:
    world.put("1", to="10")
    schedule.settle()
    world.delete("1")


@pytest.mark.parametrize(
    ("plant", "happens"),
    [(unknown, _left), (noted_late, _left_again), (alone, _came_and_went)],
)
def test_a_step_left_out_loses_a_write_or_takes_ours_for_somebody_elses(
    plant: Callable[[Patch], None], happens: Callable[[RekeyedSchedule, RekeyedWorld], None]
) -> None:
    def play(patch: Patch, plant: Callable[[Patch], None] | None = None) -> bool:
        schedule, world = level(patch)
        if plant is not None:
            plant(patch)
        happens(schedule, world)
        schedule.settle()
        return not world.lacks("target") and schedule.strangers() == []

    with pytest.MonkeyPatch.context() as patch:
        assert play(patch)
    with pytest.MonkeyPatch.context() as patch:
        assert not play(patch, plant)

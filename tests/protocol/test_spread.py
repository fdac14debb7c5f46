"""The real engine with a move that spreads, in schedules drawn from seeds.

More of them than here: MIGRATOR_SCHEDULES=10000.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from migrator.engine import mirror
from migrator.engine.intent import Intent
from migrator.engine.spread import Spreader
from migrator.errors import DoesNotFit
from migrator.model.block import Block
from migrator.model.phase import Phase
from migrator.model.value import Ref
from migrator.route import Route
from tests.protocol.lives import chances
from tests.protocol.locating import alone, noted_late, unknown
from tests.protocol.schedule import equal, reach
from tests.protocol.spread import (
    MEANWHILE,
    MovedWorld,
    SpreadSchedule,
    SpreadWorld,
    TitledWorld,
    all_go,
    filled,
    level,
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


@pytest.mark.parametrize("seed", range(3))
def test_no_acknowledged_write_is_lost_there_and_back(seed: int, monkeypatch: Patch) -> None:
    there_and_back(filled(seed, monkeypatch, replace(chances(seed), strangers=False)))


# ---------------------------------------------------------------------- what a round may do


def _ends_with(world: SpreadWorld, lies: dict[str, str]) -> None:
    """Both sides are equal, and each round is in its game."""
    equal(world)
    assert world.games == lies
    if type(world) is SpreadWorld:
        assert world.servers["source"].blocks.keys() == set(lies.values())


_BOTH = pytest.mark.parametrize("primary", ["source", "target"])


@_BOTH
@pytest.mark.parametrize("kind", [SpreadWorld, TitledWorld])
@pytest.mark.parametrize(("happens", "lies"), MEANWHILE)
def test_a_round_lies_in_the_game_that_it_is_of(
    happens: Callable[[SpreadWorld], None],
    lies: dict[str, str],
    kind: type[SpreadWorld],
    primary: str,
    monkeypatch: Patch,
) -> None:
    schedule, world = level(monkeypatch, kind)
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


# ---------------------------------------------------------------------- what does not go over


def test_two_games_with_one_round_close_the_gate_until_one_has_let_go(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch)
    before = dict(world.servers["source"].blocks["7"])
    rounds = [{"id": "0", "n": 9}, {"id": "2", "n": 3}]
    world.servers["source"].put("7", {"": {"game": "7", "rounds": rounds}})
    schedule.settle()

    assert schedule.aside() == ["Game:7"]
    assert sorted(world.servers["target"].blocks) == ["0", "1"]
    assert not schedule.ask(Phase.CUT_OVER)

    world.servers["source"].put("7", before)
    schedule.settle()

    assert schedule.aside() == []
    _ends_with(world, {"0": "0", "1": "0", "2": "7"})


def test_a_game_that_was_left_out_is_not_made_of_what_was_written_since(
    monkeypatch: Patch,
) -> None:
    schedule, world = level(monkeypatch)
    world.put("1", to="0", large=True)
    schedule.settle()

    assert schedule.aside() == ["Game:0"]
    assert sorted(world.servers["target"].blocks) == ["2"]

    schedule.accepts = ["Game:0"]
    reach(schedule, Phase.CUT_OVER)
    there = dict(world.servers["source"].blocks["0"])
    world.put("0", to="0")
    schedule.settle()

    assert schedule.ledger() == ["Round:0"]
    assert not schedule.ask(Phase.SHADOW_READ)
    assert world.servers["source"].blocks["0"] == there

    world.servers["target"].remove("0")
    reach(schedule, Phase.SHADOW_READ)

    assert world.servers["source"].blocks["0"] == there


def test_nobody_cuts_over_where_the_way_back_is_not_proven(monkeypatch: Patch) -> None:
    schedule, _ = level(monkeypatch)
    monkeypatch.setattr(Route, "put_together", lambda *_: None)

    assert not schedule.ask(Phase.CUT_OVER)
    assert "not proven" in schedule.why


def _of_no_game(world: SpreadWorld) -> None:
    world.servers["target"].put("9", {"": {"n": 7, "game": Ref("Game", "5")}})


def _without_game(world: SpreadWorld) -> None:
    world.servers["target"].put("9", {"": {"n": 7}})


@pytest.mark.parametrize("happens", [_of_no_game, _without_game])
def test_a_round_that_leads_nowhere_closes_the_way_back(
    happens: Callable[[SpreadWorld], None], monkeypatch: Patch
) -> None:
    schedule, world = level(monkeypatch, TitledWorld)
    reach(schedule, Phase.CUT_OVER)
    happens(world)
    schedule.settle()

    assert schedule.ledger() == ["Round:9"]
    assert not schedule.ask(Phase.SHADOW_READ)
    assert world.held("source") == world.history

    world.servers["target"].remove("9")
    schedule.settle()

    reach(schedule, Phase.SHADOW_READ)
    _ends_with(world, {"0": "0", "1": "0", "2": "7"})


def test_a_game_stays_as_it_is_while_one_of_its_rounds_can_not_be_read(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch)
    reach(schedule, Phase.CUT_OVER)
    there = dict(world.servers["source"].blocks["0"])
    block = dict(world.servers["target"].blocks["0"])
    world.servers["target"].put("0", {"": {"n": 7}})
    world.put("1", to="0")
    schedule.settle()

    # Who takes the one for lost would lose the other, too: so both are asked for.
    assert schedule.ledger() == ["Round:0", "Round:1"]
    assert world.servers["source"].blocks["0"] == there

    world.servers["target"].put("0", block)
    schedule.settle()

    assert schedule.ledger() == []
    _ends_with(world, {"0": "0", "1": "0", "2": "7"})


def _denied(schedule: SpreadSchedule, world: SpreadWorld, patch: Patch) -> None:
    """All rounds of a game go, while the source does not take it without any for a while."""
    source = world.servers["source"]
    reach(schedule, Phase.CUT_OVER)
    write, until = source.write, world.now + 2.0

    def refusing(blocks: Sequence[Block]) -> int:
        if world.now < until:
            raise DoesNotFit("not without rounds", key=blocks[0].id, where=str(source.at))
        return write(blocks)

    def enough() -> bool:
        if until - 1.0 < world.now < until:
            told.append(schedule.ledger())
        return world.now > until + 10.0

    told: list[list[str]] = []
    patch.setattr(source, "write", refusing)
    all_go(world)
    schedule.work(enough)  # one process: another one would look at everything once more
    assert told[-1] == ["Round:0"]


def test_what_the_source_has_refused_is_written_once_it_is_not(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch, TitledWorld)

    _denied(schedule, world, monkeypatch)

    assert schedule.ledger() == []
    _ends_with(world, {"2": "7"})


# ---------------------------------------------------------------------- games that move, too


def _moved(world: SpreadWorld) -> MovedWorld:
    return cast("MovedWorld", world)


def _anew(schedule: SpreadSchedule, world: SpreadWorld, patch: Patch) -> None:
    """A game goes and comes again just before a rollback, and its rounds stay."""
    reach(schedule, Phase.CUT_OVER)
    world.put("2", to="7")
    world.script["swap.raised"] = lambda: _moved(world).put_game_anew("0")
    reach(schedule, Phase.SHADOW_READ)


@pytest.mark.parametrize("step", ["", "written", "mirror.written", "mirror.applied"])
def test_a_game_that_is_made_anew_keeps_its_rounds(step: str, monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch, MovedWorld)
    reach(schedule, Phase.CUT_OVER)
    _moved(world).put_game_anew("0")
    if step:
        world.script[step] = world.kill

    schedule.settle()

    _ends_with(world, {"0": "0", "1": "0", "2": "7"})
    assert schedule.strangers() == []


def test_a_round_may_come_before_its_game(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch, MovedWorld)
    reach(schedule, Phase.CUT_OVER)
    world.put("0", to="1")
    schedule.settle()

    assert schedule.ledger() == ["Round:0"]

    _moved(world).put_game("1")
    schedule.settle()

    assert schedule.ledger() == []
    _ends_with(world, {"0": "1", "1": "0", "2": "7"})


def test_a_game_goes_with_its_rounds(monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch, MovedWorld)
    reach(schedule, Phase.CUT_OVER)
    _moved(world).delete_game("0")

    schedule.settle()

    _ends_with(world, {"2": "7"})
    assert world.servers["source"].blocks.keys() == {"7"}


# ---------------------------------------------------------------------- writes by somebody else


@_BOTH
def test_a_foreign_write_to_the_mirror_is_told_and_undone(primary: str, monkeypatch: Patch) -> None:
    schedule, world = level(monkeypatch, hook=True)  # no store denies it then
    primary_is(primary, schedule)
    schedule.settle()
    world.foreign("source" if primary == "target" else "target", "2")

    schedule.settle()

    _ends_with(world, {"0": "0", "1": "0", "2": "7"})
    assert schedule.strangers() == ["Round:2" if primary == "source" else "Round:7"]


# ---------------------------------------------------------------------- what each step is for


def _strangers_to_one_another(patch: Patch) -> None:
    """The move of the games does not let that of the rounds know."""
    patch.setattr(mirror, "acquaint", lambda many: None)


def _forgotten(patch: Patch) -> None:
    """What led to a game that was refused is forgotten."""
    stays = Spreader._stays

    def told(self, batch, form, error):  # type: ignore[no-untyped-def]
        before = {id(each): dict(each.now.forms) for each in batch.ever[form]}
        now = list(batch.now[form])
        stays(self, batch, form, error)
        for each in batch.ever[form]:
            each.now.forms.clear()
            each.now.forms.update(before[id(each)])
        batch.now[form] = now

    patch.setattr(Spreader, "_stays", told)
    patch.setattr(Intent, "_keep", lambda self, each: None)


def _left(schedule: SpreadSchedule, world: SpreadWorld, patch: Patch) -> None:
    moves(world)
    world.delete("1")


def _left_again(schedule: SpreadSchedule, world: SpreadWorld, patch: Patch) -> None:
    def killed() -> None:
        world.delete("9")
        world.kill()

    world.delete("2")
    world.put("9", to="0")
    world.script["mirror.written"] = killed


def _came_and_went(schedule: SpreadSchedule, world: SpreadWorld, patch: Patch) -> None:
    rounds = [{"id": "0", "n": 9}, {"id": "2", "n": 3}]
    before = dict(world.servers["source"].blocks["7"])
    world.servers["source"].put("7", {"": {"game": "7", "rounds": rounds}})
    schedule.settle()
    world.servers["source"].put("7", before)


def _written_alone(schedule: SpreadSchedule, world: SpreadWorld, patch: Patch) -> None:
    reach(schedule, Phase.CUT_OVER)
    world.put("0", to="0")


@pytest.mark.parametrize(
    ("plant", "happens", "kind"),
    [
        (unknown, _left, SpreadWorld),
        (unknown, _written_alone, SpreadWorld),
        (noted_late, _left_again, SpreadWorld),
        (alone, _came_and_went, SpreadWorld),
        (_forgotten, _denied, TitledWorld),
        (_strangers_to_one_another, _anew, MovedWorld),
    ],
)
def test_a_step_left_out_loses_a_write_or_takes_ours_for_somebody_elses(
    plant: Callable[[Patch], None],
    happens: Callable[[SpreadSchedule, SpreadWorld, Patch], None],
    kind: type[SpreadWorld],
) -> None:
    def play(patch: Patch, plant: Callable[[Patch], None] | None = None) -> bool:
        schedule, world = level(patch, kind)
        if plant is not None:
            plant(patch)
        happens(schedule, world, patch)
        schedule.settle()
        held = world.held("source") == world.held("target") == world.history
        return held and schedule.strangers() == []

    with pytest.MonkeyPatch.context() as patch:
        assert play(patch)
    with pytest.MonkeyPatch.context() as patch:
        assert not play(patch, plant)

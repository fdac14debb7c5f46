"""The real engine where the mirror takes keys for one, in schedules drawn from seeds (R3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest

from migrator.journal import Touch
from migrator.model.phase import Phase
from tests.protocol.alike import filled, life
from tests.protocol.schedule import Schedule, reach

SCHEDULES = int(os.environ.get("MIGRATOR_SCHEDULES", "200")) // 8


@pytest.mark.parametrize("loose", [True, False], ids=["loose", "strict"])
@pytest.mark.parametrize("kind", range(4), ids=["kept", "rekeyed", "spread", "gathered"])
@pytest.mark.parametrize("side", ["target", "source"])
def test_keys_that_the_mirror_takes_for_one_lose_no_write(
    side: str, kind: int, loose: bool
) -> None:
    for seed in range(SCHEDULES):
        with pytest.MonkeyPatch.context() as patch:
            life(filled(seed, patch, side, kind, loose=loose), side)


def test_a_block_that_is_found_under_another_key_has_a_turn_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = filled(1, monkeypatch, "source", 0, loose=True, both=True)
    world = schedule.world
    world.writes = world.faults = 0
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    reach(schedule, Phase.CUT_OVER)
    source, target = world.servers["source"], world.servers["target"]
    # The target finds 11 under 10; the source can't tell 11 from 21.
    monkeypatch.setattr(source, "number", lambda key: int(str(key)) % 10)
    target.blocks |= {key: {"": {"n": int(key)}} for key in ("11", "21")}
    (lane,) = schedule._process().lanes

    lane.reconciler.touched("target", [Touch("10", deleted=True), Touch("21")])

    assert list(source.blocks) == ["21"]
    assert schedule.ledger() == ["Game:11"]


# ---------------------------------------------------------------------- one batch after the other

Made: TypeAlias = Callable[..., list[str]]
LOOSE = pytest.mark.parametrize("loose", [True, False], ids=["loose", "strict"])


def _follows(patch: pytest.MonkeyPatch, kind: int, *, loose: bool) -> tuple[Any, Schedule, Made]:
    """A move to a side that takes keys for one, with nothing there; and what acts on touches of
    these keys, as one process does."""
    schedule = filled(1, patch, "target", kind, loose=loose)
    world: Any = schedule.world
    world.writes = world.faults = 0
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    (lane,) = schedule._process().lanes

    def made(*keys: str, there: Sequence[str] = ()) -> list[str]:
        lane.reconciler.touched("source", [Touch(key) for key in keys])
        lane.reconciler.untouched("source", there, "target")
        return sorted(world.servers["target"].blocks)

    return world, schedule, made


@LOOSE
@pytest.mark.parametrize(("first", "second"), [("10", "11"), ("11", "10")])
def test_what_lies_there_stays_and_what_waits_comes_over_as_it_goes(
    first: str, second: str, loose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, schedule, made = _follows(monkeypatch, 1, loose=loose)
    world.put("0", to=first)
    made("0")
    world.put("1", to=second)
    assert made("1") == [first]
    assert schedule.aside() == ["Game:1"]
    assert made(there=[first]) == [first]  # whose it is, is known as before
    world.delete("0")

    assert made("0") == [second]
    assert schedule.aside() == []


@LOOSE
def test_of_some_at_once_none_is_written_over(loose: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world, schedule, made = _follows(monkeypatch, 1, loose=loose)
    for key, place in zip("012", ("10", "11", "12"), strict=True):
        world.put(key, to=place)
    assert made(*"012") == ["10"]
    assert schedule.aside() == ["Game:1", "Game:2"]

    assert made(*"12") == ["10"]  # of which the other one is not written again
    assert schedule.aside() == ["Game:1", "Game:2"]


@LOOSE
def test_of_some_at_once_each_that_is_refused_is_set_aside(
    loose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, schedule, made = _follows(monkeypatch, 1, loose=loose)
    for key, place in zip("012", ("10", "11", "12"), strict=True):
        world.put(key, to=place, large=True)

    assert made(*"012") == []
    assert schedule.aside() == ["Game:0", "Game:1", "Game:2"]


@LOOSE
def test_the_last_copy_of_a_block_that_can_not_be_read_is_not_written_over(
    loose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, schedule, made = _follows(monkeypatch, 1, loose=loose)
    world.put("0", to="11")
    made("0")
    world.servers["source"].damage("0")
    made("0")
    world.put("1", to="10")

    assert made("1") == ["11"]
    assert schedule.aside() == ["Game:0", "Game:1"]


@LOOSE
@pytest.mark.parametrize("there", [False, True])
def test_of_what_is_spread_none_goes_over_where_one_can_not(
    there: bool, loose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, schedule, made = _follows(monkeypatch, 2, loose=loose)
    world.put("11", to="0")
    world.put("20", to="1")
    assert made("0", *"1" * there) == ["11", *["20"] * there]
    world.put("10", to="1")

    assert made("1") == ["11"]
    assert schedule.aside() == ["Game:1"]

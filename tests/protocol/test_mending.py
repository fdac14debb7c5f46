"""Keys that a comparison has named, and that the owner reconciles as touches (R2, R4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from migrator.engine.mending import MOST, WORK, Unlike
from migrator.model.value import Value
from migrator.ports import Json
from tests.protocol.schedule import KEYS, Schedule, World, equal, level

Patch = pytest.MonkeyPatch
NAMED: list[Json] = [{"side": "source", "keys": ["0", "1"]}, {"side": "target", "keys": ["9"]}]


def _apart(patch: Patch) -> Schedule:
    """A mirror that differs at three keys, and whose feed shows nothing of it."""
    schedule = level(patch)
    there = schedule.world.servers["target"].blocks
    there["0"] = {"": {"n": -7}}
    del there["1"]
    there["9"] = {"": {"n": -9}}
    schedule.settle()
    assert schedule.world.lacks("target")
    return schedule


def _hand_over(schedule: Schedule, ranges: list[Json] = NAMED) -> None:
    schedule.control.plan_tasks(schedule.run, 0, WORK, ranges)


def _later(schedule: Schedule) -> None:
    """Until the owner has looked for what it was given, and has done it."""
    schedule.world.wait(1.0)
    schedule.settle()
    assert all(task.done for task in schedule.control.tasks(schedule.run, 0, WORK))


def test_what_is_named_is_told_and_made_equal(monkeypatch: Patch) -> None:
    schedule = _apart(monkeypatch)
    _hand_over(schedule)
    _later(schedule)
    equal(schedule.world)
    told = [str(e["detail"]) for e in schedule.control.events(schedule.run, "reconciled")]
    assert len(told) == 3
    assert "n: -7" in told[0]


def test_all_is_compared_where_there_is_too_much_to_name(monkeypatch: Patch) -> None:
    schedule = _apart(monkeypatch)
    _hand_over(schedule, [None])
    _later(schedule)
    equal(schedule.world)


@pytest.mark.parametrize("point", ["mend.told", "mirror.write", "mirror.written"])
@pytest.mark.parametrize("meets", [World.kill, lambda world: world.put("0")],
                         ids=["the owner is killed", "the application writes"])  # fmt: skip
def test_nothing_comes_between(
    point: str, meets: Callable[[World], None], monkeypatch: Patch
) -> None:
    schedule = _apart(monkeypatch)
    schedule.world.script[point] = lambda: meets(schedule.world)
    _hand_over(schedule)
    _later(schedule)
    assert not schedule.world.script
    equal(schedule.world)
    assert set(schedule.world.held("source")) == set(KEYS)


def test_what_is_named_is_bounded() -> None:
    unlike = Unlike()
    for number in range(MOST):
        unlike.add("source", number, [("source", number)])
    assert not unlike.whole
    assert sum(len(_named(each)) for each in unlike.ranges()) == MOST
    unlike.add("target", "one more", [("target", "one more")])
    assert unlike.whole
    assert unlike.ranges() == [None]
    assert not any((*unlike.keys.values(), *unlike.found.values()))


def _named(range_: Json) -> list[Value]:
    assert isinstance(range_, dict)
    keys = range_["keys"]
    assert isinstance(keys, list)
    return list(keys)

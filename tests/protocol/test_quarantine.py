"""What the target does not take stays on the source over a cut-over, and whatever comes after."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from migrator.engine import access, aside, batch
from migrator.errors import Interrupted, Transient
from migrator.journal import Touches
from migrator.model.phase import Phase
from migrator.state import LiveState, quarantine_key
from tests.protocol.schedule import Schedule, World, equal, level, reach
from tests.protocol.server import Event, ServerFeed

Patch = pytest.MonkeyPatch
ASIDE = "0"
NEW = "9"  # is on the primary alone


def _left_out(patch: Patch, *, hook: bool = False) -> Schedule:
    """A cut-over that left out a block, accepted by its name."""
    schedule = level(patch, hook=hook)
    schedule.world.put(ASIDE, large=True)
    schedule.settle()
    schedule.accepts = [f"Game:{ASIDE}"]
    reach(schedule, Phase.CUT_OVER)
    return schedule


def _is_apart(schedule: Schedule) -> None:
    """The source holds all, the target all but that block."""
    world = schedule.world
    assert schedule.aside() == [f"Game:{ASIDE}"]
    assert world.held("source") == world.history
    assert world.held("target") == {k: n for k, n in world.history.items() if k != ASIDE}


def _time_passes(world: World) -> None:
    world.now += 60


def _source_is_lost(world: World) -> None:
    world.servers["source"].lose_feed()


def _target_is_lost(world: World) -> None:
    world.servers["target"].lose_feed()


@pytest.mark.parametrize("happens", [_time_passes, _source_is_lost, _target_is_lost])
def test_a_block_in_quarantine_outlives_what_comes_after_a_cut_over(
    happens: Callable[[World], None], monkeypatch: Patch
) -> None:
    schedule = _left_out(monkeypatch)
    for phase in (Phase.SHADOW_READ, Phase.CUT_OVER):
        happens(schedule.world)
        schedule.settle()
        _is_apart(schedule)

        reach(schedule, phase)
        happens(schedule.world)
        schedule.settle()
        _is_apart(schedule)


def test_the_owner_that_set_a_block_aside_leaves_it_alone_after_the_flip(
    monkeypatch: Patch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    schedule.accepts = [f"Game:{ASIDE}"]
    world.script["swap.armed"] = lambda: world.put(ASIDE, large=True)
    # Late enough to try once more what was refused.
    world.script["swap.released"] = lambda: _time_passes(world)

    assert schedule.ask(Phase.CUT_OVER)

    schedule.settle()
    _is_apart(schedule)


def test_a_block_left_out_outlives_a_feed_that_breaks_once_its_marker_was_met(
    monkeypatch: Patch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    schedule.accepts = [f"Game:{ASIDE}"]
    world.script["swap.raised"] = lambda: world.put(ASIDE, large=True)
    # As many events as a feed gives at once where there may be more: it is asked again.
    monkeypatch.setattr(batch, "_MANY", 1)
    poll, breaks = ServerFeed.poll, [True]
    given: list[str] = []

    def polls(self: ServerFeed, seconds: float) -> Touches | None:
        if breaks and any("reign" in mark for mark in given):
            breaks.clear()
            raise Transient("the feed broke", where="target")
        found = poll(self, seconds)
        given.extend(found.marks if found is not None else ())
        return found

    monkeypatch.setattr(ServerFeed, "poll", polls)

    assert schedule.ask(Phase.CUT_OVER)
    schedule.settle()

    assert not breaks
    _is_apart(schedule)  # the owner's own delete on the target is not the application's


def test_what_a_cut_over_left_out_by_name_is_not_asked_for_by_a_rollback(
    monkeypatch: Patch,
) -> None:
    schedule = _left_out(monkeypatch)
    schedule.accepts = []
    assert schedule.ask(Phase.SHADOW_READ), schedule.why
    _is_apart(schedule)

    # What it holds may have been written since.
    assert not schedule.ask(Phase.CUT_OVER)
    assert f"1 blocks are in quarantine: Game:{ASIDE}" in schedule.why


def test_a_rollback_goes_by_what_the_last_cut_over_left_out(monkeypatch: Patch) -> None:
    schedule = _left_out(monkeypatch)
    reach(schedule, Phase.SHADOW_READ)
    schedule.world.put(ASIDE)
    schedule.world.put("1", large=True)
    schedule.settle()
    schedule.accepts = ["Game:1"]
    reach(schedule, Phase.CUT_OVER)
    schedule.accepts = []

    assert schedule.aside() == ["Game:1"]
    assert schedule.ask(Phase.SHADOW_READ), schedule.why


def test_a_rollback_asks_for_what_is_in_quarantine_since_the_cut_over(monkeypatch: Patch) -> None:
    schedule = _left_out(monkeypatch)
    schedule.accepts = []
    control, run = schedule.control, schedule.control.runs()[0]
    old = control.quarantined(run.id)[0]
    schedule.world.servers["source"].blocks["9"] = {"": {"n": 9}}
    control.set_aside(run.id, replace(old, key=quarantine_key("9"), shown="Game:9"))

    assert not schedule.ask(Phase.SHADOW_READ)
    assert "1 blocks are in quarantine: Game:9" in schedule.why


def test_a_block_that_is_mended_after_a_rollback_goes_over(monkeypatch: Patch) -> None:
    schedule = _left_out(monkeypatch)
    reach(schedule, Phase.SHADOW_READ)
    schedule.world.put(ASIDE)
    schedule.settle()

    assert schedule.aside() == []
    equal(schedule.world)


@pytest.mark.parametrize("phase", [Phase.SHADOW_READ, Phase.CUT_OVER])
def test_a_block_that_is_deleted_while_its_feed_is_lost_leaves_quarantine(
    phase: Phase, monkeypatch: Patch
) -> None:
    schedule = _left_out(monkeypatch, hook=True)
    world = schedule.world
    reach(schedule, phase)
    world.servers["source"].remove(ASIDE)
    _source_is_lost(world)
    schedule.settle()

    assert schedule.aside() == []
    assert ASIDE not in world.held("source")


def test_a_block_that_is_set_aside_behind_a_re_scan_stays_in_quarantine(monkeypatch: Patch) -> None:
    schedule = level(monkeypatch)
    schedule.page = 1
    world = schedule.world
    world.put(ASIDE, large=True)
    schedule.settle()
    world.servers["source"].remove(ASIDE)
    _source_is_lost(world)

    # The listing has passed its key by the time that the application writes it again.
    def writes() -> None:
        world.put(ASIDE, large=True)

    world.script["keys"] = lambda: world.script.update(read=writes)
    schedule.settle()

    assert schedule.aside() == [f"Game:{ASIDE}"]


def test_a_re_scan_comes_to_its_end_through_many_short_lives_of_the_mirror(
    monkeypatch: Patch,
) -> None:
    schedule = level(monkeypatch)
    schedule.page = 1
    world = schedule.world
    world.put(ASIDE, large=True)
    schedule.settle()
    world.servers["source"].remove("1")
    _source_is_lost(world)
    listed: list[int] = []

    def page() -> None:
        world.script["keys"] = page
        listed[-1] += 1
        world.stopping = listed[-1] == 2

    world.script["keys"] = page
    for _ in range(6):
        listed.append(0)
        with suppress(Interrupted):
            schedule._process().work(lambda: listed[-1] == 0 and not _scans(schedule))

    assert "1" not in world.held("target")
    # All of what is set aside is looked at once more, by one life.
    schedule.settle()
    assert not _scans(schedule)
    assert schedule.aside() == [f"Game:{ASIDE}"]
    world.servers["source"].remove(ASIDE)
    _source_is_lost(world)
    with suppress(Interrupted):
        listed.append(0)
        schedule._process().work(lambda: False)
    world.script.clear()
    schedule.settle()
    assert schedule.aside() == []


def _scans(schedule: Schedule) -> bool:
    live = LiveState(schedule.control, schedule.run)
    found = [live.position(0, side) for side in ("source", "target")]
    return any(each is not None and each.scan is not None for each in found)


# ---------------------------------------------------------------------- once the primary has it


def test_what_is_refused_again_for_the_same_reason_is_told_once(monkeypatch: Patch) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    told: list[str] = []
    log = SimpleNamespace(warning=lambda what, **_: told.append(what), info=lambda *_, **__: None)
    monkeypatch.setattr(aside, "log", log)
    monkeypatch.setattr(access, "log", log)
    turns = iter(range(60))

    def looks() -> bool:
        turn = next(turns)
        if turn == 5:
            world.put(ASIDE, large=True)
            world.servers["source"].damage("1")
            world.servers["source"].log.append(Event("1"))
        _time_passes(world)
        return turn == 59

    schedule.work(looks)

    assert sorted(told) == ["can't be read", "quarantined", "quarantined"]


def _in_one_process(schedule: Schedule, *steps: Callable[[], None]) -> None:
    """One owner meets these, and acts on each before the next."""
    turns = iter(range(20 * len(steps) + 20))

    def looks() -> bool:
        turn = next(turns)
        if turn % 20 == 5 and turn // 20 < len(steps):
            steps[turn // 20]()
        return turn == 20 * len(steps)

    schedule.work(looks)


def test_what_is_refused_again_after_it_went_over_is_in_quarantine_again(
    monkeypatch: Patch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def refused() -> None:
        world.put(ASIDE, large=True)

    def goes_over() -> None:
        assert schedule.aside() == [f"Game:{ASIDE}"]
        world.put(ASIDE)

    def damaged() -> None:
        assert schedule.reasons() == ["too large"]
        source = world.servers["source"]
        source.damage(ASIDE)
        source.put(ASIDE, source.blocks[ASIDE])

    _in_one_process(schedule, refused, goes_over, refused, damaged)

    assert schedule.aside() == [f"Game:{ASIDE}"]
    assert schedule.reasons() != ["too large"]


@pytest.mark.parametrize("lost", [False, True], ids=["written", "lost"])
def test_what_is_refused_again_after_it_went_back_is_in_the_ledger_again(
    lost: bool, monkeypatch: Patch
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    reach(schedule, Phase.CUT_OVER)
    target, told = world.servers["target"], list[str]()
    log = SimpleNamespace(info=lambda what, **_: told.append(what), warning=lambda *_, **__: None)
    monkeypatch.setattr(aside, "log", log)

    def refused() -> None:
        world.put(NEW)
        target.damage(NEW)
        target.put(NEW, target.blocks[NEW])

    def goes_back() -> None:
        assert schedule.ledger() == [f"Game:{NEW}"]
        if lost:  # and with it that the block was deleted
            del target.blocks[NEW]
            target.lose_feed()
        else:
            world.put(NEW)

    def again() -> None:
        assert schedule.ledger() == []
        refused()

    _in_one_process(schedule, refused, goes_back, again, target.lose_feed)

    assert schedule.ledger() == [f"Game:{NEW}"]
    assert told == ["gone from the target, and from the ledger"] * lost


@pytest.mark.parametrize("left_out", [True, False], ids=["left out before", "was there"])
def test_what_a_rollback_was_told_to_leave_behind_is_not_the_truth_of_a_later_cut_over(
    left_out: bool, monkeypatch: Patch
) -> None:
    schedule = _left_out(monkeypatch) if left_out else level(monkeypatch)
    reach(schedule, Phase.CUT_OVER)
    world = schedule.world
    kept = world.held("source")
    live = LiveState(schedule.control, schedule.run)

    def asks(phase: Phase, *accepts: str) -> None:
        live.ask(phase.value, {"accept_keys": accepts})

    def refused() -> None:
        world.put(ASIDE, large=True)

    def goes_back() -> None:
        assert (schedule.ledger(), schedule.aside()) == ([f"Game:{ASIDE}"], [])
        asks(Phase.SHADOW_READ, f"Game:{ASIDE}")

    def goes_over() -> None:
        assert schedule.ledger() == []
        asks(Phase.CUT_OVER)

    _in_one_process(schedule, refused, goes_back, goes_over, lambda: None)

    assert schedule.phase is (Phase.SHADOW_READ if left_out else Phase.CUT_OVER)
    assert schedule.aside() == [f"Game:{ASIDE}"] * left_out
    assert schedule.strangers() == []
    assert world.held("source") == kept
    assert world.held("target") == {k: n for k, n in kept.items() if k != ASIDE or not left_out}


def test_a_block_of_another_class_that_is_in_quarantine_hides_none_of_its_key(
    monkeypatch: Patch,
) -> None:
    schedule = level(monkeypatch)
    control, world = schedule.control, schedule.world
    world.put(ASIDE, large=True)
    schedule.settle()
    (item,) = control.quarantined(schedule.run)
    control.take_up(schedule.run, 0, item.key)
    control.set_aside(schedule.run, replace(item, move=1))
    world.put(ASIDE, large=True)
    schedule.settle()

    assert {each.move for each in control.quarantined(schedule.run)} == {0, 1}


def test_a_write_of_the_key_to_the_primary_takes_it_out_of_quarantine(monkeypatch: Patch) -> None:
    schedule = _left_out(monkeypatch)
    schedule.world.put(ASIDE)
    schedule.settle()

    assert schedule.aside() == []
    equal(schedule.world)

    schedule.world.delete(ASIDE)
    schedule.settle()

    equal(schedule.world)


def test_a_key_that_was_written_and_deleted_at_once_is_gone_from_both_sides(
    monkeypatch: Patch,
) -> None:
    schedule = _left_out(monkeypatch)
    schedule.world.put(ASIDE)
    schedule.world.delete(ASIDE)
    schedule.settle()

    assert schedule.aside() == []
    equal(schedule.world)


@pytest.mark.parametrize("point", ["mirror.write", "mirror.written"])
def test_what_replaced_a_block_left_out_goes_from_both_sides_though_its_owner_died(
    point: str, monkeypatch: Patch
) -> None:
    schedule = _left_out(monkeypatch)
    world = schedule.world

    def dies() -> None:
        world.truncate()  # no touch tells which keys were there
        world.kill()

    world.put(ASIDE)
    world.script[point] = dies
    schedule.settle()

    assert world.history == {}
    assert schedule.aside() == []
    equal(world)


# ---------------------------------------------------------------------- by somebody else


def test_a_foreign_write_of_the_key_to_the_old_side_is_told_and_left(monkeypatch: Patch) -> None:
    # Stopped by a hook: no fence denies it.
    schedule = _left_out(monkeypatch, hook=True)
    turns = iter(range(100))

    def looks() -> bool:
        turn = next(turns)
        if turn == 50:  # the re-scan of its start is done
            schedule.world.foreign("source", ASIDE)
        return turn == 99

    schedule.work(looks)

    assert schedule.strangers() == [f"Game:{ASIDE}"]
    assert schedule.world.held("source")[ASIDE] < 0  # of somebody else


@pytest.mark.parametrize("step", ["swap.drained", "swap.flipped"])
def test_a_foreign_key_that_came_and_went_during_a_swap_takes_no_block_along(
    step: str, monkeypatch: Patch
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    world.put(ASIDE, large=True)
    schedule.settle()
    schedule.accepts = [f"Game:{ASIDE}"]

    def came_and_went() -> None:
        world.foreign("target", ASIDE)
        world.servers["target"].remove(ASIDE)

    world.script[step] = came_and_went
    reach(schedule, Phase.CUT_OVER)
    schedule.settle()

    _is_apart(schedule)

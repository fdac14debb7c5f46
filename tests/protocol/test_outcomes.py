"""What a request that failed leaves behind: for the next owner, and for the mirror's own feed."""

from __future__ import annotations

from typing import cast

import pytest

from migrator.engine.lane import Lane
from migrator.errors import Refused, Transient, Waiting
from migrator.model.phase import Phase
from migrator.ports import Json
from migrator.state import LiveState, Run
from tests.protocol.plants import ends_equal
from tests.protocol.schedule import LIFE, Schedule, level
from tests.protocol.server import Fate, ServerJournal


def test_a_request_on_its_way_is_outwaited_after_an_end_in_good_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def stopped() -> None:
        world.put("0")
        world.stopping = True

    world.put("0")
    world.fates.append("late")
    world.script["mirror.write"] = stopped

    ends_equal(schedule)


def test_a_successor_that_ends_while_it_outwaits_leaves_that_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def ends() -> None:
        world.put("0")
        world.stopping = True

    world.put("0")
    world.fates.append("killed")
    world.script["write"] = lambda: world.script.update(sleep=ends)

    ends_equal(schedule)


def test_a_successor_that_outwaits_tells_for_what_and_for_how_long_it_has_read_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    told = []

    def looks() -> None:
        state = LiveState(schedule.control, schedule.run).told()[1]
        told.append((state["waits"], state["lag"]))
        world.script["sleep"] = looks

    world.put("0")
    world.fates.append("killed")
    world.script["write"] = lambda: world.script.update(sleep=looks)

    ends_equal(schedule)

    waits = [lag for why, lag in told if why == "the last requests of the mirror before"]
    assert LIFE - 1 < max(waits) < LIFE


@pytest.mark.parametrize("fate", ["refused", "lost", "late"])
def test_a_foreign_write_is_told_also_after_a_request_that_failed(
    fate: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    world.put("0")
    world.fates.append(fate)
    world.script["mirror.applied"] = lambda: world.foreign("target", "0")

    ends_equal(schedule)

    assert schedule.strangers() == ["Game:0"]


def test_a_flip_that_arrives_late_does_not_overtake_its_undoing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def arrives() -> None:
        schedule.flip_late()
        world.put("0", blindly=True)

    schedule.lose_flip()
    world.script["lowered"] = arrives  # the fence, while the attempt is undone

    schedule.ask(Phase.CUT_OVER)

    ends_equal(schedule)


def test_an_attempt_whose_beginning_had_no_answer_keeps_no_other_from_being_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    live = LiveState(schedule.control, schedule.run)
    terms: dict[str, object] = {"hook": "stop"} if schedule.world.hook else {}

    def lost() -> None:
        raise Transient("no answer in time", where="control database", unknown=True)

    arm, armed = LiveState.arm, []

    def arms(self: LiveState, run: Run) -> Run:
        armed.append(run)
        if len(armed) == 1:
            schedule.world.script["controlled"] = lost
        return arm(self, run)

    monkeypatch.setattr(LiveState, "arm", arms)
    asked = [live.ask(Phase.CUT_OVER.value, terms)]

    def answered() -> bool:
        over = live.answered(asked[-1]) is not None and not schedule.control.run("0001").fence
        if over and len(asked) == 1:
            asked.append(live.ask(Phase.CUT_OVER.value, terms))  # of the same process
            return False
        return over

    schedule.work(answered)

    assert schedule.phase is Phase.CUT_OVER
    ends_equal(schedule)


def test_a_move_is_left_though_its_mirror_can_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = level(monkeypatch)

    def refuses(_: ServerJournal) -> Json:
        raise Refused("another role owns it")

    monkeypatch.setattr(ServerJournal, "prepare", refuses)
    schedule.world.servers["source"].lose_feed()

    assert schedule.ask(Phase.ABORTED), schedule.why


def test_who_did_not_look_at_the_epoch_of_a_side_that_was_to_be_left_mirrors_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    live = LiveState(schedule.control, schedule.run)

    def waits(*_: object, **__: object) -> None:
        raise Waiting("not now")

    monkeypatch.setattr(Lane, "drop", waits)
    asked = live.ask(Phase.ABORTED.value, {"leave_target": True})
    turns = iter(range(5))

    schedule.work(lambda: live.answered(asked) is not None and next(turns) == 4)

    assert "the process ended: not now; another one starts" in schedule.world.told
    ends_equal(schedule)


# ---------------------------------------------------------------------- who asked, and is gone


def _asks(schedule: Schedule) -> int:
    terms: dict[str, object] = {"hook": "stop"} if schedule.world.hook else {}
    live = LiveState(schedule.control, schedule.run)
    return live.ask(Phase.CUT_OVER.value, terms, renewed=True)


def test_what_a_killed_command_asked_for_is_not_done_by_a_later_mirror(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    live = LiveState(schedule.control, schedule.run)
    number = _asks(schedule)

    schedule.work(lambda: live.answered(number) is not None)

    assert schedule.phase is Phase.SHADOW_READ
    assert "not begun" in str(live.answered(number))
    number = _asks(schedule)

    def renews() -> bool:
        live.renew(number)
        return live.answered(number) is not None

    schedule.work(renews)

    assert schedule.phase is Phase.CUT_OVER
    ends_equal(schedule)


def test_a_swap_that_is_taken_back_before_writes_are_stopped_is_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    live = LiveState(schedule.control, schedule.run)
    asked: list[int] = []

    def answered() -> bool:
        if not asked:  # while the mirror looks
            asked.append(_asks(schedule))
            schedule.world.script["swap.armed"] = lambda: live.withdraw(asked[0])
        return bool(live.answered(asked[0])) and not schedule.control.run("0001").fence

    schedule.work(answered)

    assert schedule.phase is Phase.SHADOW_READ
    assert "taken back" in str(live.answered(asked[0]))
    ends_equal(schedule)


def test_a_swap_that_a_crash_ended_forward_is_in_the_record_with_its_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    schedule.world.script["swap.flipped"] = schedule.world.kill

    schedule.ask(Phase.CUT_OVER)

    assert schedule.phase is Phase.CUT_OVER
    (swapped,) = schedule.control.events(schedule.run, "swapped")
    detail = cast("dict[str, object]", swapped["detail"])
    assert detail["to"] == "target"
    assert cast("float", detail["pause"]) >= 0


def test_an_abort_goes_on_behind_a_swap_that_a_crash_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    live = LiveState(schedule.control, schedule.run)

    def killed() -> None:
        live.ask(Phase.ABORTED.value, {})
        schedule.world.kill()

    live.ask(Phase.CUT_OVER.value, {"hook": "stop"} if schedule.world.hook else {})
    schedule.world.script["swap.drained"] = killed

    schedule.work(lambda: live.asked() is None)

    assert schedule.phase is Phase.ABORTED


def test_an_end_that_is_taken_back_while_the_mirror_waits_for_a_store_is_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    assert schedule.ask(Phase.CUT_OVER), schedule.why
    live = LiveState(schedule.control, schedule.run)
    asked: list[int] = []

    def answered() -> bool:
        if not asked:  # while the mirror looks
            asked.append(live.ask(Phase.FINISHED.value, {}, renewed=True))
            schedule.world.script["idle"] = lambda: live.withdraw(asked[0])
        return bool(live.answered(asked[0]))

    schedule.work(answered)

    assert schedule.phase is Phase.CUT_OVER
    assert "taken back" in str(live.answered(asked[0]))


def test_what_somebody_waits_for_is_done_though_each_turn_of_the_mirror_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world, live = schedule.world, LiveState(schedule.control, schedule.run)
    number = live.ask(Phase.ABORTED.value, {}, renewed=True)

    def renews() -> None:
        live.renew(number)
        world.script["sleep"] = renews

    def waits() -> None:  # for a store
        world.wait(30.0)
        renews()
        world.script["poll"] = waits

    world.script["poll"] = waits

    schedule.work(lambda: live.answered(number) is not None or world.now > 1000.0)

    assert schedule.phase is Phase.ABORTED

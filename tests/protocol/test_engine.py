"""The real engine, on its real control database, in schedules: no acknowledged write is lost.

The drawn ones are long, and few. Short ones by the thousand are in `test_schedules.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from migrator.engine import comparing, mirror, swap
from migrator.engine.held import Held, _Mark
from migrator.engine.lane import Lane
from migrator.engine.positions import Positions
from migrator.engine.work import Scene
from migrator.errors import Terminal, Transient
from migrator.journal import OTHER, Touches
from migrator.model.block import Block
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.retry import Retry
from migrator.state import LiveState, Position, Run
from tests.ending import PATIENCE
from tests.protocol.plants import PLANTS, ends_equal
from tests.protocol.schedule import (
    KEYS,
    Chances,
    Schedule,
    World,
    equal,
    filled,
    level,
    mirrored,
    reach,
    whole_life,
)
from tests.protocol.server import Event, Server, ServerFeed, ServerJournal

SCHEDULES = 4


@pytest.mark.parametrize("seed", range(2 * SCHEDULES))
def test_the_mirror_comes_to_hold_every_acknowledged_write(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored(filled(seed, monkeypatch, Chances()))


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_no_acknowledged_write_is_lost_there_and_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_life(seed, monkeypatch, Chances())


@pytest.mark.parametrize("seed", range(SCHEDULES // 2))
def test_writes_of_strangers_are_undone_or_told(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_life(seed, monkeypatch, Chances(strangers=True))


@pytest.mark.parametrize("rule", PLANTS)
def test_a_rule_broken_in_the_engine_loses_a_write(rule: str) -> None:
    plant, play = PLANTS[rule]

    with pytest.MonkeyPatch.context() as patch:
        play(patch)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises(AssertionError, match=r"holds .*, and the application was told"):
            play(patch)


# ---------------------------------------------------------------------- what is told of the mirror


class _Judged(Held):
    """Says since when all is held, in a world that knows what was written until then."""

    def __init__(self, world: World, clock: Callable[[], float]) -> None:
        super().__init__(lambda run: True, clock)
        self._world = world
        self._written: dict[str, tuple[dict[str, int], int]] = {}
        self.judged = 0

    def _write(self, run: Run, lanes: Sequence[Lane], now: float) -> _Mark | None:
        written = dict(self._world.history), self._world.version
        mark = super()._write(run, lanes, now)
        if mark is not None:
            self._written[mark.name] = written
        return mark

    def turn(self, run: Run, lanes: Sequence[Lane]) -> None:
        super().turn(run, lanes)
        if self._met is None or self._met.epoch != run.epoch:
            return
        self.judged += 1
        world, (written, last) = self._world, self._written[self._met.name]
        held = world.held(OTHER[run.primary])
        for key, n in written.items():
            gone = world.history.get(key) != n  # deleted since then
            assert held[key] >= n if key in held else gone, (key, n, held, world.told)
        assert all(n > last for key, n in held.items() if key not in written), (held, world.told)


@pytest.mark.parametrize("seed", range(2 * SCHEDULES))
def test_the_mirror_holds_what_it_is_told_to_hold(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = filled(seed, monkeypatch, Chances())
    made: list[_Judged] = []

    def judged(_: object) -> _Judged:
        made.append(_Judged(schedule.world, schedule.clock.monotonic))
        return made[-1]

    monkeypatch.setattr("migrator.engine.mirror.Held", judged)
    monkeypatch.setattr("migrator.engine.held.EVERY", 0.05)
    mirrored(schedule)
    for _ in range(3):
        schedule.go_on()
        schedule.work(lambda: not schedule.world.writes)
        schedule.settle()
    assert sum(each.judged for each in made) > 20


# ---------------------------------------------------------------------- what the mirror may meet


def test_a_crash_after_a_lost_feed_does_not_spare_the_re_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    world.put("0")
    world.servers["source"].lose_feed()
    world.script["prepare"] = lambda: world.script.update(controlled=world.kill)

    ends_equal(schedule)


def test_both_sides_are_asked_for_a_batch_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = level(monkeypatch, seed=2)
    monkeypatch.setattr("tests.protocol.schedule._AtOnce", lambda: ThreadPoolExecutor(1))
    both, read, asked = threading.Barrier(2, timeout=PATIENCE), Server.read, list[str]()

    def reads(self: Server, ids: Sequence[Value]) -> list[Block | None]:
        asked.append(self.at.store)
        if len(asked) <= 2:  # later it looks at what it wrote
            both.wait()  # broken where one is asked only once the other has answered
        return read(self, ids)

    monkeypatch.setattr(Server, "read", reads)
    schedule.world.put("1")
    schedule.settle()

    assert sorted(asked[:2]) == ["source", "target"]
    equal(schedule.world)


def test_under_a_fence_nothing_is_done_twice_or_before_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The feed gives three events at a time: its marker comes behind three writes."""
    schedule = level(monkeypatch)
    world = schedule.world
    acted: list[tuple[set[object], int]] = []
    kept: list[tuple[str, str]] = []
    act, keep, pass_over = Lane._act, Positions.keep, Lane.pass_over
    passed: list[str] = []

    def acts(self: Lane, primary: str, given: Touches) -> None:
        if self.scene.run.fence == "raised":
            acted.append(({touch.key for touch in given.touches}, len(given.marks)))
        act(self, primary, given)

    def keeps(self: Positions, side: str, position: Position) -> None:
        kept.append((self.scene.run.fence, side))
        keep(self, side, position)

    def passes(self: Lane, side: str, seconds: float, mark: str = "") -> None:
        passed.append(side)
        pass_over(self, side, seconds, mark)

    monkeypatch.setattr(Lane, "_act", acts)
    monkeypatch.setattr(Positions, "keep", keeps)
    monkeypatch.setattr(Lane, "pass_over", passes)
    world.script["swap.raised"] = lambda: [world.put(key) for key in KEYS] and None
    assert schedule.ask(Phase.CUT_OVER)
    schedule.settle()

    assert acted == [(set(KEYS), 1)]
    assert passed == ["target"]  # the owner's three writes there, and the marker behind them
    # Where the reverse journal begins has to be known before the first write there.
    assert [at for at in kept if at[0]] == [("flipped", "target")]
    assert ("", "source") in kept
    equal(world)


def test_a_block_that_does_not_fit_stays_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = level(monkeypatch)
    schedule.world.put("0", large=True)
    schedule.settle()

    assert schedule.aside() == ["Game:0"]


# ---------------------------------------------------------------------- what a comparison may meet


def _comparing(
    monkeypatch: pytest.MonkeyPatch, lane: SimpleNamespace
) -> tuple[mirror.Mirror, threading.Event]:
    """An owner whose comparison waits for the mirror now, and what says that it has ended."""
    settles, ended = threading.Event(), threading.Event()

    def compare(scene: Scene, _: object) -> None:
        assert scene.settle is not None
        settles.set()
        try:
            scene.settle()
        finally:
            ended.set()

    schedule = filled(1, monkeypatch, Chances(writes=0, faults=0))
    monkeypatch.setattr(comparing, "verify", compare)
    monkeypatch.setattr(comparing, "time", SimpleNamespace(sleep=threading.Event().wait))
    owner = schedule._process()
    journal = SimpleNamespace(mark=lambda _: lane.marked.set())
    lane.marked, lane.losses, lane.journal = threading.Event(), lambda _: 0, lambda _: journal
    owner.comparing._lanes = [cast("Any", lane)]
    owner.comparing.begin()
    assert settles.wait(60)
    assert lane.marked.wait(60)
    return owner, ended


def test_a_comparison_that_waits_for_the_mirror_can_be_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane = SimpleNamespace(scanning=False, has_mark=lambda *_: False)
    owner, ended = _comparing(monkeypatch, lane)

    # As an abort does on the thread that would act on the marker.
    aborts = threading.Thread(target=owner.comparing.stop, daemon=True)
    aborts.start()
    try:
        aborts.join(60)
        assert not aborts.is_alive()
        assert ended.is_set()
    finally:
        lane.has_mark = lambda *_: True


def test_a_comparison_that_waits_for_a_store_can_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    def asks() -> None:
        asked.set()
        if not answers.is_set():
            raise Transient("no answer", where="a store")

    schedule = filled(1, monkeypatch, Chances(writes=0, faults=0))
    monkeypatch.setattr(comparing, "verify", lambda scene, _: scene.retry(asks))
    owner = schedule._process()
    owner.scene.retry = Retry(stop=threading.Event())  # of a process that goes on
    owner.comparing.begin()
    assert asked.wait(60)

    ends = threading.Thread(target=owner.comparing.stop, daemon=True)
    ends.start()
    try:
        ends.join(60)  # of the two minutes for which it would be asked
        assert not ends.is_alive()
    finally:
        answers.set()


def test_a_comparison_waits_for_a_re_scan_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = SimpleNamespace(scanning=True, has_mark=lambda *_: True)
    _, ended = _comparing(monkeypatch, lane)

    assert not ended.is_set()
    lane.scanning = False
    assert ended.wait(60)


# ---------------------------------------------------------------------- what a swap may meet


def test_a_truncate_while_a_swap_catches_up_is_mirrored_before_the_flip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    schedule.world.script["swap.armed"] = schedule.world.truncate

    schedule.ask(Phase.CUT_OVER)

    ends_equal(schedule)


def test_a_feed_lost_while_a_swap_catches_up_is_scanned_anew_before_the_flip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def lost() -> None:
        world.put("0")
        world.servers["source"].lose_feed()

    world.script["swap.armed"] = lost

    schedule.ask(Phase.CUT_OVER)

    ends_equal(schedule)
    reach(schedule, Phase.SHADOW_READ)


def test_a_mirror_that_is_found_under_the_fence_to_have_lost_writes_does_not_become_the_primary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    target = world.servers["target"]
    before = dict(target.blocks)

    def restarts() -> None:
        """From what its disk held, while the mirror looks whose the writes in its feed are."""
        target.blocks["0"] = before["0"]
        del target.blocks["2"]
        target.lose_feed()

    def looks() -> None:
        world.wait(1.0)
        world.script["idle"] = restarts

    def meets() -> None:
        for key in "01" * 30:  # more than are gathered while their marker is waited for
            world.put(key)
        world.script["mirror.applied"] = looks

    world.script["swap.raised"] = meets

    assert not schedule.ask(Phase.CUT_OVER)
    assert not world.script, "nothing was lost"

    ends_equal(schedule)
    assert schedule.strangers() == []
    reach(schedule, Phase.CUT_OVER)
    ends_equal(schedule)


@pytest.mark.parametrize("away", [False, True], ids=["again there", "away"])
def test_a_mirror_whose_server_forgets_is_asked_for_that_though_nobody_is_suspected(
    monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    monkeypatch.setattr(ServerJournal, "forgets", True, raising=False)
    schedule = level(monkeypatch)
    target = schedule.world.servers["target"]

    def restarts() -> None:
        """From what its disk held; or it does not answer yet."""
        del target.blocks["2"]
        target.lose_feed()
        if away:
            monkeypatch.setattr(ServerFeed, "poll", breaks)

    def breaks(feed: ServerFeed, seconds: float) -> Touches | None:
        if feed._server is not target:
            return poll(feed, seconds)
        monkeypatch.setattr(ServerFeed, "poll", poll)
        raise Transient("the connection broke", where="target")

    poll = ServerFeed.poll
    schedule.world.script["swap.raised"] = restarts

    assert not schedule.ask(Phase.CUT_OVER)
    assert not schedule.world.script, "nothing was lost"

    ends_equal(schedule)
    assert "2" in target.blocks
    reach(schedule, Phase.CUT_OVER)
    ends_equal(schedule)


def test_a_block_that_does_not_fit_while_a_swap_catches_up_keeps_it_from_the_flip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    schedule.world.script["swap.armed"] = lambda: schedule.world.put("0", large=True)

    assert not schedule.ask(Phase.CUT_OVER)


def test_a_feed_lost_after_the_flip_does_not_keep_writes_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    world.script["swap.flipped"] = lambda: world.script.update(
        poll=world.servers["target"].lose_feed
    )

    assert schedule.ask(Phase.CUT_OVER)

    ends_equal(schedule)


def _fails() -> None:
    raise Terminal("the disk is full", where="control database")


def _goes_on(schedule: Schedule, fifth: Callable[[], None] = lambda: None) -> None:
    """One process that is asked for a cut-over on which something fails, and goes on."""
    live = LiveState(schedule.control, schedule.run)
    live.ask(Phase.CUT_OVER.value, {"hook": "stop"} if schedule.world.hook else {})
    turns = iter(range(20))

    def enough() -> bool:
        turn = next(turns)
        if turn == 5:
            fifth()
        return turn == 19

    schedule.work(enough)
    assert live.asked() is None
    assert not schedule.world.script, "nothing failed"


def test_touches_that_an_attempt_failed_on_are_acted_on_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def meets() -> None:
        world.put("0")
        world.script["mirror.touched"] = _fails

    world.script["swap.armed"] = meets
    _goes_on(schedule, lambda: world.put("1"))  # the same process acknowledges this one

    ends_equal(schedule)


def test_a_foreign_write_that_an_attempt_failed_on_is_told_and_undone_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def meets() -> None:
        world.foreign("target", "0")  # only suspected, up to a marker
        world.script["foreign.told"] = _fails

    world.script["swap.armed"] = meets
    _goes_on(schedule)

    equal(world)
    assert set(schedule.strangers()) == {"Game:0"}


def test_a_foreign_write_that_becomes_the_truth_is_mirrored_though_that_failed_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch, hook=True)
    world = schedule.world

    def meets() -> None:
        world.foreign("target", "0")
        world.script["mirror.write"] = _fails

    world.script["swap.flipped"] = meets
    _goes_on(schedule)

    assert world.held("source") == world.held("target")
    assert world.held("target")["0"] < 0
    assert set(schedule.strangers()) == {"Game:0"}


def test_the_marker_of_an_attempt_that_failed_is_not_taken_for_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def writes() -> None:
        for key in "0101":  # more than come at once
            world.put(key)

    def again() -> None:
        world.script["swap.raised"] = writes
        LiveState(schedule.control, schedule.run).ask(Phase.CUT_OVER.value, {})

    world.script["swap.drained"] = _fails
    _goes_on(schedule, again)

    assert schedule.phase is Phase.CUT_OVER
    ends_equal(schedule)


def test_a_write_between_the_release_and_its_note_outlives_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch, hook=True)
    world = schedule.world

    def killed() -> None:
        world.put("0")
        world.kill()

    world.script["hooked release"] = killed

    assert schedule.ask(Phase.CUT_OVER)

    ends_equal(schedule)
    assert world.run() == ("target", "")  # and it is over


# ---------------------------------------------------------------------- writes by somebody else


def test_a_foreign_write_to_the_mirror_is_told_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = level(monkeypatch)
    schedule.world.foreign("target", "0")

    ends_equal(schedule)

    assert schedule.strangers() == ["Game:0"]


def test_a_foreign_write_that_becomes_the_truth_is_told_also_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch, hook=True)
    world = schedule.world

    def meets() -> None:
        world.foreign("target", "0")
        world.fates.append("killed")  # with its request to the source on the way

    world.script["swap.flipped"] = meets

    assert schedule.ask(Phase.CUT_OVER)

    schedule.settle()
    assert schedule.world.held("source") == schedule.world.held("target")
    assert not schedule.world.lacks("target")


@pytest.mark.parametrize(
    "step", ["read", "mark", "marked", "foreign.told", "mirror.write", "write", "mirror.written"]
)
def test_a_foreign_write_to_the_mirror_is_told_wherever_a_crash_comes(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def meets() -> None:
        world.foreign("target", "0")
        world.script[step] = world.kill

    world.script["idle"] = meets  # the mirror is at work
    schedule.settle()
    schedule.settle()

    assert not world.script, "it was not killed"
    equal(world)
    # Twice, where it was killed between its word and its deed.
    assert set(schedule.strangers()) == {"Game:0"}
    assert len(schedule.strangers()) <= 1 + (step in ("foreign.told", "mirror.write", "write"))


def _foreign_in_a_blind_pause(
    patch: pytest.MonkeyPatch, then: Callable[[World], object] = lambda _: None
) -> Schedule:
    """A cut-over between whose flip and release somebody writes to the new side, whose feed is
    lost before it is read."""
    schedule = level(patch)
    world = schedule.world

    def meets() -> None:
        world.foreign("target", "0")
        world.servers["target"].lose_feed()
        then(world)

    world.script["swap.flipped"] = meets
    return schedule


@pytest.mark.parametrize(
    ("after", "step"),
    [
        ("lowered", ""),
        ("swap.flipped", "prepare"),
        ("swap.flipped", "swap.marked"),
        ("lowered", "controlled"),
        ("lowered", "keys"),
        ("lowered", "marked"),
        ("lowered", "foreign.told"),
        ("lowered", "mirror.write"),
        ("lowered", "mirror.written"),
    ],
)
def test_a_foreign_write_in_a_pause_is_told_though_its_feed_is_lost(
    after: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kills(world: World) -> None:
        world.script[step] = world.kill

    def then(world: World) -> None:
        if after == "swap.flipped":
            kills(world)
        elif step:
            world.script[after] = lambda: kills(world)

    schedule = _foreign_in_a_blind_pause(monkeypatch, then)
    world = schedule.world

    schedule.ask(Phase.CUT_OVER)
    schedule.settle()
    schedule.settle()

    assert not world.script, "it was not killed"
    assert schedule.phase is Phase.CUT_OVER
    assert world.held("source") == world.held("target")
    assert world.held("target")["0"] < 0  # it has become the truth
    assert set(schedule.strangers()) == {"Game:0"}
    assert schedule.control.events(schedule.run, "foreign write")


def test_what_the_application_writes_after_such_a_pause_is_no_foreign_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = _foreign_in_a_blind_pause(monkeypatch)
    world = schedule.world
    world.put("2", large=True)
    schedule.settle()
    schedule.accepts = ["Game:2"]

    def writes() -> None:
        world.put("1")
        world.script["read"] = lambda: world.put("1")

    world.script["swap.released"] = lambda: world.script.update(keys=writes)
    assert schedule.ask(Phase.CUT_OVER)
    schedule.settle()

    assert schedule.strangers() == ["Game:0"]
    assert schedule.aside() == ["Game:2"]
    assert world.held("source")["1"] == world.held("target")["1"] == world.history["1"]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("source lost", "foreign write"),
        ("target lost", "reconciled"),  # of touches of the application, perhaps
        ("target lost, and the source", "reconciled"),
        ("source emptied", "foreign write"),
    ],
)
def test_a_re_scan_that_tells_does_so_also_where_a_feed_is_lost_before_its_end(
    what: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # And somebody removes a key, so that the old side has more.
    schedule = _foreign_in_a_blind_pause(monkeypatch, lambda w: w.servers["target"].remove("1"))
    world = schedule.world
    source, target = world.servers["source"], world.servers["target"]

    def emptied() -> None:
        source.blocks.clear()
        source.log.append(Event(whole=True))

    def both() -> None:
        target.lose_feed()
        source.lose_feed()

    world.script["swap.released"] = {
        "source lost": source.lose_feed,
        "target lost": target.lose_feed,
        "target lost, and the source": both,
        "source emptied": emptied,
    }[what]

    assert schedule.ask(Phase.CUT_OVER)
    schedule.settle()

    assert not world.script, "nothing was lost"
    assert world.held("source") == world.held("target")
    assert world.held("target")["0"] < 0  # it has become the truth
    assert "Game:0" in schedule.strangers()
    assert len(schedule.control.events(schedule.run, told)) == len(schedule.strangers())


def test_what_the_application_removes_at_once_while_a_re_scan_tells_is_no_foreign_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = _foreign_in_a_blind_pause(monkeypatch)
    world = schedule.world
    world.script["swap.released"] = world.truncate

    assert schedule.ask(Phase.CUT_OVER)
    schedule.settle()

    assert world.held("source") == world.held("target") == {}
    assert set(schedule.strangers()) <= {"Game:0"}


def test_a_crash_right_after_a_truncate_was_met_does_not_spare_the_re_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    world.truncate()
    # Once the place behind it is kept.
    world.script["mirror.applied"] = lambda: world.script.update(acknowledge=world.kill)

    ends_equal(schedule)

    assert not world.script, "it was not killed"


def _broke() -> None:
    raise Transient("no answer to mark", where="source")


@pytest.mark.parametrize("step", ["marked", "mark"])
def test_a_suspect_whose_marker_went_with_a_lost_feed_keeps_no_later_one_from_being_told(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    steps: dict[int, Callable[[], None]] = {
        5: lambda: world.foreign("target", "0"), 40: lambda: world.foreign("target", "1"),
    }  # fmt: skip
    turns = iter(range(80))

    def looks() -> bool:
        steps.get(turn := next(turns), lambda: None)()
        return turn == 79

    lost = step == "marked"
    world.script[step] = world.servers["source"].lose_feed if lost else _broke
    schedule.work(looks)

    assert not world.script, "nothing was lost"
    equal(world)
    assert schedule.strangers() == (["Game:1"] if lost else ["Game:0", "Game:1"])


def test_a_foreign_write_is_not_taken_for_our_own_whose_touch_went_with_a_lost_feed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def meets() -> None:
        if schedule.control.events(schedule._run, "scanned anew"):
            world.foreign("target", "0")
        else:
            world.script["idle"] = meets

    world.put("0")
    world.script["mirror.written"] = world.servers["target"].lose_feed
    world.script["idle"] = meets

    ends_equal(schedule)

    assert schedule.strangers() == ["Game:0"]


def test_a_foreign_write_right_before_a_fence_is_told_and_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    world.script["swap.armed"] = lambda: world.foreign("target", "0")

    assert schedule.ask(Phase.CUT_OVER)

    schedule.settle()
    assert world.held("target") == world.held("source") == world.history
    assert schedule.strangers() == ["Game:0"]


@pytest.mark.parametrize("step", ["swap.armed", "fence", "swap.drained", "swap.flipped"])
def test_a_foreign_write_during_a_swap_leaves_no_difference_untold(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = level(monkeypatch)
    schedule.world.script[step] = lambda: schedule.world.foreign("target", "0")

    assert schedule.ask(Phase.CUT_OVER)

    schedule.settle()
    assert schedule.world.held("source") == schedule.world.held("target")
    assert schedule.strangers() == ["Game:0"] or not schedule.world.lacks("target")


def test_a_fence_that_a_dead_mirror_raises_late_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one lets writes go on at once, and the attempt is over only after that (R6)."""
    schedule = level(monkeypatch)
    world = schedule.world
    source = world.servers["source"]
    denied: list[bool] = []
    world.script["fence"] = lambda: world.fences_late("source")
    world.script["sleep"] = lambda: denied.append(not source.put("0", source.blocks["0"]))

    assert not schedule.ask(Phase.CUT_OVER)

    assert denied == [False]
    assert "late request lands on the source" in world.told
    assert (source.fenced, world.run()) == (False, ("source", ""))
    ends_equal(schedule)
    reach(schedule, Phase.CUT_OVER)


def test_a_swap_whose_last_turn_takes_too_long_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker is in the feed by the end of that turn; the writers have waited too long."""
    schedule = level(monkeypatch)
    world = schedule.world

    def hangs() -> None:
        world.put("0")
        world.script["write"] = lambda: world.wait(swap.BOUND)

    world.script["swap.raised"] = hangs

    assert not schedule.ask(Phase.CUT_OVER)
    assert "for more than 5 s: undone" in schedule.why
    assert world.run() == ("source", "")

    ends_equal(schedule)
    reach(schedule, Phase.CUT_OVER)

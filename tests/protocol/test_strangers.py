"""Writes by somebody else to the mirror, beside the mirror's own of the same keys (R11).

The feeds of the schedules give a key once for several writes, as those of real stores do, and those
of every second seed tell of how many.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, cast

import pytest

from migrator.engine import overhearing, written
from migrator.errors import Transient, Waiting
from migrator.model.block import Block
from migrator.model.phase import Phase
from tests.protocol.plants import ends_equal
from tests.protocol.schedule import KEYS, Chances, Schedule, equal, filled, level, reach
from tests.protocol.server import Event, Fate, Server, ServerJournal

Patch = pytest.MonkeyPatch
SHARD = 250
KEY = "0"
# Turns of the owner after which what is drawn begins, and ends.
BEGINS, ENDS = 20, 80
SCHEDULES = int(os.environ.get("MIGRATOR_SCHEDULES", "10000")) // 5


class Witness:
    """Knows what the owner has read of somebody else's writes to the mirror; but for what they have
    written over themselves."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.read: set[tuple[str, int]] = set()
        self._lies: dict[str, int] = {}
        schedule.world.listener = self.hears

    def hears(self, what: str, server: Server | None, about: Any) -> None:
        if server is not self.schedule.world.servers["target"]:
            return
        if what == "put":
            self.read.discard((about, self._lies.get(about, 0)))
        self._lies = self.schedule.world.held("target")
        if what == "read":
            self.read.update((key, n) for key in about if (n := self._lies.get(key, 0)) < 0)

    def told(self) -> set[tuple[str, int]]:
        """By key and number, what the record of the run has kept."""
        found: set[tuple[str, int]] = set()
        for event in self.schedule.control.events(self.schedule.run):
            if event["event"] == "foreign write":
                detail = cast("dict[str, Any]", event["detail"])
                key = detail["key"].removeprefix("Game:")
                found.update((key, int(n)) for n in re.findall(r"-\d+", " ".join(detail["paths"])))
        return found


def _lived(seed: int) -> tuple[Witness, set[tuple[str, int]]]:
    """A while under strangers, of an owner that has written each key itself before; what it has
    read of their writes and not told."""
    drawn = Chances(
        writes=16, write=0.08, faults=8, fault=0.03, life=0.5, strangers=True,
        kill=False, lose=False, clocks=False,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        schedule = filled(seed, patch, drawn, in_memory=True)
        world = schedule.world
        world.writes = world.faults = turn = 0
        reach(schedule, Phase.BACKFILLED)
        schedule.compared()
        witness = Witness(schedule)

        def enough() -> bool:
            nonlocal turn
            turn += 1
            if turn == 1:
                for key in KEYS:
                    world.put(key)
            elif turn == BEGINS:
                schedule.go_on()
            elif turn == ENDS:
                world.writes = world.faults = 0
            return turn > ENDS + BEGINS and not world.late

        schedule.work(enough)
        equal(world)
    return witness, witness.read - witness.told()


@pytest.mark.parametrize("first", range(0, SCHEDULES, SHARD), ids=lambda n: f"from {n} on")
def test_whatever_the_owner_has_read_of_a_foreign_write_is_kept_with_its_value(first: int) -> None:
    met = 0
    for seed in range(first, min(first + SHARD, SCHEDULES)):
        witness, untold = _lived(seed)
        tale = witness.schedule.world.told
        assert not untold, "\n".join([f"seed {seed}: {untold} was not told, after", *tale])
        met += len(witness.read)
    assert met > 0


# ---------------------------------------------------------------------- one after the other


@pytest.fixture(params=[True, False], ids=["a feed that counts", "a feed that does not"])
def schedule(request: pytest.FixtureRequest, monkeypatch: Patch) -> Schedule:
    found = level(monkeypatch)
    for server in found.world.servers.values():
        server.counts = request.param
    return found


def _told(schedule: Schedule) -> list[int]:
    """The numbers that somebody else put under the key, as the record of the run has them."""
    kept = Witness(schedule).told()
    assert {key for key, _ in kept} <= {KEY}
    return sorted(number for _, number in kept)


def _works(schedule: Schedule, steps: dict[str, Callable[[], None]]) -> None:
    """A process that has written the key, and then meets something at each of these steps."""
    world, left = schedule.world, 6

    def idle() -> None:
        nonlocal left
        left -= 1
        if left:
            world.script["idle"] = idle
        else:
            world.put(KEY)
            world.script |= steps

    world.put(KEY)
    world.script["idle"] = idle
    ends_equal(schedule)
    assert not world.script, "it did not come so far"


def test_a_foreign_write_right_after_the_mirrors_own_is_told(schedule: Schedule) -> None:
    world = schedule.world

    _works(schedule, {"mirror.written": lambda: world.foreign("target", KEY)})

    assert _told(schedule) == [-1]
    assert schedule.strangers() == [f"Game:{KEY}"]


def test_a_foreign_write_right_before_the_mirrors_own_is_told(schedule: Schedule) -> None:
    world = schedule.world

    _works(schedule, {"mirror.touched": lambda: world.foreign("target", KEY)})

    assert _told(schedule) == [-1]
    assert schedule.strangers() == [f"Game:{KEY}"]


def test_foreign_writes_before_and_after_are_both_told(schedule: Schedule) -> None:
    world = schedule.world

    def meets() -> None:
        world.foreign("target", KEY)

    _works(schedule, {"mirror.touched": meets, "mirror.written": meets})

    assert _told(schedule) == [-2, -1]


def test_a_foreign_delete_beside_the_mirrors_own_write_is_told(schedule: Schedule) -> None:
    world = schedule.world

    _works(schedule, {"mirror.written": lambda: gone(world.servers["target"])})

    assert schedule.strangers() == [f"Game:{KEY}"]


def test_a_foreign_write_behind_the_mirrors_own_is_told_by_the_feed_of_the_new_primary(
    schedule: Schedule,
) -> None:
    world = schedule.world

    def drains() -> None:
        for key in KEYS:
            world.put(key)

    world.script["swap.armed"] = drains  # by which it sees whether the feed counts
    world.script["swap.raised"] = drains
    # The feed gives three events at a time: the mirror's own, and then this one.
    world.script["swap.drained"] = lambda: world.foreign("target", KEY)
    assert schedule.ask(Phase.CUT_OVER)

    assert schedule.strangers() == [f"Game:{KEY}"]
    equal(world)


def gone(server: Server) -> None:
    server.remove(KEY)


@pytest.mark.parametrize("fate", ["refused", "lost", "late"])
def test_a_foreign_write_while_the_mirrors_own_is_in_doubt_is_told(
    fate: Fate, schedule: Schedule
) -> None:
    world = schedule.world

    def meets() -> None:
        world.fates.append(fate)
        world.script["sleep"] = lambda: world.foreign("target", KEY)

    _works(schedule, {"mirror.write": meets})

    # A late one may have been written over by the mirror's, which nobody has seen.
    assert _told(schedule) == [-1] or (fate == "late" and _told(schedule) == [])


def test_a_foreign_write_is_told_though_the_application_writes_the_key_again_and_again(
    schedule: Schedule,
) -> None:
    world = schedule.world

    def again() -> None:
        world.put(KEY)
        if world.version < 12:
            world.script["mirror.applied"] = again

    def meets() -> None:
        world.foreign("target", KEY)
        again()

    _works(schedule, {"mirror.written": meets})

    assert _told(schedule) == [-1]


def test_what_is_changed_on_the_mirror_whenever_it_is_written_is_told_and_left(
    schedule: Schedule,
) -> None:
    world = schedule.world

    def trigger(what: str, server: Server | None, about: Any) -> None:
        if what == "done" and server is world.servers["target"] and KEY in about:
            world.foreign("target", KEY)

    world.put(KEY)
    world.listener = trigger
    schedule.settle()

    assert _told(schedule) == [-4, -3, -2, -1]  # and no more of them
    assert world.held("target")[KEY] == -4


def test_a_block_whose_deadline_was_reached_is_no_foreign_delete() -> None:
    memory = written.Written()
    lasting, ending = Block("a", {"": {"n": 1}}), Block("b", {"": {"n": 1}}, expires=1)
    memory.answered(memory.sends([lasting, ending]))

    assert memory.holds("a", None) is False
    assert memory.holds("b", None) is None
    assert memory.holds("b", ending) is True
    assert memory.holds("c", None) is None


def test_nothing_is_known_where_others_write_or_fields_end() -> None:
    memory = written.Written()
    memory.forgets = True
    memory.answered(memory.sends([Block("a", {"": {"n": 1}})]))

    assert memory.holds("a", None) is None
    assert not memory.knows("a")


def test_what_was_sent_again_and_again_without_an_answer_takes_no_more_and_more_memory() -> None:
    memory = written.Written()
    versions = [Block("a", {"": {"n": n}}) for n in range(5_000)]
    memory.answered(memory.sends(versions[:1]))
    for version in versions[1:]:
        forms = memory.sends([version])

    assert memory.holds("a", versions[2]) is None  # too many to know each
    assert memory.holds("a", versions[-1]) is True
    memory.answered(forms)
    assert memory.holds("a", versions[-2]) is False


def test_the_latest_keys_are_remembered_as_many_as_there_is_room_for(monkeypatch: Patch) -> None:
    monkeypatch.setattr(written, "REMEMBERED", room := 1 << 12)
    memory, keys = written.Written(), [str(n) for n in range(4 * room)]
    memory.answered(memory.sends((), keys))

    assert all(memory.knows(key) for key in keys[-room // 100 :])
    assert 0.9 * room < sum(map(memory.knows, keys)) <= room


def test_a_mirror_that_somebody_else_emptied_is_filled_again(schedule: Schedule) -> None:
    target = schedule.world.servers["target"]

    def emptied() -> None:
        target.blocks.clear()
        target.log.append(Event(whole=True))

    _works(schedule, {"mirror.written": emptied})

    assert set(schedule.strangers()) <= {f"Game:{KEY}"}  # whose touch was behind the last look


def _turns(schedule: Schedule, steps: dict[int, Callable[[], object]]) -> None:
    """One process, and what happens before some of its turns."""
    turns = iter(range(80))

    def looks() -> bool:
        steps.get(turn := next(turns), lambda: None)()
        return turn == 79

    schedule.work(looks)


def test_what_is_suspected_is_told_by_a_successor(schedule: Schedule) -> None:
    world = schedule.world

    # The owner does not know what it has written there before, and waits for its marker.
    world.script["marked"] = lambda: world.script.update(poll=world.kill)
    world.foreign("target", KEY)
    ends_equal(schedule)

    assert not world.script, "it did not come so far"
    assert schedule.strangers() == [f"Game:{KEY}"]


def test_foreign_writes_are_met_however_many_came_before(
    schedule: Schedule, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(overhearing, "MOST", 1)
    world = schedule.world

    _turns(schedule, {10: lambda: world.foreign("target", "0"),
                      40: lambda: world.foreign("target", "1")})  # fmt: skip

    assert schedule.strangers() == ["Game:0", "Game:1"]


def test_what_is_suspected_and_a_touch_explains_is_no_foreign_write(schedule: Schedule) -> None:
    world = schedule.world

    def dies() -> None:
        world.put(KEY)
        world.kill()

    # What a successor meets in the mirror's feed is older than what the primary holds.
    world.put(KEY)
    world.script["mirror.applied"] = dies
    ends_equal(schedule)

    assert "a successor starts" in world.told
    assert schedule.strangers() == []


def test_what_is_suspected_keeps_nothing_back_where_its_marker_is_lost(schedule: Schedule) -> None:
    world = schedule.world
    world.script["marked"] = world.servers["source"].lose_feed

    _turns(schedule, {5: lambda: world.foreign("target", KEY),
                      60: lambda: world.foreign("target", "1")})  # fmt: skip

    assert not world.script, "it did not come so far"
    equal(world)
    assert "Game:1" in schedule.strangers()


@pytest.mark.parametrize("told", [[], ["Game:1"]])
def test_nothing_more_is_told_once_a_fence_may_be_down(schedule: Schedule, told: list[str]) -> None:
    world, checked = schedule.world, list[str]()
    (lane,) = schedule._process().lanes
    for side in ("source", "target"):
        lane.attach(side)
    for key in "12":  # both are met before the marker of the first is
        world.foreign("target", key)
        lane.overhear("source")

    def check() -> None:
        if checked == told:
            raise Waiting("it took too long")
        checked.extend(told)

    with pytest.raises(Waiting):
        lane.drained("source", check)

    assert schedule.strangers() == told
    assert world.held("target")["2"] < 0


# ---------------------------------------------------------------------- feeds that were lost


def _loses_its_last(world: Any, keys: str) -> None:
    """The mirror's server is started anew, without the last writes of each of these keys."""
    target = world.servers["target"]
    for key in keys:
        target.blocks[key] = {"": {"n": world.history[key] - 2 * len(KEYS)}}
    del target.blocks[keys[-1]]
    target.lose_feed()


@pytest.mark.parametrize("step", ["idle", "mirror.touched", "mirror.write"])
def test_what_a_server_has_lost_of_the_mirrors_own_is_no_foreign_write(
    step: str, schedule: Schedule
) -> None:
    world = schedule.world

    def again() -> None:
        for key in KEYS:
            world.put(key)

    def lost() -> None:
        _loses_its_last(world, KEYS)
        world.foreign("target", "1")
        world.put("0")

    def meets() -> None:
        again()
        world.script["mirror.written"] = last

    def last() -> None:
        world.put("0")
        world.put("2")  # which has gone when that is carried over
        world.script[step] = lost

    again()
    world.script["mirror.written"] = meets
    ends_equal(schedule)
    assert not world.script, "it did not come so far"
    assert schedule.strangers() == ["Game:1"]


def test_what_a_server_has_lost_and_a_re_scan_alone_meets_is_no_foreign_write(
    schedule: Schedule,
) -> None:
    world, target = schedule.world, schedule.world.servers["target"]
    before: dict[Any, Any] = {}

    def again() -> None:
        before.update(target.blocks)
        world.put(KEY)

    def restarts() -> None:
        assert target.blocks[KEY] != before[KEY]
        target.blocks[KEY] = before[KEY]
        target.lose_feed()

    _turns(schedule, {5: lambda: world.put(KEY), 20: again, 35: restarts})

    equal(world)
    assert schedule.strangers() == []


def test_what_a_server_has_lost_by_the_time_of_a_successors_look_is_no_foreign_write(
    schedule: Schedule,
) -> None:
    world, target = schedule.world, schedule.world.servers["target"]
    before = dict(target.blocks)

    def restarts() -> None:
        target.blocks[KEY] = before[KEY]
        target.lose_feed()

    def killed() -> None:
        world.script["read"] = restarts  # after the mirror's feed has shown the key
        world.kill()

    world.put(KEY)
    world.script["acknowledge"] = killed
    ends_equal(schedule)

    assert not world.script, "it did not come so far"
    assert schedule.strangers() == []


def test_what_a_re_scan_finds_behind_a_flip_is_told_though_its_marker_is_refused(
    schedule: Schedule, monkeypatch: Patch
) -> None:
    world, target = schedule.world, schedule.world.servers["target"]
    mark, refused = ServerJournal.mark, ["once"]

    def marks(self: ServerJournal, name: str) -> None:
        if name.startswith("foreign") and refused:
            refused.clear()
            raise Transient("not now", where="target")
        mark(self, name)

    def flipped() -> None:
        world.foreign("target", KEY)
        target.lose_feed()

    monkeypatch.setattr(ServerJournal, "mark", marks)
    world.script["swap.flipped"] = flipped
    assert schedule.ask(Phase.CUT_OVER)
    schedule.settle()

    assert not refused
    assert schedule.strangers() == [f"Game:{KEY}"]


def test_whose_a_difference_is_nobody_says_once_touches_of_the_application_were_lost(
    schedule: Schedule,
) -> None:
    world, target = schedule.world, schedule.world.servers["target"]

    def flipped() -> None:
        world.foreign("target", "0")
        target.lose_feed()

    def released() -> None:
        world.put("1")
        world.delete("2")
        target.lose_feed()
        world.script["keys"] = loses_the_mirrors

    def loses_the_mirrors() -> None:
        world.servers["source"].lose_feed()
        world.wait(1.0)  # so that it is looked at before the re-scan is done

    world.script |= {"swap.flipped": flipped, "swap.released": released}
    assert schedule.ask(Phase.CUT_OVER)
    schedule.settle()

    assert not world.script, "it did not come so far"
    told = {
        event: [cast("dict[str, Any]", each["detail"])["key"] for each in found]
        for event in ("foreign write", "reconciled")
        if (found := schedule.control.events(schedule.run, event))
    }
    assert told == {"reconciled": ["Game:0", "Game:1", "Game:2"]}


def test_a_truncate_by_somebody_else_right_behind_a_flip_is_told(schedule: Schedule) -> None:
    target = schedule.world.servers["target"]

    def emptied() -> None:
        target.blocks.clear()
        target.log.append(Event(whole=True))

    schedule.world.script["swap.flipped"] = emptied
    assert schedule.ask(Phase.CUT_OVER)
    schedule.settle()

    assert schedule.world.held("source") == {}
    assert schedule.strangers() == [f"Game:{key}" for key in KEYS]


def test_a_foreign_delete_is_told_again_once_all_was_looked_at_behind_a_lost_feed(
    schedule: Schedule,
) -> None:
    world, target = schedule.world, schedule.world.servers["target"]

    def deletes() -> None:
        world.script["mirror.touched"] = lambda: gone(target)
        world.put(KEY)

    _turns(schedule, {5: lambda: world.put(KEY), 15: target.lose_feed, 45: deletes})

    assert schedule.strangers() == [f"Game:{KEY}"]
    ends_equal(schedule)


def test_what_comes_again_on_the_mirror_is_told_once_for_a_key_with_the_reason(
    schedule: Schedule,
) -> None:
    world, left = schedule.world, 10

    def trigger(what: str, server: Server | None, about: Any) -> None:
        if what == "done" and server is world.servers["target"]:
            for key in about:
                server.put(key, {"": {**cast("Any", server.blocks[key][""]), "stamp": "x"}})

    def again() -> None:
        nonlocal left
        left -= 1
        for key in "01" if left else ():
            world.put(key)
            world.script["idle"] = again

    world.listener = trigger
    world.put("0")
    world.script["foreign.left"] = again
    ends_equal(schedule)
    assert not left
    assert schedule.strangers() == ["Game:0"]  # of the other the reason was known
    found = schedule.control.events(schedule.run, "foreign write left")
    reasons = [cast("dict[str, Any]", event["detail"]) for event in found]
    assert sorted(reason["key"] for reason in reasons) == ["Game:0", "Game:1"]
    assert all("a trigger or a default" in reason["why"] for reason in reasons)


def test_of_what_was_replaced_too_long_ago_nobody_can_tell(monkeypatch: Patch) -> None:
    monkeypatch.setattr(written, "_REPLACED", 8)
    memory = written.Written()
    versions = [Block("a", {"": {"n": n}}) for n in range(30)]
    memory.answered(memory.sends(versions[-1:]))
    memory.replaces("a", versions[0])
    memory.lost()
    assert memory.holds("a", versions[0]) is True
    assert memory.holds("a", versions[1]) is False
    assert memory.holds("a", None) is None
    for version in versions[:-1]:
        memory.replaces("a", version)
    assert memory.holds("a", Block("a", {"": {"n": "a stranger's"}})) is None
    memory.regained()
    assert memory.holds("a", versions[0]) is False
    memory.lost()
    memory.forget()
    memory.answered(memory.sends(versions[-1:]))
    assert memory.holds("a", None) is False
    memory.lost()  # knows nothing of what lay there before
    assert memory.holds("a", versions[-2]) is False

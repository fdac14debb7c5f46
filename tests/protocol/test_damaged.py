"""A block that can't be read, on either side: it alone is set aside, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from migrator.errors import Terminal
from migrator.model.phase import Phase
from tests.protocol import rekeyed
from tests.protocol.schedule import Chances, Schedule, World, equal, filled, level, reach
from tests.protocol.server import Server

Patch = pytest.MonkeyPatch
BAD = "1"
NAME = f"Game:{BAD}"


def _touched(world: World, side: str) -> None:
    """What lies under a key is damaged, by a write that the feed shows."""
    server = world.servers[side]
    server.damage(BAD)
    assert server.put(BAD, server.blocks[BAD])


def _damaged(patch: Patch, side: str = "source") -> Schedule:
    """Equal sides, of which one was damaged since, and the mirror has seen it."""
    schedule = level(patch)
    _touched(schedule.world, side)
    schedule.settle()
    return schedule


def _asks(schedule: Schedule, phase: Phase) -> str:
    """Why a phase is not reached, empty where it is."""
    return schedule.why if not schedule.ask(phase) else ""


@pytest.fixture(autouse=True)
def _no_mirror_ends(monkeypatch: Patch) -> Iterator[None]:
    """A damaged block ends no mirror, which would come to the same block when it starts again."""
    worlds: list[World] = []
    begun = World.__post_init__

    def begins(self: World) -> None:
        worlds.append(self)
        begun(self)

    monkeypatch.setattr(World, "__post_init__", begins)
    yield
    for told in [told for world in worlds for told in world.told]:
        assert "the process ended" not in told or "permission denied" in told


def _good(world: World) -> dict[str, int]:
    return {key: n for key, n in world.history.items() if key != BAD}


# ---------------------------------------------------------------------- on the primary


def test_a_damaged_block_is_set_aside_with_its_reason_and_the_others_go_on(
    monkeypatch: Patch,
) -> None:
    schedule = _damaged(monkeypatch)
    world = schedule.world
    before = world.held("target")[BAD]

    for _ in range(2):  # the second is another process
        world.put("0")
        world.delete("2")
        schedule.settle()

        assert schedule.aside() == [NAME]
        assert schedule.reasons() == [f"{BAD} can't be read"]
        # Of what can't be read the mirror keeps the last that could be.
        assert world.held("target") == _good(world) | {BAD: before}


def test_a_damaged_block_keeps_the_mirrors_copy_over_a_re_scan(monkeypatch: Patch) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    world.servers["source"].damage(BAD)
    world.servers["source"].lose_feed()
    schedule.settle()

    assert schedule.aside() == [NAME]
    assert world.held("target") == world.history


def test_a_block_that_was_damaged_before_it_was_copied_is_nowhere_else(monkeypatch: Patch) -> None:
    schedule = filled(1, monkeypatch, Chances(writes=0, faults=0))
    for key in "012":
        schedule.world.put(key)
    schedule.world.servers["source"].damage(BAD)
    reach(schedule, Phase.BACKFILLED)
    schedule.settle()

    assert schedule.aside() == [NAME]
    assert schedule.world.held("target") == _good(schedule.world)


def test_a_good_write_of_its_key_takes_it_up_again(monkeypatch: Patch) -> None:
    schedule = _damaged(monkeypatch)
    schedule.world.put(BAD)
    schedule.settle()

    assert schedule.aside() == []
    equal(schedule.world)


def test_a_block_that_is_mended_behind_the_feed_goes_over_all_the_same(monkeypatch: Patch) -> None:
    schedule = level(monkeypatch)
    source = schedule.world.servers["source"]
    good = dict(source.blocks[BAD])
    _touched(schedule.world, "source")
    schedule.world.script["mirror.applied"] = lambda: source.blocks.update({BAD: good})
    schedule.settle()
    schedule.world.now += 60
    schedule.settle()

    assert schedule.aside() == []
    equal(schedule.world)


def test_a_delete_of_its_key_takes_the_mirrors_copy_away(monkeypatch: Patch) -> None:
    schedule = _damaged(monkeypatch)
    schedule.world.delete(BAD)
    schedule.settle()

    assert schedule.aside() == []
    equal(schedule.world)


def test_a_cut_over_waits_until_a_damaged_block_is_accepted_by_name(monkeypatch: Patch) -> None:
    schedule = _damaged(monkeypatch)
    world = schedule.world

    assert NAME in _asks(schedule, Phase.CUT_OVER)

    schedule.accepts = [NAME]
    assert schedule.ask(Phase.CUT_OVER)
    schedule.settle()

    # What the new primary holds counts from here on: the old side is mended by it.
    assert schedule.aside() == []
    equal(world)
    reach(schedule, Phase.SHADOW_READ)
    equal(world)


def test_a_store_that_refuses_to_be_read_empties_no_mirror(monkeypatch: Patch) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    before = world.held("target")
    read = Server.read

    def denied(self: Server, ids: list[str]) -> object:
        if self is world.servers["source"]:
            raise Terminal("permission denied", where="source")
        return read(self, ids)

    monkeypatch.setattr(Server, "read", denied)
    for key in "012":
        world.put(key)
    schedule.settle()

    assert any("permission denied" in told for told in world.told)
    assert schedule.aside() == []
    assert world.held("target") == before


def test_a_damaged_block_whose_key_changes_keeps_its_copy(monkeypatch: Patch) -> None:
    schedule, world = rekeyed.level(monkeypatch)
    _touched(world, "source")
    for _ in range(2):
        world.put("0", to="13")
        schedule.settle()

        assert schedule.aside() == [NAME]
        assert world.held("target") == world.history

    world.put(BAD, to="10")
    schedule.settle()

    assert schedule.aside() == []
    equal(world)


# ---------------------------------------------------------------------- on the mirror


@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_block_of_the_mirror_is_written_anew(lost: bool, monkeypatch: Patch) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    world.servers["target"].damage(BAD)
    if lost:
        world.servers["source"].lose_feed()
    else:
        world.put(BAD)
    schedule.settle()

    assert schedule.aside() == []
    assert world.servers["target"].blocks == world.servers["source"].blocks
    equal(world)


def test_a_damaged_block_of_the_mirror_goes_with_its_key(monkeypatch: Patch) -> None:
    schedule = level(monkeypatch)
    schedule.world.servers["target"].damage(BAD)
    schedule.world.delete(BAD)
    schedule.settle()

    equal(schedule.world)


def test_a_damaged_block_of_a_mirror_whose_keys_change_is_written_anew(monkeypatch: Patch) -> None:
    schedule, world = rekeyed.level(monkeypatch)
    world.servers["target"].damage("11")
    world.put("1", to="11")
    world.servers["target"].damage("12")
    world.delete("2")
    schedule.settle()

    assert schedule.aside() == []
    equal(world)


# ---------------------------------------------------------------------- after a cut-over


def test_a_damaged_block_of_the_new_primary_leaves_the_old_side_as_it_was(
    monkeypatch: Patch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    reach(schedule, Phase.CUT_OVER)
    before = world.held("source")
    _touched(world, "target")
    for _ in range(2):
        world.put("0")
        schedule.settle()

        assert schedule.ledger() == [NAME]
        assert world.held("source") == before | {"0": world.history["0"]}

    assert NAME in _asks(schedule, Phase.SHADOW_READ)
    schedule.accepts = [NAME]
    assert schedule.ask(Phase.SHADOW_READ)


def test_a_damaged_block_of_the_old_side_is_written_anew(monkeypatch: Patch) -> None:
    schedule = level(monkeypatch)
    world = schedule.world
    reach(schedule, Phase.CUT_OVER)
    world.servers["source"].damage(BAD)
    world.put(BAD)
    schedule.settle()

    equal(world)
    assert schedule.ledger() == []

"""Schedules where one side takes keys for one that the other tells apart: here "10" and "11".

The application writes games, or rounds, that want such keys of the mirror. One of them has it, the
others wait, and go over once it has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from migrator.engine import alike
from migrator.errors import DoesNotFit
from migrator.model.block import Address, Block, Entries
from migrator.model.phase import Phase
from migrator.model.value import Value
from tests.protocol import gather, rekeyed, spread
from tests.protocol.lives import chances
from tests.protocol.schedule import Schedule, World, equal, reach
from tests.protocol.server import Server


def _number(key: object) -> int:
    """What such a side compares of a key."""
    return int(str(key)) // 10


class Blurred(Server):
    """A side that compares keys by a part of them."""

    loose = False
    """Whether it finds, replaces and deletes under one key what lies there for another one, as
    stores of documents do with numbers; else it refuses that, as tables do with texts."""

    number = staticmethod(_number)

    def same_key(self, id: Value) -> Value:
        return self.number(id)

    def _there(self, key: object) -> str | None:
        """The key of what lies there for another one."""
        number = self.number(key)
        return next((k for k in self.blocks if self.number(k) == number and k != str(key)), None)

    def put(self, key: str, entries: Entries) -> bool:
        assert self._there(key) is None
        return super().put(key, entries)

    def carry_out(self, put: Sequence[Block], gone: Sequence[Value]) -> None:
        for block in put:
            if (other := self._there(block.id)) is not None:
                super().carry_out([], [other])
            super().carry_out([block], [])
        super().carry_out([], [self._there(key) or key for key in gone])

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return super().read([(self.loose and self._there(id)) or id for id in ids])

    def write(self, blocks: Sequence[Block]) -> int:
        numbers = [self.same_key(block.id) for block in blocks]
        for block in blocks if not self.loose else ():
            if (other := self._there(block.id)) is not None:
                raise DoesNotFit("that is another block's key", key=other, where=str(self.at))
            if numbers.count(self.same_key(block.id)) > 1:
                raise DoesNotFit("two of one key", where=str(self.at))
        return super().write(blocks)

    def delete(self, addresses: Sequence[Address]) -> None:
        for address in addresses if not self.loose else ():
            if self._there(address.id):
                raise DoesNotFit("that is another block's key", where=str(self.at))
        super().delete(addresses)


def _free(world: World, keys: Sequence[str], own: str | None = None) -> list[str]:
    """Those of some keys that the application may use: it can't have two that the primary takes
    for one."""
    world._follows()
    blocks = world.servers[world.side].blocks
    if not isinstance(world.servers[world.side], Blurred):
        return list(keys)
    return [
        key for key in keys if all(_number(k) != _number(key) or k in (key, own) for k in blocks)
    ]


class KeysWorld(World):
    """Games that keep their keys, which the mirror takes for one."""

    keys = ("10", "11", "20")

    def put(self, key: str, **more: Any) -> None:
        if _free(self, [key]):
            super().put(key, **more)


class PlacesWorld(rekeyed.RekeyedWorld):
    """Games that want places which the target takes for one."""

    places_there = ("10", "11", "20")

    def put(self, key: str, *, to: str | None = None, **more: Any) -> None:
        if to is None:
            old = self.places.get(key)
            taken = [place for place in self.places.values() if place != old]
            free = [p for p in _free(self, self.places_there, old) if p not in taken]
            to = self._chosen.choice(free) if free else None
        if to is not None:
            super().put(key, to=to, **more)


class GamesWorld(rekeyed.RekeyedWorld):
    """Games whose keys the source takes for one."""

    keys = ("10", "11", "20")

    def put(self, key: str, **more: Any) -> None:
        if _free(self, [key]):
            super().put(key, **more)


class RoundsWorld(spread.SpreadWorld):
    """Rounds whose keys the side of the parts takes for one."""

    keys = ("10", "11", "20")

    def put(self, key: str, **more: Any) -> None:
        if _free(self, [key]):
            super().put(key, **more)


class WholesWorld(spread.SpreadWorld):
    """Rounds of games whose keys the side of the wholes takes for one."""

    def _open(self) -> list[str]:
        return _free(self, ["10", "11", "70"])


class GatheredRoundsWorld(RoundsWorld, gather.GatherWorld):
    """The same for a move that gathers."""


class GatheredWholesWorld(WholesWorld, gather.GatherWorld):
    """The same for a move that gathers."""


# By the side that can't tell keys apart.
WORLDS: dict[str, list[tuple[type[Any], type[Schedule]]]] = {
    "target": [
        (KeysWorld, Schedule),
        (PlacesWorld, rekeyed.RekeyedSchedule),
        (RoundsWorld, spread.SpreadSchedule),
        (GatheredWholesWorld, gather.GatherSchedule),
    ],
    "source": [
        (KeysWorld, Schedule),
        (GamesWorld, rekeyed.RekeyedSchedule),
        (WholesWorld, spread.SpreadSchedule),
        (GatheredRoundsWorld, gather.GatherSchedule),
    ],
}


def filled(
    seed: int, patch: pytest.MonkeyPatch, side: str, kind: int, *, loose: bool, both: bool = False
) -> Schedule:
    """A schedule with nothing there yet; ``both``: neither side can tell keys apart."""
    world_of, schedule_of = WORLDS[side][kind]
    drawn = replace(chances(seed), writes=15, strangers=False, truncate=False)
    world = world_of(seed, drawn)
    for name in world.servers if both else (side,):
        server = Blurred(world.servers[name].at, "Game", world, fences=not world.hook)
        server.counts, server.loose = world.servers[name].counts, loose
        world.servers[name] = server
    if loose:
        # Keys here are texts, which no store takes for one without refusing the second.
        patch.setattr(alike, "_PLAIN", frozenset())
    return schedule_of(world, patch, in_memory=True)


def life(schedule: Schedule, side: str) -> None:
    """Until the mirror is the side that can't tell keys apart, and what wants one key has it in
    turn; then all is there."""
    world = schedule.world
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    primary = "source"
    if side == "source":
        primary = "target"
        reach(schedule, Phase.CUT_OVER)
        schedule.go_on()
    schedule.work(lambda: not world.writes)
    schedule.settle()
    _none_is_lost(schedule, primary)
    while (clashing := _clashing(world, side)) is not None:
        world.delete(clashing)
        schedule.settle()
        _none_is_lost(schedule, primary)
    equal(world)
    assert schedule.aside() == schedule.ledger() == [], world.told
    reach(schedule, Phase.CUT_OVER if primary == "source" else Phase.SHADOW_READ)
    schedule.go_on()
    schedule.work(lambda: not world.writes)
    schedule.settle()
    equal(world)


def _none_is_lost(schedule: Schedule, primary: str) -> None:
    """The mirror lacks only what is told to wait, and that for a reason."""
    world = schedule.world
    mirror = "target" if primary == "source" else "source"
    assert world.held(primary) == world.history, world.told
    there = world.held(mirror)
    told = schedule.aside() + schedule.ledger()
    if not told:
        assert there == world.history, world.told
        return
    assert _clashing(world, mirror) is not None, (told, world.told)
    if primary == "source":  # else what waits stays on the source as it was
        assert there.items() < world.history.items(), (there, world.history, world.told)


def _clashing(world: World, side: str) -> str | None:
    """What wants a key that the side takes for that of another."""
    if isinstance(world, rekeyed.RekeyedWorld):
        wanted = world.places if side == "target" else {key: key for key in world.places}
    elif isinstance(world, spread.SpreadWorld):
        wholes = side == world.wholes
        wanted = {key: game if wholes else key for key, game in world.games.items()}
    else:
        wanted = {key: key for key in world.history}
    spelled: dict[int, str] = {}
    for name, key in sorted(wanted.items()):
        if spelled.setdefault(_number(key), key) != key:
            return name
    return None

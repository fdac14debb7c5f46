"""Schedules of a move that gathers: rounds lie by themselves in the source, the target holds games.

It is the world of a move that spreads, seen from the other side: the application writes rounds,
and puts them into other games, on the target at times into the new one a while before they leave
the old one. Games live by their rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from migrator.errors import DoesNotFit
from migrator.model.block import Block
from migrator.model.evolution import Bucket
from migrator.model.move import At, Move
from migrator.model.phase import Phase
from migrator.ports import Store
from migrator.route import open_route
from tests.protocol.schedule import Chances, Schedule, reach
from tests.protocol.server import LARGE, Server
from tests.protocol.spread import KEYS, Opened, SpreadWorld


class _Games(Server):
    """A target that takes no game with a large round."""

    def write(self, blocks: Sequence[Block]) -> int:
        for block in blocks:
            held = cast("dict[str, list[dict[str, Any]]]", block.entries[""])
            if any(LARGE in each for each in held["rounds"]):
                raise DoesNotFit("too large", key=block.id, where=str(self.at))
        return super().write(blocks)


class GatherWorld(SpreadWorld):
    """An application with rounds that are to lie in their games."""

    wholes, parts = "target", "source"
    keeps = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        self.servers["target"] = _Games(At("target", "games"), "Game", self, fences=not self.hook)


class GatherSchedule(Schedule):
    """A run of the engine with such a move."""

    def __init__(
        self, world: GatherWorld, patch: pytest.MonkeyPatch, *, in_memory: bool = False
    ) -> None:
        super().__init__(world, patch, in_memory=in_memory)
        servers = world.servers
        opened = {
            "source": cast("Store", Opened(servers["source"])),
            "target": cast("Store", Opened(world.locator, games=servers["target"])),
        }
        bucket = Bucket("rounds", by={"game": "game"}, keep="id")
        move = Move("Game", of="Round", target=At("target", "games"), evolve=[bucket])
        self._route = open_route(0, move, At("source", "rounds"), opened.__getitem__)


def filled(
    seed: int, patch: pytest.MonkeyPatch, chances: Chances, *, in_memory: bool = False
) -> GatherSchedule:
    """A schedule whose source holds some rounds."""
    world = GatherWorld(seed, chances)
    world.lingers = (0.0, 0.6)[seed % 2]
    schedule = GatherSchedule(world, patch, in_memory=in_memory)
    for key in KEYS[: 1 + seed % len(KEYS)]:
        world.put(key)
    return schedule


def level(patch: pytest.MonkeyPatch, *, hook: bool = False) -> tuple[GatherSchedule, GatherWorld]:
    """A move whose sides are equal, with nothing drawn: 0 and 1 are in game 0, 2 is in 7."""
    world = GatherWorld(1, Chances(writes=0, faults=0, hook=hook))
    schedule = GatherSchedule(world, patch)
    for key, game in zip(KEYS, ("0", "0", "7"), strict=True):
        world.put(key, to=game)
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    schedule.settle()
    return schedule, world

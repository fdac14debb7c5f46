"""Schedules of a move whose keys change: a game lies in the target under its field ``to``.

The application gives a game another ``to`` now and then, also one that another game had just
before. What is told apart on both sides is the game, by its key in the source.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from migrator.model.evolution import ChangeId
from migrator.model.move import At, Move
from migrator.model.phase import Phase
from migrator.ports import Store
from migrator.route import open_route
from migrator.stores.sqlite import CAPABILITIES
from tests.protocol.schedule import Chances, Schedule, World, equal, mirrored, reach
from tests.protocol.server import LARGE, Server

KEYS = ("0", "1", "2")
PLACES = ("10", "11", "12", "13")
CROSSED = ("1", "2", "0", "3")  # where another game may have such a key
GAMES = "games"


class RekeyedWorld(World):
    """An application whose games have a key of their own on each side."""

    all_places = PLACES
    crowds = False  # whether on the source two games may come to have one place

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chosen = random.Random(self.seed)
        self.locator = Server(At("target", "locator"), "Locator", self, fences=False)
        self.places: dict[str, str] = {}  # where the application put each game

    # ------------------------------------------------------------------ the application

    def put(
        self, key: str, *, large: bool = False, blindly: bool = False, to: str | None = None
    ) -> None:
        """Write a new version of a game, perhaps to another place: a free one, unless it crowds."""
        old = self.places.get(key)
        if to is None:
            free = [place for place in self.all_places if place not in self.places.values()]
            if self.crowds and self.side == "source":
                free = list(self.all_places[:2])
            stays = old is not None and self._chosen.random() < 0.5
            to = old if stays and old else self._chosen.choice(free)
        if not self._follows():
            return
        self.version += 1
        value: dict[str, Any] = {"n": self.version, "to": to} | ({LARGE: "target"} if large else {})
        server = self.servers[self.side]
        if self.side == "source":
            done = server.put(key, {"": value})
        else:
            if old not in (None, to):
                server.remove(str(old))
            done = server.put(to, {"": {**value, "was": key}})
        if done:
            self._said(f"write {key} = {self.version} at {to}")
            self.history[key] = self.version
            self.places[key] = to

    def delete(self, key: str) -> None:
        if key not in self.places or not self._follows():
            return
        lies = key if self.side == "source" else self.places[key]
        if self.servers[self.side].remove(lies):
            self._said(f"delete {key}")
            self.history.pop(key, None)
            self.places.pop(key, None)

    def truncate(self) -> None:
        before = self.version, dict(self.history)
        super().truncate()
        if before[1] and not self.history:
            self.places.clear()

    def foreign(self, side: str, key: str) -> None:
        self.told.append(f"somebody else: write {key} on the {side}")
        self.strange += 1
        value: dict[str, Any] = {"n": -self.strange, "to": key, "was": "9"}
        self.servers[side].put(key, {"": value})

    # ------------------------------------------------------------------ judging

    def first_of_place(self) -> dict[str, str]:
        """Which game has each place: of those that want it the one with the smallest key."""
        return {self.places[game]: game for game in sorted(self.places, reverse=True)}

    def held(self, side: str) -> dict[str, int]:
        """What a side holds: the number of the write behind each game, where it lies rightly."""
        found: dict[str, int] = {}
        for key, entries in self.servers[side].blocks.items():
            value = cast("dict[str, Any]", entries[""])
            game = key if side == "source" else value["was"]
            if game in found or (side == "target" and value["to"] != key):
                return {f"{game} lies twice, or wrongly": value["n"]}
            found[game] = value["n"]
        return found


class _Opened:
    """A store with games, and perhaps a locator beside them."""

    capabilities = CAPABILITIES

    def __init__(self, games: Server, locator: Server) -> None:
        self._games = games
        self._locator = locator

    def collection(self, cls: str, at: At) -> Server:
        return self._games if at.collection == GAMES else self._locator


class RekeyedSchedule(Schedule):
    """A run of the engine with such a move."""

    evolve: Sequence[Any] = (ChangeId("to", keep="was"),)

    def __init__(
        self, world: RekeyedWorld, patch: pytest.MonkeyPatch, *, in_memory: bool = False
    ) -> None:
        super().__init__(world, patch, in_memory=in_memory)
        opened = {
            side: cast("Store", _Opened(server, world.locator))
            for side, server in world.servers.items()
        }
        move = Move("Game", target=At("target", GAMES), evolve=list(self.evolve))
        self._route = open_route(0, move, At("source", GAMES), opened.__getitem__)


def filled(
    seed: int, patch: pytest.MonkeyPatch, chances: Chances, *, in_memory: bool = False
) -> RekeyedSchedule:
    """A schedule whose source holds some games."""
    world = RekeyedWorld(seed, chances)
    world.all_places = (PLACES, CROSSED)[seed % 2]
    schedule = RekeyedSchedule(world, patch, in_memory=in_memory)
    for key in KEYS[: 1 + seed % len(KEYS)]:
        world.put(key)
    return schedule


def level(patch: pytest.MonkeyPatch, *, hook: bool = False) -> tuple[RekeyedSchedule, RekeyedWorld]:
    """A move whose sides are equal, with nothing drawn: 0 lies at 10, 1 at 11, 2 at 12."""
    world = RekeyedWorld(1, Chances(writes=0, faults=0, hook=hook))
    schedule = RekeyedSchedule(world, patch)
    for key, to in zip(KEYS, PLACES, strict=False):
        world.put(key, to=to)
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    schedule.settle()
    return schedule, world


def whole_life(seed: int, patch: pytest.MonkeyPatch, chances: Chances) -> None:
    """A move there, back and there again, checked at each end."""
    schedule = filled(seed, patch, chances)
    mirrored(schedule)
    for phase in (Phase.CUT_OVER, Phase.SHADOW_READ, Phase.CUT_OVER):
        schedule.go_on()
        reach(schedule, phase)
        schedule.settle()
        equal(schedule.world)

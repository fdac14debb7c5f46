"""Schedules of a move that spreads: the rounds of a game are aggregates of their own in the target.

On the source a game lists its rounds; in the target each round says which game it is of. The
application writes rounds, and puts them into other games, at times into the new one a while before
they leave the old one. What is told apart on both sides is the round. Games live by their rounds,
or have a title, too, and stay; or a second move takes them along, and they come and go.
"""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from migrator.model.evolution import Drop, SplitOut
from migrator.model.move import At, Move
from migrator.model.phase import Phase
from migrator.model.value import Ref
from migrator.ports import Store
from migrator.route import open_route
from migrator.stores.sqlite import CAPABILITIES
from tests.protocol.schedule import Chances, Schedule, World, equal, reach
from tests.protocol.server import LARGE, Server, ServerJournal

KEYS = ("0", "1", "2")
GAMES = ("0", "1", "7")  # some are keys of rounds, too


class SpreadWorld(World):
    """An application with rounds of games that live by them."""

    wholes, parts = "source", "target"  # where games list their rounds, and where these lie alone
    titled = False  # games are there without rounds, too
    lingers = 0.0  # how often a round that changes its game stands in both for a while
    keeps = 0.0  # and how often nothing but its game changes

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chosen = random.Random(self.seed)
        self.locator = Server(At("target", "locator"), "Locator", self, fences=False)
        self.games: dict[str, str] = {}  # which game each round is of, as it was acknowledged
        self._leaves: tuple[str, str] | None = None

    def step(self, where: str) -> None:
        super().step(where)
        if self._leaves is not None and self._chosen.random() < 0.1:
            self._leave()

    # ------------------------------------------------------------------ the application

    def put(
        self, key: str, *, large: bool = False, blindly: bool = False, to: str | None = None
    ) -> None:
        """Write a new version of a round, perhaps into another game."""
        old = self.games.get(key)
        if to is None:
            stays = old is not None and self._chosen.random() < 0.5
            to = old if stays and old else self._chosen.choice(self._open())
        if not self._follows() or not self._leave():
            return
        self.version += 1
        n = self.version
        if self.keeps and old not in (None, to) and self._chosen.random() < self.keeps:
            n = self.history[key]
        value: dict[str, Any] = {"n": n} | ({LARGE: "target"} if large else {})
        if self.side == self.wholes:
            done = self._put_in(to, key, value)
            if done and old is not None and old != to:
                self._leaves = old, key
        else:
            done = self.servers[self.parts].put(key, {"": {**value, "game": self._of(to)}})
        if done:
            self._said(f"write {key} = {n} in {to}")
            self.history[key] = n
            self.games[key] = to
            if self._chosen.random() >= self.lingers:
                self._leave()

    def _open(self) -> list[str]:
        """The games that a round may be put in."""
        return list(GAMES)

    def _of(self, game: str) -> Any:
        return Ref("Game", game) if self.titled else game

    def _leave(self) -> bool:
        """Take a round out of the game that it has left; whether none is left there."""
        if self._leaves is not None and self._follows():
            game, key = self._leaves
            if self.side == self.parts or self._take_out(game, key):
                self._leaves = None
        return self._leaves is None

    def _rounds(self, game: str) -> list[dict[str, Any]]:
        held = cast("dict[str, Any]", self.servers[self.wholes].blocks.get(game, {"": {}})[""])
        return list(held.get("rounds", ()))

    def _put_in(self, game: str, key: str, value: dict[str, Any]) -> bool:
        rounds = [each for each in self._rounds(game) if each["id"] != key]
        return self._keep(game, sorted([*rounds, {"id": key, **value}], key=lambda r: r["id"]))

    def _take_out(self, game: str, key: str) -> bool:
        rounds = [each for each in self._rounds(game) if each["id"] != key]
        if not rounds and not self.titled:
            return self.servers[self.wholes].remove(game)
        return self._keep(game, rounds)

    def _keep(self, game: str, rounds: list[dict[str, Any]]) -> bool:
        return self.servers[self.wholes].put(game, {"": {**self._more(game), "rounds": rounds}})

    def _more(self, game: str) -> dict[str, Any]:
        """What else a game holds on the source."""
        return {"game": game}

    def delete(self, key: str) -> None:
        if key not in self.games or not self._follows() or not self._leave():
            return
        if self.side == self.wholes:
            done = self._take_out(self.games[key], key)
        else:
            done = self.servers[self.parts].remove(key)
        if done:
            self._said(f"delete {key}")
            self._gone(key)

    def _gone(self, key: str) -> None:
        self.history.pop(key, None)
        self.games.pop(key, None)

    def truncate(self) -> None:
        before = dict(self.history)
        super().truncate()
        if before and not self.history:
            self.games.clear()

    def foreign(self, side: str, key: str) -> None:
        self.told.append(f"somebody else: write {key} on the {side}")
        self.strange += 1
        game = self.games.get(key, GAMES[0])
        value = {"n": -self.strange}
        if side == self.wholes:
            self._put_in(game, key, value)
        else:
            self.servers[side].put(key, {"": {**value, "game": self._of(game)}})

    # ------------------------------------------------------------------ judging

    def held(self, side: str) -> dict[str, int]:
        """What a side holds: the number of the write behind each round, where it lies rightly."""
        found: dict[str, int] = {}
        for key, game, n in self._lying(side):
            if key in found or self.games.get(key) != game:
                return {f"{key} lies twice, or wrongly in {game}": n}
            found[key] = n
        return found

    def _lying(self, side: str) -> list[tuple[str, str, int]]:
        if side == self.wholes:
            games = self.servers[side].blocks
            return [(each["id"], game, each["n"]) for game in games for each in self._rounds(game)]
        found = []
        for key, entries in self.servers[side].blocks.items():
            value = cast("dict[str, Any]", entries[""])
            game = value["game"]
            found.append((key, game.id if isinstance(game, Ref) else game, value["n"]))
        return found


class TitledWorld(SpreadWorld):
    """Games have a title, of which the target knows nothing, and stay."""

    titled = True

    def begin(self) -> None:
        """Make the games."""
        for game in GAMES:
            self._keep(game, [])

    def _more(self, game: str) -> dict[str, Any]:
        return {"title": f"t{game}"}

    def truncate(self) -> None:
        if self._follows() and self.side == "target":
            super().truncate()

    def held(self, side: str) -> dict[str, int]:
        blocks = self.servers["source"].blocks
        there = {game: cast("dict[str, Any]", e[""]).get("title") for game, e in blocks.items()}
        lost = [game for game in GAMES if there.get(game) != f"t{game}"]
        return {f"the titles of {lost} are lost": 0} if lost else super().held(side)


class _Feed(Server):
    """A feed of its own beside others of the same server."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.at, server.cls, server.world, fences=False)
        self.log = server.log


class _ReadTwice(Server):
    """A side that each of several moves follows."""

    def __init__(self, server: Server, *, fences: bool) -> None:
        super().__init__(server.at, server.cls, server.world, fences=fences)
        self._feeds: dict[str, _Feed] = {}

    def journal(self, name: str) -> ServerJournal:
        return ServerJournal(self._feeds.setdefault(name, _Feed(self)))

    def lose_feed(self) -> None:
        for feed in self._feeds.values():
            feed.lose_feed()


class MovedWorld(SpreadWorld):
    """Games are moved, too, without their rounds: each has a number that is written."""

    titled = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.servers["source"] = _ReadTwice(self.servers["source"], fences=not self.hook)
        self.heads = Server(At("target", "heads"), "Game", self, fences=not self.hook)

    def _open(self) -> list[str]:
        return [game for game in GAMES if f"game {game}" in self.history] or [GAMES[0]]

    def put(
        self, key: str, *, large: bool = False, blindly: bool = False, to: str | None = None
    ) -> None:
        if to is None and f"game {GAMES[0]}" not in self.history:
            self.put_game(GAMES[0])
        if any(name.startswith("game") for name in self.history):
            super().put(key, large=large, blindly=blindly, to=to)

    def _write(self) -> None:
        if self._chosen.random() < 0.6:
            super()._write()
            return
        self.writes -= 1
        game = self._chosen.choice(GAMES)
        act = self._chosen.choice((self.put_game, self.delete_game, self.put_game_anew))
        act(game)

    def put_game(self, game: str) -> None:
        """Write the number of a game, and leave its rounds as they are."""
        if not self._follows() or not self._leave():
            return
        self.version += 1
        if self.side == "source":
            value = {"number": self.version, "rounds": self._rounds(game)}
            done = self.servers["source"].put(game, {"": value})
        else:
            done = self.heads.put(game, {"": {"number": self.version}})
        if done:
            self._said(f"write game {game} = {self.version}")
            self.history[f"game {game}"] = self.version

    def put_game_anew(self, game: str) -> None:
        """Delete a game and make it again, while its rounds stay; in the target that can be."""
        if self._follows() and self.side == "target" and f"game {game}" in self.history:
            if not self.heads.remove(game):
                return
            self._said(f"delete game {game} alone")
            self.heads.put(game, {"": {"number": self.history[f"game {game}"]}})

    def delete_game(self, game: str) -> None:
        """Delete a game, and its rounds before it, or with it."""
        if not self._follows() or not self._leave():
            return
        rounds = [key for key, of in self.games.items() if of == game]
        if self.side == "target":
            for key in rounds:
                self.delete(key)
            if game in self.games.values() or not self.heads.remove(game):
                return
        elif not self.servers["source"].remove(game):
            return
        self._said(f"delete game {game}")
        for key in (f"game {game}", *rounds):
            self._gone(key)

    def _more(self, game: str) -> dict[str, Any]:
        return {"number": self.history.get(f"game {game}", 0)}

    def truncate(self) -> None:
        if self._follows() and self._leave() and self.side == "source":
            super().truncate()

    def held(self, side: str) -> dict[str, int]:
        games = self.servers["source"].blocks if side == "source" else self.heads.blocks
        numbers = {g: cast("dict[str, int]", e[""])["number"] for g, e in games.items()}
        return super().held(side) | {f"game {game}": n for game, n in numbers.items()}


class Opened:
    """A store with some collections by their names, and one by any other."""

    capabilities = CAPABILITIES

    def __init__(self, one: Server, /, **others: Server) -> None:
        self._one = one
        self._others = others

    def collection(self, cls: str, at: At) -> Server:
        return self._others.get(at.collection, self._one)


class SpreadSchedule(Schedule):
    """A run of the engine with such a move, and perhaps one of the games."""

    def __init__(
        self, world: SpreadWorld, patch: pytest.MonkeyPatch, *, in_memory: bool = False
    ) -> None:
        super().__init__(world, patch, in_memory=in_memory)
        servers, at = world.servers, At("source", "games")
        others = {"games": servers["target"]}
        if isinstance(world, MovedWorld):
            others["heads"] = world.heads
        opened = {
            "source": cast("Store", Opened(servers["source"])),
            "target": cast("Store", Opened(world.locator, **others)),
        }
        if world.titled:
            split = SplitOut("rounds", back="game", keep="id")
        else:
            split = SplitOut("rounds", by={"game": "game"}, keep="id")
        move = Move("Round", of="Game", target=At("target", "games"), evolve=[split])
        if isinstance(world, MovedWorld):
            games = Move("Game", target=At("target", "heads"), evolve=[Drop("rounds", default=[])])
            self._route = open_route(0, games, at, opened.__getitem__)
            self.beside = [open_route(1, move, at, opened.__getitem__)]
        else:
            self._route = open_route(0, move, at, opened.__getitem__)


WORLDS = (SpreadWorld, TitledWorld, MovedWorld)


def filled(
    seed: int,
    patch: pytest.MonkeyPatch,
    chances: Chances,
    kind: type[SpreadWorld] | None = None,
    *,
    in_memory: bool = False,
) -> SpreadSchedule:
    """A schedule whose source holds some rounds."""
    world = (kind or WORLDS[seed % 3])(seed, chances)
    world.lingers = (0.0, 0.6)[seed % 2]
    schedule = SpreadSchedule(world, patch, in_memory=in_memory)
    if isinstance(world, TitledWorld):
        world.begin()
    for key in KEYS[: 1 + seed % len(KEYS)]:
        world.put(key)
    return schedule


def level(
    patch: pytest.MonkeyPatch, kind: type[SpreadWorld] = SpreadWorld, *, hook: bool = False
) -> tuple[SpreadSchedule, SpreadWorld]:
    """A move whose sides are equal, with nothing drawn: 0 and 1 are in game 0, 2 is in 7."""
    world = kind(1, Chances(writes=0, faults=0, hook=hook))
    schedule = SpreadSchedule(world, patch)
    if isinstance(world, TitledWorld):
        world.begin()
    if isinstance(world, MovedWorld):
        world.put_game("0")
        world.put_game("7")
    for key, game in zip(KEYS, ("0", "0", "7"), strict=True):
        world.put(key, to=game)
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    schedule.settle()
    return schedule, world


def there_and_back(schedule: SpreadSchedule) -> None:
    """A move there and back, with writes on both sides: looked at once, when all is at rest."""
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    reach(schedule, Phase.CUT_OVER)
    schedule.go_on()
    reach(schedule, Phase.SHADOW_READ)
    schedule.settle()
    equal(schedule.world)
    if not (schedule.world.chances.truncate or schedule.world.chances.lose):
        # What changes without a touch may be taken for somebody else's.
        assert schedule.strangers() == [], schedule.world.told


# ---------------------------------------------------------------------- what a round may do


def moves(world: SpreadWorld) -> None:
    world.put("0", to="7")


def goes(world: SpreadWorld) -> None:
    world.delete("0")


def goes_and_comes(world: SpreadWorld) -> None:
    world.delete("0")
    world.put("0", to="1")


def all_go(world: SpreadWorld) -> None:
    world.delete("0")
    world.delete("1")


# Beside where each round lies after it.
MEANWHILE = [
    (moves, {"0": "7", "1": "0", "2": "7"}),
    (goes, {"1": "0", "2": "7"}),
    (goes_and_comes, {"0": "1", "1": "0", "2": "7"}),
    (all_go, {"2": "7"}),
]


def primary_is(primary: str, schedule: Schedule) -> None:
    """Have this side be the primary, of a schedule whose source still is."""
    if primary == "target":
        reach(schedule, Phase.CUT_OVER)

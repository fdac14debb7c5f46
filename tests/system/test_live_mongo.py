"""The whole life of a live move within MongoDB, from whole documents to one field a round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.model.phase import Phase
from tests.system import kit, servers
from tests.system.application import Application, Held, Hooked, Rounds, mirroring
from tests.system.kit import Shop, Urls

_OLD = 100
_WORDS = ("put", "append", "append", "number", "delete")


@dataclass
class _Documents:
    """Games in documents, by a plain driver."""

    url: str
    name: str

    def __post_init__(self) -> None:
        self.client = servers.connect_mongodb(self.url)
        self.games = self.client.get_default_database()[self.name]

    def delete(self, key: str) -> None:
        self.games.delete_one({"_id": key})

    def close(self) -> None:
        self.client.close()


class _Whole(_Documents):
    """EAO: a game is one value, ``{n, rounds: [...]}``."""

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        self.games.replace_one({"_id": key}, {"n": number, "rounds": rounds}, upsert=True)

    def append(self, key: str, place: int, spell: str) -> None:
        self.games.update_one({"_id": key}, {"$push": {"rounds": spell}})

    def number(self, key: str, number: int) -> None:
        self.games.update_one({"_id": key}, {"$set": {"n": number}})

    def held(self) -> dict[str, Held]:
        return {game["_id"]: (game["n"], game["rounds"]) for game in self.games.find()}


class _ByRound(_Documents):
    """ROUNDS: a field for each round, and ``_`` with what is left; an empty list is left, too."""

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        rest: dict[str, Any] = {"n": number} if rounds else {"n": number, "rounds": []}
        each = {f"rounds[{place}]": spell for place, spell in enumerate(rounds)}
        self.games.replace_one({"_id": key}, {"_": rest, **each}, upsert=True)

    def append(self, key: str, place: int, spell: str) -> None:
        change = {"$set": {f"rounds[{place}]": spell}, "$unset": {"_.rounds": ""}}
        self.games.update_one({"_id": key}, change)

    def number(self, key: str, number: int) -> None:
        self.games.update_one({"_id": key}, {"$set": {"_.n": number}})

    def held(self) -> dict[str, Held]:
        return {game["_id"]: (game["_"]["n"], _rounds(game)) for game in self.games.find()}


def _rounds(game: dict[str, Any]) -> Rounds:
    count = sum(name.startswith("rounds[") for name in game)
    return [game[f"rounds[{place}]"] for place in range(count)]


@dataclass
class _Life:
    """A live move from EAO to ROUNDS, and its writers."""

    shop: Shop
    application: Application
    hooked: Hooked

    @property
    def terms(self) -> SwapTerms:
        # MongoDB has no fence of its own; the stand-in shares two cores with the writers.
        return SwapTerms(hook=self.hooked.command, bound=60, lag=20)


@pytest.fixture
def life(tmp_path: Path, urls: Urls) -> Iterator[_Life]:
    name, url = kit.fresh("live"), urls("mongodb", "")
    whole = _Whole(url, name)
    for number in range(_OLD):
        whole.put(f"old-{1000 + number}", number, ["a", "b"])
    whole.close()
    shop = Shop(tmp_path, {"docs": url})
    shop.script(
        f"move = Move('Game', source=At('docs', '{name}'), "
        f"target=At('docs', '{name}_new', {list(kit.ROUNDS)}, 'flat'))"
    )
    sides = {"source": lambda: _Whole(url, name), "target": lambda: _ByRound(url, f"{name}_new")}
    application = Application(sides, words=_WORDS, writers=2)
    with application, Hooked(application, tmp_path) as hooked:
        yield _Life(shop, application, hooked)
        application.stop()


def test_nothing_is_lost_from_eao_to_rounds_and_back(life: _Life) -> None:
    shop, application = life.shop, life.application
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        assert plan.errors == []
        assert [finding.code for finding in plan.findings].count("N134") == 2
        terms = commands.Terms(swap=life.terms)
        done = commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        assert done.verified[0].clean
        with mirroring(shop):
            application.go_on_until_each(_WORDS)
            done = commands.cutover(project, "0001", swap=life.terms)
            assert (done.phase, done.primary) == ("cut_over", "target")
            application.go_on_until_each(_WORDS)
            done = commands.rollback(project, "0001", swap=life.terms)
            assert (done.phase, done.primary) == ("shadow_read", "source")
            application.go_on_until_each(_WORDS)
            done = commands.cutover(project, "0001", swap=life.terms)
            assert (done.phase, done.primary) == ("cut_over", "target")
            application.go_on_until_each(_WORDS)
            application.stop()
            (found,) = commands.verify_run(project, "0001")
    assert found.clean, found.told
    assert life.hooked.events == ["fence", "release"] * 3
    for side in ("source", "target"):
        application.assert_held(side)

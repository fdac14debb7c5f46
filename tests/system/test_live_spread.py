"""The whole life of two live moves out of one source: games, and their rounds on their own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.errors import Refused
from migrator.gateway import Gateway
from migrator.journal import journal_name
from migrator.model.phase import Phase
from tests.system import kit, servers
from tests.system.application import Application, Held, Hooked, Rounds, Tables, there_and_back
from tests.system.kit import ENV, Shop, Urls

_OLD = 30
_WORDS = ("put", "append", "delete")


class _Apart:
    """Games in one collection of MongoDB, their rounds in another."""

    def __init__(self, url: str, name: str) -> None:
        self.client = servers.connect_mongodb(url)
        base = self.client.get_default_database()
        self.games, self.rounds = base[f"{name}_game"], base[f"{name}_round"]

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        with self.client.start_session() as session, session.start_transaction():
            game = {"id": key, "n": number}
            self.games.replace_one({"_id": key}, game, upsert=True, session=session)
            self.rounds.delete_many({"game": key}, session=session)
            if rounds:
                told = [_round(key, place, spell) for place, spell in enumerate(rounds)]
                self.rounds.insert_many(told, session=session)

    def append(self, key: str, place: int, spell: str) -> None:
        self.rounds.insert_one(_round(key, place, spell))

    def delete(self, key: str) -> None:
        with self.client.start_session() as session, session.start_transaction():
            self.rounds.delete_many({"game": key}, session=session)
            self.games.delete_one({"_id": key}, session=session)

    def held(self) -> dict[str, Held]:
        found: dict[str, tuple[int, Rounds]] = {g["_id"]: (g["n"], []) for g in self.games.find()}
        for each in self.rounds.find().sort([("game", 1), ("pos", 1)]):
            assert each["_id"] == f"{each['game']}-{each['pos']}"
            found[each["game"]][1].append(each["spell"])
        return dict(found)

    def close(self) -> None:
        self.client.close()


def _round(key: str, place: int, spell: str) -> dict[str, object]:
    return {"_id": f"{key}-{place}", "game": key, "pos": place, "spell": spell}


def test_nothing_is_lost_where_rounds_become_aggregates(tmp_path: Path, urls: Urls) -> None:
    name, sql, docs = kit.fresh("live"), urls("postgresql", ""), urls("mongodb", "")
    tables = Tables(sql, name)
    tables.make()
    for number in range(_OLD):
        tables.put(f"old-{1000 + number}", number, ["a", "b"])
    tables.close()
    shop = Shop(tmp_path, {"sql": sql, "docs": docs})
    tied = 'back="game", bare=True, order_by="pos", key="{game}-{pos}"'
    shop.script(f"""ROUNDS = tables("{name}_round", order_by="pos")
GAMES = At("sql", tables("{name}", rounds=ROUNDS))
moves = [
    Move("Game", source=GAMES, target=At("docs", "{name}_game"),
         evolve=[Drop("rounds", default=[])]),
    Move("Round", of="Game", source=GAMES, target=At("docs", "{name}_round"),
         evolve=[SplitOut("rounds", {tied})]),
]""")
    sides = {"source": lambda: Tables(sql, name), "target": lambda: _Apart(docs, name)}
    application = Application(sides, words=_WORDS, writers=2, keys=20, pace=0.05)
    with application, Hooked(application, tmp_path) as hooked:
        # The stand-in shares two cores with the writers.
        swap = SwapTerms(hook=hooked.command, bound=60, lag=20)
        _live(shop, application, swap)
    with shop.open() as project:
        base = servers.connect_mongodb(docs).get_default_database()
        locator = journal_name(project.control.run("0001").id, 1, "locator")
        assert locator in base.list_collection_names()
        commands.finish(project, "0001", keep_source=True)
        assert locator not in base.list_collection_names()


def _live(shop: Shop, application: Application, swap: SwapTerms) -> None:
    """There, back, and there again; then both sides hold what was acknowledged, and no more."""
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        assert plan.errors == []
        assert "N136" in [finding.code for finding in plan.findings]
        terms = commands.Terms(accept=[f.code for f in plan.to_accept], swap=swap)
        done = commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        assert all(found.clean for found in done.verified)
        for cls in ("Round", "Game"):
            with pytest.raises(Refused, match="no gateway"):
                Gateway.open(cls, shop.config, ENV, revision="0001", shape="source")
        there_and_back(shop, project, application, _WORDS, swap)


_DAYS = 'SplitOut("readings", by={"day": "day"}, keep="id")'
_ROUNDS = 'SplitOut("rounds", back="game", keep="id")'
_BUCKET = 'Bucket("games", by={"n": "n"}, key="id")'
_MOVES = {
    "spread": (f'[moved("Round", {_ROUNDS})]', []),
    "games beside them": (f'[moved("Round", {_ROUNDS}), moved("Head", Drop("rounds"))]', []),
    "games under other keys": (
        f'[moved("Round", {_ROUNDS}), moved("Head", Drop("rounds"), ChangeId("n", stays="id"))]',
        ["another move of the same source changes its keys"],
    ),
    "games that carry their rounds as well": (
        f'[moved("Round", {_ROUNDS}), moved("Head")]',
        [
            "another move of the same source carries rounds as well, and each would write over the "
            "other's on the way back (Drop or Keep leaves it out there)"
        ],
    ),
    "a projection beside them": (
        f'[moved("Round", {_ROUNDS}), moved("Head", Keep(["n"]))]',
        [],
    ),
    "games that live by their parts": (
        f'[moved("Reading", {_DAYS}), moved("Head", Drop("rounds"))]',
        ["its source lives by its parts alone, and another move has the same source"],
    ),
    "to where gateways alone are followed": (
        f'[moved("Round", {_ROUNDS}, at=At("wide", WIDE, layout="row"))]',
        ["wide"],
    ),
    "put together": (f'[moved("Day", {_BUCKET})]', []),
    "put together, and moved as well": (
        f'[moved("Day", {_BUCKET}), moved("Head")]',
        ["it puts blocks together that another move has for its source as well"],
    ),
    "put together twice": (
        f'[moved("Day", {_BUCKET}), moved("Night", {_BUCKET})]',
        ["it puts blocks together that another move has for its source as well"] * 2,
    ),
    "put together where gateways alone are followed": (
        f'[moved("Day", {_BUCKET}, at=At("wide", WIDE, layout="row"))]',
        ["wide"],
    ),
    "merged": (
        '[moved("Whole", MergeIn("moves", of="Turn", at=At("here", tables("games")), back="n", '
        'bare=True, keep="id"))]',
        ["it merges a second collection into the first"],
    ),
}


@pytest.mark.parametrize("name", _MOVES)
def test_a_plan_says_which_regrouping_can_be_followed(
    name: str, tmp_path: Path, urls: Urls
) -> None:
    with closing(sqlite3.connect(tmp_path / "here.db")) as here:
        here.execute("CREATE TABLE games (id text PRIMARY KEY, n int)")
    shop = Shop(tmp_path, {"here": urls(None, "here"), "there": urls(None, "there")})
    if "wide" in _MOVES[name][0]:
        shop = Shop(tmp_path, {"here": urls(None, "here"), "wide": urls("cassandra", "")})
    moves, refused = _MOVES[name]
    shop.script(f"""WIDE = {kit.fresh("rounds")!r}
def moved(cls, *evolve, at=None):
    return Move(cls, of="Game", source=At("here", tables("games")),
                target=at or At("there", cls.lower()), evolve=list(evolve))
moves = {moves}""")
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)

    assert [f.text.partition(":")[0] for f in plan.errors if f.code == "E131"] == refused

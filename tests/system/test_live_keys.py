"""The whole life of a live move whose keys change, under writers that change them all the time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.journal import journal_name
from migrator.model.phase import Phase
from tests.system import kit
from tests.system.application import (
    Application,
    Documents,
    Held,
    Hooked,
    Rounds,
    Tables,
    mirroring,
    writing,
)
from tests.system.kit import Shop, Urls

_OLD = 30
_WORDS = ("put", "append", "delete")


def _place(key: str, number: int) -> str:
    """Where a game lies in the target: elsewhere with nearly every number."""
    return f"{key}/{number % 3}"


class _Placed(Tables):
    """The games, with a place of each that no other has."""

    def make(self) -> None:
        super().make()
        self.session.execute(f"ALTER TABLE {self.name} ADD place text NOT NULL UNIQUE")

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        with writing(self.session) as do:
            do(f"INSERT INTO {self.name} (id, n, place) VALUES (%s, %s, %s) ON CONFLICT (id) "
               "DO UPDATE SET n = EXCLUDED.n, place = EXCLUDED.place",
               (key, number, _place(key, number)))  # fmt: skip
            do(f"DELETE FROM {self.name}_round WHERE game = %s", (key,))
            for at, spell in enumerate(rounds):
                do(f"INSERT INTO {self.name}_round VALUES (%s, %s, %s)", (key, at, spell))


class _ByPlace(Documents):
    """The games by their places; ``id`` still says which each is."""

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        place = _place(key, number)
        told = [{"pos": at, "spell": spell} for at, spell in enumerate(rounds)]
        game = {"id": key, "place": place, "n": number, "rounds": told}
        self.games.delete_many({"id": key, "_id": {"$ne": place}})
        self.games.replace_one({"_id": place}, game, upsert=True)

    def append(self, key: str, place: int, spell: str) -> None:
        self.games.update_one({"id": key}, {"$push": {"rounds": {"pos": place, "spell": spell}}})

    def delete(self, key: str) -> None:
        self.games.delete_one({"id": key})

    def held(self) -> dict[str, Held]:
        found: dict[str, Held] = {}
        for game in self.games.find():
            assert game["id"] not in found, f"{game['id']} lies twice"
            assert game["_id"] == _place(game["id"], game["n"])
            found[game["id"]] = game["n"], [each["spell"] for each in game["rounds"]]
        return found


@dataclass
class _Life:
    shop: Shop
    application: Application
    documents: _ByPlace
    terms: SwapTerms


@pytest.fixture
def life(tmp_path: Path, urls: Urls) -> Iterator[_Life]:
    name, sql, docs = kit.fresh("live"), urls("postgresql", ""), urls("mongodb", "")
    tables = _Placed(sql, name)
    tables.make()
    for number in range(_OLD):
        tables.put(f"old-{1000 + number}", number, ["a", "b"])
    tables.close()
    shop = Shop(tmp_path, {"sql": sql, "docs": docs})
    shop.script(
        f"move = Move('Game', target=At('docs', '{name}'), source=At('sql', tables('{name}', "
        f"rounds=tables('{name}_round', order_by='pos'))), evolve=[ChangeId('place', stays='id')])"
    )
    sides = {"source": lambda: _Placed(sql, name), "target": lambda: _ByPlace(docs, name)}
    application = Application(sides, words=_WORDS, writers=2, keys=20, pace=0.05)
    documents = _ByPlace(docs, name)
    with application, Hooked(application, tmp_path) as hooked:
        # The stand-in shares two cores with the writers.
        terms = SwapTerms(hook=hooked.command, bound=60, lag=20)
        yield _Life(shop, application, documents, terms)
        application.stop()
    documents.close()


def test_nothing_is_lost_where_keys_change(life: _Life) -> None:
    application = life.application
    with life.shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        assert plan.errors == []
        assert "N136" in [finding.code for finding in plan.findings]
        terms = commands.Terms(swap=life.terms)
        done = commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        assert done.verified[0].clean
        with mirroring(life.shop):
            application.go_on_until_each(_WORDS)
            looked = commands.shadow(project, "0001", sample=20)
            assert looked[0].clean, looked[0].told
            commands.cutover(project, "0001", swap=life.terms)
            application.go_on_until_each(_WORDS)
            done = commands.rollback(project, "0001", swap=life.terms)
            assert (done.phase, done.primary) == ("shadow_read", "source")
            application.go_on_until_each(_WORDS)
            application.stop()
            (found,) = commands.verify_run(project, "0001")
        assert found.clean, found.told
        for side in ("source", "target"):
            application.assert_held(side)
        assert "foreign write" not in [event["event"] for event in commands.events(project, "0001")]
        names = life.documents.games.database.list_collection_names
        locator = journal_name(project.control.run("0001").id, 0, "locator")
        assert locator in names()
        commands.abort(project, "0001", drop_target=True)
        assert locator not in names()


@pytest.mark.parametrize("target", ["here", "wide"])
def test_a_plan_says_that_changed_keys_are_followed(
    target: str, tmp_path: Path, urls: Urls
) -> None:
    with closing(sqlite3.connect(tmp_path / "here.db")) as here:
        here.execute("CREATE TABLE games (id text PRIMARY KEY, place text NOT NULL UNIQUE)")
    shop = Shop(tmp_path, {"here": urls(None, "here"), "wide": urls("cassandra", "")})
    at = f"At({target!r}, {kit.fresh('moved')!r}, layout={'row' if target == 'wide' else None!r})"
    shop.script(
        f"move = Move('Game', source=At('here', tables('games')), target={at}, "
        "evolve=[ChangeId('place', stays='id')])"
    )
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)

    (found,) = [finding.text for finding in plan.findings if finding.code == "N136"]
    assert "calls by the keys of one side" in found
    assert plan.errors == []

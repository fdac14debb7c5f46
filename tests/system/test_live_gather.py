"""The whole life of a live move that gathers: rows of PostgreSQL are documents of their days.

The application puts rows of several writers into one day, and takes them to another. In MongoDB it
pushes elements and pulls them out; of those that it takes to another day each stands in both for a
moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.errors import Refused as RefusedByPlan
from migrator.gateway import Gateway
from migrator.journal import journal_name
from migrator.model.phase import Phase
from tests.system import kit, servers
from tests.system.application import (
    Application,
    Held,
    Hooked,
    Rounds,
    there_and_back,
    writing,
)
from tests.system.kit import ENV, Shop, Urls

_OLD = 30
_DAYS = 4
_WORDS = ("put", "append", "delete")


def _rows(key: str, number: int, rounds: Rounds) -> list[tuple[str, str, int, str]]:
    """A game as rows of one day: one with its number, and one for each of its rounds."""
    day = f"d{(sum(key.encode()) + number) % _DAYS}"
    told = enumerate([str(number), *rounds])
    return [(f"{key}/{place}", day, place, spell) for place, spell in told]


def _games(rows: Iterator[tuple[str, int, str]]) -> dict[str, Held]:
    found: dict[str, dict[int, str]] = {}
    for id, place, spell in rows:
        found.setdefault(id.partition("/")[0], {})[place] = spell
    games: dict[str, Held] = {}
    for key, told in found.items():
        # What lies twice, or lacks its number, is no game that anybody wrote.
        assert sorted(told) == list(range(len(told))), (key, told)
        games[key] = int(told[0]), [told[place] for place in range(1, len(told))]
    return games


class _Rows:
    """Games as rows of a table."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.session = servers.connect_postgresql(url)

    def make(self) -> None:
        self.session.execute(
            f"CREATE TABLE {self.name} (id text PRIMARY KEY, day text NOT NULL, pos int NOT NULL, "
            "spell text NOT NULL)"
        )

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        rows = _rows(key, number, rounds)
        with writing(self.session) as do:
            for row in rows:
                do(
                    f"INSERT INTO {self.name} VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE "
                    "SET day = EXCLUDED.day, spell = EXCLUDED.spell", row,
                )  # fmt: skip
            do(f"DELETE FROM {self.name} WHERE id LIKE %s AND pos >= %s", (f"{key}/%", len(rows)))

    def append(self, key: str, place: int, spell: str) -> None:
        with writing(self.session) as do:
            do(
                f"INSERT INTO {self.name} SELECT %s, day, %s, %s FROM {self.name} WHERE id = %s",
                (f"{key}/{place + 1}", place + 1, spell, f"{key}/0"),
            )

    def delete(self, key: str) -> None:
        with writing(self.session) as do:
            do(f"DELETE FROM {self.name} WHERE id LIKE %s", (f"{key}/%",))

    def held(self) -> dict[str, Held]:
        rows = self.session.execute(f"SELECT id, pos, spell FROM {self.name}").fetchall()
        return _games(iter(rows))

    def close(self) -> None:
        self.session.close()


class _Days:
    """Games as elements of the documents of their days."""

    def __init__(self, url: str, name: str) -> None:
        self.client = servers.connect_mongodb(url)
        self.days = self.client.get_default_database()[name]

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        rows = _rows(key, number, rounds)
        day = rows[0][1]
        self._pull(key, {"_id": day})
        self._push(day, [{"id": id, "pos": pos, "spell": spell} for id, _, pos, spell in rows])
        self._pull(key, {"_id": {"$ne": day}})

    def append(self, key: str, place: int, spell: str) -> None:
        day = self.days.find_one({"rounds.id": f"{key}/0"})["_id"]
        self._push(day, [{"id": f"{key}/{place + 1}", "pos": place + 1, "spell": spell}])

    def delete(self, key: str) -> None:
        self._pull(key, {})

    def _push(self, day: str, rounds: list[dict[str, Any]]) -> None:
        push = {"$push": {"rounds": {"$each": rounds, "$sort": {"id": 1}}}}
        self.days.update_one({"_id": day}, {**push, "$setOnInsert": {"day": day}}, upsert=True)

    def _pull(self, key: str, where: dict[str, Any]) -> None:
        """Take a game out of days; the last element takes its day along."""
        mine = {"id": {"$regex": f"^{key}/"}}
        self.days.update_many({**where, "rounds.id": mine["id"]}, {"$pull": {"rounds": mine}})
        self.days.delete_many({"rounds": []})

    def held(self) -> dict[str, Held]:
        rows = []
        for day in self.days.find():
            assert day["_id"] == day["day"]
            assert day["rounds"]
            rows += [(each["id"], each["pos"], each["spell"]) for each in day["rounds"]]
        assert len({id for id, _, _ in rows}) == len(rows)
        return _games(iter(rows))

    def close(self) -> None:
        self.client.close()


def test_nothing_is_lost_where_rows_become_buckets(tmp_path: Path, urls: Urls) -> None:
    name, sql, docs = kit.fresh("live"), urls("postgresql", ""), urls("mongodb", "")
    rows = _Rows(sql, name)
    rows.make()
    for number in range(_OLD):
        rows.put(f"old-{1000 + number}", number, ["a", "b"])
    rows.close()
    shop = Shop(tmp_path, {"sql": sql, "docs": docs})
    shop.script(f"""move = Move(
    "Day", of="Row", source=At("sql", tables("{name}")), target=At("docs", "{name}"),
    evolve=[Bucket("rounds", by={{"day": "day"}}, order_by="id", key="id")],
)""")
    sides = {"source": lambda: _Rows(sql, name), "target": lambda: _Days(docs, name)}
    application = Application(sides, words=_WORDS, writers=2, keys=20, pace=0.05)
    with application, Hooked(application, tmp_path) as hooked:
        # The stand-in shares two cores with the writers.
        swap = SwapTerms(hook=hooked.command, bound=60, lag=20)
        _live(shop, application, swap)
    with shop.open() as project:
        base = servers.connect_mongodb(docs).get_default_database()
        locator = journal_name(project.control.run("0001").id, 0, "locator")
        assert locator in base.list_collection_names()
        commands.finish(project, "0001", keep_source=True)
        assert locator not in base.list_collection_names()


def _live(shop: Shop, application: Application, swap: SwapTerms) -> None:
    """There, back, and there again; then both sides hold what was acknowledged, and no more."""
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        assert [finding.text for finding in plan.errors] == []
        assert {"N116", "N136"} <= {finding.code for finding in plan.findings}
        terms = commands.Terms(accept=[f.code for f in plan.to_accept], swap=swap)
        done = commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        assert all(found.clean for found in done.verified)
        with pytest.raises(RefusedByPlan, match="no gateway"):
            Gateway.open("Day", shop.config, ENV, revision="0001", shape="source")
        there_and_back(shop, project, application, _WORDS, swap)

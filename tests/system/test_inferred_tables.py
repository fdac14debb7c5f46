"""Documents into tables that nobody described, and back: the plan tells the tables and freezes
them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import DoesNotFit, Refused
from migrator.model.block import Aggregate, cut
from migrator.model.move import At
from migrator.model.phase import Phase
from migrator.model.value import Int64, Record, Value
from migrator.planning.file import decode_plan, encode_plan
from migrator.render.plan import plan_lines
from tests.system import kit, servers
from tests.system.kit import Shop, Urls

SQL = {"lite": None, "pg": "postgresql", "maria": "mariadb"}
FROM = {"emb": None, "docs": "mongodb"}
COUNT = 300


def games() -> list[tuple[Value, Record]]:
    found: list[tuple[Value, Record]] = []
    for n in range(COUNT):
        rounds: list[Value] = [
            {"score": 9 - i, "moves": ["q", "é", "q"][: i % 4], "note": None if i % 2 else f"r{i}"}
            for i in range(n % 5)
        ]
        game: Record = {
            "id": f"g{n:03}", "firstPlayer": "ann", "started": dt.date(2024, 1, 1 + n % 28),
            "wins": Int64(n), "open": n % 2 == 0, "rate": n / 7, "rounds": rounds,
            "extra": {"tags": [n, None, "x"], "deep": {}}, "until": None,
        }  # fmt: skip
        if n == COUNT - 1:
            game["until"] = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)  # rare, and null before
        found.append((f"g{n:03}", game))
    return found


def project(tmp_path: Path, urls: Urls, source: str, sql: str) -> tuple[Shop, At, At]:
    """Two revisions: out of documents into bare tables, and back from where the chain is."""
    stores = {source: urls(FROM[source], source), sql: urls(SQL[sql], sql)}
    shop = Shop(tmp_path, stores)
    first, last, table = kit.fresh("games"), kit.fresh("games"), kit.fresh("game")
    rules = ["/Game/*/*"]
    bare = f"tables({table!r}, rounds=tables({table + '_round'!r}, "
    bare += f"moves=tables({table + '_move'!r}, value='move')))"
    shop.script(
        f"move = Move('Game', source=At({source!r}, {first!r}), target=At({sql!r}, {bare}))"
    )
    shop.script(f"move = Move('Game', target=At({source!r}, {last!r}, {rules!r}))")
    at = At(source, first)
    with shop.open() as opened:
        kit.fill(opened.stores.get(source).collection("Game", at), games())
    return shop, at, At(source, last, rules)


@pytest.mark.parametrize("sql", SQL)
@pytest.mark.parametrize("source", FROM)
def test_every_value_arrives_and_comes_back(
    tmp_path: Path, urls: Urls, source: str, sql: str
) -> None:
    shop, at, last = project(tmp_path, urls, source, sql)
    with shop.open() as opened:
        made = commands.plan(opened, "0001")
        tables = made.moves[0].tables
        assert tables is not None
        assert tables.key == ("id",)
        assert tables.children["rounds"].children["moves"].columns["move"]
        assert any(tables.table in line.text for line in plan_lines(made))
        assert decode_plan(encode_plan(made), "there") == made
    (found,) = kit.carry(shop, "0001")
    assert found.equal == COUNT
    (found,) = kit.carry(shop, "0002")
    assert found.equal == COUNT
    with shop.open() as opened:
        store = opened.stores.get(source)
        back = kit.contents(store.collection("Game", last))
        kit.assert_equal(kit.contents(store.collection("Game", at)), back)
        kit.assert_equal(back, kit.by_key(games()))


def test_the_server_has_types_keys_and_links(tmp_path: Path, urls: Urls) -> None:
    shop, _, _ = project(tmp_path, urls, "emb", "pg")
    kit.carry(shop, "0001")
    with shop.open() as opened:
        name = opened.moves("0001")[0].target.collection
    mine = f"table_schema = 'public' AND left(table_name, {len(name)}) = '{name}'"
    columns = servers.rows(
        "postgresql",
        shop.stores["pg"],
        f"SELECT table_name, column_name, data_type FROM information_schema.columns WHERE {mine}",
    )
    kinds = {(table.rpartition("_")[2], name): kind for table, name, kind in columns}
    assert kinds["round", "score"] == "integer"
    assert kinds["move", "move"] == "text"
    root = {name: kind for (_, name), kind in kinds.items()}
    assert root["started"] == "date"
    assert root["wins"] == "bigint"
    assert root["open"] == "boolean"
    assert root["until"] == "timestamp with time zone"
    assert root["extra"] == "jsonb"
    links = servers.rows(
        "postgresql",
        shop.stores["pg"],
        f"SELECT count(*) FROM information_schema.table_constraints WHERE {mine} "
        "AND constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')",
    )
    assert links == [(5,)]


@pytest.mark.parametrize("sql", SQL)
def test_a_rollback_carries_back_what_was_written_since(
    tmp_path: Path, urls: Urls, sql: str
) -> None:
    shop, at, _ = project(tmp_path, urls, "emb", sql)
    with shop.open() as opened:
        commands.apply(opened, commands.plan(opened, "0001"))
    with shop.open() as opened:
        made = commands.frozen_plan(opened.control.run("0001"))
        (route,) = opened.routes("0001", made)
        _, game = games()[7]
        game["firstPlayer"], game["rounds"] = "bob", [{"score": 1, "moves": ["z"], "note": "n"}]
        route.target.write([cut(Aggregate("g007", game), route.representation)])
        commands.rollback(opened, "0001", carry_back=True)
        held = kit.contents(opened.stores.get("emb").collection("Game", at))
        expected = kit.by_key([(k, game if k == "g007" else value) for k, value in games()])
        kit.assert_equal(held, expected)


def test_what_appears_after_the_plan_does_not_fit(tmp_path: Path, urls: Urls) -> None:
    shop, at, _ = project(tmp_path, urls, "emb", "pg")
    with shop.open() as opened:
        made = commands.plan(opened, "0001")
        games_ = opened.stores.get("emb").collection("Game", at)
        games_.write(
            [cut(Aggregate("h", {**games()[0][1], "id": "h", "vip": True}), at.rules("Game"))]
        )
        with pytest.raises(DoesNotFit, match="no column") as unfit:
            commands.apply(opened, made)
        assert (unfit.value.key, unfit.value.path) == ("h", "vip")
        again = commands.plan(opened, "0001")
        # The tables are made by now, and are compared as any that were there.
        assert again.moves[0].tables is None
        assert [f.path for f in again.errors] == ["vip"]


def test_two_plans_that_tell_other_tables_are_two(tmp_path: Path, urls: Urls) -> None:
    shop, at, _ = project(tmp_path, urls, "emb", "lite")
    with shop.open() as opened:
        one = commands.plan(opened, "0001")
        games_ = opened.stores.get("emb").collection("Game", at)
        key, last = games()[-1]
        games_.write([cut(Aggregate(key, {**last, "until": None}), at.rules("Game"))])
        two = commands.plan(opened, "0001")
        assert one.fingerprint != two.fingerprint
        commands.apply(opened, one, until=Phase.PREPARED)
        with pytest.raises(Refused, match="another plan"):
            commands.apply(opened, two)


def test_mixed_kinds_are_told_by_path_and_key(tmp_path: Path, urls: Urls) -> None:
    shop, at, _ = project(tmp_path, urls, "emb", "pg")
    with shop.open() as opened:
        games_ = opened.stores.get("emb").collection("Game", at)
        odd: Record = {**games()[0][1], "id": "h", "started": "yesterday"}
        games_.write([cut(Aggregate("h", odd), at.rules("Game"))])
        (error,) = commands.plan(opened, "0001").errors
        assert (error.code, error.path, error.keys, error.count) == (
            "E103", "started", ["Game:h"], 1,
        )  # fmt: skip


def test_an_empty_source_tells_nothing(tmp_path: Path, urls: Urls) -> None:
    shop, at, _ = project(tmp_path, urls, "emb", "lite")
    with shop.open() as opened:
        opened.stores.get("emb").collection("Game", at).drop()
        opened.stores.get("emb").collection("Game", at).create()
        with pytest.raises(Refused, match="nothing says what table"):
            commands.plan(opened, "0001")

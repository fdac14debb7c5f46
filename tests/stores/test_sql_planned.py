"""What a plan tells of the columns of tables that nobody has made yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from migrator import At, tables
from migrator.errors import DoesNotFit, MigratorError
from migrator.model.block import Block
from migrator.model.move import Tables
from migrator.model.value import Int64
from migrator.ports import StoreSettings
from migrator.stores.sql.store import SqlStore
from migrator.stores.sql.tables import TablesCollection
from tests.stores.sql_servers import Base

DIALECTS = ["sqlite", "postgresql", "mysql"]


@pytest.fixture(params=DIALECTS)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made = Base(request.param, tmp_path)
    yield made
    made.drop()


def collection(base: Base, spec: Tables, **siblings: Base) -> TablesCollection:
    found = base.store(siblings=siblings).collection("Game", At("shop", spec))
    assert isinstance(found, TablesCollection)
    return found


def declared(columns: dict[str, str]) -> Tables:
    below = tables(
        "round",
        parent="game",
        order_by="place",
        columns={"place": "integer POSITION", "score": "integer"},
    )
    return tables("game", key="id", columns={"id": "varchar(20)", **columns}, rounds=below)


def block(id: str, *scores: Any, **fields: Any) -> Block:
    return Block(id, {"": {"id": id, **fields, "rounds": [{"score": s} for s in scores]}})


def misfits(games: TablesCollection, *blocks: Block) -> list[tuple[object, str]]:
    found = []
    for each in blocks:
        try:
            games.size(each)
        except DoesNotFit as error:
            found.append((error.key, error.path))
    return found


def nothing_is_there(base: Base) -> bool:
    if base.dialect == "sqlite":
        return not base.file.exists()
    mine = "current_schema()" if base.dialect == "postgresql" else "database()"
    query = f"SELECT count(*) FROM information_schema.tables WHERE table_schema = {mine}"
    return base.rows(query) == [(0,)]


def test_what_no_column_will_hold_is_told_before(base: Base) -> None:
    games = collection(base, declared({"n": "smallint", "b": "varchar(9)"}))
    good = block("a", 1, 2, n=3, b="x")
    wrong = block("b", 1, "x" if base.dialect == "sqlite" else 2**40, n=3, b="x")
    other = block("c", n=1, b="x", more=2)
    told = (
        [("c", "more")] if base.dialect == "sqlite" else [("b", "rounds[1].score"), ("c", "more")]
    )
    assert misfits(games, good, wrong, other) == told
    assert nothing_is_there(base)
    games.create()  # and what fits is written, what does not is refused alike
    games.write([good])
    for key, _ in told:
        with pytest.raises(DoesNotFit):
            games.write([wrong if key == "b" else other])


@pytest.mark.parametrize(
    ("type_", "fits", "over"),
    [
        ("varchar(3)", "äöü", "äöüß"),
        ("character varying(3)", "abc", "abcd"),
        ("smallint", 2**15 - 1, 2**15),
        ("bigint", Int64(2**62), 2**64),
    ],
)
def test_lengths_and_ranges_by_any_name_of_a_type(
    base: Base, type_: str, fits: Any, over: Any
) -> None:
    if base.dialect == "sqlite" and not type_.startswith("bigint"):
        pytest.skip("SQLite keeps to no length or range but 64 bits")
    if base.dialect == "mysql":
        type_ = type_.replace("character varying", "nvarchar")
    games = collection(base, declared({"v": type_}))
    assert misfits(games, block("a", v=fits), block("b", v=over)) == [("b", "v")]
    assert nothing_is_there(base)


@pytest.mark.parametrize("source", ["postgresql", "mysql"])
@pytest.mark.parametrize("target", DIALECTS)
def test_tables_made_like_others_are_known_before(source: str, target: str, tmp_path: Path) -> None:
    here, there = Base(source, tmp_path), Base(target, tmp_path)
    try:
        here.run(
            "CREATE TABLE game (id varchar(20) PRIMARY KEY, n smallint, t varchar(3));"
            "CREATE TABLE round (game varchar(20) NOT NULL, place int NOT NULL, score int,"
            " PRIMARY KEY (game, place), FOREIGN KEY (game) REFERENCES game (id))"
        )
        spec = tables("game", like="here", rounds=tables("round", order_by="place"))
        store = there.store("copy", {"here": here})
        games = store.collection("Game", At("copy", spec))
        assert isinstance(games, TablesCollection)
        rows = [{"place": 1, "score": 7}, {"place": 2, "score": 9}]
        good = Block("a", {"": {"id": "a", "n": 1, "t": "abc", "rounds": rows}})
        wrong = Block("b", {"": {"id": "b", "n": 1, "t": "abc", "rounds": rows[::-1]}})
        missing = Block("c", {"": {"id": "c", "n": 1, "t": "abc", "rounds": [{"place": 1}]}})
        told = misfits(games, good, wrong, missing)
        # SQLite's columns may hold texts beside numbers: only the server knows their order.
        unordered = [] if target == "sqlite" else [("b", "rounds")]
        assert told == [*unordered, ("c", "rounds[0].score")]
        long = Block("d", {"": {"id": "d", "n": 2**15, "t": "abcd", "rounds": []}})
        # A smallint becomes an int elsewhere, and SQLite has no lengths.
        path = "n" if source == target else "t"
        assert misfits(games, long) == ([] if target == "sqlite" else [("d", path)])
        assert nothing_is_there(there)
    finally:
        for each in (here, there):
            each.drop()


def test_a_type_nobody_knows_is_told_by_the_plan(base: Base) -> None:
    if base.dialect == "sqlite":
        pytest.skip("SQLite takes any name of a type")
    games = collection(base, declared({"v": "frobnicate(3)"}))
    with pytest.raises(MigratorError) as refused:
        games.size(block("a", v=1))
    assert "table game" in refused.value.where


def test_without_the_right_to_try_the_plan_says_so(tmp_path: Path) -> None:
    base = Base("mysql", tmp_path)
    user = base.name[:30]
    try:
        base.run(
            f"CREATE USER '{user}'@'%' IDENTIFIED BY 'x';"
            f"GRANT SELECT, INSERT, CREATE ON {base.name}.* TO '{user}'@'%'"
        )
        parts = urlsplit(base.url)
        url = parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}").geturl()
        store = SqlStore(StoreSettings("shop", url, secret=lambda: "x"))
        games = store.collection("Game", At("shop", declared({"n": "smallint"})))
        assert [code for _, code, _ in games.findings()] == ["T009"]
        assert games.size(block("a", n="x")) > 0
        store.close()
    finally:
        base.run(f"DROP USER IF EXISTS '{user}'@'%'")
        base.drop()

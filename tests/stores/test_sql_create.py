"""Tables made for a target: declared, or like those of another system."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from migrator import At, tables
from migrator.errors import DoesNotFit, Refused
from migrator.model.block import Block
from migrator.model.canonical import equal
from migrator.model.value import Int64, Interval
from tests.stores.sql_servers import Base

DIALECTS = ["sqlite", "postgresql", "mysql"]


@pytest.fixture(params=DIALECTS)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made = Base(request.param, tmp_path)
    yield made
    made.drop()


GAME = tables(
    "game",
    key="id",
    columns={"id": "varchar(20)", "name": "varchar(40)"},
    rounds=tables(
        "round",
        parent="game_id",
        order_by="place",
        columns={"place": "integer POSITION", "score": "integer"},
        moves=tables(
            "move",
            value="move",
            order_by="place",
            columns={"place": "integer POSITION", "move": "varchar(9)"},
        ),
    ),
    prize=tables("prize", one=True, parent="game", columns={"sum": "integer"}),
)


def game(id: str, *rounds: list[str], prize: int | None = None) -> Block:
    return Block(
        id,
        {
            "": {
                "id": id,
                "name": None,
                "rounds": [{"score": 9 - i, "moves": moves} for i, moves in enumerate(rounds)],
                "prize": None if prize is None else {"sum": prize},
            }
        },
    )


def test_declared_tables_keep_lists_in_order(base: Base) -> None:
    games = base.store().collection("Game", At("shop", GAME))
    assert not games.exists()
    games.create()
    games.create()
    assert games.exists()
    blocks = [game("1", ["q", "a", "q"], []), game("2", prize=5), game("a", ["z"])]
    games.write(blocks)
    games.write(blocks)
    assert all(
        equal(a.entries, b.entries)
        for a, b in zip(blocks, games.read(["1", "2", "a"]), strict=True)
    )  # type: ignore[union-attr]
    blocks[0].entries[""]["rounds"].reverse()  # type: ignore[index]
    games.write(blocks[:1])
    (again,) = games.read(["1"])
    assert again is not None
    assert again.entries == blocks[0].entries
    assert len(base.rows("SELECT * FROM move")) == 4
    games.drop()
    games.drop()
    assert not games.exists()


def test_without_a_word_on_its_columns_a_table_is_not_made(base: Base) -> None:
    games = base.store().collection("Game", At("shop", tables("game", rounds=tables("round"))))
    with pytest.raises(Refused, match="nothing says what table 'game' looks like"):
        games.create()
    assert base.dialect != "sqlite" or not base.file.exists()
    no_key = tables("game", columns={"id": "integer"})
    with pytest.raises(Refused, match="names no declared columns"):
        base.store().collection("Game", At("shop", no_key)).create()
    wicked = tables("game", key="id", columns={"id": "integer); DROP TABLE x; --"})
    with pytest.raises(Refused, match="no SQL type"):
        base.store().collection("Game", At("shop", wicked)).create()


def test_c57_a_half_made_schema_is_completed(base: Base) -> None:
    games = base.store().collection("Game", At("shop", GAME))
    games.create()
    base.run("DROP TABLE move; DROP TABLE prize")
    games.create()
    games.write([game("1", ["x"], prize=1)])
    base.run("DROP TABLE move; DROP TABLE prize; DROP TABLE round; DROP TABLE game")
    base.run("CREATE TABLE game (id varchar(20) NOT NULL PRIMARY KEY)")
    with pytest.raises(Refused, match="there already, without the column 'name'"):
        games.create()


RICH = {
    "postgresql": "CREATE TABLE rich (id bigint PRIMARY KEY, "
    "n numeric(10,2), t varchar(40), b bytea,"
    " d date, ts timestamp, tz timestamptz,"
    " ti time, u uuid, x double precision, s smallint, j jsonb);"
    "INSERT INTO rich VALUES (7, 1.5, 'é', '\\x00', '2024-01-01', '2024-01-01 00:00:00.5',"
    " '2024-01-01 00:00+02', '12:00', "
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 0.5, 3, '{\"a\": null}')",
    "mysql": "CREATE TABLE rich (id bigint PRIMARY KEY, "
    "n decimal(10,2), t varchar(40), b blob,"
    " d date, ts datetime(6), tz timestamp(6) NULL,"
    " ti time(6), u uuid, x double, s smallint, j json);"
    "INSERT INTO rich VALUES (7, 1.5, 'é', x'00', '2024-01-01', '2024-01-01 00:00:00.5',"
    " '2023-12-31 22:00', '12:00', "
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 0.5, 3, '{\"a\": null}')",
}


@pytest.mark.parametrize("source", ["postgresql", "mysql"])
@pytest.mark.parametrize("target", DIALECTS)
def test_tables_like_those_of_another_system_lose_nothing(
    source: str, target: str, tmp_path: Path
) -> None:
    here, there = Base(source, tmp_path), Base(target, tmp_path)
    try:
        here.run(RICH[source] + ";CREATE UNIQUE INDEX rich_t ON rich (t)")
        read = here.store().collection("Rich", At("shop", tables("rich")))
        copy = there.store("copy", {"shop": here}).collection(
            "Rich", At("copy", tables("rich", like="shop"))
        )
        copy.create()
        copy.create()
        (block,) = read.page(None, None, 9).blocks
        copy.write([block])
        copy.settle()
        for reader in (copy, copy.observer(), read.observer()):
            (again,) = reader.read([Int64(7)])
            assert again is not None
            assert equal(again.entries, block.entries)
        assert block.entries[""]["tz"] == dt.datetime(2023, 12, 31, 22, tzinfo=dt.UTC)  # type: ignore[index]
        assert block.entries[""]["n"] == Decimal("1.50")  # type: ignore[index]
        assert isinstance(block.entries[""]["u"], UUID)  # type: ignore[index]
        unique = [i for i in copy.schema()[0]["indexes"] if i["unique"]]  # type: ignore[index]
        assert [tuple(i["columns"]) for i in unique] == [("t",)]
    finally:
        here.drop()
        there.drop()


def test_a_type_without_a_counterpart_is_refused(tmp_path: Path) -> None:
    here, there = Base("postgresql", tmp_path), Base("mysql", tmp_path)
    try:
        here.run("CREATE TABLE odd (id integer PRIMARY KEY, n numeric)")
        copy = there.store("copy", {"shop": here}).collection(
            "Odd", At("copy", tables("odd", like="shop"))
        )
        with pytest.raises(Refused, match=r"odd\.n is of type numeric, which has no lossless"):
            copy.create()
        assert not copy.exists()
    finally:
        here.drop()
        there.drop()


def test_c50_sequences_are_moved_past_the_rows(base: Base, tmp_path: Path) -> None:
    auto = {
        "sqlite": "id integer PRIMARY KEY AUTOINCREMENT",
        "postgresql": "id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, s serial",
        "mysql": "id integer AUTO_INCREMENT PRIMARY KEY",
    }[base.dialect]
    base.run(f"CREATE TABLE item ({auto}, name varchar(9))")
    base.run("INSERT INTO item (name) VALUES ('a'), ('b'), ('c'), ('d')")
    base.run("DELETE FROM item WHERE name = 'd'")
    target = Base(base.dialect, tmp_path)
    try:
        source = base.store().collection("Item", At("shop", tables("item")))
        copy = target.store("copy", {"shop": base}).collection(
            "Item", At("copy", tables("item", like="shop"))
        )
        copy.create()
        copy.write(source.page(None, None, 9).blocks)
        copy.settle()
        target.run("INSERT INTO item (name) VALUES ('e')")
        assert target.rows("SELECT max(id) FROM item") == [(5,)]
        copy.settle()
        target.run("INSERT INTO item (name) VALUES ('f')")
        assert target.rows("SELECT max(id) FROM item") == [(6,)]
    finally:
        target.drop()


def test_a_key_of_zero_stays_zero(base: Base) -> None:
    auto = "AUTO_INCREMENT" if base.dialect == "mysql" else ""
    base.run(f"CREATE TABLE item (id integer {auto} PRIMARY KEY, name varchar(9))")
    items = base.store().collection("Item", At("shop", tables("item")))
    items.write([Block(0, {"": {"id": 0, "name": "zero"}})])
    assert base.rows("SELECT * FROM item") == [(0, "zero")]


@pytest.mark.parametrize("together", [True, False])
def test_c09_keys_that_the_collation_folds_never_overwrite(base: Base, together: bool) -> None:
    base.run(
        {
            "sqlite": "CREATE TABLE word "
            "(w varchar(20) COLLATE NOCASE PRIMARY KEY NOT NULL, n integer)",
            "postgresql": "CREATE EXTENSION IF NOT EXISTS citext;"
            "CREATE TABLE word (w citext PRIMARY KEY, n integer)",
            "mysql": "CREATE TABLE word "
            "(w varchar(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, n integer)",
        }[base.dialect]
    )
    words = base.store().collection("Word", At("shop", tables("word")))
    blocks = [Block(w, {"": {"w": w, "n": i}}) for i, w in enumerate(("google", "Google"))]
    if together:
        with pytest.raises(DoesNotFit):
            words.write(blocks)
        assert base.rows("SELECT * FROM word") == []
    else:
        words.write(blocks[:1])
        with pytest.raises(DoesNotFit) as caught:
            words.write(blocks[1:])
        assert caught.value.key in ("google", "Google")
        assert base.rows("SELECT n FROM word") == [(0,)]
        assert words.read(["google", "Google"])[1] is None
    assert words.same_key("google") == words.same_key("Google")
    assert words.same_key("google") != words.same_key("goggle")
    if base.dialect == "mysql":
        assert words.same_key("cafe") == words.same_key("café ")
    assert "T004" in {code for _, code, _ in words.findings()}


def test_c09_tables_made_here_keep_such_keys_apart(base: Base) -> None:
    spec = tables("word", key="w", columns={"w": "varchar(20)"})
    words = base.store().collection("Word", At("shop", spec))
    words.create()
    keys = ["google", "Google", "cafe", "café", "a ", "a"]
    words.write([Block(w, {"": {"w": w}}) for w in keys])
    assert words.count() == len(keys)
    assert {words.same_key(w) for w in keys} == set(keys)


def test_c25_every_session_is_in_utc(base: Base) -> None:
    if base.dialect == "sqlite":
        pytest.skip("SQLite has no time zones")
    type_ = "timestamptz" if base.dialect == "postgresql" else "timestamp"
    base.run(f"CREATE TABLE moment (id integer PRIMARY KEY, t {type_} NULL, l {type_[:9]} NULL)")
    moments = base.store().collection("Moment", At("shop", tables("moment")))
    local = dt.datetime(2024, 10, 27, 2, 30)
    t = local.replace(tzinfo=dt.UTC)
    kept = t if base.dialect == "mysql" else local
    moments.write([Block(1, {"": {"id": 1, "t": t, "l": kept}})])
    if base.dialect == "postgresql":
        base.run(f"ALTER DATABASE {base.name} SET TimeZone = 'Europe/Amsterdam'")
    for reader in (moments, base.store("again").collection("M", At("again", tables("moment")))):
        assert reader.read([1])[0].entries[""]["t"] == t  # type: ignore[union-attr, index]


def test_intervals_and_decimals_are_carried_by_sqlite(tmp_path: Path) -> None:
    base = Base("sqlite", tmp_path)
    spec = tables(
        "odd",
        key="id",
        columns={"id": "UUID TEXT", "i": "SPAN TEXT", "d": "DECIMAL TEXT", "n": "BIGNUM TEXT"},
    )
    odd = base.store().collection("Odd", At("shop", spec))
    odd.create()
    id = UUID(int=5)
    block = Block(id, {"": {"id": id, "i": Interval(1, 2, 3), "d": Decimal("1E-6000"), "n": 2**70}})
    odd.write([block])
    assert equal(odd.read([id])[0].entries, block.entries)  # type: ignore[union-attr]
    page = odd.page([None, None], None, 1)
    assert odd.page([None, None], page.next, 1).blocks == []
    base.drop()

"""Layout tables: paging, children, writing, refusals; on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migrator import At, Ref, tables
from migrator.errors import DoesNotFit, Refused, Terminal, Transient
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import equal
from migrator.model.value import Int64
from tests.stores.sql_servers import Base

SCHEMA = """
CREATE TABLE shop (country char(2) NOT NULL, name varchar(20) NOT NULL, opened varchar(10),
  PRIMARY KEY (country, name));
CREATE TABLE buyer (id integer NOT NULL PRIMARY KEY, email varchar(60) UNIQUE, boss integer,
  vip integer, FOREIGN KEY (boss) REFERENCES buyer (id));
CREATE TABLE card (buyer_id integer NOT NULL PRIMARY KEY, number varchar(20) NOT NULL,
  FOREIGN KEY (buyer_id) REFERENCES buyer (id));
CREATE TABLE sale (number integer NOT NULL PRIMARY KEY, buyer integer,
  FOREIGN KEY (buyer) REFERENCES buyer (id));
CREATE TABLE line (sale integer NOT NULL, place integer NOT NULL, what varchar(20) NOT NULL,
  PRIMARY KEY (sale, what), FOREIGN KEY (sale) REFERENCES sale (number));
CREATE TABLE tag (sale integer NOT NULL, tag varchar(20) NOT NULL, PRIMARY KEY (sale, tag),
  FOREIGN KEY (sale) REFERENCES sale (number));
CREATE TABLE note (sale integer NOT NULL, words varchar(20),
  FOREIGN KEY (sale) REFERENCES sale (number));
INSERT INTO buyer VALUES (1, 'ann@x.test', NULL, 1), (2, 'bob@x.test', 1, NULL), (0, NULL, 2, 0);
INSERT INTO card VALUES (1, '4111');
INSERT INTO sale VALUES (10, 1), (11, 1), (12, 2), (13, NULL);
INSERT INTO line VALUES (10, 2, 'apple'), (10, 1, 'pear'), (10, 2, 'fig'), (12, 1, 'nut');
INSERT INTO tag VALUES (10, 'b'), (10, 'a');
INSERT INTO note VALUES (10, 'same'), (10, 'same'), (11, NULL);
"""

BUYER = tables(
    "buyer",
    card=tables("card", one=True),
    sales=tables(
        "sale",
        lines=tables("line", order_by="place"),
        tags=tables("tag", value="tag"),
        notes=tables("note"),
    ),
)


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made = Base(request.param, tmp_path)
    made.run(SCHEMA)
    yield made
    made.drop()


@pytest.fixture
def buyers(base: Base) -> Any:
    return base.store().collection("Buyer", At("shop", BUYER))


def whole(collection: Any, limit: int = 2) -> list[Block]:
    found: list[Block] = []
    for range_ in collection.split(2):
        position = None
        while True:
            page = collection.page(range_, position, limit)
            assert not page.damaged
            found += page.blocks
            position = page.next
            if position is None:
                break
    return found


def test_children_hang_where_their_keys_point(buyers: Any) -> None:
    zero, ann, bob = whole(buyers)
    assert ann.id == 1
    assert ann.entries[""] == {
        "id": 1,
        "email": "ann@x.test",
        "boss": None,
        "vip": 1,
        "card": {"number": "4111"},
        "sales": [
            {
                "number": 10,
                "lines": [
                    {"place": 1, "what": "pear"},
                    {"place": 2, "what": "apple"},
                    {"place": 2, "what": "fig"},
                ],
                "tags": ["a", "b"],
                "notes": [{"words": "same"}, {"words": "same"}],
            },
            {"number": 11, "lines": [], "tags": [], "notes": [{"words": None}]},
        ],
    }
    assert zero.entries[""]["card"] is None
    assert bob.entries[""]["boss"] == 1


def test_one_by_its_key_is_as_in_a_page(buyers: Any) -> None:
    blocks = whole(buyers)
    for reader in (buyers, buyers.observer()):
        assert [reader.read([block.id]) for block in blocks] == [[block] for block in blocks]
        assert reader.read([99]) == [None]


def test_one_of_two_levels_is_as_in_a_page(base: Base) -> None:
    sale = tables(
        "sale",
        lines=tables("line", order_by="place"),
        tags=tables("tag", value="tag"),
        notes=tables("note"),
    )
    sales = base.store().collection("Sale", At("shop", sale))
    blocks = whole(sales)
    assert [block.id for block in blocks] == [10, 11, 12, 13]
    for reader in (sales, sales.observer()):
        assert [reader.read([block.id]) for block in blocks] == [[block] for block in blocks]
        assert reader.read([99]) == [None]


SPLIT = """
CREATE TABLE pot (id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, at time(6), b bit(9));
CREATE TABLE leaf (pot varchar(9) COLLATE utf8mb4_general_ci, nr integer, id integer,
  way enum('b', 'a'), at datetime(6), bits bit(9), f float, seen year, raw varbinary(9),
  PRIMARY KEY (pot, id));
CREATE TABLE twig (pot varchar(9) COLLATE utf8mb4_general_ci, way enum('b', 'a', 'c'), bits bit(9),
  f float, at time(6), PRIMARY KEY (pot, way));
INSERT INTO pot VALUES ('a', '12:00:00.5', b'101'), ('b ', NULL, NULL);
INSERT INTO leaf VALUES ('A', 10, 1, 'a', '2024-01-02 03:04:05.000006', b'1', 0.1, 2024, x'00ff'),
  ('a', 9, 2, NULL, NULL, NULL, NULL, NULL, NULL),
  ('a ', NULL, 3, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO twig VALUES ('a', 'a', b'11', 0.3, '01:02:03'), ('A', 'b', NULL, 1e30, NULL);
"""


@pytest.mark.parametrize("more", ["", "ALTER TABLE twig ADD words text; UPDATE twig SET words='x'"])
def test_one_is_read_by_mariadb_with_columns_as_they_are(tmp_path: Path, more: str) -> None:
    base = Base("mysql", tmp_path)
    try:
        base.run(SPLIT + more)
        leaves = tables("leaf", parent="pot", order_by="nr")
        shape = tables("pot", leaves=leaves, twigs=tables("twig", parent="pot"))
        pots = base.store().collection("Pot", At("shop", shape))
        blocks = whole(pots)
        assert [block.id for block in blocks] == ["a", "b "]
        assert [leaf["nr"] for leaf in blocks[0].entries[""]["leaves"]] == [None, 9, 10]
        assert [twig["way"] for twig in blocks[0].entries[""]["twigs"]] == ["b", "a"]
        for reader in (pots, pots.observer()):
            assert [reader.read([block.id]) for block in blocks] == [[block] for block in blocks]
            assert reader.read(["A"]) == reader.read(["b"]) == [None]
    finally:
        base.drop()


ODD = """
CREATE DOMAIN sure AS varchar(9) NOT NULL CHECK (VALUE IS NOT NULL);
CREATE TYPE mood AS ENUM ('ok', 'bad');
CREATE TABLE part (a integer, b text, code text NOT NULL UNIQUE, name sure, mood mood[],
  "50%" numeric(9, 2), up text REFERENCES part (code), PRIMARY KEY (a, b));
CREATE TABLE mark (part text REFERENCES part (code), id integer PRIMARY KEY, said jsonb,
  at timestamptz, name sure);
INSERT INTO part VALUES (1, 'x', 'one', 'n', '{ok,bad}', 1.50, NULL),
  (1, 'y', 'two', 'n', NULL, NULL, 'one'), (2, 'x', 'three', 'm', '{}', 0.00, 'two');
INSERT INTO mark VALUES ('one', 1, '{"a": null}', '2024-02-03 04:05:06+00', 'p'),
  ('two', 2, 'null', NULL, 'q'), ('two', 3, NULL, NULL, 'q'), (NULL, 4, NULL, NULL, 'r');
"""


ODD_MYSQL = """
CREATE TABLE part (a integer, b varchar(9), code varchar(9) NOT NULL UNIQUE,
  name varchar(9) NOT NULL, mood enum('ok', 'bad'), bits bit(9), raw varbinary(9), seen year,
  `50%` numeric(9, 2), up varchar(9), PRIMARY KEY (a, b),
  FOREIGN KEY (up) REFERENCES part (code));
CREATE TABLE mark (part varchar(9), id integer PRIMARY KEY, said json, at datetime(6),
  name varchar(9), FOREIGN KEY (part) REFERENCES part (code));
INSERT INTO part VALUES (1, 'x', 'one', 'n', 'ok', 5, x'00ff', 2024, 1.50, NULL),
  (1, 'y', 'two', 'n', NULL, NULL, NULL, NULL, NULL, 'one'),
  (2, 'x', 'three', 'm', 'bad', 0, '', 1999, 0.00, 'two');
INSERT INTO mark VALUES ('one', 1, '{"a": null}', '2024-02-03 04:05:06.000007', 'p'),
  ('two', 2, 'null', NULL, 'q'), ('two', 3, NULL, NULL, 'q'), (NULL, 4, NULL, NULL, 'r');
"""


@pytest.mark.parametrize(("dialect", "script"), [("postgresql", ODD), ("mysql", ODD_MYSQL)])
def test_one_by_its_key_whatever_the_columns(tmp_path: Path, dialect: str, script: str) -> None:
    base = Base(dialect, tmp_path)
    try:
        base.run(script)
        marks = tables("mark", parent="part")
        parts = tables("part", parent="up", marks=marks)
        parts = tables("part", marks=marks, parts=tables("part", parent="up", parts=parts))
        collection = base.store().collection("Part", At("shop", parts))
        assert collection.single is not None
        blocks = whole(collection)
        deep = blocks[0].entries[""]["parts"][0]["parts"][0]
        assert (deep["name"], blocks[1].entries[""]["marks"][0]["id"]) == ("m", 2)
        for reader in (collection, collection.observer()):
            assert [reader.read([block.id]) for block in blocks] == [[block] for block in blocks]
    finally:
        base.drop()


def test_a_session_that_was_ended_costs_one_read(tmp_path: Path) -> None:
    base = Base("postgresql", tmp_path)
    try:
        base.run(SCHEMA)
        collection = base.store().collection("Buyer", At("shop", BUYER))
        assert collection.read([1]) != [None]

        def ask() -> None:
            with collection.database.asking() as raw:
                base.run(f"SELECT pg_terminate_backend({raw.info.backend_pid})")
                raw.execute("SELECT 1")

        with pytest.raises(Transient):
            ask()
        assert collection.read([1]) != [None]
    finally:
        base.drop()


def test_null_can_stand_for_absence(base: Base) -> None:
    spec = tables("buyer", nulls="absent", card=tables("card", one=True))
    (zero,) = base.store().collection("Buyer", At("shop", spec)).read([0])
    assert zero is not None
    assert zero.entries[""] == {"id": 0, "boss": 2, "vip": 0}


def test_reads_by_key_and_kind(buyers: Any) -> None:
    one, text, double, wide, none = buyers.read([1, "1", 1.0, Int64(1), 99])
    assert one.id == 1
    assert [text, double, wide, none] == [None] * 4
    assert buyers.read_entries(1, ["", "email"]) == one.entries
    assert buyers.read_entries(9, [""]) is None
    assert buyers.count() == 3
    assert buyers.statistics().blocks == 3
    assert {block.id for block in buyers.sample(2).blocks} <= {0, 1, 2}
    assert buyers.keys(None, None, 2) == ([0, 1], [1])


def test_entries_are_those_of_the_representation(base: Base) -> None:
    at = At("shop", BUYER, representation=["/Buyer/*/sales[*]", "/Buyer/*/*"])
    collection = base.store().collection("Buyer", at)
    (ann,) = collection.read([1])
    assert ann is not None
    assert set(ann.entries) == {"sales[0]", "sales[1]", "id", "email", "boss", "vip", "card"}
    ann.entries["sales[0]"]["tags"] = ["a"]  # type: ignore[index]
    collection.write([ann])
    assert collection.read_entries(1, ["sales[0]"]) == {"sales[0]": ann.entries["sales[0]"]}


def test_composite_text_keys_page_in_the_servers_order(base: Base) -> None:
    names = ["b", "A", "é", "a b", "Z", "z", "e", "ß", "-", "10", "9", "ä"]
    if base.dialect == "mysql":  # its default collation folds case and accents
        base.run("ALTER TABLE shop CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_swedish_ci")
        names = ["b", "A", "a b", "Z", "e", "-", "10", "9", "ö"]
    if base.dialect == "postgresql":
        base.run('ALTER TABLE shop ALTER name TYPE varchar(20) COLLATE "und-x-icu"')
    rows = [(country, name) for country in ("DE", "AT", "fr") for name in names]
    values = ", ".join(f"('{c}', '{n}', NULL)" for c, n in rows)
    base.run(f"INSERT INTO shop VALUES {values}")
    collection = base.store().collection("Shop", At("shop", tables("shop")))
    for limit in (1, 5):
        found = [tuple(block.id) for block in whole(collection, limit)]  # type: ignore[arg-type]
        assert len(found) == len(rows)
        assert set(found) == set(rows)
    ranges = collection.split(5)
    assert ranges[0][0] is None  # type: ignore[index]
    assert ranges[-1][1] is None  # type: ignore[index]
    assert sum(len(collection.keys(r, None, 99)[0]) for r in ranges) == len(rows)


@pytest.mark.parametrize("base", ["sqlite", "postgresql"], indirect=True)
def test_jsons_null_is_the_key_of_no_block_and_of_a_row_below_it(base: Base) -> None:
    json = "jsonb" if base.dialect == "postgresql" else "JSON TEXT"
    base.run(
        f"CREATE TABLE game (id {json} NOT NULL PRIMARY KEY); "
        f"CREATE TABLE round (game {json} NOT NULL REFERENCES game (id), k {json} NOT NULL, "
        "n integer NOT NULL, PRIMARY KEY (game, k))"
    )
    shape = tables("game", rounds=tables("round", order_by="n"))
    collection = base.store().collection("Game", At("shop", shape))

    def game(*keys: Any) -> Block:
        rounds: list[Any] = [{"k": key, "n": n} for n, key in enumerate(keys)]
        return Block("g", {"": {"id": "g", "rounds": rounds}})

    for each in (game("a", None), game("a"), game(None, "a"), game(None)):
        collection.write([each])
        assert collection.read(["g"]) == [each]
    with pytest.raises(DoesNotFit, match=r"its key \['id'\] is null in part") as refused:
        collection.write([Block(None, {"": {"id": None, "rounds": []}})])
    assert "null" in str(refused.value)
    assert collection.read([None]) == [None]
    observer = collection.observer()
    assert observer.read(["g"]) == [game(None)]
    base.run("INSERT INTO game VALUES ('null')")
    for read in (
        lambda: collection.page(None, None, 9),
        lambda: collection.keys(None, None, 9),
        lambda: collection.sample(9),
        lambda: observer.page(None, None, 9),
    ):
        with pytest.raises(Terminal, match="key is null in part"):
            read()
    with pytest.raises(Refused, match="NULL in part"):
        base.store("new").collection("Game", At("new", shape)).page(None, None, 9)


def test_c12_a_key_with_nulls_is_refused(base: Base) -> None:
    base.run(
        "CREATE TABLE area (region varchar(5), code integer NOT NULL, UNIQUE (region, code));"
        "INSERT INTO area VALUES ('eu', 1), (NULL, 1), (NULL, 2);"
        "CREATE TABLE bare (a integer)"
    )
    store = base.store()
    with pytest.raises(Refused, match="area holds rows whose key"):
        store.collection("Area", At("shop", tables("area", key=("region", "code")))).count()
    with pytest.raises(Refused, match="area has no primary key"):
        store.collection("Area", At("shop", tables("area"))).count()
    with pytest.raises(Refused, match="nothing makes"):
        store.collection("Bare", At("shop", tables("bare", key="a"))).count()


def test_what_the_script_gets_wrong_is_refused(base: Base) -> None:
    store = base.store()
    wrong: list[tuple[Any, str]] = [
        (tables("nix"), "no table 'nix'"),
        (tables("buyer", x=tables("nix")), "no table 'nix'"),
        (tables("buyer", order_by="nix"), "no column 'nix'"),
        (tables("buyer", id=tables("sale")), "also a child"),
        (tables("sale", lines=tables("line", value="what")), "would lose the columns"),
        (tables("card", shops=tables("shop")), "no foreign key"),
    ]
    for spec, words in wrong:
        with pytest.raises((Refused, Terminal), match=words):
            store.collection("X", At("shop", spec)).count()
    with pytest.raises(Refused, match="known are"):
        store.collection("X", At("shop", "buyer", layout="rows"))


def test_writing_again_changes_nothing(base: Base, buyers: Any) -> None:
    before = whole(buyers)
    buyers.write(before)
    assert all(equal(a.entries, b.entries) for a, b in zip(before, whole(buyers), strict=True))
    assert len(base.rows("SELECT * FROM note")) == 3


def test_rows_that_are_gone_go(base: Base, buyers: Any) -> None:
    (ann,) = buyers.read([1])
    record: Any = ann.entries[""]
    record["sales"][0]["lines"].pop(0)
    record["sales"].pop(1)
    record["card"] = None
    record["vip"] = 7
    buyers.write([ann])
    assert buyers.read([1])[0].entries[""] == record
    assert sorted(base.rows("SELECT number FROM sale")) == [(10,), (12,), (13,)]
    assert base.rows("SELECT * FROM card") == []


def test_a_child_moves_to_another_parent(base: Base, buyers: Any) -> None:
    ann, bob = buyers.read([1, 2])
    bob.entries[""]["sales"].insert(0, ann.entries[""]["sales"][0])
    buyers.write([bob])
    assert base.rows("SELECT buyer FROM sale WHERE number = 10") == [(2,)]
    ann.entries[""]["sales"].pop(0)
    buyers.write([ann])
    assert buyers.read([1, 2])[1].entries == bob.entries


def test_deletes_whole_aggregates(base: Base, buyers: Any) -> None:
    base.run("UPDATE buyer SET boss = NULL")
    buyers.delete([Address(1), Address(99)])
    assert sorted(base.rows("SELECT id FROM buyer")) == [(0,), (2,)]
    assert sorted(base.rows("SELECT number FROM sale")) == [(12,), (13,)]


def test_patches_entries(base: Base) -> None:
    at = At("shop", BUYER, representation=["/Buyer/*/*"])
    buyers = base.store().collection("Buyer", at)
    buyers.patch([Patch(1, {"email": "new@x.test", "sales": []})])
    (ann,) = buyers.read([1])
    assert ann is not None
    assert (ann.entries["email"], ann.entries["sales"]) == ("new@x.test", [])
    with pytest.raises(Terminal, match="no block 77"):
        buyers.patch([Patch(77, {"email": "x"})])


def test_c15_a_clash_on_another_key_names_both_rows(base: Base, buyers: Any) -> None:
    new = {"id": 3, "email": "bob@x.test", "boss": None, "vip": None, "card": None, "sales": []}
    with pytest.raises(DoesNotFit, match="buyer 3 and 2 have the same email") as caught:
        buyers.write([Block(3, {"": new})])
    assert caught.value.key == 3
    assert sorted(base.rows("SELECT id, email FROM buyer WHERE id > 0")) == [
        (1, "ann@x.test"),
        (2, "bob@x.test"),
    ]


def buyer(id: int, /, **fields: Any) -> Block:
    record = {"id": id, "email": None, "boss": None, "vip": None, "card": None, "sales": []}
    return Block(id, {"": {**record, **fields}})


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"email": "x" * 61}, "email"),
        ({"email": "\ud800"}, "email"),
        ({"email": 1}, "email"),
        ({"vip": 1.5}, "vip"),
        ({"vip": Decimal(1)}, "vip"),
        ({"vip": Int64(1)}, "vip"),
        ({"vip": True}, "vip"),
        ({"vip": 2**70}, "vip"),
        ({"vip": dt.date(2024, 1, 1)}, "vip"),
        ({"more": 1}, "more"),
        ({"sales": None}, "sales"),
        ({"sales": [{"number": 1}]}, "sales[0].lines"),
        (
            {"sales": [{"number": 1, "lines": [], "tags": [], "notes": [], "buyer": 5}]},
            "sales[0].buyer",
        ),
        ({"card": {"number": None}}, "card.number"),
        ({"id": 6}, "id"),
    ],
)
def test_what_would_come_back_otherwise_is_refused(
    base: Base, buyers: Any, fields: dict[str, Any], path: str
) -> None:
    if (
        base.dialect == "sqlite"
        and path in ("email", "vip")
        and fields[path]
        in (
            "x" * 61,
            1.5,
        )
    ):
        pytest.skip("SQLite stores it as it is")
    with pytest.raises(DoesNotFit) as caught:
        buyers.write([buyer(4), buyer(5, **fields)])
    if path != "sales[0].buyer":
        assert (caught.value.key, caught.value.path) == (5, path)
    assert base.rows("SELECT * FROM buyer WHERE id > 3") == []


def test_an_absent_field_is_not_made_null(base: Base, buyers: Any) -> None:
    block = buyer(5)
    del block.entries[""]["vip"]  # type: ignore[attr-defined]
    with pytest.raises(DoesNotFit, match="absent"):
        buyers.write([block])
    spec = tables(
        "buyer", nulls="absent", card=tables("card", one=True), sales=BUYER.children["sales"]
    )
    absent = base.store().collection("Buyer", At("shop", spec))
    with pytest.raises(DoesNotFit, match="come back as absent"):
        absent.write([buyer(5)])
    absent.write([Block(5, {"": {"id": 5, "sales": []}})])
    assert absent.read([5])[0].entries == {"": {"id": 5, "sales": []}}  # type: ignore[union-attr]


def test_a_reference_is_written_as_its_id(base: Base, buyers: Any) -> None:
    buyers.write([buyer(5, boss=Ref("Buyer", 1))])
    assert base.rows("SELECT boss FROM buyer WHERE id = 5") == [(1,)]


def test_rows_that_refer_to_one_another_may_come_in_any_order(base: Base, buyers: Any) -> None:
    buyers.write([buyer(7, boss=8), buyer(8, boss=9), buyer(9)])
    assert base.rows("SELECT boss FROM buyer WHERE id = 7") == [(8,)]


@pytest.mark.parametrize(
    "sale",
    [
        {"lines": [{"place": 2, "what": "a"}, {"place": 1, "what": "b"}], "tags": []},
        {"lines": [], "tags": ["b", "a"]},
    ],
)
def test_a_list_in_another_order_than_its_rows_is_refused(
    base: Base, buyers: Any, sale: dict[str, Any]
) -> None:
    with pytest.raises(DoesNotFit, match="order"):
        buyers.write([buyer(5, sales=[{"number": 50, **sale, "notes": []}])])
    assert base.rows("SELECT * FROM buyer WHERE id = 5") == []


def test_c06_a_nul_is_named_and_the_others_can_be_written(base: Base, buyers: Any) -> None:
    blocks = [buyer(i, email=f"\\u0000{i}") for i in range(100, 130)]
    blocks[15].entries[""]["email"] = "ab\0cd"  # type: ignore[index]
    if base.dialect == "postgresql":
        with pytest.raises(DoesNotFit) as caught:
            buyers.write(blocks)
        assert (caught.value.key, caught.value.path) == (115, "email")
        assert buyers.needs_tag("ab\0cd") is not None
        del blocks[15]
    buyers.write(blocks)
    assert [b.entries for b in buyers.read([b.id for b in blocks])] == [b.entries for b in blocks]


def test_a_server_that_refuses_leads_to_the_block(base: Base) -> None:
    base.run("CREATE TABLE strict (id integer NOT NULL PRIMARY KEY, n integer CHECK (n < 5))")
    collection = base.store().collection("S", At("shop", tables("strict")))
    blocks = [Block(i, {"": {"id": i, "n": i}}) for i in (1, 3, 9, 4)]
    with pytest.raises(DoesNotFit) as caught:
        collection.write(blocks)
    assert caught.value.key == 9
    assert base.rows("SELECT * FROM strict") == []


def test_one_that_is_several_is_damaged(base: Base) -> None:
    spec = tables("buyer", sale=tables("sale", one=True))
    buyers = base.store().collection("B", At("shop", spec))
    page = buyers.page(None, None, 10)
    assert [key for key, _ in page.damaged] == [1]
    assert buyers.sample(3).damaged == page.damaged
    assert "declared as one" in page.damaged[0][1]
    assert [block.id for block in page.blocks] == [0, 2]


def test_findings_tell_orphans_cascades_and_missing_keys(base: Base) -> None:
    base.run(
        "CREATE TABLE club (id integer NOT NULL PRIMARY KEY, boss integer NOT NULL,"
        " FOREIGN KEY (boss) REFERENCES buyer (id) ON DELETE CASCADE)"
    )
    buyers = base.store().collection("Buyer", At("shop", BUYER))
    told = {code: text for _, code, text in buyers.findings()}
    assert "1 rows of sale" in told["T003"]
    assert "note has no primary key" in told["T008"]
    assert "CASCADE in club" in told["T002"]
    club = base.store().collection("Club", At("shop", tables("club")))
    assert [severity for severity, code, _ in club.findings() if code == "T001"] == ["error"]


def test_the_schema_is_described_for_the_fingerprint(base: Base, buyers: Any) -> None:
    before = buyers.schema()
    assert before[0]["name"] == "buyer"
    base.run("CREATE INDEX vips ON buyer (vip)")
    assert base.store("other").collection("Buyer", At("other", BUYER)).schema() != before

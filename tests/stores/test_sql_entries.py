"""Layout entries of the relational store: what lies in the tables, limits, foreign tables."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from migrator.errors import DamagedBlock, DoesNotFit, Refused, Terminal
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import equal
from migrator.model.move import At
from migrator.model.value import Int64, Set
from migrator.stores.sql.entries_schema import KEY_BYTES, PATH_BYTES
from tests.ending import joined
from tests.stores.sql_servers import Base

ROUNDS = ["/Game/*/rounds[*]", "/Game/*"]


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made = Base(request.param, tmp_path)
    yield made
    made.drop()


@pytest.fixture
def games(base: Base) -> Any:
    collection = base.store().collection("Game", At("shop", "games", ROUNDS))
    collection.create()
    return collection


def rows(base: Base, statement: str) -> list[tuple[Any, ...]]:
    """Rows by the plain driver, VARBINARY as text."""
    return [
        tuple(part.decode() if isinstance(part, bytes) else part for part in row)
        for row in base.rows(statement)
    ]


def test_a_plain_reader_sees_what_he_expects(base: Base, games: Any) -> None:
    game = {"score": 12, "wide": Int64(12), "price": Decimal("1.10"), "tags": Set(["a"])}
    games.write([
        Block("anna", {"": game, "rounds[0]": {"moves": "e4 \0"}}, expires=4_070_908_800_123),
        Block(2345, {"": {"nan": float("nan")}}),
    ])  # fmt: skip
    found = rows(base, "SELECT block, entry, value, tags FROM games ORDER BY block, entry")
    plain = [
        (block, entry, *(json.loads(x) if isinstance(x, str) else x for x in held))
        for block, entry, *held in found
    ]
    assert plain == [
        ("#2345", "", {"nan": "nan"}, {"nan": "double"}),
        (
            "anna",
            "",
            {"score": 12, "wide": "12", "price": "1.10", "tags": ["a"]},
            {"wide": "int64", "price": "decimal", "tags": "set"},
        ),
        ("anna", "rounds[0]", {"moves": "e4 \0"}, None),
    ]
    heads = rows(base, "SELECT block, expires FROM games_blocks ORDER BY block")
    assert heads == [("#2345", None), ("anna", 4_070_908_800_123)]


def test_c09_keys_that_others_take_for_equal_stay_apart(games: Any) -> None:
    keys = ["google", "Google", "cafe", "café", "cafe\u0301", "a ", "a", "ß", "ss", 1, "1", 1.0]
    games.write([Block(key, {"": {"n": i}}) for i, key in enumerate(keys)])
    assert games.count() == len(keys)
    for i, block in enumerate(games.read(keys)):
        assert block.entries == {"": {"n": i}}


def test_c06_nul_and_surrogates_lie_beside_the_literal_text(games: Any) -> None:
    texts = ["ab\0cd", "\\u0000x", "\ud800", "\\ud800", "\0", "\\0"]
    blocks = [Block(text, {"": {text: text}}) for text in texts]
    games.write(blocks)
    for reader in (games, games.observer()):
        for found, block in zip(reader.read(texts), blocks, strict=True):
            assert equal(found.entries, block.entries)


def test_c12_pages_follow_the_bytes_of_keys(games: Any) -> None:
    keys = ["B", "a", "ä", "Z", "z", "_", "~", "\U0001f600", "\uffff", "b", ""]
    games.write([Block(key, {"": {}}) for key in keys])
    found, position = [], None
    while True:
        page = games.page([None, None], position, 2)
        found += [block.id for block in page.blocks]
        position = page.next
        if position is None:
            break
    assert found == sorted(keys, key=lambda key: key.encode())


def test_c52_long_keys_and_paths_are_refused_by_bytes(base: Base, games: Any) -> None:
    if base.dialect == "sqlite":
        pytest.skip("SQLite has no such bound")
    long = Block("k" * KEY_BYTES, {"p" * PATH_BYTES: 1})
    games.write([long])
    (found,) = games.read([long.id])
    assert found.entries == long.entries
    for key, path in (("k" * (KEY_BYTES - 1) + "é", "p"), ("k", "p" * (PATH_BYTES - 1) + "é")):
        with pytest.raises(
            DoesNotFit, match=f"takes {len((key if len(key) > 1 else path).encode()):,} bytes"
        ) as caught:
            games.write([Block("fits", {"": {}}), Block(key, {path: 1})])
        assert caught.value.key == key
    assert games.count() == 1


def test_value_longer_than_a_statement_is_refused_by_key(base: Base, games: Any) -> None:
    if base.dialect != "mysql":
        pytest.skip("only MySQL bounds a statement")
    (packet,) = rows(base, "SELECT @@max_allowed_packet")[0]
    games.write([Block("fits", {"": {"t": '"' * (packet // 5)}})])
    with pytest.raises(DoesNotFit, match="the server takes") as caught:
        games.write([Block("over", {"": {"t": '"' * (packet // 3)}})])
    assert caught.value.key == "over"
    assert "max_allowed_packet" in caught.value.hint
    assert games.count() == 1


def test_a_name_may_hold_the_signs_of_sql(base: Base) -> None:
    games = base.store().collection("Game", At("shop", "ga%mes %s `\"':x", ROUNDS))
    games.create()
    blocks = [Block(key, {"": {"n": 1}, "rounds[0]": "%s"}) for key in ("a", "b")]
    for _ in range(2):
        games.write(blocks)
    games.patch([Patch("a", {"rounds[1]": 2})])
    games.settle()
    assert games.exchange("b", blocks[1], None)
    (found,) = games.observer().page([None, None], None, 10).blocks
    assert equal(found.entries, {**blocks[0].entries, "rounds[1]": 2})
    games.delete([Address("a")])
    games.drop()
    assert not games.exists()


def test_table_of_somebody_else_is_refused_and_left_alone(base: Base) -> None:
    base.run("CREATE TABLE orders (id integer PRIMARY KEY, total integer)")
    base.run("INSERT INTO orders VALUES (1, 2)")
    orders = base.store().collection("Order", At("shop", "orders"))
    for act in (orders.exists, orders.create, orders.drop):
        with pytest.raises(Refused, match="no table of a collection of entries"):
            act()
    assert rows(base, "SELECT id, total FROM orders") == [(1, 2)]


def test_half_made_collection_is_completed(base: Base, games: Any) -> None:
    base.run("DROP TABLE games")
    assert not games.exists()
    games.create()
    assert games.exists()
    base.run("DROP TABLE games_blocks")
    games.drop()
    assert not games.exists()
    games.create()
    games.write([Block(1, {"": {}})])
    assert games.count() == 1


def test_collection_that_is_not_there(base: Base) -> None:
    games = base.store().collection("Game", At("shop", "games"))
    assert not games.exists()
    assert games.schema() is None
    games.drop()
    for act in (lambda: games.write([Block(1, {"": {}})]), games.count):
        with pytest.raises(Terminal) as caught:
            act()
        assert caught.value.hint


def test_name_that_is_too_long_is_refused(base: Base) -> None:
    if base.dialect == "sqlite":
        pytest.skip("SQLite has no such bound")
    with pytest.raises(Refused, match=r"longer than 6[34] bytes"):
        base.store().collection("Game", At("shop", "g" * 60))


def test_two_writers_of_one_block_never_mix_its_entries(games: Any) -> None:
    left = Block("g", {f"left{i}": i for i in range(20)})
    right = Block("g", {f"right{i}": i for i in range(20)})

    def write(block: Block) -> None:
        for _ in range(15):
            games.write([block])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, [left, right]))
    (found,) = games.read(["g"])
    assert found.entries in (left.entries, right.entries)


def test_writers_of_the_same_blocks_in_another_order_wait_for_each_other(games: Any) -> None:
    """Where each held what the other wants next, the server would undo one of them."""
    blocks = [Block(f"k{i:02}", {"": {"n": i}}) for i in range(40)]
    games.write(blocks)
    patches = [Patch(block.id, {"": {"n": 0}}) for block in blocks]

    def change(number: int) -> None:
        step = 1 if number % 2 else -1
        if number % 4 < 2:
            games.write(blocks[::step])
        else:
            games.patch(patches[::step])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(12)))
    assert games.count() == len(blocks)


def test_a_block_made_while_it_is_deleted_is_whole_or_gone(tmp_path: Path) -> None:
    base = Base("postgresql", tmp_path)
    games = base.store().collection("Game", At("shop", "games", ROUNDS))
    games.create()
    with psycopg.connect(base.url) as other:
        other.execute("INSERT INTO games_blocks (block) VALUES ('a')")
        other.execute("INSERT INTO games (block, entry, value) VALUES ('a', '', '{}')")
        other.execute("LOCK TABLE games IN SHARE MODE")  # the deletion waits between its statements
        deleting = threading.Thread(target=games.delete, args=[[Address("a")]])
        deleting.start()
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'games'::regclass"
        end = time.monotonic() + 60
        while not base.rows(waits):
            assert time.monotonic() < end, "the deletion waits for nobody"
            time.sleep(0.01)
    joined(deleting)
    assert games.read(["a"]) == [Block("a", {"": {}})]
    base.drop()


def test_what_nobody_can_read_is_named(base: Base, games: Any) -> None:
    games.write([Block(key, {"": {"n": 1}, "rounds[0]": 1}) for key in ("a", "b", "c", "d")])
    bad = "'5'" if base.dialect == "postgresql" else "'{no json'"
    base.run(f"UPDATE games SET value = {bad}, tags = '{{\"\": \"set\"}}' WHERE block = 'b'")
    base.run("DELETE FROM games WHERE block = 'c'")
    for reader in (games, games.observer()):
        page = reader.page([None, None], None, 10)
        wrong = dict(page.damaged)
        if base.dialect != "postgresql":  # there json is json; a tag that misfits is ignored
            assert "entry" in wrong.pop("b")
            with pytest.raises(DamagedBlock, match="Game:b can't be read"):
                reader.read(["a", "b"])
        assert wrong == {"c": "it has no entries"}
        assert "a" in [block.id for block in page.blocks]
    assert games.sample(9).damaged == games.page([None, None], None, 10).damaged
    games.delete([Address("b"), Address("c")])
    assert games.count() == 2


def test_patch_keeps_what_it_does_not_name(base: Base, games: Any) -> None:
    games.write([Block("g", {"": {"a": 1}, "rounds[0]": 0, "rounds[1]": 1})])
    games.patch([Patch("g", {"rounds[1]": Decimal("2")}, ("rounds[0]",))])
    found = rows(base, "SELECT entry, tags FROM games ORDER BY entry")
    read = [(entry, json.loads(tags) if isinstance(tags, str) else tags) for entry, tags in found]
    assert read == [("", None), ("rounds[1]", {"": "decimal"})]

"""Layout ``item-split``: what is too large for an item lies in an item collection beside.

How it keeps the promises of any layout is for the contract suite, where most games are large.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from migrator import At, Layout, Move, commands, item
from migrator.errors import DoesNotFit, Refused, Terminal
from migrator.model.block import Address, Aggregate, Block, Patch, cut
from migrator.model.canonical import equal
from migrator.model.layouts import written
from migrator.model.value import Record, Value
from migrator.ports import Store, StoreSettings
from migrator.stores import dynamodb
from migrator.stores.dynamodb.split import SplitCollection
from tests.contract import servers
from tests.stores.test_dynamodb import Stopped, stopping
from tests.system import kit
from tests.system.kit import Shop, Urls

RULES = ["/Game/*/rounds[*]", "/Game/*"]
LIMIT = 409_600
LATER = 4_070_908_800_000
SOURCE = f"At('emb', 'games', {RULES!r})"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    store = dynamodb.open_store(StoreSettings("dynamo", servers.dynamodb("dynalite")))
    yield store
    store.close()


@pytest.fixture(scope="module")
def plain() -> Any:
    return boto3.client(
        "dynamodb", endpoint_url=f"http://{urlsplit(servers.dynamodb('dynalite')).netloc}",
        region_name="eu-west-1", aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip


@pytest.fixture
def games(store: Store) -> Iterator[SplitCollection]:
    """A table whose items may have 1,000 bytes."""
    collection = store.collection("Game", At("dynamo", kit.fresh("split"), RULES, small(1_000)))
    assert isinstance(collection, SplitCollection)
    collection.create()
    yield collection
    collection.drop()


def small(most: int) -> Layout:
    return item(expires="ends", split=most)


def split(source: str, target: str) -> str:
    return kit.move("Game", source, target, oversize="split")


def game(id: Value, rounds: int, size: int = 90) -> Record:
    return {"id": id, "rounds": [{"n": n, "moves": "x" * size} for n in range(rounds)]}


def block(id: Value, rounds: int, expires: int | None = None) -> Block:
    at = At("dynamo", "any", RULES)
    return cut(Aggregate(id, game(id, rounds), expires), at.rules("Game"))


def lies(plain: Any, table: str) -> tuple[list[str], list[tuple[str, str]]]:
    """What a raw scan of both tables shows: keys of items, keys and sort keys beside."""
    items = plain.scan(TableName=table)["Items"]
    beside = plain.scan(TableName=f"{table}.large")["Items"]
    return (
        sorted(each["id"]["S"] for each in items),
        sorted((each["pk"]["S"], each["sk"]["S"]) for each in beside),
    )


def test_a_move_splits_what_is_too_large_and_brings_it_back(
    tmp_path: Path, urls: Urls, plain: Any
) -> None:
    # Twelve rounds of 50,000 bytes are 600 KB; of the others each is an item.
    held = [(f"g{n}", game(f"g{n}", n)) for n in range(5)] + [("big", game("big", 12, 50_000))]
    shop = Shop(tmp_path, {"emb": urls(None, "embedded"), "dynamo": urls("dynalite", "dynamo")})
    with shop.open() as project:
        kit.fill(project.stores.get("emb").collection("Game", At("emb", "games", RULES)), held)
    table = kit.fresh("split")
    target = f"At('dynamo', {table!r}, {RULES!r}, item(expires='ends'))"
    shop.script(f"move = {split(SOURCE, target)}")
    # The next script finds the class where the first has left it, the large block too.
    shop.script(f"move = Move('Game', target=At('emb', 'back', {RULES!r}))")
    with shop.open() as project:
        plan = commands.plan(project, "0001")
        (told,) = [f for f in plan.findings if f.code == "dynamodb-split"]
        assert told.severity == "note"
        assert told.text.startswith(
            f"1 blocks are over the 409,600 bytes of an item and lie in {table}"
        )
    (found,) = kit.carry(shop, "0001")
    assert found.equal == len(held)
    sort_keys = sorted([".", *(f"rounds[{n}]" for n in range(12))])
    assert lies(plain, table) == (["g0", "g1", "g2", "g3", "g4"], [("big", sk) for sk in sort_keys])
    (found,) = kit.carry(shop, "0002", keep_source=False)
    assert found.equal == len(held)
    with shop.open() as project:
        back = project.stores.get("emb").collection("Game", At("emb", "back", RULES))
        kit.assert_equal(kit.contents(back), kit.by_key(held))
    # Nothing stays of the source, what lay beside included.
    pages = plain.get_paginator("list_tables").paginate()
    assert not [name for page in pages for name in page["TableNames"] if name.startswith(table)]


def test_an_entry_that_is_too_large_fits_in_no_way(tmp_path: Path, urls: Urls) -> None:
    shop = Shop(tmp_path, {"emb": urls(None, "embedded"), "dynamo": urls("dynalite", "dynamo")})
    held: list[kit.Game] = [("one", {"id": "one", "text": "x" * LIMIT})]
    with shop.open() as project:
        kit.fill(project.stores.get("emb").collection("Game", At("emb", "games", RULES)), held)
    target = f"At('dynamo', {kit.fresh('split')!r}, ['/Game/*/*'], 'item')"
    shop.script(f"move = {split(SOURCE, target)}")
    with shop.open() as project:
        (error,) = commands.plan(project, "0001").errors
    assert list(error.keys) == ["Game:one"]
    assert error.path == "text"


def test_a_block_grows_shrinks_and_goes_and_lies_at_one_place_all_the_while(
    games: SplitCollection, plain: Any
) -> None:
    table = games.at.collection
    games.write([block("a", 3), block("b", 3)])
    assert lies(plain, table) == (["a", "b"], [])
    games.write([block("a", 12)])
    rounds = sorted([".", *(f"rounds[{n}]" for n in range(12))])
    assert lies(plain, table) == (["b"], [("a", sk) for sk in rounds])
    assert games.count() == 2
    games.write([block("a", 3)])
    assert lies(plain, table) == (["a", "b"], [])
    # It outgrows its item by a patch, and the other goes.
    more = {f"rounds[{n}]": x for n, x in enumerate(game("b", 12)["rounds"]) if n >= 3}  # type: ignore[arg-type]
    games.patch([Patch("b", more)])
    (found,) = games.read(["b"])
    assert found is not None
    assert equal(found.entries, block("b", 12).entries)
    games.delete([Address("a"), Address("b")])
    assert lies(plain, table) == ([], [])


def test_what_a_stopped_writer_left_beside_an_item_is_no_block(
    games: SplitCollection, plain: Any
) -> None:
    games.write([block("a", 3, 2_000_000_000_000)])
    # As far as a writer comes that makes the block large and dies before the item is removed.
    games._large.write([block("a", 12)])
    for reader in (games, games.observer()):
        assert [len(each.entries) for each in read(reader, ["a"])] == [4]
    assert [b.id for range_ in games.split(2) for b in walked(games, range_)] == ["a"]
    assert [key for range_ in games.split(2) for key in games.keys(range_, None, 9)[0]] == ["a"]
    assert games.count() == 1
    games.write([block("a", 2)])
    assert lies(plain, games.at.collection) == (["a"], [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((12, None), (3, LATER)),
        ((3, LATER), (12, LATER)),
    ],
)
def test_what_a_sweep_leaves_of_a_stopped_write_is_no_old_block(
    games: SplitCollection, plain: Any, monkeypatch: pytest.MonkeyPatch, old: Any, new: Any
) -> None:
    """The server sweeps items whose deadline has come, here as if it were now."""
    before, after = block("a", *old), block("a", *new)
    for writes in itertools.count():
        games.delete([Address("a")])
        games.write([before])
        with monkeypatch.context() as patch:
            asked = stopping(patch, writes)
            with suppress(Stopped):
                games.write([after])
            done = asked() <= writes
        (seen,) = games.read(["a"])
        assert seen is not None
        assert len(seen.entries) in (len(before.entries), len(after.entries))
        if done:
            assert equal(seen.entries, after.entries)
            assert seen.expires == after.expires
        sweep(plain, games.at.collection)
        (left,) = games.read(["a"])
        (other,) = games.observer().read(["a"])
        assert (left is None) is (other is None)
        if left is not None:
            assert other is not None
            assert equal(left.entries, other.entries)
            turned = equal(seen.entries, before.entries) and equal(left.entries, after.entries)
            assert turned or equal(left.entries, seen.entries)
        if done:
            assert (left is None) is (after.expires is not None)
            break
    assert writes > 0


def sweep(plain: Any, table: str) -> None:
    """Remove what has a deadline, as the server does, in no order."""
    for name, keys in ((table, ("id",)), (f"{table}.large", ("pk", "sk"))):
        for each in plain.scan(TableName=name)["Items"]:
            if "ends" in each:
                plain.delete_item(TableName=name, Key={key: each[key] for key in keys})


@pytest.mark.parametrize("swept", [["rounds[2]", "rounds[7]"], ["."]])
def test_what_is_left_of_a_block_that_is_swept_is_no_block(
    games: SplitCollection, plain: Any, swept: list[str]
) -> None:
    ended = int(time.time() * 1000) - 5_000
    games.write([block("a", 12, ended), block("b", 12)])
    assert read(games, ["a"])[0].expires == ended
    for sk in swept:
        key = {"pk": {"S": "a"}, "sk": {"S": sk}}
        plain.delete_item(TableName=f"{games.at.collection}.large", Key=key)
    for reader in (games, games.observer()):
        assert [found is None for found in reader.read(["a", "b"])] == [True, False]
    assert games.read_entries("a", ["rounds[1]"]) is None
    assert [b.id for range_ in games.split(2) for b in walked(games, range_)] == ["b"]
    with pytest.raises(Terminal, match="no such block"):
        games.patch([Patch("a", {"rounds[1]": {}})])
    games.write([block("a", 11)])
    assert equal(read(games, ["a"])[0].entries, block("a", 11).entries)


def read(reader: Any, ids: list[Value]) -> list[Block]:
    found: list[Block] = reader.read(ids)
    assert None not in found
    return found


def walked(games: SplitCollection, range_: object) -> Iterator[Block]:
    position = None
    while True:
        page = games.page(range_, position, 2)
        yield from page.blocks
        if page.next is None:
            return
        position = page.next


def test_the_table_of_somebody_else_may_have_none_beside(
    games: SplitCollection, store: Store
) -> None:
    games.write([block("a", 3)])
    games._large.drop()
    games = store.collection("Game", games.at)  # type: ignore[assignment]
    assert [found is not None for found in games.read(["a", "b"])] == [True, False]
    assert [b.id for b in walked(games, games.split(1)[0])] == ["a"]
    assert games.count() == 1
    with pytest.raises(DoesNotFit, match=r"an entry of 410,0.. bytes"):
        games.size(cut(Aggregate("c", game("c", 2, LIMIT)), games.at.rules("Game")))


def test_the_policy_names_the_layout_in_the_script() -> None:
    target = At("dynamo", "t", RULES, item("name", expires="ends"))
    move = Move("Game", target, oversize="split")
    assert move.target.layout == item("name", expires="ends", split=True)
    assert written(move.target).endswith('item("name", expires="ends", split=True))')
    assert written(At("dynamo", "t", (), small(9))) == (
        'At("dynamo", "t", layout=item("id", expires="ends", split=9))'
    )


@pytest.mark.parametrize("layout", [None, "item-collection", "document"])
def test_the_policy_wants_a_layout_that_can_split(tmp_path: Path, layout: str | None) -> None:
    shop = Shop(tmp_path, {"emb": "embedded:///a.db"})
    target = f"At('emb', 't', layout={layout!r})"
    shop.script(f"move = {split(SOURCE, target)}")
    with shop.open() as project, pytest.raises(Refused, match="has no way to split a block"):
        commands.plan(project, "0001")


@pytest.mark.parametrize("most", [0, LIMIT + 1, "many"])
def test_an_item_has_its_bounds(store: Store, most: Any) -> None:
    with pytest.raises(Refused, match="split is True, or up to 409,600 bytes"):
        store.collection("Game", At("dynamo", "games", RULES, Layout("item-split", {"most": most})))


@pytest.mark.parametrize("feed", [True, False])
def test_a_live_move_asks_for_the_streams_of_both_tables(
    tmp_path: Path, urls: Urls, monkeypatch: pytest.MonkeyPatch, feed: bool
) -> None:
    shop = Shop(tmp_path, {"emb": urls(None, "embedded"), "dynamo": urls("dynalite", "dynamo")})
    with shop.open() as project:
        kit.fill(
            project.stores.get("emb").collection("Game", At("emb", "games", RULES)),
            [("a", game("a", 2))],
        )
    target = f"At('dynamo', {kit.fresh('split')!r}, {RULES!r}, 'item-split')"
    shop.script(f"move = {kit.move('Game', SOURCE, target)}")
    if not feed:
        monkeypatch.setattr(SplitCollection, "journal", lambda *_: None)
    with shop.open() as project:
        errors = commands.plan(project, "0001", live=True).errors
    if not feed:
        assert [error.code for error in errors] == ["E130"]
        return
    assert [error.code for error in errors] == ["no-streams", "no-streams"]
    assert ".large: this endpoint has no DynamoDB Streams" in errors[1].text

"""Layout ``item-split`` by keys that are numbers or bytes: what is one key to the table of items is
one key beside, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, cast

import pytest

from migrator import At, item
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import equal
from migrator.model.value import Int64, Value
from migrator.ports import Store
from migrator.stores.dynamodb.split import SplitCollection
from tests.stores.test_dynamodb import ROUNDS, fresh, plain, server, store
from tests.stores.test_dynamodb_split import LARGE, SMALL, Followed, game

__all__ = ["plain", "server", "store"]

MakeSplit = Callable[[str], SplitCollection]
# Each pair is one number.
SAME: list[tuple[Value, Value]] = [
    (100, 100.0),
    (Decimal("1E+2"), Int64(100)),
    (Decimal("100.0"), Decimal(100)),
    (-1.5, Decimal("-1.50")),
    (0.0, Decimal("0.00")),
    (10**22, 1e22),
    (1e-7, Decimal("0.00000010")),
]


@pytest.fixture
def split(store: Store) -> Iterator[MakeSplit]:
    made: list[SplitCollection] = []

    def make(key: str) -> SplitCollection:
        at = At("dynamo", fresh(), ROUNDS, item(key, split=500))
        made.append(cast("SplitCollection", store.collection("Game", at)))
        made[-1].create()
        return made[-1]

    yield make
    for games in made:
        games.drop()


def found(games: SplitCollection, id: Value) -> Block | None:
    """The block of a key, the same to copier and observer, by key and by scan."""
    (block,), (other,) = games.read([id]), games.observer().read([id])
    for side in (games, games.observer()):
        paged, position = [], None
        while True:
            page = side.page(None, position, 100)
            assert not page.damaged
            paged += page.blocks
            position = page.next
            if position is None:
                break
        assert paged == ([] if block is None else [block])
    assert block == other
    assert games.count() == (block is not None)
    return block


def assert_is(games: SplitCollection, asked: Value, block: Block) -> None:
    """A key finds this block, under the very key that it was written with."""
    told = found(games, asked)
    assert told is not None
    assert (type(told.id), equal(told.id, block.id)) == (type(block.id), True)
    assert equal(told.entries, block.entries)


def test_a_number_is_one_key_in_both_tables(split: MakeSplit) -> None:
    games = split("id:N")
    for old, new in SAME:
        games.write([game(LARGE, "old", old)])
        assert_is(games, new, game(LARGE, "old", old))
        games.write([game(LARGE, "new", new)])
        assert_is(games, old, game(LARGE, "new", new))
        games.write([game(SMALL, "old", old)])
        assert games._large.headed([old, new]) == []
        games.delete([Address(new)])
        assert found(games, old) is None


def test_a_large_block_is_changed_by_another_kind_of_its_number(split: MakeSplit) -> None:
    games = split("id:N")
    block = game(LARGE, "ann", 100)
    games.write([block])
    rest = {**cast("dict[str, Value]", block.entries[""]), "first": "bob"}
    games.patch([Patch(Decimal("1E+2"), {"": rest})])
    assert_is(games, 100.0, game(LARGE, "bob", 100))
    assert games.read_entries(100.0, [""]) == {"": rest}


def test_bytes_are_a_key_beside_too(split: MakeSplit) -> None:
    games = split("id:B")
    id = b"\0\xff 7"
    for rounds in (LARGE, SMALL, LARGE):
        games.write([game(rounds, id=id)])
        assert_is(games, id, game(rounds, id=id))
    games.delete([Address(id)])
    assert found(games, id) is None


@pytest.mark.parametrize(
    ("key", "texts"),
    [("id:N", ("100.0", "1E+2", "1E+999999", "seven", "NaN")), ("id:B", ("AA=", "A", "AB==", "-"))],
)
def test_what_is_no_key_of_the_table_lies_beside_for_others(
    split: MakeSplit, plain: Any, key: str, texts: tuple[str, ...]
) -> None:
    games = split(key)
    for text in texts:
        at = {"pk": {"S": text}, "sk": {"S": "."}, "first": {"S": "ann"}}
        plain.put_item(TableName=f"{games.at.collection}.large", Item=at)
    assert (games.keys(None, {"side": "large", "at": None}, 100)[0], games.count()) == ([], 0)


def test_a_damaged_block_beside_is_told_by_its_number(split: MakeSplit, plain: Any) -> None:
    games = split("id:N")
    twice = {
        "moves": {"S": "x"}, "%6Doves": {"S": "y"},
        "_migrator": {"M": {"names": {"SS": ["%6Doves"]}}},
    }  # fmt: skip
    entry = {"pk": {"S": "100"}, "sk": {"S": "rounds[0]"}, **twice}
    plain.put_item(TableName=f"{games.at.collection}.large", Item=entry)
    for side in (games, games.observer()):
        page = side.page(None, {"side": "large", "at": None}, 100)
        assert [key for key, _ in page.damaged] == [100]
    assert [key for key, _ in games.sample(10).damaged] == [100]


@pytest.mark.parametrize("server", ["dynamodb"], indirect=True, scope="module")
class TestFollowed:
    """On moto, which alone has streams and transactions."""

    def test_an_exchange_finds_it_by_another_kind(self, split: MakeSplit) -> None:
        games = split("id:N")
        large, small = game(LARGE, "ann", 100), game(SMALL, "bob", 100.0)
        assert games.exchange(100.0, None, large)
        assert not games.exchange(Decimal("100.0"), None, small)
        assert games.exchange(100.0, large, small)
        assert_is(games, 100, small)
        assert not games._large.headed([100, 100.0])

    @pytest.mark.parametrize("id", [100, 100.0])
    def test_its_touches_are_of_its_key(self, split: MakeSplit, id: Value) -> None:
        games = split("id:N")
        followed = Followed(games)
        try:
            for rounds in (LARGE, SMALL, LARGE):
                games.write([game(rounds, id=id)])
                assert set(followed.all()) == {id}
            games.delete([Address(id)])
            assert followed.all() == {id: True}
            # An entry of somebody else's, at whose place there is no head.
            table, wire = games._large._table, games._large._table.wire
            text = games._large.look(id)[0].pk
            entry = {"pk": {"S": text}, "sk": {"S": "rounds[0]"}, "n": {"N": "1"}}
            wire.call("PutItem", {"TableName": table.name, "Item": entry}, "", writing=True)
            assert set(followed.all()) == {id}
        finally:
            followed.feed.close()

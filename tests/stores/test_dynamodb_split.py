"""Layout ``item-split`` while it is written and followed: exchanges over its two tables, and their
two streams, on moto, which alone has transactions and streams."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from migrator import At, item
from migrator.errors import DamagedBlock, Refused, Transient
from migrator.exchange import TooMuch, exchanges_alone
from migrator.journal import Touches
from migrator.model.block import Address, Aggregate, Block, Patch, cut
from migrator.model.value import Int64, Value
from migrator.ports import Json, Store
from migrator.stores.dynamodb import transacting
from migrator.stores.dynamodb.split import SplitCollection
from tests.stores.test_dynamodb import ROUNDS, fresh, plain, store
from tests.stores.test_dynamodb_exchange import in_between

__all__ = ["plain", "store"]

SMALL, LARGE = 2, 30


@pytest.fixture(scope="module")
def server() -> str:
    return "dynamodb"


def make(store: Store) -> SplitCollection:
    """A table whose items may have 500 bytes."""
    collection = store.collection("Game", At("dynamo", fresh(), ROUNDS, item("id", split=500)))
    assert isinstance(collection, SplitCollection)
    collection.create()
    return collection


@pytest.fixture(scope="module")
def shared(store: Store) -> Iterator[SplitCollection]:
    collection = make(store)
    yield collection
    collection.drop()


@pytest.fixture
def games(shared: SplitCollection) -> Iterator[SplitCollection]:
    """A table that no block lies in."""
    yield shared
    shared.delete([Address("a")])
    shared._large.delete([Address("a")])


@pytest.fixture
def own(store: Store) -> Iterator[SplitCollection]:
    """A table of a test's own."""
    collection = make(store)
    yield collection
    collection.drop()


def game(rounds: int, first: str = "ann", id: Value = "a") -> Block:
    told = {
        "id": id,
        "first": first,
        "rounds": [{"n": n, "moves": "x" * 10} for n in range(rounds)],
    }
    return cut(Aggregate(id, told), At("dynamo", "any", ROUNDS).rules("Game"))


def read(games: SplitCollection) -> object:
    (block,) = games.read(["a"])
    return None if block is None else block.entries


def lies(games: SplitCollection) -> tuple[bool, bool]:
    """Whether there is an item, and something beside."""
    return bool(list(games._small.held(["a"]))), bool(games._large.headed(["a"]))


@pytest.mark.parametrize("old", [0, SMALL, LARGE])
@pytest.mark.parametrize("new", [0, SMALL, LARGE])
def test_a_block_lies_at_one_place_whatever_becomes_of_it(
    games: SplitCollection, old: int, new: int
) -> None:
    before, after = (game(n, f"of {n}") if n else None for n in (old, new))
    if before is not None:
        assert games.exchange("a", None, before)
    assert not games.exchange("a", game(3), after)
    assert games.exchange("a", before, after)
    assert read(games) == (None if after is None else after.entries)
    assert lies(games) == (new == SMALL, new == LARGE)
    assert exchanges_alone(games)


_SIZES = (0, SMALL, LARGE)
_TRANSACTED = [
    (old, new, meanwhile)
    for old in _SIZES
    for new in _SIZES
    for meanwhile in _SIZES
    # Else nothing changes, or a single request does it.
    if (old, new) not in ((0, 0), (SMALL, SMALL)) and meanwhile != old
]


@pytest.mark.parametrize(("old", "new", "meanwhile"), _TRANSACTED)
def test_of_two_exchanges_at_once_one_takes_place(
    games: SplitCollection, monkeypatch: pytest.MonkeyPatch, old: int, new: int, meanwhile: int
) -> None:
    before, after, theirs = (
        game(n, name) if n else None
        for n, name in ((old, "old"), (new, "new"), (meanwhile, "theirs"))
    )
    if before is not None:
        assert games.exchange("a", None, before)
    done: list[bool] = []
    in_between(monkeypatch, lambda: done.append(games.exchange("a", before, theirs)))
    assert not games.exchange("a", before, after)
    assert done == [True]
    assert read(games) == (None if theirs is None else theirs.entries)
    assert lies(games) == (meanwhile == SMALL, meanwhile == LARGE)


def test_an_item_that_is_to_end_has_nothing_beside(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = item("id", expires="ends", split=500)
    games = store.collection("Game", At("dynamo", fresh(), ROUNDS, layout))
    assert isinstance(games, SplitCollection)
    games.create()
    try:
        games.write([game(SMALL)])
        games._large.write([game(LARGE, "of a writer that was stopped")])
        ending = replace(game(SMALL, "new"), expires=4_070_908_800_000)
        with pytest.raises(Transient, match="under way"):
            games.exchange("a", game(SMALL), ending)
        monkeypatch.setattr(transacting, "STANDS", 0.0)
        assert games.exchange("a", game(SMALL), ending)
        assert (read(games), lies(games)) == (ending.entries, (True, False))
    finally:
        games.drop()


def test_entries_of_a_block_that_becomes_small_meanwhile_are_found(
    games: SplitCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert games.exchange("a", None, game(LARGE))
    small, beside = game(SMALL, "bob"), games._large.read_entries

    def late(*what: Any) -> object:
        assert games.exchange("a", game(LARGE), small)
        return beside(*what)

    monkeypatch.setattr(games._large, "read_entries", late)
    assert games.read_entries("a", [""]) == {"": small.entries[""]}


@pytest.mark.parametrize("rounds", [SMALL, LARGE])
def test_a_block_is_found_by_each_of_several_kinds_of_its_key(
    games: SplitCollection, rounds: int
) -> None:
    """As a touch names it whose image does not tell of what kind its key is."""
    games.write([game(rounds, id=7)])
    try:
        found = games.read([7, "7", Int64(7)])
        assert [None if block is None else block.id for block in found] == [7, 7, 7]
        for side in (games._small.held, games._large.headed):
            assert list(side([7, "7"])) in ([7, "7"], [])
    finally:
        games.delete([Address(7)])


def test_an_update_makes_it_large_or_small(games: SplitCollection) -> None:
    held = game(SMALL)
    assert games.exchange("a", None, held)
    more = {path: x for path, x in game(LARGE).entries.items() if path not in held.entries}
    assert games.exchange("a", held, Patch("a", more))
    assert (read(games), lies(games)) == (game(LARGE).entries, (False, True))
    assert games.exchange("a", game(LARGE), Patch("a", {}, list(more)))
    assert (read(games), lies(games)) == (held.entries, (True, False))


def test_what_does_not_go_into_one_transaction_is_refused(games: SplitCollection) -> None:
    held = game(SMALL)
    assert games.exchange("a", None, held)
    with pytest.raises(TooMuch, match="takes 122 items"):
        games.exchange("a", held, game(120))
    assert (read(games), lies(games)) == (held.entries, (True, False))
    games.write([game(120)])  # as a gateway does without a condition
    with pytest.raises(TooMuch, match="takes 122 items"):
        games.exchange("a", game(120), held)
    assert (read(games), lies(games)) == (game(120).entries, (False, True))


def test_what_a_writer_is_making_large_is_waited_for_and_then_cleared(
    games: SplitCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = game(SMALL)
    assert games.exchange("a", None, held)
    games._large.write([game(LARGE)])  # as far as it comes before the item is removed
    for change in (game(LARGE, "bob"), None):
        with pytest.raises(Transient, match="under way, or its writer is gone"):
            games.exchange("a", held, change)
    # What stays an item is no business of it.
    assert games.exchange("a", held, game(SMALL, "bob"))
    monkeypatch.setattr(transacting, "STANDS", 0.0)
    assert games.exchange("a", game(SMALL, "bob"), None)
    assert (read(games), lies(games)) == (None, (False, False))


@pytest.mark.parametrize("new", _SIZES)
@pytest.mark.parametrize("beside", [False, True])
def test_what_can_not_be_read_is_replaced_whole(
    games: SplitCollection, plain: Any, new: int, beside: bool
) -> None:
    table = games.at.collection
    # Two attributes stand for one field.
    twice = {
        "moves": {"S": "x"}, "%6Doves": {"S": "y"},
        "_migrator": {"M": {"names": {"SS": ["%6Doves"]}}},
    }  # fmt: skip
    if beside:
        games.write([game(LARGE)])
        entry = {"pk": {"S": "a"}, "sk": {"S": "rounds[0]"}, **twice}
        plain.put_item(TableName=f"{table}.large", Item=entry)
    else:
        plain.put_item(TableName=table, Item={"id": {"S": "a"}, **twice})
    with pytest.raises(DamagedBlock):
        games.read(["a"])
    after = game(new) if new else None
    games.replace("a", after)
    assert read(games) == (None if after is None else after.entries)
    assert lies(games) == (new == SMALL, new == LARGE)


# ---------------------------------------------------------------- followed


class Followed:
    """A feed, and what it has told."""

    def __init__(self, own: SplitCollection) -> None:
        self.journal = own.journal("run")
        self.position: Json = self.journal.prepare()
        self.open()
        self.touched: dict[Value, bool] = {}
        self.marks: list[str] = []

    def open(self) -> None:
        self.feed = self.journal.open(self.position)

    def take(self, given: Touches | None) -> None:
        if given is not None:
            self.position = given.position
            self.touched |= {
                t.key: t.deleted or self.touched.get(t.key, False) for t in given.touches
            }
            self.marks += given.marks

    def all(self) -> dict[Value, bool]:
        """What was written until now."""
        self.touched, name = {}, f"mark {time.monotonic_ns()}"
        self.journal.mark(name)
        end = time.monotonic() + 60
        while name not in self.marks:
            assert time.monotonic() < end, "the marker does not show"
            self.take(self.feed.poll(0.2))
        return self.touched


@pytest.fixture
def followed(own: SplitCollection) -> Iterator[Followed]:
    followed = Followed(own)
    yield followed
    followed.feed.close()


def test_a_block_that_turns_over_is_touched_and_not_deleted(
    own: SplitCollection, followed: Followed
) -> None:
    own.write([game(SMALL), game(LARGE, id="b")])
    assert followed.all() == {"a": False, "b": False}
    own.write([game(LARGE), game(SMALL, id="b")])
    assert followed.all() == {"a": False, "b": False}
    assert own.exchange("a", game(LARGE), game(SMALL))
    assert own.exchange("b", game(SMALL, id="b"), game(LARGE, id="b"))
    assert followed.all() == {"a": False, "b": False}
    own.delete([Address("a"), Address("b")])
    assert followed.all() == {"a": True, "b": True}
    assert followed.all() == {}


def test_a_marker_is_met_once_both_tables_have_shown_it(
    own: SplitCollection, followed: Followed
) -> None:
    small, large = (followed.journal._of[side] for side in ("small", "large"))
    small.mark("half")
    own.write([game(SMALL)])
    end = time.monotonic() + 60
    while "half" not in str(followed.position["met"]):  # type: ignore[index, call-overload]
        assert time.monotonic() < end, "the first does not show it"
        followed.take(followed.feed.poll(0.2))
    # Who reads on knows of it, and another marker of both is met before.
    followed.feed.close()
    followed.open()
    followed.all()
    assert "half" not in followed.marks
    large.mark("half")
    while "half" not in followed.marks:
        assert time.monotonic() < end + 60, "the second does not show it"
        followed.take(followed.feed.poll(0.2))


def test_nothing_stays_of_the_feed(own: SplitCollection, plain: Any) -> None:
    followed = Followed(own)
    followed.all()
    followed.feed.close()
    followed.journal.drop()
    for name in (own.at.collection, f"{own.at.collection}.large"):
        told = plain.describe_table(TableName=name)["Table"]
        assert not told.get("StreamSpecification", {}).get("StreamEnabled")
        assert plain.list_tags_of_resource(ResourceArn=told["TableArn"])["Tags"] == []
        assert plain.scan(TableName=name)["Items"] == []


def test_a_table_beside_that_is_not_there_is_told(own: SplitCollection) -> None:
    own._large.drop()
    journal = own.journal("run")
    told = {code for severity, code, _ in journal.findings() if severity == "error"}
    assert told == {"no-large"}
    with pytest.raises(Refused, match=r"there is no table .*\.large, where blocks"):
        journal.prepare()

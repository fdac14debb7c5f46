"""Blocks of several items exchanged in one transaction, on moto: dynalite has none.

moto carries transactions out one after another but not apart from other requests, so what is
written in between is written at a certain point here, and by no other thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from migrator import At, commands, item, item_collection
from migrator.errors import Refused, Terminal, Transient
from migrator.exchange import Exchanging, TooMuch
from migrator.gateway import Conflict
from migrator.model.block import Block, Patch
from migrator.model.rules import Entries
from migrator.ports import Collection
from migrator.stores.dynamodb import transacting
from migrator.stores.dynamodb.table import Table
from migrator.stores.dynamodb.transacting import Transactor
from tests.contract import servers
from tests.gateway.kit import opened as gateway
from tests.gateway.test_live import ends, project
from tests.stores.test_dynamodb import (
    ROUNDS,
    Make,
    Stopped,
    cut_for,
    fresh,
    game,
    held,
    items,
    make,
    opened,
    plain,
    stopping,
    store,
)

__all__ = ["make", "plain", "store"]


@pytest.fixture(scope="module")
def server() -> str:
    return "dynamodb"


@pytest.fixture
def games(make: Make) -> Collection:
    return make("Game", ROUNDS, item_collection("GAME#{id}"))


def exchange(collection: Collection, *what: Any) -> bool:
    return cast("Exchanging", collection).exchange(*what)


def one_item(make: Make) -> tuple[Collection, Block]:
    """A game that lies in one item, a field an attribute."""
    collection = make("Game", ["/Game/*/*"], item("id"))
    block = game(collection, "a", 1)
    collection.write([block])
    return collection, block


def during_update(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, between what an exchange reads of an item and what it writes."""
    update = Table.update

    def late(self: Table, *what: Any, **more: Any) -> bool:
        patch.setattr(Table, "update", update)
        assert act() is not False
        return update(self, *what, **more)

    patch.setattr(Table, "update", late)


def entries(collection: Collection) -> object:
    block = held(collection, "a")
    return None if block is None else block.entries


def in_between(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, between what an exchange reads and its transaction."""
    send = Transactor.send

    def late(self: Transactor, *what: Any) -> bool:
        patch.setattr(Transactor, "send", send)
        act()
        return send(self, *what)

    patch.setattr(Transactor, "send", late)


def test_updates_of_disjoint_entries_collide(
    games: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = game(games, "a", 3)
    games.write([block])
    first, second = Patch("a", {"rounds[0]": {"n": 10}}), Patch("a", {"rounds[1]": {"n": 11}})
    in_between(monkeypatch, lambda: exchange(games, "a", block, second))
    assert not exchange(games, "a", block, first)
    assert entries(games) == block.entries | {"rounds[1]": {"n": 11}}


@pytest.mark.parametrize(
    ("theirs", "mine"), [({"first": "bob"}, {"more": 1}), ({"more": 1}, {"first": "bob"})]
)
def test_what_is_exchanged_of_an_item_in_between_is_not_overwritten(
    make: Make, monkeypatch: pytest.MonkeyPatch, theirs: Entries, mine: Entries
) -> None:
    collection, block = one_item(make)
    during_update(monkeypatch, lambda: exchange(collection, "a", block, Patch("a", theirs)))
    assert not exchange(collection, "a", block, Patch("a", mine))
    assert entries(collection) == block.entries | theirs
    # Nor is what lies in the place of what was exchanged more than once.
    (now,) = collection.read(["a"])
    assert now is not None
    during_update(monkeypatch, lambda: exchange(collection, "a", now, Patch("a", {"third": 3})))
    assert not exchange(collection, "a", now, Patch("a", {"second": "eve"}))
    assert exchange(collection, "a", held(collection, "a"), Patch("a", {}, ("third",)))
    assert entries(collection) == now.entries


def test_an_attribute_that_somebody_adds_in_between_is_kept(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection, block = one_item(make)
    added = replace(block, entries=block.entries | {"more": 1})
    during_update(monkeypatch, lambda: collection.write([added]))
    exchange(collection, "a", block, Patch("a", {"first": "bob"}))
    assert entries(collection) == added.entries | {"first": "bob"}


def test_an_attribute_that_an_exchange_adds_is_not_put_over_another(
    games: Collection, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = game(games, "a", 2)
    games.write([block])
    (entry,) = (x for x in items(plain, games) if x["sk"]["S"] == "rounds[1]")
    theirs = {**entry, "note": {"S": "theirs"}}
    in_between(monkeypatch, lambda: plain.put_item(TableName=games.at.collection, Item=theirs))
    mine = Patch("a", {"rounds[1]": {"n": 1, "note": "mine"}})
    assert not exchange(games, "a", block, mine)
    assert theirs in items(plain, games)


def test_a_block_of_more_attributes_than_a_condition_takes_is_refused(make: Make) -> None:
    collection = make("Game", ["/Game/*/*"], item("id"))
    block = cut_for(collection, "a", {"id": "a"} | {f"f{i}": i for i in range(147)})
    collection.write([block])
    more = Patch("a", {"new": 1})
    assert exchange(collection, "a", block, more)
    larger = held(collection, "a")
    with pytest.raises(TooMuch, match="151 attributes to compare; a condition has at most 150"):
        exchange(collection, "a", larger, Patch("a", {"newer": 1}))
    assert entries(collection) == block.entries | more.set


def test_changes_of_the_remainder_alone_collide(
    games: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = game(games, "a", 2)
    games.write([block])
    other = {"id": "a", "first": "bob"}
    in_between(monkeypatch, lambda: exchange(games, "a", block, Patch("a", {"": other})))
    assert not exchange(games, "a", block, Patch("a", {"": {"id": "a", "first": "eve"}}))
    assert entries(games) == block.entries | {"": other}


def test_what_somebody_else_wrote_in_between_is_not_overwritten(
    games: Collection, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = game(games, "a", 2)
    games.write([block])
    (key,) = [
        {name: found[name] for name in ("pk", "sk")}
        for found in items(plain, games)
        if found.get("n") == {"N": "1"}
    ]

    def theirs() -> None:
        plain.update_item(
            TableName=games.at.collection, Key=key, UpdateExpression="SET n = :n",
            ExpressionAttributeValues={":n": {"N": "7"}},
        )  # fmt: skip

    in_between(monkeypatch, theirs)
    assert not exchange(games, "a", block, Patch("a", {"rounds[1]": {"n": 11}}))
    assert entries(games) == block.entries | {"rounds[1]": {"n": 7}}


def test_what_does_not_go_into_one_transaction_is_refused(games: Collection, plain: Any) -> None:
    large = game(games, "a", 120)
    with pytest.raises(TooMuch, match="takes 121 items"):
        exchange(games, "a", None, large)
    assert items(plain, games) == []
    games.write([large])
    with pytest.raises(TooMuch, match="takes 121 items"):
        exchange(games, "a", large, None)
    # A small change of a large block goes, so a round is appended to a long game.
    assert exchange(games, "a", large, Patch("a", {"rounds[120]": {"n": 120}}))
    assert entries(games) == game(games, "a", 121).entries


@pytest.mark.parametrize("fate", ["carried out", "lost", "late"])
def test_a_transaction_without_an_answer_takes_place_once(
    games: Collection, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    block = game(games, "a", 1)
    games.write([block])
    transact, sent = Table.transact, list[tuple[Any, ...]]()

    def unanswered(*request: Any) -> bool:
        if not sent:
            sent.append(request)
            if fate == "carried out":
                assert transact(*request)
            raise Transient("the connection failed", unknown=True)
        assert request[3] == sent[0][3], "another token"
        return transact(*request)

    monkeypatch.setattr(Table, "transact", unanswered)
    assert exchange(games, "a", block, Patch("a", {"rounds[1]": {"n": 1}}))
    if fate == "late":
        assert not transact(*sent[0])
    assert entries(games) == game(games, "a", 2).entries


def test_one_that_may_have_been_carried_out_is_told(
    games: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = game(games, "a", 1)
    games.write([block])
    transact = Table.transact

    def overtaken(*request: Any) -> bool:
        monkeypatch.setattr(Table, "transact", transact)
        assert exchange(games, "a", block, game(games, "a", 3))
        raise Transient("the connection failed", unknown=True)

    monkeypatch.setattr(Table, "transact", overtaken)
    with pytest.raises(Transient) as lost:
        exchange(games, "a", block, Patch("a", {"rounds[1]": {"n": 7}}))
    assert lost.value.unknown
    assert entries(games) == game(games, "a", 3).entries


@pytest.mark.parametrize("then", [Transient("not now"), Terminal("no right any more")], ids=repr)
@pytest.mark.parametrize("carried_out", [True, False])
def test_what_a_later_sending_is_told_says_nothing_of_the_first(
    games: Collection, monkeypatch: pytest.MonkeyPatch, carried_out: bool, then: Exception
) -> None:
    block = game(games, "a", 1)
    games.write([block])
    transact, sent = Table.transact, list[object]()

    def unanswered(*request: Any) -> bool:
        sent.append(request)
        if len(sent) > 1:
            raise then
        if carried_out:
            assert transact(*request)
        raise Transient("the connection failed", unknown=True)

    monkeypatch.setattr(Table, "transact", unanswered)
    change = Patch("a", {"rounds[1]": {"n": 1}})
    if carried_out:
        assert exchange(games, "a", block, change)
        return
    with pytest.raises(Transient, match="the connection failed") as lost:
        exchange(games, "a", block, change)
    assert lost.value.unknown


def test_a_plain_write_that_stands_half_done_is_waited_for_and_then_ended(
    games: Collection, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = game(games, "a", 3), game(games, "a", 5, v=2)
    for after in itertools.count():
        games.write([old])
        with monkeypatch.context() as patch:
            asked = stopping(patch, after)
            with suppress(Stopped):
                games.write([new])
            if asked() <= after:
                break
        (found,) = games.read(["a"])
        assert found is not None
        longer = Patch("a", {f"rounds[{len(found.entries) - 1}]": {"n": 9}})
        with suppress(Transient):
            assert exchange(games, "a", found, longer)
            continue
        with monkeypatch.context() as patch:
            patch.setattr(transacting, "STANDS", 0.0)
            assert exchange(games, "a", found, longer)
        assert entries(games) == found.entries | longer.set
        # Nothing is left of what was staged.
        assert len(items(plain, games)) == len(found.entries) + 1
    assert after > 1


def test_a_place_that_values_give_is_refused(make: Make) -> None:
    collection = make("Game", ROUNDS, item_collection("BY#{first}", "GAME#{id}#{entry}"))
    assert not cast("Any", collection).exchanging_alone
    with pytest.raises(Refused, match="depends on its values"):
        exchange(collection, "a", None, game(collection, "a", 1))


def test_a_server_without_transactions_is_told() -> None:
    with_none = opened("dynalite")
    collection = with_none.collection(
        "Game", At("dynamo", fresh(), ROUNDS, item_collection("GAME#{id}"))
    )
    collection.create()
    try:
        with pytest.raises(Terminal, match="no transactions"):
            exchange(collection, "a", None, game(collection, "a", 1))
    finally:
        collection.drop()
        with_none.close()


def test_a_gateway_puts_what_is_too_much_for_a_transaction_all_the_same(tmp_path: Path) -> None:
    config = project(
        tmp_path, servers.dynamodb("dynamodb"), "embedded:///new.db",
        f"{fresh()!r}, {ROUNDS}, item_collection('GAME#{{id}}')", '"games"',
    )  # fmt: skip
    script = config.parent / "migrations" / "0001_move.py"
    script.write_text(script.read_text().replace("import At,", "import At, item_collection,"))
    with commands.Project(config, "test") as opened_:
        collection, _ = ends(opened_)
        collection.create()
        try:
            with gateway(config) as games:
                rounds = [{"n": n} for n in range(120)]
                with pytest.raises(TooMuch, match="takes 121 items"):
                    games.put("a", {"id": "a", "rounds": rounds}, expected=None)
                assert games.get("a") is None
                games.put("a", {"id": "a", "rounds": rounds})
                longer = games.append("a", "rounds", {"n": 120})
                assert longer.value["rounds"] == [*rounds, {"n": 120}]
                games.put("b", {"id": "b", "rounds": []}, expected=None)
                with pytest.raises(Conflict, match="none was expected"):
                    games.put("b", {"id": "b", "rounds": [1]}, expected=None)
                games.delete("a")
                assert games.get("a") is None
        finally:
            collection.drop()

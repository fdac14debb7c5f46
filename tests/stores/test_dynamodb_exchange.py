"""Blocks of several items exchanged in one transaction, on moto: dynalite has none.

moto carries transactions out one after another but not apart from other requests, so what is
written in between is written at a certain point here, and by no other thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from migrator import At, commands, item, item_collection
from migrator.errors import Refused, Terminal, Transient
from migrator.exchange import Exchanging, TooMuch
from migrator.gateway import Conflict
from migrator.model.block import Patch
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


def test_what_is_written_to_an_item_in_between_is_not_overwritten(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = make("Game", ["/Game/*/*"], item("id"))
    block = game(collection, "a", 1)
    collection.write([block])
    put_if = Table.put_if

    def late(self: Table, *what: Any, **more: Any) -> bool:
        monkeypatch.setattr(Table, "put_if", put_if)
        assert exchange(collection, "a", block, Patch("a", {"first": "bob"}))
        return put_if(self, *what, **more)

    monkeypatch.setattr(Table, "put_if", late)
    assert not exchange(collection, "a", block, Patch("a", {"more": 1}))
    assert entries(collection) == block.entries | {"first": "bob"}


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

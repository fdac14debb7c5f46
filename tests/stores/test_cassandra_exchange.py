"""Blocks of entries exchanged on a real Cassandra: by lightweight transactions, beside plain writes
whose stamps come from other clocks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from migrator.errors import DamagedBlock, Transient
from migrator.exchange import Exchanging, Replacing
from migrator.model.block import Address, Block, Patch
from migrator.model.layouts import cassandra_row, cassandra_table
from migrator.model.move import Layout
from migrator.ports import Collection, Store
from migrator.stores.cassandra import table_exchange, transactions
from migrator.stores.cassandra.entries_read import Reader
from migrator.stores.cassandra.table_exchange import version_of
from migrator.stores.cassandra.table_wire import Statement, Wire
from tests.stores.test_cassandra import HOUR, place, plain, store

__all__ = ["plain", "store"]

_keys = itertools.count(1)
Transact = Callable[[Wire, object, Sequence[Statement]], bool]


TABLE = cassandra_table(key="id", columns={"id": "text", "a": "int", "b": "int", "c": "int"})
LAYOUTS = [Layout("partition"), cassandra_row(["a"]), TABLE]


@pytest.fixture(scope="module", params=LAYOUTS, ids=["partition", "row", "table"])
def made(request: pytest.FixtureRequest, store: Store) -> Iterator[Collection]:
    collection = place(store, request.param, "/Game/*/*")
    collection.create()
    cast("Any", collection)._pristine.holds = False
    yield collection
    collection.drop()


@pytest.fixture
def key() -> str:
    return f"k{next(_keys)}"


def exchange(collection: Collection, *what: Any) -> bool:
    return cast("Exchanging", collection).exchange(*what)


def read(collection: Collection, key: str) -> Block | None:
    (block,) = collection.read([key])
    return block


def entries(collection: Collection, key: str) -> object:
    block = read(collection, key)
    return None if block is None else block.entries


def place_of(collection: Collection, key: str) -> str:
    return f"{'id' if collection.at.layout == TABLE else 'block'} = '{key}'"


def rows(plain: Any, collection: Collection, key: str) -> list[Any]:
    """The version of a block, its stamp and its life."""
    name = '"_migrator"' if collection.at.layout == TABLE else "version"
    query = f"SELECT {name}, writetime({name}), ttl({name}) FROM {collection.at.collection}"
    found = plain.execute(f"{query} WHERE {place_of(collection, key)}")
    if collection.at.layout == TABLE:
        return [(version_of(side.encode()), stamp, ttl) for side, stamp, ttl in found]
    return list(found)


def until_it_may(attempt: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while True:
        try:
            return attempt()
        except Transient:
            assert time.monotonic() < end, "it was never its time"


def test_updates_of_disjoint_entries_collide(
    made: Collection, key: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Block(key, {"a": 1, "b": 2, "c": 3})
    made.write([held])
    other = store.collection("Game", made.at)
    take = transactions._take

    def late(*what: Any) -> bool:
        # What was read is changed before the transaction that relies on it is sent.
        monkeypatch.setattr(transactions, "_take", take)
        assert exchange(other, key, held, Patch(key, {"b": 20}))
        return take(*what)

    monkeypatch.setattr(transactions, "_take", late)
    assert not exchange(made, key, held, Patch(key, {"a": 10}, ["c"]))
    assert entries(made, key) == {"a": 1, "b": 20, "c": 3}


def test_what_is_stamped_ahead_is_not_changed_in_part(
    made: Collection, key: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Block(key, {"a": 1, "b": 2})
    with monkeypatch.context() as patch:
        patch.setattr(store, "stamp", lambda: time.time_ns() // 1000 + HOUR)
        made.write([held])
    for change in (Patch(key, {"a": 10, "c": 30}), Block(key, {"a": 10}), None):
        with pytest.raises(Transient, match="ahead of the cluster's: nothing was written"):
            exchange(made, key, held, change)
        assert entries(made, key) == {"a": 1, "b": 2}


def test_unclaimed_what_is_stamped_ahead_is_changed_in_part(
    made: Collection, key: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule taken out: the transaction relies on what it read, and is told as carried out."""
    held = Block(key, {"a": 1, "b": 2})
    with monkeypatch.context() as patch:
        patch.setattr(store, "stamp", lambda: time.time_ns() // 1000 + HOUR)
        made.write([held])
    monkeypatch.setattr(transactions, "_claim", lambda block, old, where: old)
    if made.at.layout == TABLE:  # a plain row has no version that one could rely on
        with pytest.raises(Transient, match="others keep writing it"):
            exchange(made, key, held, Patch(key, {"a": 10, "c": 30}))
        return
    assert exchange(made, key, held, Patch(key, {"a": 10, "c": 30}))
    assert entries(made, key) == {"a": 1, "b": 2, "c": 30}


def test_what_is_stamped_a_little_ahead_is_changed_once_it_may(
    made: Collection, key: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Block(key, {"a": 1, "b": 2})
    with monkeypatch.context() as patch:
        patch.setattr(store, "stamp", lambda: time.time_ns() // 1000 + 200_000)
        made.write([held])
    assert until_it_may(lambda: exchange(made, key, held, Patch(key, {"a": 10, "c": 30}, ["b"])))
    assert entries(made, key) == {"a": 10, "c": 30}


def test_a_plain_write_is_later_than_a_transaction(
    made: Collection, key: str, store: Store, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exchange(made, key, None, Block(key, {"a": 1, "b": 2}))
    ((version, stamp, _),) = {tuple(row) for row in rows(plain, made, key)}
    assert version < 0 < stamp
    monkeypatch.setattr(store, "stamp", lambda: 1)  # its clock is far behind
    made.write([Block(key, {"a": 3})])
    assert entries(made, key) == {"a": 3}
    assert exchange(made, key, read(made, key), Patch(key, {"b": 4}))
    made.patch([Patch(key, {"b": 5})])
    assert entries(made, key) == {"a": 3, "b": 5}
    assert exchange(made, key, read(made, key), Patch(key, {"b": 6}))
    made.delete([Address(key)])
    assert entries(made, key) is None


@pytest.mark.parametrize("ahead", [200_000, HOUR])
def test_what_is_put_where_a_later_delete_lies_is_there_or_told(
    made: Collection, key: str, plain: Any, ahead: int
) -> None:
    stamp = time.time_ns() // 1000 + ahead
    where = place_of(made, key)
    plain.execute(f"DELETE FROM {made.at.collection} USING TIMESTAMP {stamp} WHERE {where}")
    if ahead == HOUR:
        with pytest.raises(Transient, match="ahead of the cluster's: nothing was written"):
            exchange(made, key, None, Block(key, {"a": 1}))
        assert entries(made, key) is None
    else:
        assert until_it_may(lambda: exchange(made, key, None, Block(key, {"a": 1})))
        assert entries(made, key) == {"a": 1}


def test_what_is_put_again_is_looked_for_once_more(
    made: Collection, key: str, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_PUTS_AGAIN", 1)
    monkeypatch.setattr(transactions, "_PAUSE", 1.0)
    stamp = time.time_ns() // 1000 + 400_000
    where = place_of(made, key)
    plain.execute(f"DELETE FROM {made.at.collection} USING TIMESTAMP {stamp} WHERE {where}")
    assert exchange(made, key, None, Block(key, {"a": 1}))
    assert entries(made, key) == {"a": 1}


def test_what_was_put_and_can_not_be_looked_for_is_not_told_as_not_written(
    made: Collection, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def unanswered(*_: object) -> None:
            raise Transient("the read was not answered")

        patch.setattr(Reader, "there", unanswered)
        patch.setattr(table_exchange._Becoming, "shows", unanswered)
        with pytest.raises(Transient) as lost:
            exchange(made, key, None, Block(key, {"a": 1}))
    assert lost.value.unknown
    assert entries(made, key) == {"a": 1}


@pytest.mark.parametrize("fate", ["carried out", "lost", "late"])
@pytest.mark.parametrize("what", ["change", "removal"])
def test_a_transaction_without_an_answer_takes_place_once(
    made: Collection, key: str, monkeypatch: pytest.MonkeyPatch, fate: str, what: str
) -> None:
    held = Block(key, {"a": 1, "b": 2})
    assert exchange(made, key, None, held)
    transact: Transact = Wire.transact
    sent: list[tuple[Any, ...]] = []

    def unanswered(*request: Any) -> bool:
        if not sent:
            sent.append(request)
            if fate == "carried out":
                transact(*request)
            raise Transient("no answer in time", unknown=True)
        return transact(*request)

    take, taken = transactions._take, itertools.count(1)

    def again(*what: Any) -> bool:
        if next(taken) == 2 and fate == "late":
            # It is carried out just before another is sent in its place.
            assert not transact(*sent[0])
        return take(*what)

    monkeypatch.setattr(Wire, "transact", unanswered)
    monkeypatch.setattr(transactions, "_take", again)
    change = Patch(key, {"c": 3}, ["b"]) if what == "change" else None
    if what == "removal" and fate == "carried out":
        # Nothing of a removal is left to be found: somebody else may have removed it.
        with pytest.raises(Transient) as lost:
            exchange(made, key, held, change)
        assert lost.value.unknown
    else:
        assert exchange(made, key, held, change)
    assert next(taken) == (2 if fate == "carried out" else 3)
    assert entries(made, key) == (None if change is None else {"a": 1, "c": 3})


def test_one_that_may_still_come_to_be_is_told_where_another_was_faster(
    made: Collection, key: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, theirs = Block(key, {"a": 1}), Block(key, {"a": 2})
    assert exchange(made, key, None, held)
    other = store.collection("Game", made.at)
    transact: Transact = Wire.transact

    def overtaken(*request: Any) -> bool:
        monkeypatch.setattr(Wire, "transact", transact)
        assert exchange(other, key, held, theirs)
        raise Transient("no answer in time", unknown=True)

    monkeypatch.setattr(Wire, "transact", overtaken)
    with pytest.raises(Transient) as lost:
        exchange(made, key, held, Patch(key, {"b": 1}))
    assert lost.value.unknown
    assert entries(made, key) == {"a": 2}


def test_a_deadline_stays_and_ends_the_version_as_well(
    made: Collection, key: str, plain: Any
) -> None:
    expires = int(time.time() * 1000) + 100_000
    made.write([Block(key, {"a": 1}, expires)])
    assert exchange(made, key, read(made, key), Patch(key, {"b": 2}))
    assert read(made, key) == Block(key, {"a": 1, "b": 2}, expires)
    assert all(0 < ttl <= 101 for _, _, ttl in rows(plain, made, key))


def test_what_is_put_after_a_removal_is_there(
    made: Collection, key: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cast("Any", made)._pristine, "holds", True)  # who has just made the table
    made.write([Block(key, {"a": 1})])
    assert exchange(made, key, read(made, key), None)
    monkeypatch.setattr(store, "stamp", lambda: time.time_ns() // 1000 - HOUR)
    made.write([Block(key, {"a": 2})])
    assert entries(made, key) == {"a": 2}


def damage(made: Collection, key: str, plain: Any) -> None:
    """Put a block that can't be read."""
    made.write([Block(key, {"b": 1})])
    table, place = made.at.collection, place_of(made, key)
    if made.at.layout == TABLE:
        plain.execute(f"UPDATE {table} USING TTL 1000 SET a = 1 WHERE {place}")
    elif made.at.layout == Layout("partition"):
        plain.execute(f"UPDATE {table} SET value = '{{' WHERE {place} AND entry = 'b'")
    else:
        plain.execute(f"UPDATE {table} SET \"entries\"['b'] = '{{' WHERE {place}")
    with pytest.raises(DamagedBlock):
        made.read([key])


def test_a_bracket_on_a_damaged_block_is_settled(made: Collection, key: str, plain: Any) -> None:
    damage(made, key, plain)
    cast("Any", made).journal("run").settle(key)


def test_a_damaged_block_is_replaced_and_removed_whole(
    made: Collection, key: str, plain: Any
) -> None:
    def replace(change: Block | None) -> None:
        cast("Replacing", made).replace(key, change)

    damage(made, key, plain)
    with pytest.raises(DamagedBlock):
        exchange(made, key, None, Block(key, {"a": 2}))
    replace(Block(key, {"a": 2}))
    held = read(made, key)
    assert held == Block(key, {"a": 2})
    assert exchange(made, key, held, Patch(key, {"b": 3}))
    replace(Block(key, {"c": 4}))  # of any other one as well
    assert entries(made, key) == {"c": 4}
    damage(made, key, plain)
    replace(None)
    assert rows(plain, made, key) == []
    replace(None)
    replace(Block(key, {"a": 5}))
    assert entries(made, key) == {"a": 5}


def test_nothing_is_left_of_what_was_removed(made: Collection, key: str, plain: Any) -> None:
    made.write([Block(key, {"a": 1, "b": 2})])
    assert exchange(made, key, read(made, key), None)
    assert rows(plain, made, key) == []
    # One whose deadline has passed is absent before the server has swept it.
    expires = int(time.time() * 1000) + 150
    made.write([Block(key, {"a": 1, "b": 2}, expires)])
    while time.time() * 1000 <= expires:
        time.sleep(0.01)
    assert exchange(made, key, None, None)
    assert until_it_may(lambda: exchange(made, key, None, Block(key, {"a": 3})))
    assert entries(made, key) == {"a": 3}

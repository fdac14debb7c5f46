"""What only the layout table has of exchanges on a real Cassandra: rows that others wrote, columns
that were written apart, and tables of which no transaction holds a block whole."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from migrator import projection
from migrator.errors import DoesNotFit, Refused, Transient
from migrator.exchange import Change, Exchanging, exchanges_alone
from migrator.model import value as v
from migrator.model.block import Block, Patch
from migrator.model.value import Int64
from migrator.ports import Collection, Store
from migrator.stores.cassandra import table_exchange, transactions
from tests.stores.test_cassandra_exchange import HOUR, exchange, until_it_may
from tests.stores.test_cassandra_table import block, fresh, made, place, plain, raw, store

__all__ = ["plain", "store"]

COLUMNS = {"id": "text", "n": "int", "note": "text", "tags": "set<text>", "marks": "list<int>",
           "score": "map<text, int>"}  # fmt: skip


@pytest.fixture
def games(store: Store) -> Collection:
    return made(store, key="id", columns=COLUMNS)


def read(collection: Collection, key: object = "a") -> Block | None:
    (found,) = collection.read([cast("Any", key)])
    return found


def test_columns_that_are_not_changed_stay_as_they_are(games: Collection, plain: Any) -> None:
    tags, marks, score = v.Set(["x", "y"]), [1, 2], {"ann": 1}
    held = block("a", id="a", n=1, note="one", tags=tags, marks=marks, score=score)
    assert exchange(games, "a", None, held)
    table = games.at.collection
    ask = f"SELECT writetime(note), writetime(n) FROM {table} WHERE id = 'a'"
    (before,) = plain.execute(ask)
    more = block("a", id="a", n=2, note="one", tags=v.Set(["z"]), marks=[2, 2], score={})
    assert exchange(games, "a", held, Patch("a", more.entries))
    (after,) = plain.execute(ask)
    assert (after[0] == before[0], after[1] > before[1]) == (True, True)
    assert read(games) == more
    assert read(games.observer(), "a") == more  # type: ignore[arg-type]
    less = block("a", id="a", n=None)
    assert exchange(games, "a", more, less)
    assert read(games) == less
    assert exchange(games, "a", less, None)
    assert raw(plain, table) == []


def test_a_column_that_was_stamped_ahead_keeps_all_from_being_changed(
    games: Collection, plain: Any
) -> None:
    """A version that a transaction has left tells nothing of what was written past it."""
    held = block("a", id="a", n=1, note="one")
    assert exchange(games, "a", None, held)
    stamp = time.time_ns() // 1000 + HOUR
    plain.execute(
        f"UPDATE {games.at.collection} USING TIMESTAMP {stamp} SET note = 'two' WHERE id = 'a'"
    )
    there = block("a", id="a", n=1, note="two")
    for change in (block("a", id="a", n=2, note="three"), None):
        with pytest.raises(Transient, match="ahead of the cluster's: nothing was written"):
            exchange(games, "a", there, change)
        assert read(games) == there


def test_what_a_change_of_single_entries_removed_leaves_its_stamp(
    games: Collection, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADR 0030: else a value that is put there later came to nothing, without a word."""
    held = block("a", id="a", n=1, note="one")
    games.write([held])
    less = block("a", id="a", n=1)
    with monkeypatch.context() as patch:
        patch.setattr(store, "stamp", lambda: time.time_ns() // 1000 + HOUR)
        games.patch([Patch("a", less.entries)])
    assert read(games) == less
    with pytest.raises(Transient, match="ahead of the cluster's: nothing was written"):
        exchange(games, "a", less, held)
    games.write([held])
    assert read(games) == held


def test_a_row_ends_with_its_cells(games: Collection, plain: Any) -> None:
    held = block("a", id="a", n=1)
    games.write([held])
    expires = int(time.time() * 1000) + 1000
    assert until_it_may(lambda: exchange(games, "a", held, block("a", expires, id="a", n=1)))
    end = time.monotonic() + 60
    while raw(plain, games.at.collection):
        assert time.monotonic() < end, "the row stays"
        time.sleep(0.05)
    assert exchange(games, "a", None, held)
    assert read(games) == held


NEW = block("a", id="a", n=2)


@pytest.mark.parametrize(
    ("change", "after"), [(NEW, NEW), (Patch("a", NEW.entries), None), (None, None)]
)
def test_what_has_ended_is_changed_also_before_the_server_sweeps_it(
    games: Collection, monkeypatch: pytest.MonkeyPatch, change: Change, after: Block | None
) -> None:
    """Until then it is read; else who writes there is told that others keep writing it."""
    held = block("a", int(time.time() * 1000) + 86_400_000, id="a", n=1, note="one")
    assert exchange(games, "a", None, held)
    monkeypatch.setattr(table_exchange, "ended", lambda expires: expires == held.expires)
    assert not exchange(games, "a", NEW, change)
    assert exchange(games, "a", read(games), change)
    assert read(games) == after


@pytest.mark.parametrize(("change", "after"), [(NEW, NEW), (Patch("a", NEW.entries), NEW)])
def test_what_has_ended_is_none_also_before_the_server_sweeps_it(
    games: Collection, monkeypatch: pytest.MonkeyPatch, change: Change, after: Block
) -> None:
    held = block("a", int(time.time() * 1000) + 86_400_000, id="a", n=1, note="one")
    assert exchange(games, "a", None, held)
    assert not exchange(games, "a", None, change)
    monkeypatch.setattr(table_exchange, "ended", lambda expires: expires == held.expires)
    assert exchange(games, "a", None, change)
    assert read(games) == after


def test_a_table_of_others_needs_the_column(store: Store, plain: Any) -> None:
    name = fresh()
    plain.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, n int, note text)")
    plain.execute(f"INSERT INTO {name} (id, n) VALUES ('a', 1)")
    plain.execute(f"INSERT INTO {name} (id, n) VALUES ('ends', 1) USING TTL 1000")
    plain.execute(f"INSERT INTO {name} (id) VALUES ('bare')")
    theirs = place(store, "table", name)
    held = read(theirs)
    assert not exchanges_alone(theirs)
    with pytest.raises(Refused) as refused:
        exchange(theirs, "a", held, None)
    assert "has no column _migrator" in refused.value.what
    assert f'ALTER TABLE {name} ADD "_migrator" text' in refused.value.hint
    plain.execute(f'ALTER TABLE {name} ADD "_migrator" text')
    theirs = place(store, "table", name)
    assert exchanges_alone(theirs)
    assert exchange(theirs, "a", held, Patch("a", {"": {"id": "a", "n": 2}}))
    assert read(theirs) == block("a", id="a", n=2)
    ends = read(theirs, "ends")
    assert ends is not None
    assert exchange(theirs, "ends", ends, Patch("ends", {"": {"id": "ends", "n": 2}}))
    assert read(theirs, "ends") == block("ends", ends.expires, id="ends", n=2)
    # Where its removal can't be told from it, it is not claimed.
    with pytest.raises(Refused, match="nothing but its key"):
        exchange(theirs, "bare", read(theirs, "bare"), block("bare", id="bare", n=1))


def test_nothing_is_left_of_a_row_that_was_removed_before_it_was_claimed(
    games: Collection, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = block("a", id="a", n=1)
    games.write([held])
    claim = transactions._claim

    def late(*what: Any) -> int | None:
        monkeypatch.setattr(transactions, "_claim", claim)
        assert exchange(games, "a", held, None)
        return claim(*what)

    monkeypatch.setattr(transactions, "_claim", late)
    assert not exchange(games, "a", held, Patch("a", {"": {"id": "a", "n": 2}}))
    assert raw(plain, games.at.collection) == []


def test_keys_that_are_one_here_do_not_take_each_other_s_place(store: Store) -> None:
    games = made(store, key="id", columns={"id": "bigint", "n": "int"})
    small, wide = Block(7, {"": {"n": 1}}), Block(Int64(7), {"": {"n": 2}})
    games.write([wide])
    assert not exchange(games, 7, small, None)
    with pytest.raises(DoesNotFit, match="have the same key here"):
        exchange(games, 7, None, small)
    assert read(games, Int64(7)) == wide


@pytest.mark.parametrize("what", ["projection", "locator", "static column"])
def test_a_block_that_is_in_no_single_transaction_is_refused(store: Store, what: str) -> None:
    name = fresh()
    options: dict[str, dict[str, Any]] = {
        "projection": {
            "key": "id", "projections": [projection(f"{name}_by_n", key="n", clustering="id")]
        },
        "locator": {"key": "n", "clustering": "id", "id": "id"},
        "static column": {"key": "id", "clustering": "n", "static": "note"},
    }  # fmt: skip
    columns = {"id": "text", "n": "int", "note": "text"}
    collection = made(store, columns=columns, **options[what])
    key = ["a", 1] if what == "static column" else "a"
    held = Block(cast("Any", key), {"": {"id": "a", "n": 1, "note": "x"}})
    collection.write([held])
    assert isinstance(collection, Exchanging)
    assert not exchanges_alone(collection)
    with pytest.raises(Refused, match=what) as refused:
        collection.exchange(held.id, held, None)
    assert "put or delete whole aggregates without expected" in refused.value.hint
    assert read(collection, key) is not None

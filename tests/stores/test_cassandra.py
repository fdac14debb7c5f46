"""Layouts row and partition on a real Cassandra: what lies there by the plain driver, and what
goes. The numbers of hard cases are in the names."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
from cassandra import (
    InvalidRequest,
    OperationTimedOut,
    ReadTimeout,
    Unavailable,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ErrorMessage

from migrator.errors import DamagedBlock, DoesNotFit, Refused, Terminal, Transient
from migrator.model.block import Address, Block, Patch
from migrator.model.layouts import cassandra_row
from migrator.model.move import At, Layout
from migrator.model.value import Record, Ref, Value
from migrator.ports import Collection, Store, StoreSettings
from migrator.stores import cassandra
from migrator.stores.cassandra.table_wire import Row, Statement, Wire
from migrator.testing.contract.harness import assert_holds, assert_same, scan, through_json
from tests.contract import servers

_numbers = itertools.count(1)
FORMS = [Layout("partition"), cassandra_row(), cassandra_row(["a", "rounds[0]"])]
# Three keys of one token, found by running the hash backwards.
TWINS = ("game-00001 and 2", "ws~B,y}h7GAf*\x13`\n", "-~mm\x0b\x0b\x1bB|\t\x19@=...")
GAME: Record = {
    "id": "2345",
    "firstPlayer": Ref("Player", "mary"),
    "secondPlayer": Ref("Player", "rick"),
    "rounds": [{"moves": ["q4"]}, {"moves": ["a1", "a2"], "spell": "freeze"}],
}


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    store = cassandra.open_store(StoreSettings("wide", servers.cassandra()))
    yield store
    store.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[Any]:
    with servers.plain_cassandra() as session:
        yield session


def place(store: Store, layout: Layout, rules: str = "/Game/*") -> Collection:
    return store.collection("Game", At("wide", f"entries_{next(_numbers)}", [rules], layout))


@pytest.fixture(params=FORMS, ids=["partition", "row", "row with columns"])
def made(request: pytest.FixtureRequest, store: Store) -> Iterator[Collection]:
    """A fresh collection of blocks cut at each field, in each layout."""
    collection = place(store, request.param, "/Game/*/*")
    collection.create()
    yield collection
    collection.drop()


def rows(plain: Any, collection: Collection) -> list[Any]:
    return list(plain.execute(f"SELECT * FROM {collection.at.collection}"))


def stamps(plain: Any, collection: Collection) -> list[int]:
    query = f"SELECT version, writetime(version) FROM {collection.at.collection}"
    return [n for row in plain.execute(query) for n in row]


# ---------------------------------------------------------------- what lies there


def blocks_of(collection: Collection) -> Block:
    return Block("2345", dict(collection.at.rules("Game").partition(GAME)))


def test_partition_is_a_row_for_each_entry(store: Store, plain: Any) -> None:
    rules = ["/Game/*/rounds[*]", "/Game/*/*"]
    collection = store.collection("Game", At("wide", "golden", rules, Layout("partition")))
    collection.create()
    collection.write([blocks_of(collection)])
    found = {
        row.entry: (row.block, json.loads(row.value), row.tags) for row in rows(plain, collection)
    }
    assert found == {
        "id": ("2345", "2345", None),
        "firstPlayer": ("2345", "Player:mary", '{"":"reference"}'),
        "secondPlayer": ("2345", "Player:rick", '{"":"reference"}'),
        "rounds[0]": ("2345", {"moves": ["q4"]}, None),
        "rounds[1]": ("2345", {"moves": ["a1", "a2"], "spell": "freeze"}, None),
    }
    assert [row.kind for row in plain.execute(
        "SELECT kind FROM system_schema.columns WHERE keyspace_name = %s AND table_name = 'golden' "
        "AND column_name IN ('block', 'entry')", [plain.keyspace]
    )] == ["partition_key", "clustering"]  # fmt: skip


def test_row_has_columns_for_what_is_declared(store: Store, plain: Any) -> None:
    rules = ["/Game/*/rounds[*]", "/Game/*/*"]
    layout = cassandra_row(["id", "rounds[0]"])
    collection = store.collection("Game", At("wide", "golden_row", rules, layout))
    collection.create()
    collection.write([blocks_of(collection)])
    query = 'SELECT block, id, "rounds[0]" AS first, "entries" AS more, tags FROM golden_row'
    (row,) = plain.execute(query)
    assert (row.block, json.loads(row.id), json.loads(row.first)) == (
        "2345", "2345", {"moves": ["q4"]},
    )  # fmt: skip
    assert {name: json.loads(text) for name, text in row.more.items()} == {
        "firstPlayer": "Player:mary",
        "secondPlayer": "Player:rick",
        "rounds[1]": {"moves": ["a1", "a2"], "spell": "freeze"},
    }
    assert set(row.tags) == {"firstPlayer", "secondPlayer"}


def test_odd_names_are_refused(store: Store) -> None:
    for layout in (Layout("partition", {"x": 1}), cassandra_row("tags"), cassandra_row([""])):
        with pytest.raises(Refused):
            place(store, layout)
    with pytest.raises(Refused, match="name of a table"):
        store.collection("Game", At("wide", "a.b", ["/Game/*"], "partition"))


def test_another_table_is_refused(store: Store, plain: Any) -> None:
    collection = place(store, Layout("partition"))
    plain.execute(f"CREATE TABLE {collection.at.collection} (block text PRIMARY KEY, x int)")
    with pytest.raises(Refused, match="no column"):
        collection.create()


# ---------------------------------------------------------------- walking


def test_few_blocks_are_looked_at_once_before_they_are_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for what a few touches name waits for one answer, and not for two."""
    games = place(store, cassandra_row())
    games.create()
    games.write([Block("there", {"": {"n": 1}})])
    each, asked = Wire.each, list[str]()

    def noted(self: Wire, statements: Iterable[Statement]) -> Iterator[list[Row]]:
        listed = list(statements)
        asked.extend(statement.cql.split(" FROM ")[0] for statement in listed)
        return each(self, listed)

    monkeypatch.setattr(Wire, "each", noted)
    games.write([Block(key, {"": {"n": 2}}) for key in ("there", "new", "other")])
    assert not any("DISTINCT" in text for text in asked), asked
    assert len(asked) == 3
    assert [block and block.id for block in games.read(["there", "new", "other"])]


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_keys_of_one_token_are_all_found(made: Collection, limit: int) -> None:
    blocks = [Block(key, {"a": key}) for key in (*TWINS, "other", "third")]
    ids = [block.id for block in blocks]
    made.write(blocks)
    for reader in (made, made.observer()):
        assert sorted(str(b.id) for b in scan(reader, made.split(3), limit)) == sorted(
            map(str, ids)
        )
    keys: list[Value] = []
    for range_ in made.split(2):
        position = None
        while True:
            found, position = made.keys(range_, through_json(position), limit)
            keys += found
            if position is None:
                break
    assert sorted(map(str, keys)) == sorted(map(str, ids))
    made.delete([Address(TWINS[1])])  # a position may be deleted before the next page
    page = made.page(None, TWINS[1], 50)
    assert len(page.blocks) < 5


def test_blocks_of_many_rows_straddle_no_page(store: Store) -> None:
    collection = place(store, Layout("partition"), "/Game/*/**")
    collection.create()
    sizes = [1, 900, 3, 6000, 1, 40, 2500]
    blocks = [Block(f"b{i}", {f"n[{j}]": j for j in range(size)}) for i, size in enumerate(sizes)]
    collection.write(blocks)
    for limit in (1, 2, 100):
        for reader in (collection, collection.observer()):
            assert len(scan(reader, collection.split(2), limit)) == len(blocks)
    assert_holds(collection, blocks)


def test_ranges_cover_the_ring(store: Store) -> None:
    ranges = place(store, Layout("partition")).split(7)
    assert ranges[0][0] is None  # type: ignore[index]
    assert ranges[-1][1] is None  # type: ignore[index]
    for left, right in itertools.pairwise(ranges):
        assert left[1] == right[0]  # type: ignore[index]
    with pytest.raises(Refused):
        place(store, Layout("partition")).page(None, {"odd": 1}, 5)


# ---------------------------------------------------------------- stamps, tombstones, deadlines


def test_c63_stamps_are_microseconds_and_later_than_what_lies_there(
    made: Collection, plain: Any
) -> None:
    before = time.time_ns() // 1000
    made.write([Block("k", {"a": 1})])
    stamp, written = stamps(plain, made)
    assert before <= stamp == written <= time.time_ns() // 1000
    # Another writer's clock is an hour ahead: our next write must still win (R10).
    ahead = time.time_ns() // 1000 + 3_600_000_000
    table, row = made.at.collection, "partition" not in str(made.at.layout)
    if row:
        column = "a" if "rounds" in str(made.at.layout) else "\"entries\"['a']"
        plain.execute(
            f"UPDATE {table} USING TIMESTAMP {ahead} SET {column} = '2', version = {ahead} "
            "WHERE block = 'k'"
        )
    else:
        plain.execute(
            f"UPDATE {table} USING TIMESTAMP {ahead} SET value = '2' "
            "WHERE block = 'k' AND entry = 'a'"
        )
    made.write([Block("k", {"a": 3})])
    assert_holds(made, [Block("k", {"a": 3})])
    made.delete([Address("k")])
    assert_holds(made, [])


HOUR = 3_600_000_000  # microseconds


@pytest.mark.parametrize("gone", ["the block", "an entry"])
def test_a_delete_by_a_clock_that_is_ahead_does_not_hide_what_is_put_later(
    made: Collection, store: Store, plain: Any, gone: str
) -> None:
    column, where = "", "block = 'k'"
    if gone == "an entry" and "partition" in str(made.at.layout):
        where += " AND entry = 'a'"
    elif gone == "an entry":
        column = "a" if "rounds" in str(made.at.layout) else "\"entries\"['a']"
    ahead = time.time_ns() // 1000 + HOUR
    plain.execute(
        f"DELETE {column} FROM {made.at.collection} USING TIMESTAMP {ahead} WHERE {where}"
    )
    # Who did not make the table does not know what was deleted there.
    other = store.collection("Game", made.at)
    blocks = [Block("k", {"a": 1, "b": 2}), Block("l", {"a": 3})]
    other.write(blocks)
    assert_holds(other, blocks)
    assert ahead < max(stamps(plain, made)) <= ahead + HOUR
    other.write([Block("k", {"b": 4})])
    other.delete([Address("l")])
    assert_holds(other, [Block("k", {"b": 4})])


def test_who_is_followed_may_have_deleted_in_a_table_that_was_made_just_now(
    made: Collection, plain: Any
) -> None:
    cast("Any", made).journal("run")
    ahead = time.time_ns() // 1000 + HOUR
    plain.execute(f"DELETE FROM {made.at.collection} USING TIMESTAMP {ahead} WHERE block = 'k'")
    made.write([Block("k", {"a": 1})])
    assert_holds(made, [Block("k", {"a": 1})])


def test_a_delete_of_a_clock_that_is_days_ahead_is_told(
    made: Collection, store: Store, plain: Any
) -> None:
    ahead = time.time_ns() // 1000 + 72 * HOUR
    plain.execute(f"DELETE FROM {made.at.collection} USING TIMESTAMP {ahead} WHERE block = 'k'")
    with pytest.raises(Terminal, match="by a clock that is more than a day ahead"):
        store.collection("Game", made.at).write([Block("k", {"a": 1})])


def test_c17_writing_again_changes_nothing(made: Collection, plain: Any) -> None:
    block = Block("k", {"tags": ["a", "b"], "a": "x"})
    for _ in range(3):
        made.write([block])
    assert_holds(made, [block])


def test_c47_absent_values_leave_no_tombstone(store: Store, plain: Any) -> None:
    for layout in FORMS:
        collection = place(store, layout, "/Game/*/*")
        collection.create()
        collection.write([Block(f"k{i}", {"a": None, "b": [], "c": {}}) for i in range(50)])
        table = collection.at.collection
        future = plain.execute_async(f"SELECT * FROM {table}", trace=True)
        future.result()
        trace = future.get_query_trace(max_wait=60)
        told: list[str] = []
        end = time.monotonic() + 60
        while not told:  # a busy server writes it later, and bit by bit
            assert time.monotonic() < end, trace.events
            trace.populate(max_wait=60)
            told = [e.description for e in trace.events if "tombstone" in e.description]
        assert all(" 0 tombstone" in e for e in told), told
        collection.drop()


def test_c05_null_and_absent_differ(made: Collection) -> None:
    blocks = [
        Block("null", {"a": None, "b": 1}),
        Block("absent", {"b": 1}),
        Block("text", {"a": "null", "b": 1}),
    ]
    made.write(blocks)
    assert_holds(made, blocks)


def test_a_deadline_is_kept_to_the_millisecond_and_swept(made: Collection, plain: Any) -> None:
    now = int(time.time() * 1000)
    soon, late = now + 1_200, now + 1_000_123
    made.write([Block("soon", {"a": 1}, soon), Block("never", {"a": 1})])
    made.write([Block("late", {"a": 1, "b": Ref("P", "x")}, late)])
    (found,) = made.read(["late"])
    assert found is not None
    assert found.expires == late
    made.patch([Patch("late", {"c": 2}, ("b",))])
    (found,) = made.observer().read(["late"])
    assert found is not None
    assert found.expires == late
    assert found.entries == {"a": 1, "c": 2}
    time.sleep(max(0, soon / 1000 - time.time()) + 0.05)
    assert made.read(["soon"]) == [None]  # expired, though perhaps not yet swept
    end = time.monotonic() + 60
    while len(left := {row.block for row in rows(plain, made)}) > 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert left == {"late", "never"}


def test_c22_a_cell_that_does_not_end_with_its_block_is_reported(
    made: Collection, plain: Any
) -> None:
    """Those of a block that is changed in part later than it was put are of one deadline."""
    soon = int(time.time() * 1000) + 86_400_000
    blocks = [Block(key, {"a": 1, "b": 2}, ends) for key, ends in (("k", None), ("l", soon))]
    made.write([*blocks, Block("m", {"a": 1, "b": 2}, soon)])
    made.patch([Patch("m", {"b": 3})])
    table, declared = made.at.collection, "rounds" in str(made.at.layout)
    for key, using in (("k", "USING TTL 1000"), ("l", "")):
        if "partition" in str(made.at.layout):
            put, where = "value = '5'", f"block = '{key}' AND entry = 'a'"
        else:
            put, where = "a = '5'" if declared else "\"entries\"['a'] = '5'", f"block = '{key}'"
        plain.execute(f"UPDATE {table} {using} SET {put} WHERE {where}")
    for reader in (made, made.observer()):
        page = reader.page(None, None, 10)
        assert [(b.id, b.entries) for b in page.blocks] == [("m", {"a": 1, "b": 3})]
        why = "entries a do not end when the block does, which ends as a whole"
        assert sorted(page.damaged) == [("k", why), ("l", why)]
        with pytest.raises(DamagedBlock, match="entries a do not end"):
            reader.read(["k"])
    assert sorted(made.sample(10).damaged) == [("k", why), ("l", why)]
    made.write(blocks)
    assert_holds(made, [*blocks, Block("m", {"a": 1, "b": 3}, soon)])


def test_a_deadline_already_reached_is_a_delete(made: Collection) -> None:
    made.write([Block("k", {"a": 1}), Block("l", {"a": 1})])
    made.write([Block("k", {"a": 2}, int(time.time() * 1000) - 1)])
    assert_holds(made, [Block("l", {"a": 1})])


def test_c48_far_deadlines_are_refused_before_anything_is_written(made: Collection) -> None:
    year = 365 * 24 * 3600 * 1000
    now = int(time.time() * 1000)
    for far in (now + 19 * year, now + 25 * year, 4_102_444_800_000):
        block = Block("k", {"a": 1}, far)
        with pytest.raises(DoesNotFit, match=r"2038|20 years"):
            made.size(block)
        with pytest.raises(DoesNotFit) as caught:
            made.write([Block("l", {"a": 1}), block])
        assert caught.value.path == "(expires)"
    assert_holds(made, [])


def test_c52_keys_of_64_kilobytes(made: Collection) -> None:
    fits = Block("ä" * 32_767 + "k", {"a": 1})
    made.write([fits])
    assert_holds(made, [fits])
    with pytest.raises(DoesNotFit, match="key has 65,536 bytes"):
        made.write([Block("ä" * 32_768, {"a": 1})])


def test_an_entry_is_taken_off_exactly(made: Collection) -> None:
    made.write([Block("k", {"a": 1, "b": Ref("P", "x"), "c": 3})])
    made.write([Block("k", {"b": "no reference any more", "d": 4})])
    assert_holds(made, [Block("k", {"b": "no reference any more", "d": 4})])
    with pytest.raises(DoesNotFit, match="no entry"):
        made.patch([Patch("k", {}, ("b", "d"))])
    with pytest.raises(Terminal, match="no block"):
        made.patch([Patch("other", {"a": 1})])


def test_what_is_no_block_is_reported(store: Store, plain: Any) -> None:
    collection = place(store, Layout("partition"))
    collection.create()
    collection.write([Block("fine", {"": {"a": 1}})])
    table = collection.at.collection
    plain.execute(f"INSERT INTO {table} (block, entry, value) VALUES ('odd', '', '{{no json')")
    page = collection.page(None, None, 10)
    assert [b.id for b in page.blocks] == ["fine"]
    assert [key for key, _ in page.damaged] == ["odd"]
    with pytest.raises(DamagedBlock, match="odd can't be read"):
        collection.read(["odd"])


# ---------------------------------------------------------------- the edge


@pytest.mark.parametrize(
    ("error", "kind", "unknown"),
    [
        (WriteTimeout("late", write_type=0), Transient, True),
        (OperationTimedOut(), Transient, True),
        # A lightweight transaction that few replicas took; the driver has no class for it.
        (ErrorMessage(0x1700, "CAS operation result is unknown", None), Transient, True),
        (ReadTimeout("late"), Transient, False),
        (Unavailable("no replicas"), Transient, False),
        (NoHostAvailable("none", {}), Transient, False),
        (InvalidRequest("Batch too large"), Terminal, False),
    ],
)
def test_errors_say_whether_a_write_may_have_happened(
    error: Exception, kind: type, unknown: bool
) -> None:
    from migrator.stores.cassandra.edge import translated

    found = translated(error, "wide:games", writing=True)
    assert type(found) is kind
    assert getattr(found, "unknown", False) is unknown
    assert found.hint


def test_nothing_there_is_transient_and_shows_no_secret() -> None:
    settings = StoreSettings(
        "wide", "cassandra://ann@127.0.0.1:1/shop", {"connectTimeoutMS": 500}, lambda: "s3cret"
    )
    store = cassandra.open_store(settings)
    with pytest.raises(Transient) as caught:
        store.ping()
    assert "s3cret" not in str(caught.value)
    store.close()


def test_a_missing_keyspace_says_what_to_do() -> None:
    url = servers.cassandra().rpartition("/")[0] + "/nowhere_at_all"
    store = cassandra.open_store(StoreSettings("wide", url))
    with pytest.raises(Terminal, match="no keyspace"):
        store.ping()
    store.close()


def test_reading_again_after_another_handle_wrote(store: Store, made: Collection) -> None:
    other = store.collection("Game", made.at)
    other.write([Block("k", {"a": 1, "new": 2})])
    (found,) = made.read(["k"])
    assert_same(found, Block("k", {"a": 1, "new": 2}))

"""The layout table on a real Cassandra: what lies there by the plain driver, and what goes."""

from __future__ import annotations

import datetime as dt
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from migrator import At, cassandra_table, projection
from migrator.errors import DoesNotFit, Refused, Terminal
from migrator.exchange import Exchanging
from migrator.heavy import KEPT, Heavy
from migrator.holding import Tags
from migrator.model import value as v
from migrator.model.block import Address, Block, Patch
from migrator.model.move import Layout
from migrator.model.path import child
from migrator.model.value import Int64, Kind, Record, Value
from migrator.planning.tally import Kinds
from migrator.ports import Collection, How, Shaped, Store, StoreSettings
from migrator.stores import cassandra
from migrator.stores.cassandra import table_facts
from migrator.testing.contract.harness import assert_holds, assert_same, scan
from tests.contract import meters, servers

_numbers = itertools.count(1)
DAY = dt.date(2024, 2, 29)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    store = cassandra.open_store(StoreSettings("wide", servers.cassandra()))
    yield store
    store.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[Any]:
    with servers.plain_cassandra() as session:
        yield session


def fresh() -> str:
    return f"typed_{next(_numbers)}"


def place(store: Store, layout: Layout | str, name: str = "") -> Collection:
    return store.collection("Game", At("wide", name or fresh(), ["/Game/*"], layout))


def made(store: Store, **options: Any) -> Collection:
    collection = place(store, cassandra_table(**options))
    collection.create()
    return collection


def block(key: Value, expires: int | None = None, /, **record: Value) -> Block:
    return Block(key, {"": record}, expires)


def raw(plain: Any, table: str) -> list[dict[str, Any]]:
    found = plain.execute(f'SELECT * FROM "{table}"')
    return [dict(zip(found.column_names, row, strict=True)) for row in found]


def games(name: str) -> Layout:
    """Games by player and month, and again by year and by their number."""
    return cassandra_table(
        key=["player", "month"],
        clustering=["day desc", "id"],
        id="id",
        columns={"id": "text", "player": "text", "day": "date", "number": "int", "note": "text"},
        derived={"month": "month of day"},
        projections=[
            projection(f"{name}_by_year", key="year", clustering="id", columns="player",
                       derived={"year": "year of day"}),
            projection(f"{name}_by_number", key="number", clustering="id"),
        ],
    )  # fmt: skip


def game(id: str, player: str = "ann", day: dt.date = DAY, **more: Value) -> Block:
    return block(id, id=id, player=player, day=day, **more)


# ---------------------------------------------------------------- what lies there


def test_columns_are_of_their_types(store: Store, plain: Any) -> None:
    columns = {
        "id": "uuid", "n": "int", "w": "bigint", "big": "varint", "price": "decimal",
        "best": "double", "ok": "boolean", "day": "date", "at": "timestamp", "clock": "time",
        "span": "duration", "raw": "blob", "name": "text", "tags": "set<text>",
        "moves": "list<int>", "score": "map<text, int>", "who": "person",
        "home": "frozen<person>", "pair": "tuple<int, text>", "more": "json", "odd name": "text",
    }  # fmt: skip
    types = {"person": {"first": "text", "born": "date"}}
    collection = made(store, key="id", columns=columns, types=types, indexes={"name": "sai"})
    record: Record = {
        "n": 5, "w": Int64(6), "big": 10**30, "price": Decimal("12.10"), "best": 0.5, "ok": True,
        "day": DAY, "at": dt.datetime(2024, 2, 29, 1, 2, 3, 456_000, tzinfo=dt.UTC),
        "clock": dt.time(1, 2, 3), "span": v.Interval(1, 2, 3), "raw": b"\0\xff", "name": "Ann",
        "tags": v.Set(["b", "a"]), "moves": [3, 1, 3], "score": {"ann": 1},
        "who": {"first": "Ann", "born": DAY}, "home": {"first": "Bob"}, "pair": [1, "x"],
        "more": {"deep": [1, {"x": None}]}, "odd name": "it's",
    }  # fmt: skip
    key = UUID(int=7)
    given = block(key, id=key, **record)
    collection.write([given])
    assert_holds(collection, [given])
    (found,) = raw(plain, collection.at.collection)
    assert found["odd name"] == "it's"
    assert (found["id"], found["n"], found["w"], found["big"]) == (key, 5, 6, 10**30)
    assert str(found["price"]) == "12.10"
    assert (found["best"], found["ok"], str(found["day"])) == (0.5, True, "2024-02-29")
    assert found["at"] == dt.datetime(2024, 2, 29, 1, 2, 3, 456_000)
    assert (str(found["clock"]), found["raw"]) == ("01:02:03.000000000", b"\0\xff")
    assert (found["span"].months, found["span"].days, found["span"].nanoseconds) == (1, 2, 3)
    assert (set(found["tags"]), found["moves"]) == ({"a", "b"}, [3, 1, 3])
    assert (dict(found["score"]), found["pair"]) == ({"ann": 1}, (1, "x"))
    assert (found["who"].first, found["home"].first, found["home"].born) == ("Ann", "Bob", None)
    assert found["more"] == '{"deep":[1,{"x":null}]}'
    told = plain.execute(
        "SELECT column_name, type FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (store.keyspace, collection.at.collection),  # type: ignore[attr-defined]
    )
    lies = dict(told.all())
    expected = {**columns, "pair": "frozen<tuple<int, text>>", "more": "text", "_migrator": "text"}
    assert lies == expected
    indexes = plain.execute(
        "SELECT index_name, kind FROM system_schema.indexes "
        "WHERE keyspace_name = %s AND table_name = %s",
        (store.keyspace, collection.at.collection),  # type: ignore[attr-defined]
    )
    assert [name for name, _ in indexes] == [f"{collection.at.collection}_name_idx"]


def test_null_absent_and_empty_are_told_by_the_side_column(store: Store, plain: Any) -> None:
    columns = {"id": "text", "note": "text", "tags": "set<text>", "score": "map<text, int>"}
    collection = made(store, key="id", columns=columns)
    blocks = [
        block("null", id="null", note=None, tags=None),
        block("absent", id="absent"),
        block("empty", id="empty", note="", tags=v.Set(), score={}),
        block("no id", note="x"),
    ]
    collection.write(blocks)
    assert_holds(collection, blocks)
    side = {row["id"]: row["_migrator"] for row in raw(plain, collection.at.collection)}
    assert side == {
        "null": '{"note":{"":"null"},"tags":{"":"null"}}',
        "absent": "{}",  # a row of nothing but its key has no stamp to be read
        "empty": '{"tags":{"":"empty set"},"score":{"":"empty"}}',
        "no id": '{"id":{"":"absent"}}',
    }


def test_fresh_rows_have_no_tombstones(store: Store, plain: Any) -> None:
    """Hard case C47."""
    columns = {f"c{i}": "text" for i in range(30)} | {"id": "text", "tags": "frozen<set<text>>"}
    collection = made(store, key="id", columns=columns)
    collection.write([block(f"k{i}", id=f"k{i}", c1="x", c2=None) for i in range(20)])
    query = f'SELECT * FROM "{collection.at.collection}"'
    events = plain.execute(query, trace=True).get_query_trace().events
    (told,) = {e.description for e in events if "tombstone cells" in e.description}
    assert told == "Read 20 live rows and 0 tombstone cells"
    shorter = block("k1", id="k1", c3="y")
    collection.write([shorter])
    assert_same(collection.read(["k1"])[0], shorter)


def test_a_delete_by_a_clock_that_is_ahead_does_not_hide_what_is_put_later(
    store: Store, plain: Any
) -> None:
    name = fresh()
    collection = place(store, games(name), name)
    collection.create()
    ahead = time.time_ns() // 1000 + 3_600_000_000
    of_locator = f"DELETE FROM {name}_locator USING TIMESTAMP {ahead} WHERE id = 'a'"
    of_row = (
        f"DELETE FROM {name} USING TIMESTAMP {ahead} "
        "WHERE player = 'ann' AND month = '2024-02' AND day = '2024-02-29' AND id = 'b'"
    )
    for statement in (of_locator, of_row):
        plain.execute(statement)
    other = place(store, games(name), name)
    blocks = [game("a", number=1), game("b", number=2)]
    other.write(blocks)
    assert_holds(other, blocks)
    assert len(raw(plain, f"{name}_by_number")) == 2


# ---------------------------------------------------------------- one address, nothing else


def tables_of(plain: Any, name: str) -> dict[str, set[tuple[Any, ...]]]:
    """The keys that lie in each table of ``games``."""
    columns = {
        name: "player, month, day, id",
        f"{name}_by_year": "year, id, player",
        f"{name}_by_number": "number, id",
        f"{name}_locator": "id, player, month, day",
    }
    return {
        table: {tuple(map(str, row)) for row in plain.execute(f'SELECT {names} FROM "{table}"')}
        for table, names in columns.items()
    }


def test_a_key_attribute_changes(store: Store, plain: Any) -> None:
    name = fresh()
    collection = place(store, games(name), name)
    collection.create()
    blocks = [game("a", number=1), game("b", number=2), game("c")]
    collection.write(blocks)
    assert_holds(collection, blocks)
    blocks[0] = game("a", "bob", dt.date(2025, 1, 2), number=7, note="moved")
    blocks[1] = game("b", day=dt.date(2024, 3, 1))
    collection.write(blocks[:2])
    assert_holds(collection, blocks)
    assert tables_of(plain, name) == {
        name: {
            ("bob", "2025-01", "2025-01-02", "a"),
            ("ann", "2024-03", "2024-03-01", "b"),
            ("ann", "2024-02", "2024-02-29", "c"),
        },
        f"{name}_by_year": {("2025", "a", "bob"), ("2024", "b", "ann"), ("2024", "c", "ann")},
        f"{name}_by_number": {("7", "a")},
        f"{name}_locator": {
            ("a", "bob", "2025-01", "2025-01-02"),
            ("b", "ann", "2024-03", "2024-03-01"),
            ("c", "ann", "2024-02", "2024-02-29"),
        },
    }
    back = [game("a", number=1), game("b", number=2)]
    collection.write(back)
    assert_holds(collection, [*back, blocks[2]])
    collection.delete([Address("a"), Address("b"), Address("c"), Address("d")])
    assert not any(tables_of(plain, name).values())
    collection.write(back)
    assert_holds(collection, back)


def test_a_block_too_large_for_a_batch_moves_too(store: Store, plain: Any) -> None:
    name = fresh()
    collection = place(store, games(name), name)
    collection.create()
    note = "x" * 70_000
    collection.write([game("a", number=1, note=note), game("b", note=note)])
    moved = [game("a", "bob", number=2, note=note), game("b", day=DAY.replace(day=1), note="")]
    collection.write(moved)
    assert_holds(collection, moved)
    found = tables_of(plain, name)
    assert {table: len(keys) for table, keys in found.items()} == {
        name: 2, f"{name}_by_year": 2, f"{name}_by_number": 1, f"{name}_locator": 2
    }  # fmt: skip


def test_a_stray_row_goes_with_its_address(store: Store, plain: Any) -> None:
    name = fresh()
    collection = place(store, games(name), name)
    collection.create()
    collection.write([game("a")])
    plain.execute(
        f'INSERT INTO "{name}" (player, month, day, id) '
        "VALUES ('eve', '2024-02', '2024-02-29', 'a')"
    )
    found = scan(collection, collection.split(1))
    assert len(found) == 2
    stray = [each for each in found if each.entries[""]["player"] == "eve"]  # type: ignore[index]
    collection.delete([Address("a", stray[0].place)])
    assert raw(plain, name) == []


def test_pages_go_through_wide_partitions(store: Store) -> None:
    name = fresh()
    collection = place(store, games(name), name)
    collection.create()
    days = [dt.date(2024, 2, day) for day in (1, 5, 9)]
    blocks = [game(f"{day.day}-{i}", day=day) for day in days for i in range(7)]
    blocks += [game(f"b{i}", "bob") for i in range(5)]
    collection.write(blocks)
    for limit in (1, 2, 3, 5, 100):
        for reader in (collection, collection.observer()):
            found = scan(reader, collection.split(2), limit)
            assert sorted(b.id for b in found) == sorted(b.id for b in blocks)  # type: ignore[type-var]


# ---------------------------------------------------------------- what a plan counts


def test_what_has_no_element_is_counted_as_it_lies(store: Store, plain: Any) -> None:
    columns = {
        "id": "text", "l": "list<int>", "s": "set<text>", "m": "map<text, int>", "who": "nobody",
        "frozen": "frozen<list<int>>", "j": "json",
    }  # fmt: skip
    collection = made(store, key="id", columns=columns, types={"nobody": {"name": "text"}})
    empty: Record = {
        "l": [], "s": v.Set(), "m": {}, "who": {"name": None}, "frozen": [], "j": {"l": []},
    }  # fmt: skip
    full: Record = {
        "l": [1], "s": v.Set(["a"]), "m": {"a": 1}, "who": {"name": "a"}, "frozen": [1],
        "j": {"l": [1]},
    }  # fmt: skip
    blocks = [block("a", id="a", **empty), block("b", id="b", **full)]
    collection.write(blocks)
    rows = {row["id"]: row for row in raw(plain, collection.at.collection)}
    assert None not in [rows["b"][name] for name in full]
    told = {name for name in full if rows["a"][name] is None}
    assert told == {"l", "s", "m", "who"}
    kinds = Kinds(collection, store.capabilities.at(collection.at.layout), told=(How.TAGGED,))
    # The deeper path of the entries, or that of a whole record, tell the same.
    for each in (*blocks, Block("c", {child("", name): x for name, x in empty.items()})):
        odd = [kinds.add(path, value)[1] for path, value in each.entries.items()]
        assert any(odd) is (each.id != "b")
    tagged = Counter[str]()
    for path, kind, held, count in kinds.counted():
        if held.how is How.TAGGED and kind is not Kind.NULL:
            tagged[path] += count
    assert tagged == dict.fromkeys(told, 2)
    tags = Tags("refuse", collection, store.capabilities.at(collection.at.layout))
    unwanted = {path for path, why in tags.unwanted(blocks[0]) if "null" not in why}
    assert unwanted == told
    assert not list(tags.unwanted(blocks[1]))


# ---------------------------------------------------------------- static columns


def test_static_columns_belong_to_a_partition(store: Store, plain: Any) -> None:
    collection = made(
        store, key="player", clustering="id", id="id", static="city",
        columns={"player": "text", "id": "text", "city": "text", "n": "int"},
    )  # fmt: skip

    def one(id: str, city: str | None, player: str = "ann") -> Block:
        return block(id, id=id, player=player, city=city, n=1)

    blocks = [one("a", "Rome"), one("b", "Rome"), one("c", "Oslo", "bob")]
    collection.write(blocks)
    assert_holds(collection, blocks)
    for other in ("Oslo", None):
        with pytest.raises(DoesNotFit, match="same partition"):
            collection.write([one("d", other)])
    with pytest.raises(DoesNotFit, match="same partition"):
        collection.write([one("x", "Bern", "eve"), one("y", "Oslo", "eve")])
    assert_holds(collection, blocks)
    moved = [one("a", "Bern"), one("b", "Bern"), one("c", None, "bob")]
    collection.write(moved)
    assert_holds(collection, moved)
    collection.delete([Address("a"), Address("c")])
    assert_holds(collection, moved[1:2])
    collection.delete([Address("b")])
    assert raw(plain, collection.at.collection) == []


def test_what_static_columns_cost_is_what_is_said(store: Store) -> None:
    collection = made(
        store, key="player", clustering="id", static="city",
        columns={"player": "text", "id": "text", "city": "text", "n": "int", "l": "list<int>"},
    )  # fmt: skip
    costs, seen = table_facts.FACTS.costs, dict[str, int]()

    def one(id: str, city: str, *more: int) -> Block:
        return block(["ann", id], player="ann", id=id, city=city, n=1, l=list(more))

    def count(operation: str, act: Callable[[], object]) -> None:
        with meters.CASSANDRA(store) as traffic:
            act()
        seen[operation] = max(seen.get(operation, 0), traffic.requests)

    last = one("b", "Oslo", 1, 2)
    collection.write([one("a", "Rome")])
    collection.delete([Address(["ann", "a"])])
    for each in (one("b", "Rome"), one("b", "Oslo"), one("b", "Oslo", 1)):
        count("put", lambda each=each: collection.write([each]))
    for operation, change in (("append", last.entries), ("update", one("b", "Rome").entries)):
        patch = Patch(["ann", "b"], change)
        count(operation, lambda patch=patch: collection.patch([patch]))
    count("get", lambda: collection.read([["ann", "b"]]))
    count("delete", lambda: collection.delete([Address(["ann", "b"])]))
    has = {table_facts.STATIC}
    assert seen == {operation: costs[operation].at_most(1, has, 1) for operation in seen}


# ---------------------------------------------------------------- deadlines and stamps


def test_a_deadline_is_kept_to_the_second(store: Store, plain: Any) -> None:
    collection = made(store, key="id", columns={"id": "text", "n": "int"})
    now = int(time.time() * 1000)
    blocks = [block("soon", now + 100_500, id="soon", n=1), block("never", id="never", n=1)]
    collection.write([*blocks, block("past", now - 1, id="past")])
    assert_holds(collection, blocks)
    for reader in (collection, collection.observer()):
        found = {b.id: b.expires for b in scan(reader, collection.split(1))}
        assert found == {"soon": now + 100_500, "never": None}
    query = f"SELECT ttl(n) FROM \"{collection.at.collection}\" WHERE id = 'soon'"
    assert 0 < plain.execute(query).one()[0] <= 101
    collection.write([block("soon", id="soon", n=1)])
    assert plain.execute(query).one()[0] is None


def test_a_deadline_that_is_too_far_is_told_before(store: Store) -> None:
    """Hard case C48."""
    collection = made(store, key="id", columns={"id": "text"})
    far = block("a", int((time.time() + 25 * 365 * 86_400) * 1000), id="a")
    for refuse in (collection.size, lambda b: collection.write([b])):
        with pytest.raises(DoesNotFit, match="20 years"):
            refuse(far)


def test_cells_that_end_by_themselves_are_told(store: Store, plain: Any) -> None:
    """Hard case C22."""
    name = fresh()
    plain.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, a int, l list<int>)")
    plain.execute(f"INSERT INTO {name} (id, a, l) VALUES ('whole', 1, [1, 2]) USING TTL 1000")
    plain.execute(f"INSERT INTO {name} (id, a) VALUES ('part', 1)")
    plain.execute(f"UPDATE {name} USING TTL 1000 SET l = [1] WHERE id = 'part'")
    collection = place(store, "table", name)
    page = collection.page(None, None, 10)
    (whole,) = page.blocks
    assert whole.expires is not None
    assert abs(whole.expires / 1000 - time.time() - 1000) < 300
    assert [(key, "expire by themselves" in told) for key, told in page.damaged] == [("part", True)]
    assert collection.sample(10).damaged == page.damaged


def test_a_write_is_later_than_what_it_replaces(store: Store, plain: Any) -> None:
    """Rule R10, hard case C63: another's clock may be ahead."""
    collection = made(store, key="id", columns={"id": "text", "n": "int", "l": "list<int>"})
    table, ahead = collection.at.collection, time.time_ns() // 1000 + 3_600_000_000
    plain.execute(
        f"INSERT INTO \"{table}\" (id, n, l) VALUES ('a', 1, [1]) USING TIMESTAMP {ahead}"
    )
    new = block("a", id="a", n=2, l=[2, 3])
    collection.write([new])
    assert_same(collection.read(["a"])[0], new)
    collection.write([new])  # hard case C17: no element twice
    assert_same(collection.read(["a"])[0], new)
    collection.delete([Address("a")])
    assert raw(plain, table) == []


# ---------------------------------------------------------------- tables of others


def test_a_table_of_others_is_read_as_it_is(store: Store, plain: Any) -> None:
    """Hard case C43 among other things."""
    name = fresh()
    plain.execute(f"CREATE TYPE IF NOT EXISTS {name}_t (a int, b text)")
    plain.execute(
        f'CREATE TABLE {name} (p int, c int, "Odd ""name""" text, s text static, i inet, '
        f"t timeuuid, f frozen<list<frozen<{name}_t>>>, m map<int, text>, n int, "
        "PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)"
    )
    plain.execute(
        f'INSERT INTO {name} (p, c, "Odd ""name""", s, i, t, f, m) VALUES (1, 2, \'x\', \'st\', '
        "'127.0.0.1', 50554d6e-29bb-11e5-b345-feff819cdc9f, [{a: 1}, {b: 'y'}], {5: 'five'})"
    )
    plain.execute(f"INSERT INTO {name} (p, c) VALUES (1, 3)")
    plain.execute(f"UPDATE {name} SET n = blobAsInt(0x) WHERE p = 1 AND c = 4")
    plain.execute(f"INSERT INTO {name} (p, s) VALUES (9, 'no row')")
    collection = place(store, "table", name)
    expected = [
        block([1, 2], p=1, c=2, **{'Odd "name"': "x"}, s="st", i="127.0.0.1",
              t=UUID("50554d6e-29bb-11e5-b345-feff819cdc9f"), f=[{"a": 1}, {"b": "y"}],
              m={"5": "five"}),
        block([1, 3], p=1, c=3, s="st"),
        block([1, 4], p=1, c=4, s="st", n=v.Opaque("cassandra", "int", b"")),
    ]  # fmt: skip
    assert_holds(collection, expected)
    assert collection.read([[9, 1], "x", [1], [1, "2"]]) == [None] * 4
    assert "cassandra-static" in {code for _, code, _ in collection.findings()}
    changed = block([1, 3], p=1, c=3, s="st", i="::1")
    collection.write([changed])
    assert_same(collection.read([[1, 3]])[0], changed)
    with pytest.raises(DoesNotFit, match="_migrator"):
        collection.write([block([1, 3], p=1, c=3, s="st", i=None)])


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("id text PRIMARY KEY, n counter", "counter"),
        ("id text PRIMARY KEY, e vector<float, 3>", "vector"),
    ],
)
def test_columns_that_can_not_be_moved(store: Store, plain: Any, columns: str, why: str) -> None:
    name = fresh()
    plain.execute(f"CREATE TABLE {name} ({columns})")
    with pytest.raises(Refused, match=why):
        place(store, "table", name).page(None, None, 1)


def test_a_block_key_that_does_not_say_where_it_lies(store: Store, plain: Any) -> None:
    name = fresh()
    plain.execute(f"CREATE TABLE {name} (p int, c int, PRIMARY KEY (p, c))")
    plain.execute(f"INSERT INTO {name} (p, c) VALUES (1, 2)")
    collection = place(store, cassandra_table(id="c"), name)
    with pytest.raises(Refused, match="no locator"):
        collection.read([2])
    with pytest.raises(Refused, match="holds rows already"):
        collection.create()


def test_a_column_that_comes_is_told_and_one_that_goes_holds_nobody_up(
    store: Store, plain: Any
) -> None:
    name = fresh()
    collection = place(store, "table", name)
    assert isinstance(collection, Shaped)
    assert collection.shape_now() is None
    plain.execute(f'CREATE TABLE {name} (id text PRIMARY KEY, n int, "_migrator" text)')
    plain.execute(f"INSERT INTO {name} (id, n) VALUES ('a', 1)")
    before = collection.shape_now()
    assert collection.read(["a"]) == [block("a", id="a", n=1)]
    plain.execute(f"CREATE INDEX ON {name} (n)")
    assert collection.shape_now() == before
    plain.execute(f"ALTER TABLE {name} ADD spell text")
    plain.execute(f"UPDATE {name} SET spell = 'lumos' WHERE id = 'a'")
    assert collection.shape_now() != before
    collection.forget()
    assert collection.read(["a"]) == [block("a", id="a", n=1, spell="lumos")]
    writes, patches, exchanges = (place(store, "table", name) for _ in range(3))
    for other in (writes, patches, exchanges):
        assert other.read(["a"]) == collection.read(["a"])
    plain.execute(f"ALTER TABLE {name} DROP spell")
    writes.write([block("a", id="a", n=2)])
    assert collection.read(["a"]) == [block("a", id="a", n=2)]
    patches.patch([Patch("a", {"": {"id": "a", "n": 3}})])
    made = block("a", id="a", n=4)
    assert isinstance(exchanges, Exchanging)
    assert exchanges.exchange("a", block("a", id="a", n=3), made)
    assert collection.read(["a"]) == [made]
    with pytest.raises(DoesNotFit, match="no column for it") as refused:
        writes.write([block("a", id="a", n=1, spell="nox")])
    assert refused.value.path == "spell"


def test_a_table_that_is_another_is_not_taken(store: Store, plain: Any) -> None:
    name = fresh()
    plain.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, n int)")
    for layout in (
        cassandra_table(key="n", columns={"id": "text", "n": "int"}),
        cassandra_table(key="id", columns={"id": "text", "m": "int"}),
    ):
        with pytest.raises(Refused):
            place(store, layout, name).create()
    with pytest.raises(Terminal, match="no such table"):
        place(store, "table").read(["x"])


# ---------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("record", "path"),
    [
        ({"n": "x"}, "n"),
        ({"n": 2**31}, "n"),
        ({"l": [1, None]}, "l[1]"),
        ({"other": 1}, "other"),
        ({"id": "another"}, "id"),
        ({"player": None}, "player"),
    ],
)
def test_a_block_that_does_not_fit_is_named(store: Store, record: Record, path: str) -> None:
    collection = place(
        store,
        cassandra_table(key="player", clustering="id", id="id", columns={
            "player": "text", "id": "text", "n": "int", "l": "list<int>"}),
    )  # fmt: skip
    bad = block("a", **{"id": "a", "player": "ann", **record})
    with pytest.raises(DoesNotFit) as caught:
        collection.size(bad)  # before the table is made
    assert (caught.value.key, caught.value.path) == ("a", path)


def test_what_the_server_alone_refuses_is_named(store: Store) -> None:
    """An index has a bound of its own for what it takes."""
    collection = made(store, key="id", columns={"id": "text", "name": "text"},
                      indexes={"name": "2i"})  # fmt: skip
    others = [block(f"k{n}", id=f"k{n}", name="x") for n in range(20)]
    refused = block("long", id="long", name="x" * 70_000)
    with pytest.raises(DoesNotFit, match="long: Cassandra does not take it") as caught:
        collection.write([*others[:10], refused, *others[10:]])
    assert (caught.value.key, caught.value.where) == ("long", f"wide:{collection.at.collection}")
    collection.write(others)
    assert_holds(collection, others)


@pytest.mark.parametrize("size", [65_535, 65_536])
def test_a_key_at_its_limit(store: Store, size: int) -> None:
    """Hard case C52."""
    collection = made(store, key="id", columns={"id": "text", "n": "int"})
    key = "ä" * (size // 2) + "x" * (size % 2)
    one = block(key, id=key)
    if size > 65_535:
        with pytest.raises(DoesNotFit, match="partition key"):
            collection.write([one])
    else:
        collection.write([one])
        assert_holds(collection, [one])


def test_keys_of_two_kinds_lie_apart_or_are_refused(store: Store) -> None:
    """Identifiers of MongoDB: some text, some ObjectIds, in one text column."""
    collection = made(store, key="_id", derived={"_id": "block key"}, columns={"_id": "text"})
    oid = v.ObjectId(bytes.fromhex("507d95d5719dbef170f15bf9"))
    blocks = [
        block(
            "ac3",
        ),
        block(oid),
    ]
    collection.write(blocks)
    assert_holds(collection, blocks)
    assert collection.read([str(oid)]) == [None]
    assert collection.same_key(oid) == collection.same_key(str(oid))
    with pytest.raises(DoesNotFit, match="same key"):
        collection.write([block(oid), block(str(oid))])


@pytest.mark.parametrize(
    "options",
    [
        {"key": "id"},
        {"key": "id", "columns": {"id": "list<int>"}},
        {"key": "id", "columns": {"id": "nothing"}},
        {"key": "id", "columns": {"id": "text"}, "clustering": "id"},
        {"key": "id", "columns": {"id": "text"}, "static": "x"},
        {"key": "id", "columns": {"id": "text"}, "derived": {"m": "week of x"}},
        {"key": "id", "columns": {"id": "text", "_migrator": "text"}},
        {"key": "id", "columns": {"id": "text"}, "indexes": {"id": "btree"}},
        {"key": "id", "columns": {"id": "text"}, "projections": [projection("a b", key="id")]},
        {"key": "id", "columns": {"id": "text", "n": "int"},
         "projections": [projection("p_of_n", key="n")]},
        {"key": "n", "columns": {"id": "text", "n": "int"}, "id": "id"},
        {"clustering": "id"},
        {"static": "x"},
    ],
)  # fmt: skip
def test_declarations_that_do_not_agree(store: Store, options: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        place(store, cassandra_table(**options)).create()


def test_c59_a_type_in_a_key_makes_twins_once_it_gets_a_field(store: Store) -> None:
    layout = cassandra_table(key="id", columns={"id": "frozen<t>"}, types={"t": {"a": "int"}})
    with pytest.raises(Refused, match="can't be in the key"):
        place(store, layout).create()


def test_partitions_that_would_be_too_large_are_told() -> None:
    from migrator.stores.cassandra import table_partitions as partitions
    from migrator.stores.cassandra.table_rows import Rows
    from migrator.stores.cassandra.table_shape import shape_of
    from migrator.stores.cassandra.table_spec import spec_of

    layout = cassandra_table(
        key="player", clustering="id", id="id", columns={"player": "text", "id": "int"}
    )
    at = At("wide", "games", ["/Game/*"], layout)
    shape = shape_of(spec_of(at), None, "wide:games")
    counted = partitions.Partitions(shape)
    rows = Rows(shape, at.rules("Game"), "wide:games")
    for i in range(60):
        counted.add(rows.row(block(i, id=i, player="ann" if i % 3 else f"p{i}")))
    assert list(counted.findings(60)) == []
    told = {code: text for _, code, text in counted.findings(300_000)}
    assert list(told) == ["cassandra-partition-rows"]
    assert "1 partitions" in told["cassandra-partition-rows"]
    assert "200,000" in told["cassandra-partition-rows"]
    # Rows of 60 kB: fewer of them make a partition too large.
    wide = partitions.Partitions(shape)
    for i in range(60):
        wide.add(rows.row(block(i, id=i, player="a" * 60_000 if i % 3 else f"p{i}")))
    assert list(wide.findings(1_500)) == []
    (told_of,) = wide.findings(3_000)
    assert told_of[:2] == ("warning", "cassandra-partition-bytes")
    assert "1 partitions would have over 100 MB, the largest about 114 MB" in told_of[2]


def test_the_heavy_of_very_many_keys_are_found_in_bounded_memory() -> None:
    counted = Heavy()
    for i in range(KEPT * 2):
        counted.add(str(i).encode(), 1)
        counted.add(b"heavy", 10)
    assert len(counted) <= KEPT
    heaviest = max(counted.of(KEPT * 4))
    assert KEPT * 2 * 0.9 < heaviest[0] <= KEPT * 2


def test_a_partition_that_is_too_large_already_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = made(store, key="id", columns={"id": "int"})
    told = "cassandra-partition"
    assert told not in {code for _, code, _ in collection.findings()}
    # Any is over less than nothing; what a server has is told by itself alone.
    monkeypatch.setattr(table_facts, "_LARGE_MIB", -1)
    assert told in {code for _, code, _ in collection.findings()}

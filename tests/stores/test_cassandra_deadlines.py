"""Deadlines of single cells on a real Cassandra: read as a field, and what lies there after."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest

from migrator import At, cassandra_table, projection
from migrator.errors import DamagedBlock, DoesNotFit, Refused
from migrator.exchange import Exchanging, exchanges_alone
from migrator.model import value as v
from migrator.model.block import Block, Patch
from migrator.model.value import Record, Value
from migrator.ports import Collection, Store
from migrator.testing.contract.harness import assert_fields_end, assert_holds
from tests.stores.test_cassandra_table import plain, store
from tests.system import kit

__all__ = ["plain", "store"]

COLUMNS = {"id": "text", "a": "text", "b": "int", "m": "map<text, int>", "f": "frozen<list<int>>"}
DAY = 86_400


def place(store: Store, name: str = "", **options: Any) -> Collection:
    options = {"key": "id", "columns": COLUMNS, "deadlines": "ends"} | options
    at = At("wide", name or kit.fresh("cells"), ["/Game/*"], cassandra_table(**options))
    return store.collection("Game", at)


@pytest.fixture
def cells(store: Store) -> Collection:
    made = place(store)
    made.create()
    return made


def block(id: str, expires: int | None = None, /, **record: Value) -> Block:
    return Block(id, {"": {"id": id, **record}}, expires)


def later(seconds: int, nanos: int = 0) -> Value:
    """A moment to the nanosecond, so many seconds from now."""
    return v.instant((int(time.time()) + seconds) * 10**9 + nanos)


def record_of(collection: Collection, id: str) -> Record:
    """An aggregate, the same by both readers."""
    (one,), (other,) = collection.read([id]), collection.observer().read([id])
    assert one is not None
    assert one == other
    record = one.entries[""]
    assert isinstance(record, dict)
    return record


def left(plain: Any, name: str, id: str) -> dict[str, Any]:
    """What is left of the life of each column, by the plain driver."""
    names = ("a", "b", "m", "f", "_migrator")
    asked = ", ".join(f'ttl("{name}")' for name in names)
    (row,) = plain.execute(f"SELECT {asked} FROM {name} WHERE id = %s", (id,))
    return dict(zip(names, row, strict=True))


def about(life: int, seconds: int) -> bool:
    """Whether a life is of so many seconds, of which a slow machine may have used many."""
    return seconds - 300 < life <= seconds + 1


def test_each_cell_lives_as_long_as_its_deadline_says(
    store: Store, plain: Any, cells: Collection
) -> None:
    name, whole = cells.at.collection, (int(time.time()) + 3 * DAY) * 1000 + 7
    blocks = [
        block("none", a="x", ends={}),
        block("some", a="x", b=1, m={"k": 1, "l": 2}, f=[1],
              ends={"a": later(DAY, 1), "m": later(2 * DAY), "f": later(DAY, 1)}),
        block("all", a="x", b=1, ends={"a": later(DAY), "b": later(2 * DAY)}),
        # The whole ends before the deadline of b comes, which is kept all the same.
        block("whole", whole, a="x", b=1, ends={"a": later(DAY), "b": later(9 * DAY)}),
    ]  # fmt: skip
    cells.write(blocks)
    assert_holds(cells, blocks)
    assert set(left(plain, name, "none").values()) == {None}
    some = left(plain, name, "some")
    assert (some["b"], some["_migrator"]) == (None, None)
    assert about(some["a"], DAY)
    assert about(some["f"], DAY)
    assert len(some["m"]) == 2
    assert all(about(life, 2 * DAY) for life in some["m"])
    ends = left(plain, name, "whole")
    assert about(ends["a"], DAY)
    assert about(ends["b"], 3 * DAY)
    assert about(ends["_migrator"], 3 * DAY)
    shorter = [block("some", a="y", ends={}), block("whole", b=2, ends={"b": later(DAY)})]
    cells.write(shorter)
    assert_holds(cells, [blocks[0], blocks[2], *shorter])
    assert left(plain, name, "some")["a"] is None
    assert_fields_end(cells, "other", {"id": "other", "a": "x", "m": {"k": 1}}, "m")


def test_a_large_row_is_one_mutation_however_many_statements(store: Store, plain: Any) -> None:
    """Over the size that the server takes of a batch of several."""
    columns = COLUMNS | {"day": "text"}
    made = place(store, key="day", clustering="id", id="id", columns=columns)
    made.create()
    assert plain.execute(f"SELECT * FROM {made.at.collection}_locator").one() is None
    given = block("x", day="mon", a="x" * 60_000, b=1, ends={"a": later(DAY)})
    made.write([given])
    moved = block("x", day="tue", a="y" * 60_000, b=2, ends={"b": later(DAY)})
    made.write([moved])
    assert_holds(made, [moved])


def test_cells_that_others_put_have_the_deadlines_that_they_gave(
    store: Store, plain: Any, cells: Collection
) -> None:
    name = cells.at.collection
    cells.write([block("x", a="x", b=1, f=[1], ends={"a": later(DAY), "b": later(DAY)})])
    plain.execute(f"UPDATE {name} USING TTL {2 * DAY} SET a = 'x' WHERE id = 'x'")
    plain.execute(f"UPDATE {name} SET b = 1 WHERE id = 'x'")
    ends = record_of(cells, "x")["ends"]
    assert isinstance(ends, dict)
    assert ends.keys() == {"a"}
    moment = ends["a"]
    assert isinstance(moment, dt.datetime)
    assert about(int(moment.timestamp() - time.time()), 2 * DAY)
    # Asked again it is the same, though the server tells only what is left in whole seconds.
    assert record_of(cells, "x")["ends"] == ends


def test_a_row_that_others_write_on_ends_no_longer_as_a_whole(
    store: Store, plain: Any, cells: Collection
) -> None:
    name, whole = cells.at.collection, (int(time.time()) + 3 * DAY) * 1000 + 7
    cells.write([block("x", whole, a="x", b=1, f=[1], ends={"a": later(DAY), "f": later(9 * DAY)})])
    first = record_of(cells, "x")["ends"]
    assert isinstance(first, dict)
    plain.execute(f"UPDATE {name} SET m = {{'k': 1}} WHERE id = 'x'")
    ends = record_of(cells, "x")["ends"]
    end = v.instant(whole * 10**6)
    assert ends == {"a": first["a"], "b": end, "f": end}
    assert cells.read(["x"])[0].expires is None  # type: ignore[union-attr]


def test_a_table_of_an_application_is_read_column_by_column(store: Store, plain: Any) -> None:
    name = kit.fresh("cells_app")
    shape = ", ".join(f"{column} {type_}" for column, type_ in COLUMNS.items())
    plain.execute(f"CREATE TABLE {name} ({shape}, PRIMARY KEY (id))")
    put = f"INSERT INTO {name} (id, a, b, m) VALUES (%s, 'x', 1, {{'k': 1, 'l': 2}})"
    plain.execute(put, ("apart",))
    plain.execute(f"UPDATE {name} USING TTL {DAY} SET a = 'x', m = {{'k': 3}} WHERE id = 'apart'")
    plain.execute(f"{put} USING TTL {DAY}", ("whole",))
    plain.execute(f"{put} USING TTL {2 * DAY}", ("both",))
    plain.execute(f"UPDATE {name} USING TTL {DAY} SET b = 2 WHERE id = 'both'")
    plain.execute(put, ("element",))
    plain.execute(f"UPDATE {name} USING TTL {DAY} SET m['k'] = 2 WHERE id = 'element'")
    there = place(store, name, key=None, columns=None)
    for reader in (there, there.observer()):
        page = reader.page(None, None, 10)
        ((key, why),) = page.damaged
        assert key == "element"
        assert "elements of m expire by themselves, and a field ends as a whole" in why
        found = {each.id: (each.expires is not None, each.entries[""]) for each in page.blocks}
        told = {id: (ends, sorted(record["ends"])) for id, (ends, record) in found.items()}  # type: ignore[call-overload, index, arg-type]
        assert told == {"apart": (False, ["a", "m"]), "whole": (True, []), "both": (True, ["b"])}
    # Without the option they are no deadlines of the block.
    bare = place(store, name, key=None, columns=None, deadlines=None)
    with pytest.raises(DamagedBlock, match=r"cells of a, m expire .* deadlines= of the layout"):
        bare.read(["apart"])


def test_deadlines_that_nobody_declares_are_told_not_dropped(
    store: Store, cells: Collection
) -> None:
    whole = (int(time.time()) + 3 * DAY) * 1000
    cells.write([block("x", whole, a="x", b=1, ends={"a": later(DAY)})])
    bare = place(store, cells.at.collection, deadlines=None)
    for reader in (bare, bare.observer()):
        ((_, why),) = reader.page(None, None, 10).damaged
        assert "cells of a expire by themselves" in why


def test_what_has_ended_is_absent(store: Store, plain: Any, cells: Collection) -> None:
    cells.write([block("x", a="x", b=1, ends={"a": later(DAY)})])
    cells.write([block("x", a="x", b=1, ends={"a": later(-1), "b": later(DAY)})])
    assert record_of(cells, "x").keys() == {"id", "b", "ends"}
    cells.write([block("y", a="x", ends={"a": later(2)})])
    end = time.monotonic() + 90
    while cells.read_entries("y", [""]) != {"": {"id": "y", "ends": {}}}:
        assert time.monotonic() < end, "the cell did not end"
        time.sleep(0.1)
    assert record_of(cells, "y") == {"id": "y", "ends": {}}


def test_changes_of_entries_keep_the_deadlines_of_others(
    store: Store, plain: Any, cells: Collection
) -> None:
    split = store.collection(
        "Game", At("wide", cells.at.collection, ["/Game/*/*"], cells.at.layout)
    )
    moment = later(DAY, 5)
    cells.write([block("x", a="x", b=1, ends={"a": moment})])
    split.patch([Patch("x", {"b": 2})])
    assert record_of(cells, "x") == {"id": "x", "a": "x", "b": 2, "ends": {"a": moment}}
    assert about(left(plain, cells.at.collection, "x")["a"], DAY)
    split.patch([Patch("x", {"ends": {"b": moment}}, ("a",))])
    assert record_of(cells, "x") == {"id": "x", "b": 2, "ends": {"b": moment}}


def test_rows_with_them_are_not_changed_on_condition(cells: Collection) -> None:
    assert isinstance(cells, Exchanging)
    assert not exchanges_alone(cells)
    with pytest.raises(Refused, match=r"single cells \(deadlines='ends'\)"):
        cells.exchange("x", None, block("x", a="x", ends={}))


@pytest.mark.parametrize(
    ("record", "path", "why"),
    [
        ({"a": "x"}, "ends", "absent, and would come back empty"),
        ({"ends": []}, "ends", "no record, by field"),
        ({"ends": {"a": 5}}, "ends.a", "a deadline is a timestamp"),
        ({"ends": {"a": later(DAY)}}, "ends.a", "no cell of its own"),
        ({"a": None, "ends": {"a": later(DAY)}}, "ends.a", "no cell of its own"),
        ({"m": {}, "ends": {"m": later(DAY)}}, "ends.m", "no cell of its own"),
        ({"ends": {"id": later(DAY)}}, "ends.id", "no cell of its own"),
        ({"more": 1, "ends": {"more": later(DAY)}}, "ends.more", "no cell of its own"),
        ({"a": "x", "ends": {"a": later(21 * 366 * DAY)}}, "ends.a", "more than 20 years away"),
        ({"a": "x", "ends": {"a": v.instant(2_200_000_000 * 10**9)}}, "ends.a", "January 2038"),
    ],
)
def test_what_does_not_fit_is_named(store: Store, record: Record, path: str, why: str) -> None:
    planned = place(store, rest="other")
    with pytest.raises(DoesNotFit, match=why) as error:
        planned.size(block("x", **record))
    assert error.value.path == path


def test_a_table_without_the_side_column_takes_none(store: Store, plain: Any) -> None:
    name = kit.fresh("cells_app")
    plain.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, a text)")
    there = place(store, name, key=None, columns=None)
    there.write([block("x", a="x", ends={})])
    assert record_of(there, "x") == {"id": "x", "a": "x", "ends": {}}
    with pytest.raises(DoesNotFit, match="no column _migrator") as error:
        there.write([block("x", a="x", ends={"a": later(DAY)})])
    assert error.value.path == "ends.a"


def test_options_that_do_not_go_together_are_refused(store: Store, plain: Any) -> None:
    with pytest.raises(Refused, match="deadlines='a' is a column, too"):
        place(store, deadlines="a")
    with pytest.raises(Refused, match="goes with no projections"):
        place(store, projections=[projection("by_a", key="a", clustering="id")])
    name = kit.fresh("cells_app")
    plain.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, ends text)")
    with pytest.raises(Refused, match="is a column of the table, too"):
        place(store, name, key=None, columns=None).read(["x"])


def test_no_entries_are_given_of_a_block_that_has_ended(
    cells: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server keeps it for up to a second more, as it counts lives in seconds."""
    ends = (int(time.time()) + DAY) * 1000
    cells.write([block("1", ends, a="x", ends={})])
    assert cells.read_entries("1", [""]) is not None
    monkeypatch.setattr(time, "time", lambda: ends / 1000)
    assert cells.read_entries("1", [""]) is None

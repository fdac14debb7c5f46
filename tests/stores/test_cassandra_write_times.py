"""Write times of cells on a real Cassandra: carried where that loses nothing, else stamped anew."""

from __future__ import annotations

import time
from typing import Any

import pytest

from migrator import At, cassandra_table
from migrator.errors import DoesNotFit, Refused
from migrator.model import value as v
from migrator.model.block import Address, Block, Patch
from migrator.model.value import Int64, Record, Value
from migrator.ports import Collection, Stamped, Store
from migrator.stores.cassandra import table_facts
from tests.contract import meters
from tests.stores.test_cassandra_table import plain, store
from tests.system import kit

__all__ = ["plain", "store"]

COLUMNS = {"id": "text", "a": "text", "b": "int", "m": "map<text, int>", "l": "list<int>",
           "f": "frozen<list<int>>"}  # fmt: skip
LONG_AGO = 1_500_000_000_000_000


def place(store: Store, name: str = "", **options: Any) -> Collection:
    options = {"key": "id", "columns": COLUMNS, "write_times": "at"} | options
    at = At("wide", name or kit.fresh("stamps"), ["/Game/*"], cassandra_table(**options))
    return store.collection("Game", at)


@pytest.fixture
def cells(store: Store) -> Collection:
    made = place(store)
    made.create()
    return made


def block(id: str, expires: int | None = None, /, **record: Value) -> Block:
    return Block(id, {"": {"id": id, **record}}, expires)


def held(collection: Collection, id: str = "x") -> tuple[Record, dict[str, Value]]:
    """An aggregate, the same by both readers, without its write times; and those."""
    (one,), (other,) = collection.read([id]), collection.observer().read([id])
    assert one is not None
    assert one == other
    record = one.entries[""]
    assert isinstance(record, dict)
    times = record.pop("at")
    assert isinstance(times, dict)
    return record, times


def test_they_are_read_and_put_cell_by_cell(store: Store, plain: Any, cells: Collection) -> None:
    app = kit.fresh("stamps_app")
    shape = ", ".join(f"{column} {type_}" for column, type_ in COLUMNS.items())
    plain.execute(f"CREATE TABLE {app} ({shape}, PRIMARY KEY (id))")
    plain.execute(
        f"INSERT INTO {app} (id, a, b, m, l) VALUES ('x', 'x', 1, {{'k': 1}}, [1, 2]) "
        f"USING TIMESTAMP {LONG_AGO}"
    )
    plain.execute(f"UPDATE {app} USING TIMESTAMP {LONG_AGO + 7} SET m['l'] = 2 WHERE id = 'x'")
    plain.execute(f"UPDATE {app} USING TIMESTAMP -5 SET f = [3] WHERE id = 'x'")
    source = place(store, app, key=None, columns=None)
    record, times = held(source)
    # A list that is not frozen has none: put twice with one stamp it would have all twice.
    assert times == {"a": LONG_AGO, "b": LONG_AGO, "m": LONG_AGO + 7, "f": Int64(-5)}
    (there,) = source.read(["x"])
    assert there is not None
    for _ in range(2):  # a copy that is run again finds what it put
        cells.write([there])
        assert held(cells) == (record, times)
    asked = f"SELECT writetime(a), writetime(f), writetime(m) FROM {cells.at.collection}"
    assert list(plain.execute(asked).one()) == [LONG_AGO, -5, [LONG_AGO + 7] * 2]
    assert isinstance(cells, Stamped)
    assert cells.write_times == "at"
    # And back, into a table that has no side column.
    changed = block("x", a="y", b=1, at={"a": LONG_AGO + 9, "b": LONG_AGO})
    source.write([changed])
    assert held(source) == ({"id": "x", "a": "y", "b": 1}, {"a": LONG_AGO + 9, "b": LONG_AGO})


def hide(cells: Collection, plain: Any, how: str) -> None:
    """Have something lie in the place of a row that is later than its write times."""
    name = cells.at.collection
    if how == "a delete":
        cells.write([block("x", a="old", at={})])
        cells.delete([Address("x")])
    elif how == "a delete between the write times":
        plain.execute(f"DELETE FROM {name} USING TIMESTAMP {LONG_AGO + 5} WHERE id = 'x'")
    elif how == "another copy":
        cells.write([block("x", a="old", f=[9], at={})])
    elif how == "another value of the same time":
        cells.write([block("x", a="zzz", at={"a": LONG_AGO})])
    else:
        assert how == "a column that was removed"
        cells.write([block("x", a="old", b=1, at={"a": LONG_AGO, "b": LONG_AGO})])
        cells.write([block("x", a="old", at={"a": LONG_AGO})])


@pytest.mark.parametrize(
    "how",
    [
        "a delete",
        "a delete between the write times",
        "another copy",
        "another value of the same time",
        "a column that was removed",
    ],
)
def test_what_would_be_hidden_is_stamped_anew(cells: Collection, plain: Any, how: str) -> None:
    hide(cells, plain, how)
    before = time.time_ns() // 1000 - 1_000_000
    given = block("x", a="new", b=2, at={"a": LONG_AGO, "b": LONG_AGO + 9})
    cells.write([given])
    record, times = held(cells)
    assert record == {"id": "x", "a": "new", "b": 2}
    assert all(type(at) is int and at > before for at in times.values()), times


def test_they_go_with_deadlines(store: Store, plain: Any) -> None:
    cells = place(store, deadlines="ends")
    cells.create()
    later = v.instant((int(time.time()) + 86_400) * 10**9 + 7)
    times: Record = {"a": LONG_AGO, "b": LONG_AGO + 1}
    whole = (int(time.time()) + 172_800) * 1000 + 3
    blocks = [
        block("x", a="x", b=1, ends={"a": later}, at=times),
        block("y", whole, a="x", b=1, ends={"a": later}, at=times),
        block("z", a="x", b=1, ends={"a": v.instant(10**18)}, at=times),
    ]
    cells.write(blocks)
    for id, expires in (("x", None), ("y", whole)):
        record, found = held(cells, id)
        assert (record, found) == ({"id": id, "a": "x", "b": 1, "ends": {"a": later}}, times)
        assert cells.read([id])[0].expires == expires  # type: ignore[union-attr]
    assert held(cells, "z") == ({"id": "z", "b": 1, "ends": {}}, {"b": LONG_AGO + 1})
    plain.execute(f"UPDATE {cells.at.collection} SET a = 'y' WHERE id = 'y'")
    record, found = held(cells, "y")
    assert record["ends"] == {"b": v.instant(whole * 10**6)}


def test_a_change_of_entries_stamps_what_it_changes(store: Store, cells: Collection) -> None:
    split = store.collection(
        "Game", At("wide", cells.at.collection, ["/Game/*/*"], cells.at.layout)
    )
    cells.write([block("x", a="x", b=1, at={"a": LONG_AGO, "b": LONG_AGO})])
    split.patch([Patch("x", {"b": 2})])
    record, times = held(cells)
    assert record == {"id": "x", "a": "x", "b": 2}
    assert times["a"] == LONG_AGO
    assert times["b"] != LONG_AGO
    with pytest.raises(Refused, match=r"single cells \(write_times='at'\)"):
        cells.exchange("x", None, block("x", at={}))  # type: ignore[attr-defined]


def test_what_they_cost_is_what_is_said(store: Store, plain: Any, cells: Collection) -> None:
    split = store.collection(
        "Game", At("wide", cells.at.collection, ["/Game/*/*"], cells.at.layout)
    )
    hide(cells, plain, "a delete")
    assert split.read(["x"]) == [None]  # it knows the table
    seen: dict[str, int] = {}
    with meters.CASSANDRA(store) as traffic:
        cells.write([block("x", a="new", at={"a": LONG_AGO})])
    seen["put"] = traffic.requests
    for operation, change in (("update", {"b": 2}), ("append", {"f": [1]})):
        with meters.CASSANDRA(store) as traffic:
            split.patch([Patch("x", change)])
        seen[operation] = traffic.requests
    costs = table_facts.FACTS.costs
    assert seen == {name: costs[name].at_most(1, {table_facts.STAMPED}, 1) for name in seen}


@pytest.mark.parametrize(
    ("record", "path", "why"),
    [
        ({}, "at", "absent, and would come back empty"),
        ({"at": 5}, "at", "no record, by field"),
        ({"at": {"a": 5}}, "at.a", "no cell of its own"),
        ({"a": "x", "at": {"a": "5"}}, "at.a", "a whole number of 64 bits"),
        ({"a": "x", "at": {"a": 2**63}}, "at.a", "a whole number of 64 bits"),
        ({"at": {"id": 5}}, "at.id", "no cell of its own"),
        ({"l": [1], "at": {"l": 5}}, "at.l", "a list that is not frozen"),
    ],
)
def test_what_does_not_fit_is_named(store: Store, record: Record, path: str, why: str) -> None:
    with pytest.raises(DoesNotFit, match=why) as error:
        place(store).size(block("x", **record))
    assert error.value.path == path


def test_options_that_do_not_go_together_are_refused(store: Store) -> None:
    with pytest.raises(Refused, match="write_times='a' is a column, too"):
        place(store, write_times="a")
    with pytest.raises(Refused, match="name one field"):
        place(store, deadlines="at")

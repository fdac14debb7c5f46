"""Two processes that write Cassandra by clocks which jump by an hour, forth and back: what was
acknowledged last is there (R10). Each store here stands for a process."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from migrator import cassandra_table
from migrator.model.block import Address, Aggregate, Patch, cut, join
from migrator.model.layouts import cassandra_row
from migrator.model.move import At, Layout
from migrator.model.value import Record
from migrator.ports import Collection, Store, StoreSettings
from migrator.stores import cassandra
from migrator.stores.cassandra import table_write
from tests.contract import servers

_numbers = itertools.count(1)
_COLUMNS = {"id": "text", "a": "text", "b": "text", "m": "map<text, text>"}
OTHERS = Layout("table")  # made by somebody else: no column tells more than its own value
LAYOUTS = {
    "partition": Layout("partition"),
    "row": cassandra_row(),
    "row with columns": cassandra_row(["a"]),
    "table": cassandra_table(key="id", columns=_COLUMNS),
    "a table of others": OTHERS,
}
Clock = Callable[[int], None]


@pytest.fixture(scope="module")
def stores() -> Iterator[Sequence[Store]]:
    made = [cassandra.open_store(StoreSettings("wide", servers.cassandra())) for _ in range(2)]
    yield made
    for store in made:
        store.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets how many hours the wall clock of this process is ahead."""
    real, ahead = time.time_ns, 0

    def set_(hours: int) -> None:
        nonlocal ahead
        ahead = hours

    monkeypatch.setattr(time, "time_ns", lambda: real() + ahead * 3600 * 10**9)
    return set_


def placed(stores: Sequence[Store], layout: Layout) -> list[Collection]:
    """One table as either process sees it; neither knows what was deleted there."""
    name = f"clocks_{next(_numbers)}"
    rules = ["/Game/*" if layout.name == "table" else "/Game/*/*"]
    at = At("wide", name, rules, layout)
    if layout is OTHERS:
        columns = ", ".join(f"{column} {type_}" for column, type_ in _COLUMNS.items())
        with servers.plain_cassandra() as plain:
            plain.execute(f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id))")
    else:
        stores[0].collection("Game", at).create()
    return [store.collection("Game", at) for store in stores]


def held(side: Collection, key: str) -> Record | None:
    (block,) = side.read([key])
    return None if block is None else join(block).value


def _whole(side: Collection) -> bool:
    return side.at.rules("Game").rules[0].text.endswith("/Game/*")


def put(side: Collection, **record: Any) -> None:
    side.write([cut(Aggregate(record["id"], record), side.at.rules("Game"))])


def change(side: Collection, before: Record, record: Record) -> None:
    gone = () if _whole(side) else tuple(name for name in before if name not in record)
    entries: Any = {"": record} if _whole(side) else record
    side.patch([Patch(str(record["id"]), entries, gone)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_acknowledged_last_is_there(
    stores: Sequence[Store], clock: Clock, layout: str
) -> None:
    sides, chance = placed(stores, LAYOUTS[layout]), random.Random(1)
    told: dict[str, Record] = {}
    for _ in range(30):
        writer, reader = chance.sample(sides, 2)
        clock(chance.choice((0, 0, 1, -1)))
        key = f"k{chance.randrange(2)}"
        record: Record = {"id": key}
        record |= {name: str(chance.random()) for name in "ab" if chance.random() < 0.5}
        if chance.random() < 0.3:
            record["m"] = dict.fromkeys("xyz"[: chance.randrange(1, 4)], "x")
        how = chance.choice(("put", "delete", "change"))
        if how == "delete":
            writer.delete([Address(key)])
            told.pop(key, None)
        elif how == "change" and key in told:
            change(writer, told[key], record)
            told[key] = record
        else:
            put(writer, **record)
            told[key] = record
        assert held(reader, key) == told.get(key), (how, record)
    sides[0].drop()


def test_a_row_of_nothing_but_its_key_goes_though_it_was_put_ahead(
    stores: Sequence[Store], clock: Clock
) -> None:
    one, other = placed(stores, OTHERS)
    put(one, id="m", a="x", b="x")
    clock(1)
    put(one, id="k")
    put(one, id="l", a="x")
    change(one, {}, {"id": "m", "a": "x"})  # what tells of that can't be read, nor the row's stamp
    clock(0)
    other.delete([Address(key) for key in "klm"])
    assert [held(one, key) for key in "klm"] == [None] * 3
    one.drop()


def test_so_does_one_that_somebody_else_put_ahead_into_a_table_of_ours(
    stores: Sequence[Store],
) -> None:
    one, _ = placed(stores, LAYOUTS["table"])
    ahead = time.time_ns() // 1000 + 3600 * 10**6
    with servers.plain_cassandra() as plain:
        name = one.at.collection
        plain.execute(f"INSERT INTO {name} (id) VALUES ('k') USING TIMESTAMP {ahead}")
    one.delete([Address("k")])
    assert held(one, "k") is None
    one.drop()


def test_a_column_that_was_removed_ahead_can_be_put_again(
    stores: Sequence[Store], clock: Clock
) -> None:
    one, other = placed(stores, OTHERS)
    for key in "kl":
        put(one, id=key, a="1", b="1")
    put(one, id="m", a="1")
    clock(1)
    for key in "kl":
        change(one, {}, {"id": key, "b": "1"})
    put(one, id="m")
    clock(0)
    change(other, {}, {"id": "k", "a": "2", "b": "1"})
    put(other, id="l", a="2", b="1")
    put(other, id="m", a="2")
    for key in "kl":
        assert held(one, key) == {"id": key, "a": "2", "b": "1"}
    assert held(one, "m") == {"id": "m", "a": "2"}
    one.drop()


@pytest.mark.parametrize("looks", ["until_seen", "until_gone"])
def test_what_another_writes_meanwhile_is_not_written_over(
    stores: Sequence[Store], monkeypatch: pytest.MonkeyPatch, looks: str
) -> None:
    """As it is not, where the clocks agree."""
    one, other = placed(stores, OTHERS)
    look = getattr(table_write, looks)

    def meanwhile(*given: Any) -> None:
        monkeypatch.undo()
        put(other, id="k", b="2")
        look(*given)

    put(one, id="k")
    monkeypatch.setattr(table_write, looks, meanwhile)
    if looks == "until_seen":
        put(one, id="k", a="1")
    else:
        one.delete([Address("k")])
    assert held(one, "k") == {"id": "k", "b": "2"}
    one.drop()

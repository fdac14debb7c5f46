"""Fields of an item that are changed where they lie: one request, or nothing is done."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from migrator import index, item
from migrator.errors import Transient
from migrator.exchange import Amending
from migrator.model.block import Block
from migrator.model.canonical import equal
from migrator.model.value import Record, Value
from migrator.ports import Collection
from migrator.stores.dynamodb.wire import Wire
from tests.stores.test_dynamodb import Make, cut_for, held, make, plain, server, store

__all__ = ["make", "plain", "server", "store"]

FIELDS = ["/Game/*/*"]
START: Record = {"id": "a", "n": 1, "first": "ann", "rounds": [{"n": 0}], "odd": [1.5]}


def begun(make: Make, value: Record | None = None, *, rules: Any = FIELDS, **more: Any) -> Any:
    """A game as it lies in a table of its own."""
    expires = more.pop("until", None)
    collection = make("Game", rules, item("id", **more))
    collection.write([cut_for(collection, "a", value or START, expires)])
    return collection


def amend(collection: Collection, set: Record, append: Record | None = None) -> Block | None:
    assert isinstance(collection, Amending)
    return collection.amend("a", set, append or {})


def assert_untouched(collection: Collection, set: Record, append: Record | None = None) -> None:
    before = held(collection, "a")
    assert amend(collection, set, append) is None
    after = held(collection, "a")
    assert before is not None
    assert after is not None
    assert equal(before.entries, after.entries)


def test_it_takes_one_request_and_tells_the_block(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection, sent = begun(make), []
    call = Wire.call

    def counted(self: Wire, operation: str, *what: Any, **more: Any) -> Any:
        sent.append(operation)
        return call(self, operation, *what, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Wire, "call", counted)
        after = amend(collection, {"n": 2, "first": {"x": [None, b"1"]}}, {"rounds": {"n": 1}})
    assert sent == ["UpdateItem"]
    value: Record = {
        **START, "n": 2, "first": {"x": [None, b"1"]}, "rounds": [{"n": 0}, {"n": 1}]
    }  # fmt: skip
    wanted = cut_for(collection, "a", value)
    found = held(collection, "a")
    assert after is not None
    assert found is not None
    assert equal(after.entries, wanted.entries)
    assert equal(found.entries, wanted.entries)


@pytest.mark.parametrize(
    ("set", "append"),
    [
        ({"n": 1.5}, {}),  # a tag is needed
        ({"n": Decimal("1.50")}, {}),
        ({}, {"rounds": 2.0}),
        ({"odd": 1}, {}),  # a tag is there
        ({}, {"odd": 1}),
        ({"new": 1}, {}),  # it draws a version
        ({"id": "b"}, {}),
        ({"n": 2, "_migrator": 1}, {}),
        ({"n": 2, "_": 1}, {}),
        ({"n": 2}, {"n": 1}),
        ({"n": 2}, {"first": 1}),  # no list
        ({"n": 2}, {"none": 1}),
        ({"first": "x" * 500_000}, {}),
        ({}, {}),
    ],
    ids=str,
)
def test_what_takes_more_changes_nothing(make: Make, set: Record, append: Record) -> None:
    assert_untouched(begun(make), set, append)


def test_none_is_made_where_there_is_none(make: Make) -> None:
    collection = begun(make)
    for set_, append in ({"n": 1}, {}), ({}, {"rounds": 1}):  # type: ignore[var-annotated]
        assert collection.amend("b", set_, append) is None
    assert held(collection, "b") is None


@pytest.mark.parametrize(
    "rules",
    [
        ["/Game/*"],
        ["/Game/*/rounds[*]", "/Game/*/n.x", "/Game/*/*"],
        ["/Game/*/**"],
        ["/Game/*/first", "/Game/*"],
    ],
    ids=str,
)
def test_only_fields_that_are_entries(make: Make, rules: list[str]) -> None:
    collection = begun(make, rules=rules)
    assert_untouched(collection, {"n": 2})
    assert_untouched(collection, {}, {"rounds": {"n": 1}})


def test_attributes_of_an_index_are_left_to_an_exchange(make: Make) -> None:
    assert_untouched(begun(make, indexes=[index("by-first", "first")]), {"first": "bob"})
    made = {"attributes": {"by": "BY#{first}"}, "indexes": [index("by-first", "by")]}
    assert_untouched(begun(make, **made), {"n": 2})


def test_what_is_near_its_end_is_left_alone(make: Make) -> None:
    now = int(time.time() * 1000)
    ended = begun(make, expires="until", until=1)
    assert amend(ended, {"n": 2}) is None
    assert held(ended, "a").entries["n"] == 1  # type: ignore[union-attr]
    lasting = begun(make, expires="until", until=now + 3_600_123)
    after = amend(lasting, {"n": 2}, {"rounds": 1})
    assert after is not None
    assert (after.entries["n"], after.expires) == (2, now + 3_600_123)
    for_ever = begun(make, expires="until")
    assert amend(for_ever, {"n": 2}) is not None
    assert_untouched(lasting, {"until": 5})


def test_of_several_that_append_all_stay(make: Make) -> None:
    collection = begun(make)
    with ThreadPoolExecutor(4) as pool:
        given: list[Value] = list(range(1, 13))
        told = list(pool.map(lambda x: amend(collection, {}, {"rounds": x}), given))
    assert None not in told
    found = held(collection, "a")
    assert found is not None
    rounds = found.entries["rounds"]
    assert isinstance(rounds, list)
    assert sorted(rounds[1:]) == given  # type: ignore[type-var]


def test_a_change_of_what_turns_out_unreadable_is_not_told_as_refused(
    make: Make, plain: Any
) -> None:
    collection = begun(make)
    # Two attributes stand for one entry.
    side = {"M": {"names": {"SS": ["%6Doves"]}}}
    item = {"id": {"S": "a"}, "n": {"N": "1"}, "%6Doves": {"N": "1"}, "moves": {"N": "2"}}
    plain.put_item(TableName=collection.at.collection, Item={**item, "_migrator": side})
    with pytest.raises(Transient, match=r"it was changed.* can't be read") as raised:
        amend(collection, {"n": 2})
    assert raised.value.unknown
    assert raised.value.given_up
    lying = collection.lying("a")
    assert lying["n"] == {"N": "2"}


@pytest.mark.parametrize(
    ("attribute", "av", "set"),
    [("%2541", {"N": "1"}, {"%41": 2}), ("_", {"S": "no record"}, {"n": 2})],
)
def test_an_item_of_others_is_not_taken_for_one_of_ours(
    make: Make, plain: Any, attribute: str, av: Any, set: Record
) -> None:
    """An attribute that is called as our name of another field, or as what is left of a block."""
    collection = begun(make)
    item = {"id": {"S": "a"}, "n": {"N": "1"}, attribute: av}
    plain.put_item(TableName=collection.at.collection, Item=item)
    assert amend(collection, set) is None
    assert collection.lying("a") == item

"""Promises of holding: every kind of value, every name, null against absent; the observer."""

from __future__ import annotations

import pytest

from migrator.errors import DoesNotFit
from migrator.model.block import Block
from migrator.model.canonical import encode, equal
from migrator.model.value import Kind, Record, Value
from migrator.ports import Capabilities, Matching
from migrator.testing.contract.case import ContractCase, by_capability
from migrator.testing.contract.harness import (
    Harness,
    Make,
    Place,
    assert_holds,
    assert_same,
    is_held,
    scan,
    write_all,
)
from migrator.testing.values import ODD_NAMES, ODD_VALUES

EMPTY: list[Record] = [
    {},
    {"a": None},
    {"a": ""},
    {"a": []},
    {"a": {}},
    {"a": "null"},
    {"a": [None]},
    {"a": [[]]},
    {"a": {"b": None}},
    {"a": {"b": {}}},
    {"a": None, "b": None},
    {"a": 0},
    {"a": False},
    {"a": "0"},
    {"a": b""},
    {"a": {"": None}},
]


def around(value: Value) -> Record:
    """An aggregate with a value at the top, inside a record, inside lists."""
    return {"v": value, "in": {"r": {"v": value}}, "l": [value, [value, "x"]], "plain": "text"}


class ValuePromises(Harness):
    """What goes in comes out, or is refused by name."""

    @pytest.mark.usefixtures("any_aggregate")
    def test_every_value_of_a_kind(self, plain_place: Place, can: Capabilities) -> None:
        case, collection = plain_place.case, plain_place.collection
        fit: list[Block] = []
        unfit: list[Block] = []
        for kind in Kind:
            values = () if case.excluded(f"values {kind}") else ODD_VALUES[kind]
            for value in values:
                block = plain_place.cut(case.key(len(fit) + len(unfit)), around(value))
                (fit if is_held(can, collection, value) else unfit).append(block)
        write_all(plain_place, fit)
        for block in unfit:
            with pytest.raises(DoesNotFit) as caught:
                collection.write([block])
            assert equal(caught.value.key, block.id)
        assert_holds(collection, fit)

    def test_declared_aggregates(self, plain_place: Place) -> None:
        schema = plain_place.case.schema
        if schema is None:
            by_capability("it has no fixed schema")
        blocks = [plain_place.cut(key, aggregate) for key, aggregate in schema.odd]
        plain_place.collection.write(blocks)
        assert_holds(plain_place.collection, blocks)

    @pytest.mark.usefixtures("any_aggregate")
    def test_all_kinds_in_one_block(self, plain_place: Place, can: Capabilities) -> None:
        aggregate: Record = {
            kind.value: [v for v in values if is_held(can, plain_place.collection, v)]
            for kind, values in ODD_VALUES.items()
        }
        block = plain_place.cut(plain_place.case.key(1), aggregate)
        plain_place.collection.write([block])
        assert_holds(plain_place.collection, [block])

    @pytest.mark.usefixtures("any_aggregate")
    def test_every_field_name(self, plain_place: Place, can: Capabilities) -> None:
        longest = can.limits.name_bytes
        tagged = next(
            v for v in (ODD_VALUES[Kind.UUID][0], 1) if is_held(can, plain_place.collection, v)
        )
        blocks, all_names = [], {}
        for i, name in enumerate(ODD_NAMES):
            size = len(name.encode("utf-8", "surrogatepass"))
            if plain_place.case.refused_names(name) or (longest is not None and size > longest):
                continue
            all_names[name] = tagged
            record: Record = {name: {name: [{name: tagged}], "x": i}, "other": {name: None}}
            blocks.append(plain_place.cut(plain_place.case.key(i), record))
        # Names that only look alike lie side by side, with a value that may need a tag.
        blocks.append(plain_place.cut(plain_place.case.key(900), {**all_names, "deep": all_names}))
        blocks.append(plain_place.cut(plain_place.case.key(901), {"a.b": 1, "a": {"b": tagged}}))
        for block in blocks:
            plain_place.collection.write([block])
        assert_holds(plain_place.collection, blocks)

    @pytest.mark.usefixtures("any_aggregate")
    def test_null_absent_and_empty_differ(self, plain_place: Place, can: Capabilities) -> None:
        blocks = [
            plain_place.cut(plain_place.case.key(i), aggregate)
            for i, aggregate in enumerate(EMPTY)
            if is_held(can, plain_place.collection, aggregate)
        ]
        plain_place.collection.write(blocks)
        assert_holds(plain_place.collection, blocks)

    @pytest.mark.usefixtures("any_aggregate")
    def test_writing_leaves_the_blocks_as_they_are(
        self, plain_place: Place, can: Capabilities
    ) -> None:
        held = [
            value
            for kind in (Kind.SET, Kind.DECIMAL, Kind.LIST, Kind.UUID)
            for value in ODD_VALUES[kind]
            if is_held(can, plain_place.collection, value)
        ]
        block = plain_place.cut(plain_place.case.key(1), around(held))
        before = encode(block.entries)
        plain_place.collection.write([block])
        assert encode(block.entries) == before


class ObserverPromises(Harness):
    """The observer reads by a decoder of its own."""

    def test_observer_reads_absent_blocks_as_none(self, place: Place) -> None:
        observer = place.collection.observer()
        assert observer.read([place.case.key(1)]) == [None]
        assert scan(observer, place.collection.split(2)) == []

    def test_observer_shows_what_a_broken_copier_hides(
        self, make: Make, case: ContractCase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        case.break_copier(monkeypatch)
        place = make("EAO")
        block = place.block(place.case.key(1), rounds=1)
        block.entries[""]["firstPlayer"] = "kept"  # type: ignore[index]
        place.collection.write([block])
        (copied,) = place.collection.read([block.id])
        assert_same(copied, block)
        observer = place.collection.observer()
        (observed,) = observer.read([block.id])
        assert observed is None or not equal(observed.entries, block.entries)
        if isinstance(observer, Matching):
            (observed,) = observer.match([block])
            assert observed is None or not equal(observed.entries, block.entries)
        monkeypatch.undo()
        store, mended = place.again()
        try:
            (copied,) = mended.read([block.id])
            assert copied is None or not equal(copied.entries, block.entries)
        finally:
            store.close()

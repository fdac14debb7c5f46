"""C03: doubles, long decimals, NaN and minus zero, none rounded; C04: what is empty."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

import pytest

from migrator import At, item
from migrator.model.block import Block
from migrator.model.canonical import equal
from migrator.model.value import Set, Value
from migrator.ports import Collection, StoreSettings
from migrator.stores import dynamodb
from tests.conftest import server_url
from tests.system import kit


@pytest.fixture
def things() -> Iterator[Collection]:
    """A table on dynalite, which refuses numbers of more than 38 digits as the service does."""
    store = dynamodb.open_store(StoreSettings("dynamo", server_url("dynalite")))
    at = At("dynamo", kit.fresh("c03"), ["/Thing/*/*"], item("id"))
    collection = store.collection("Thing", at)
    collection.create()
    yield collection
    collection.drop()
    store.close()


def kept(things: Collection, value: Value) -> dict[str, dict[str, object]]:
    """Write a value, read it by both readers, and give what lies there."""
    block = Block("p", {"id": "p", "v": value})
    things.write([block])
    for reader in (things, things.observer()):
        (found,) = reader.read(["p"])
        assert found is not None
        assert equal(found.entries, block.entries)
    item: dict[str, dict[str, object]] = things._table.get({"id": {"S": "p"}})  # type: ignore[attr-defined]
    return item


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (30.4, "N"),
        (Decimal("30.40"), "N"),
        (Decimal("12345678901234567890123456789012345678901234.5"), "S"),
        (Decimal("1E-6000"), "S"),
        (math.nan, "S"),
        (-0.0, "S"),
        (math.inf, "S"),
    ],
)
def test_c03_no_number_is_rounded(things: Collection, value: Value, type_: str) -> None:
    assert list(kept(things, value)["v"]) == [type_]


def test_c04_empty_is_empty_of_its_own_kind(things: Collection) -> None:
    held = {"L": [], "M": {}, "S": "", "SS": Set(["a"]), "n": None, "empty set": Set()}
    found = kept(things, held)["v"]["M"]
    assert isinstance(found, dict)
    assert {name: next(iter(av)) for name, av in found.items()} == {
        "L": "L", "M": "M", "S": "S", "SS": "SS", "n": "NULL", "empty set": "L",
    }  # fmt: skip
    for one in ([], {}, "", None, Set()):
        kept(things, one)
    things.write([Block("p", {"id": "p"})])
    (absent,) = things.read(["p"])
    assert absent is not None
    assert absent.entries == {"id": "p"}

"""C20: over 400 KB is told by the plan and split by entries; C21, C23: deadlines, leftovers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from migrator import At, Layout, item, item_collection
from migrator.errors import DoesNotFit, Transient
from migrator.model.block import Aggregate, Block, cut
from migrator.model.canonical import equal
from migrator.ports import Collection, Store, StoreSettings
from migrator.stores import dynamodb
from migrator.stores.dynamodb import wire
from tests.conftest import server_url
from tests.system import kit

LIMIT = 409_600


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    store = dynamodb.open_store(StoreSettings("dynamo", server_url("dynalite")))
    yield store
    store.close()


def made(store: Store, rules: list[str], layout: Layout) -> Collection:
    at = At("dynamo", kit.fresh("c20"), rules, layout)
    collection = store.collection("Thing", at)
    collection.drop()
    collection.create()
    return collection


def test_c20_an_item_just_too_large_is_told_and_can_be_split(store: Store) -> None:
    value = {"id": "a", "text": "ü" * 195_000} | {f"field{n:02}": "x" * 350 for n in range(60)}
    whole = made(store, ["/Thing/*"], item())
    block = cut(Aggregate("a", value), whole.at.rules("Thing"))
    assert LIMIT < whole.size(block) < LIMIT + 20_000
    with pytest.raises(DoesNotFit, match="over the limit of 409,600") as caught:
        whole.write([block])
    assert caught.value.key == "a"
    split = made(store, ["/Thing/*/*"], item_collection("THING#{id}"))
    block = cut(Aggregate("a", value), split.at.rules("Thing"))
    split.write([block])
    (found,) = split.read(["a"])
    assert found is not None
    assert equal(found.entries, block.entries)
    with pytest.raises(DoesNotFit) as caught:
        split.size(cut(Aggregate("b", {"v": "x" * 600_000}), split.at.rules("Thing")))
    assert caught.value.key == "b"
    assert caught.value.path
    whole.drop()
    split.drop()


def test_c21_a_deadline_is_an_instant_in_whole_seconds_rounded_up(store: Store) -> None:
    things = made(store, ["/Thing/*/*"], item(expires="ends"))
    now = int(time.time() * 1000) // 1000 * 1000
    ends = {"k1": now + 1_000_001, "k2": None, "k3": now - 50}
    things.write([Block(id, {"id": id}, at) for id, at in ends.items()])
    for reader in (things, things.observer()):
        found = reader.read(list(ends))
        assert [b and b.expires for b in found] == list(ends.values())
    raw = things._table.get({"id": {"S": "k1"}})  # type: ignore[attr-defined]
    assert raw["ends"] == {"N": str(now // 1000 + 1001)}
    assert "ends" not in things._table.get({"id": {"S": "k2"}})  # type: ignore[attr-defined]
    things.drop()


def test_c23_what_stays_unprocessed_stops_the_copy_and_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    things = made(store, ["/Thing/*/*"], item())
    call, rounds = wire.Wire.call, itertools.count(1)

    def partial(
        self: wire.Wire, operation: str, request: Mapping[str, Any], *args: Any, **more: Any
    ) -> wire.Answer:
        """Three of a batch are always left, later one that never goes through."""
        if operation != "BatchWriteItem":
            return call(self, operation, request, *args, **more)
        ((name, asked),) = msgspec.json.decode(msgspec.json.encode(request["RequestItems"])).items()
        left = asked[-3:] if next(rounds) < 5 else asked[-1:]
        done = asked[: len(asked) - len(left)]
        if done:
            call(self, operation, {"RequestItems": {name: done}}, *args, **more)
        return {"UnprocessedItems": {name: left}, "bytes": 2}

    blocks = [Block(f"k{n:02}", {"id": f"k{n:02}"}) for n in range(25)]
    with monkeypatch.context() as patch:
        patch.setattr(wire.Wire, "call", partial)
        patch.setattr(wire, "_FIRST_WAIT", 0.001)
        with pytest.raises(Transient, match="k24"):
            things.write(blocks)
    assert things.count() == 24
    things.write(blocks)
    assert things.count() == 25
    things.drop()

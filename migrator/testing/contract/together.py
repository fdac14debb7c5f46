"""Promises while others write: pages, whole blocks, several threads; and what a store states."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import encode
from migrator.model.value import Kind
from migrator.ports import Capabilities, Json, Store
from migrator.testing.contract.case import ContractCase, by_capability
from migrator.testing.contract.harness import (
    Harness,
    Make,
    Place,
    assert_holds,
    difference,
    insist,
    same,
    scan,
    through_json,
)

OPERATIONS = {"get", "get_entries", "put", "update", "append", "delete"}


class TogetherPromises(Harness):
    """Reading and writing at once."""

    def test_untouched_blocks_appear_once_while_others_change(self, cut_place: Place) -> None:
        collection, key = cut_place.collection, cut_place.case.key
        blocks = cut_place.blocks(24)
        collection.write(blocks)
        touched = {3, 4, 11, 12, 20, 23}
        seen: list[Block] = []
        step = 0
        for range_ in collection.split(2):
            position: Json = None
            while True:
                page = collection.page(range_, through_json(position), 2)
                seen += page.blocks
                self._disturb(cut_place, sorted(touched), step)
                step += 1
                if page.next is None:
                    break
                position = page.next
        counts: dict[bytes, int] = {}
        for block in seen:
            form = encode(block.id)
            counts[form] = counts.get(form, 0) + 1
        for i, block in enumerate(blocks):
            if i not in touched:
                assert counts.get(encode(key(i))) == 1, f"{key(i)!r}"
                assert any(same(block, other) for other in seen)

    def _disturb(self, place: Place, touched: list[int], step: int) -> None:
        key, collection = place.case.key, place.collection
        i = touched[step % len(touched)]
        if step % 3 == 0:
            collection.delete([Address(key(i))])
        else:
            collection.write([place.block(key(i), rounds=step % 5)])
        collection.write([place.block(key(500 + step), 1), place.block(key(700 - step), 1)])

    def test_a_block_is_seen_whole(self, cut_place: Place, can: Capabilities) -> None:
        layout = can.layouts[cut_place.case.layout]
        if not layout.effective and not can.transactions:
            by_capability("a block is no unit of atomicity")
        key = cut_place.case.key(1)
        states = [cut_place.block(key, rounds) for rounds in (3, 12)]
        collection = cut_place.collection
        collection.write(states[:1])
        done = threading.Event()

        def write() -> None:
            try:
                for i in range(16):
                    new, old = states[i % 2 == 0], states[i % 2]
                    insist(partial(collection.write, [new]))
                    insist(partial(collection.patch, [Patch(key, *difference(new, old))]))
                    insist(partial(collection.write, [new]))
            finally:
                done.set()

        ranges = collection.split(1)
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            looks = 0
            while not done.is_set() or looks < 5:
                (read,) = collection.read([key])
                assert read is not None
                for block in [read, *scan(collection, ranges, 5)]:
                    assert any(same(block, state) for state in states), block.entries.keys()
                looks += 1
            writer.result()

    def test_several_threads_write(self, cut_place: Place) -> None:
        collection = cut_place.collection
        shares = [cut_place.blocks(12, start=100 * i) for i in range(4)]

        def write(share: list[Block]) -> None:
            for start in range(0, 12, 3):
                insist(partial(collection.write, share[start : start + 3]))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, shares))
        assert_holds(collection, [block for share in shares for block in share])

    def test_several_threads_append_to_one_block(self, make: Make, can: Capabilities) -> None:
        place = make("ROUNDS")
        if not can.layouts[place.case.layout].entries:
            by_capability("its entries do not lie apart")
        whole = place.block(place.case.key(1), rounds=12)
        start = place.block(place.case.key(1), rounds=4)
        place.collection.write([start])
        rest, unset = difference(start, whole)
        assert not unset
        rest.pop("", None)

        def patch(path: str) -> None:
            insist(partial(place.collection.patch, [Patch(whole.id, {path: rest[path]})]))

        # In order, by two threads: an element may only follow the one before it.
        with ThreadPoolExecutor(2) as pool:
            for path in rest:
                list(pool.map(patch, [path, path]))
        (found,) = place.collection.read([whole.id])
        assert found is not None
        assert {p for p in found.entries if p} == {p for p in whole.entries if p}


class StatedPromises(Harness):
    """What a store says of itself is complete and agrees with what it does."""

    def test_layout_is_described(self, case: ContractCase, can: Capabilities) -> None:
        facts = can.layouts[case.layout]
        assert facts.unit
        assert facts.version
        assert set(facts.costs) - {"exchange", "amend"} == OPERATIONS
        for operation, cost in facts.costs.items():
            assert cost.requests > 0, operation
            assert cost.sends, operation
        assert can.default_layout in can.layouts

    def test_every_kind_is_stated(self, can: Capabilities) -> None:
        assert set(can.kinds) == set(Kind)
        for kind, held in can.kinds.items():
            assert held.type or held.how.value == "refused", kind
        assert can.key_kinds
        assert can.key_order

    def test_ping_says_who_answers(self, store: Store) -> None:
        info = store.ping()
        assert info.product
        assert info.version

    def test_findings_are_readable(self, place: Place) -> None:
        for severity, code, text in place.collection.findings():
            assert severity
            assert code
            assert text

    def test_collection_says_where_it_is(self, place: Place) -> None:
        assert place.collection.cls == "Game"
        assert place.collection.at.collection

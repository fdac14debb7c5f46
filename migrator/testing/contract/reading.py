"""Promises of reading: the life of a collection, ranges, pages, keys, single blocks."""

from __future__ import annotations

import pytest

from migrator.model.block import Address, Block
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.ports import Capabilities, Json
from migrator.testing.contract.case import by_capability
from migrator.testing.contract.harness import (
    Harness,
    Place,
    assert_holds,
    assert_same,
    by_key,
    pages,
    same,
    scan,
    through_json,
    write_all,
)
from migrator.testing.values import odd_keys

LIMITS = (1, 2, 3, 7, 1000)


def keys_of(place: Place, can: Capabilities) -> list[Value]:
    """Every odd key that this store takes."""
    if place.case.schema:
        return list(place.case.schema.keys)
    kinds = sorted(can.key_kinds)
    return [k for kind in kinds for k in odd_keys(kind) if not place.case.refused_keys(k)]


class LifePromises(Harness):
    """Creating and dropping."""

    def test_create_twice_keeps_the_blocks(self, place: Place) -> None:
        blocks = place.blocks(3)
        place.collection.write(blocks)
        place.collection.create()
        assert_holds(place.collection, blocks)

    def test_drop_twice_and_create_anew(self, place: Place) -> None:
        place.collection.write(place.blocks(3))
        assert place.collection.exists()
        place.collection.drop()
        assert not place.collection.exists()
        place.collection.drop()
        assert not place.collection.exists()
        place.collection.create()
        assert place.collection.exists()
        assert_holds(place.collection, [])

    def test_another_handle_sees_create_and_drop(self, place: Place) -> None:
        store, other = place.again()
        try:
            assert other.exists()
            place.collection.write(place.blocks(2))
            assert other.count() == 2
            other.drop()
            assert not place.collection.exists()
            place.collection.create()
            assert other.exists()
            assert other.count() == 0
        finally:
            store.close()

    def test_count_is_exact(self, place: Place) -> None:
        assert place.collection.count() == 0
        place.collection.write(place.blocks(23))
        assert place.collection.count() == 23
        place.collection.delete([Address(place.case.key(4))])
        assert place.collection.count() == 22

    def test_statistics_are_sane(self, place: Place) -> None:
        assert place.collection.statistics().blocks == 0
        blocks = place.blocks(40)
        place.collection.write(blocks)
        place.collection.settle()
        statistics = place.collection.statistics()
        assert statistics.blocks == 40 or not statistics.exact
        assert statistics.blocks > 0
        assert statistics.bytes > 0

    def test_schema_is_stable(self, place: Place) -> None:
        before = through_json(place.collection.schema())
        place.collection.write(place.blocks(5, rounds=12))
        place.collection.settle()
        assert through_json(place.collection.schema()) == before
        store, other = place.again()
        try:
            assert through_json(other.schema()) == before
        finally:
            store.close()

    def test_settle_is_harmless(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(5)
        cut_place.collection.settle()
        cut_place.collection.write(blocks)
        cut_place.collection.settle()
        cut_place.collection.settle()
        assert_holds(cut_place.collection, blocks)


class PagePromises(Harness):
    """Ranges cover every key once; pages give every block of a range once."""

    def test_split_covers_each_key_once(self, place: Place) -> None:
        blocks = place.blocks(30)
        place.collection.write(blocks)
        for parts in (1, 2, 5, 64):
            ranges = place.collection.split(parts)
            assert ranges
            held = by_key(scan(place.collection, ranges, 4))
            assert held.keys() == by_key(blocks).keys(), f"{parts} parts"

    @pytest.mark.parametrize("filled", [0, 3, 20])
    def test_split_covers_keys_added_later(
        self, place: Place, can: Capabilities, filled: int
    ) -> None:
        place.collection.write(place.blocks(filled, start=100))
        ranges = through_json(place.collection.split(4))
        assert isinstance(ranges, list)
        keys = {encode(key): key for key in keys_of(place, can)}
        later = [place.block(key) for key in keys.values()] + place.blocks(5)
        write_all(place, later)
        place.collection.write(place.blocks(5, start=900))
        held = by_key(scan(place.collection, ranges, 7))
        assert held.keys() >= by_key(later).keys()
        assert len(held) == place.collection.count()

    def test_page_gives_each_block_once(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(20, rounds=3)
        cut_place.collection.write(blocks)
        for reader in (cut_place.collection, cut_place.collection.observer()):
            for limit in LIMITS:
                held = by_key(scan(reader, cut_place.collection.split(2), limit))
                assert len(held) == 20, f"pages of {limit}"
                for block in blocks:
                    assert_same(held[encode(block.id)], block)

    def test_page_with_keys_of_all_kinds(self, place: Place, can: Capabilities) -> None:
        blocks = write_all(place, [place.block(key, 1) for key in keys_of(place, can)])
        for limit in LIMITS:
            held = by_key(scan(place.collection, place.collection.split(3), limit))
            assert held.keys() == {encode(block.id) for block in blocks}, f"pages of {limit}"

    def test_page_of_nothing_ends(self, place: Place) -> None:
        for range_ in place.collection.split(3):
            assert not any(pages(place.collection, range_, 10))

    def test_resume_in_a_newly_opened_store(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(6)
        cut_place.collection.write(blocks)
        for range_ in cut_place.collection.split(2):
            seen: list[Block] = []
            position: Json = None
            for _ in range(20):
                store, reader = cut_place.again()
                try:
                    page = reader.page(through_json(range_), through_json(position), 2)
                finally:
                    store.close()
                seen += page.blocks
                if page.next is None:
                    break
                position = page.next
            expected = by_key(scan(cut_place.collection, [range_]))
            assert by_key(seen).keys() == expected.keys()

    def test_keys_are_those_of_the_pages(self, place: Place, can: Capabilities) -> None:
        if not can.lists_keys:
            by_capability("it does not list its keys")
        blocks = write_all(place, [place.block(key, 1) for key in keys_of(place, can)])
        for limit in (1, 3, 1000):
            found: list[bytes] = []
            for range_ in place.collection.split(3):
                position: Json = None
                while True:
                    keys, position = place.collection.keys(range_, through_json(position), limit)
                    assert len(keys) <= limit
                    found += map(encode, keys)
                    if position is None:
                        break
            assert sorted(found) == sorted(encode(block.id) for block in blocks)

    def test_sample_is_taken_from_the_blocks(self, cut_place: Place) -> None:
        assert cut_place.collection.sample(5).blocks == []
        blocks = cut_place.blocks(30)
        cut_place.collection.write(blocks)
        for size in (1, 10, 100):
            held = by_key(cut_place.collection.sample(size).blocks)
            assert 0 < len(held) <= max(30, size)
            for block in held.values():
                assert any(same(block, other) for other in blocks)


class KeyPromises(Harness):
    """Reading by key."""

    def test_read_keeps_the_order_asked_for(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(9)
        cut_place.collection.write(blocks)
        order = [5, 0, 8, 5, 77, 3, 3]
        for reader in (cut_place.collection, cut_place.collection.observer()):
            found = reader.read([cut_place.case.key(i) for i in order])
            assert len(found) == len(order)
            for i, block in zip(order, found, strict=True):
                if i == 77:
                    assert block is None
                else:
                    assert_same(block, blocks[i])

    def test_read_nothing(self, place: Place) -> None:
        assert place.collection.read([]) == []
        assert place.collection.read([place.case.key(1)]) == [None]

    def test_read_many(self, place: Place) -> None:
        blocks = place.blocks(600, rounds=1)
        for start in range(0, 600, 100):
            place.collection.write(blocks[start : start + 100])
        ids = [place.case.key(i) for i in range(1499, -1, -1)]
        found = place.collection.read(ids)
        assert [b is not None for b in found] == [i < 600 for i in range(1499, -1, -1)]
        assert_same(found[-1], blocks[0])

    def test_odd_keys_stay_apart(self, place: Place, can: Capabilities) -> None:
        blocks = write_all(
            place, [place.block(key, i % 4) for i, key in enumerate(keys_of(place, can))]
        )
        assert_holds(place.collection, blocks)
        place.collection.delete([Address(block.id, block.place) for block in blocks[::2]])
        assert_holds(place.collection, blocks[1::2])

    def test_read_entries(self, cut_place: Place) -> None:
        block = cut_place.block(cut_place.case.key(1), rounds=3)
        cut_place.collection.write([block])
        collection = cut_place.collection
        for path, value in block.entries.items():
            found = collection.read_entries(block.id, [path, "no.such[7].path"])
            assert found is not None
            assert found.keys() == {path}
            assert encode(found[path]) == encode(value)
        every = collection.read_entries(block.id, list(block.entries))
        assert every is not None
        assert_same(Block(block.id, every), block)
        assert collection.read_entries(block.id, ["no.such.path"]) == {}
        assert collection.read_entries(block.id, []) == {}
        assert collection.read_entries(cut_place.case.key(2), [*block.entries]) is None

    def test_same_key_says_which_keys_collide(self, place: Place, can: Capabilities) -> None:
        keys = keys_of(place, can)
        groups = {encode(place.collection.same_key(key)) for key in keys}
        for key in keys:
            write_all(place, [place.block(key, 1)])
        assert place.collection.count() == len(groups)

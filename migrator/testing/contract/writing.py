"""Promises of writing: whole blocks, single entries, deletion, what does not fit, expiry."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pytest

from migrator.errors import DoesNotFit, Terminal
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import encode
from migrator.model.value import Int64, Kind, Ref, Set, Value
from migrator.ports import Capabilities, How
from migrator.testing.contract.case import by_capability
from migrator.testing.contract.harness import (
    Harness,
    Make,
    Place,
    assert_holds,
    assert_same,
    difference,
    is_held,
    scan,
)
from migrator.testing.values import ODD_VALUES

# 2037-01-01T00:00:00.123Z: a whole second would not show a store that cuts to seconds wrongly, and
# some stores keep no deadline after January 2038, or more than 20 years away.
DEADLINE = 2_114_380_800_123
# Past what systems count deadlines in: 32 bits of seconds, with a sign and without; the year 9999;
# 64 bits of nanoseconds, of milliseconds less one and as they are; and no bits at all.
FAR = (
    2**31 * 1000,
    2**32 * 1000,
    253_402_300_800_000,
    2**63 // 1_000_000 + 1,
    2**63 - 1,
    2**63,
    10**30,
)
LARGEST = 20_000_000
# Values of one kind, and of another that may carry them.
ALIKE: list[tuple[Value, Value]] = [
    (Int64(5), 5),
    (1.0, 1),
    (Decimal("1.10"), "1.10"),
    (Decimal("1.50"), Decimal("1.5")),
    (dt.date(2024, 2, 29), "2024-02-29"),
    (UUID(int=7), str(UUID(int=7))),
    (Set([1, 2]), [1, 2]),
    (Ref("Player", "ann"), "Player:ann"),
    ("5", 5),
]


def nest(levels: int, inner: Value = "x") -> Value:
    """Records and lists in turn, this many levels deep."""
    value: Value = inner
    for level in range(levels):
        value = {"d": value} if level % 2 else [value]
    return value


def beyond(nesting: int) -> int:
    """Levels that no store with this limit holds; a little more than the limit may still fit."""
    return 5 * nesting + 100


def refused(can: Capabilities) -> list[Value]:
    """A value of every kind that the store says no to."""
    kinds = can.kinds
    return [ODD_VALUES[kind][0] for kind, held in kinds.items() if held.how is How.REFUSED]


def unfit(place: Place, can: Capabilities) -> list[Value]:
    """Values with which an aggregate can't be held here, one of every sort."""
    limits = can.limits
    found = refused(can)
    # Cut into smaller entries an aggregate may be held all the same.
    if place.rules.name == "EAO":
        if limits.nesting is not None:
            found.append(nest(beyond(limits.nesting)))
        if limits.block_bytes is not None and limits.block_bytes < LARGEST:
            found.append("x" * (limits.block_bytes + 1))
    return found


class WritePromises(Harness):
    """Whole blocks."""

    def test_write_says_how_many_bytes_it_sent(self, cut_place: Place) -> None:
        few = cut_place.collection.write(cut_place.blocks(2, rounds=1))
        many = cut_place.collection.write(cut_place.blocks(20, rounds=6))
        assert 0 < few < many
        assert cut_place.collection.write([]) == 0

    def test_write_is_idempotent(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(5, rounds=3)
        for _ in range(3):
            cut_place.collection.write(blocks)
        assert_holds(cut_place.collection, blocks)

    def test_write_removes_what_the_block_no_longer_has(self, cut_place: Place) -> None:
        cut_place.collection.write(cut_place.blocks(4, rounds=12))
        shorter = [*cut_place.blocks(3, rounds=3), cut_place.blocks(4, rounds=0)[3]]
        cut_place.collection.write(shorter)
        assert_holds(cut_place.collection, shorter)
        assert cut_place.collection.read_entries(shorter[0].id, ["rounds[11]"]) == {}

    def test_write_leaves_other_blocks_alone(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(6)
        cut_place.collection.write(blocks)
        blocks[2] = cut_place.block(blocks[2].id, rounds=7)
        blocks.append(cut_place.block(cut_place.case.key(50)))
        cut_place.collection.write([blocks[2], blocks[-1]])
        assert_holds(cut_place.collection, blocks)

    def test_write_survives_reopening(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(3)
        cut_place.collection.write(blocks)
        store, other = cut_place.again()
        try:
            assert_holds(other, blocks)
        finally:
            store.close()

    @pytest.mark.usefixtures("any_aggregate")
    def test_unfit_block_is_named_before_anything_is_written(
        self, cut_place: Place, can: Capabilities
    ) -> None:
        values = unfit(cut_place, can)
        if not values:
            by_capability("there is nothing that it refuses in this representation")
        before = cut_place.blocks(2)
        cut_place.collection.write(before)
        for value in values:
            batch = [cut_place.block(b.id, rounds=5) for b in before] + cut_place.blocks(3, start=7)
            bad = cut_place.cut(cut_place.case.key(5), {"id": cut_place.case.key(5), "v": value})
            with pytest.raises(DoesNotFit) as caught:
                cut_place.collection.write([*batch[:3], bad, *batch[3:]])
            assert encode(caught.value.key) == encode(bad.id)
            assert_holds(cut_place.collection, before)

    def test_block_without_entries_does_not_fit(self, place: Place) -> None:
        before = place.blocks(1)
        place.collection.write(before)
        with pytest.raises(DoesNotFit) as caught:
            place.collection.write([place.block(place.case.key(3)), Block(before[0].id, {})])
        assert caught.value.key == before[0].id
        assert_holds(place.collection, before)

    @pytest.mark.usefixtures("any_aggregate")
    def test_deepest_block_fits(self, place: Place, can: Capabilities) -> None:
        limit = can.limits.nesting
        key = place.case.key(1)
        block = place.cut(key, {"id": key, "v": nest((limit or 101) - 1)})
        place.collection.write([block])
        assert_holds(place.collection, [block])

    @pytest.mark.usefixtures("any_aggregate")
    def test_block_just_too_deep_is_refused_or_kept_exactly(
        self, place: Place, can: Capabilities
    ) -> None:
        limit = can.limits.nesting
        if limit is None:
            by_capability("there is no depth that it refuses")
        for more in (1, 2, 50):
            key = place.case.key(more)
            block = place.cut(key, {"id": key, "v": nest(limit - 1 + more)})
            try:
                place.collection.write([block])
            except DoesNotFit:
                assert_holds(place.collection, [])
            else:
                assert_holds(place.collection, [block])
                place.collection.delete([Address(key)])

    @pytest.mark.usefixtures("any_aggregate")
    def test_largest_block_fits_and_a_larger_one_does_not(
        self, place: Place, can: Capabilities
    ) -> None:
        limit = can.limits.block_bytes
        if limit is None or limit > LARGEST:
            limit = 4_000_000
        key = place.case.key(1)
        block = place.cut(key, {"id": key, "v": ["y" * 1000] * 10, "w": "x" * (limit - 12_000)})
        if (entry := can.limits.entry_bytes) and entry < limit:
            by_capability("an entry is smaller than a block")
        assert place.collection.size(block) <= limit
        place.collection.write([block])
        assert_holds(place.collection, [block])
        if can.limits.block_bytes == limit:
            larger = place.cut(key, {"id": key, "w": "x" * limit})
            assert place.collection.size(larger) > limit
            with pytest.raises(DoesNotFit):
                place.collection.write([larger])
            assert_holds(place.collection, [block])

    @pytest.mark.usefixtures("any_aggregate")
    def test_longest_key_fits_and_a_longer_one_does_not(
        self, place: Place, can: Capabilities
    ) -> None:
        if Kind.TEXT not in can.key_kinds:
            by_capability("keys are no text")
        limit = can.limits.key_bytes
        long = "k" * (limit if limit is not None and limit < 100_000 else 2_000)
        block = place.block(long, 1)
        place.collection.write([block])
        assert_holds(place.collection, [block])
        if len(long) == limit:
            for key in (long + "k", long[:-1] + "ä"):
                with pytest.raises(DoesNotFit) as caught:
                    place.collection.write([place.block(key, 1)])
                assert caught.value.key == key
            assert_holds(place.collection, [block])

    @pytest.mark.usefixtures("any_aggregate")
    def test_size_tells_what_write_refuses(self, place: Place, can: Capabilities) -> None:
        """What a plan asks of every block: nothing is left to surprise the copy."""
        limits, key = can.limits, place.case.key(1)
        far = beyond(limits.nesting or 100)
        probes = [
            place.cut(key, {"id": key, "v": nest(levels)})
            for levels in ((limits.nesting or 100) + 1, far)
        ]
        probes.append(place.cut(key, {"id": key, "n" * 5_000: 1}))
        probes.append(place.cut(key, {"id": key, **{f"v{i}": "x" * 50_000 for i in range(12)}}))
        if Kind.TEXT in can.key_kinds:
            longest = min(limits.key_bytes or 5_000, 5_000)
            probes += [place.block("ä" * longest, 1), place.block("k" * (longest + 1), 1)]
        for block in probes:
            try:
                size = place.collection.size(block)
                told = limits.block_bytes is not None and size > limits.block_bytes
            except DoesNotFit:
                told = True
            if told:
                with pytest.raises(DoesNotFit):
                    place.collection.write([block])
            else:
                place.collection.write([block])

    def test_size_follows_the_block(self, cut_place: Place) -> None:
        key = cut_place.case.key(1)
        sizes = [cut_place.collection.size(cut_place.block(key, n)) for n in (0, 1, 12)]
        assert 0 < sizes[0] < sizes[1] < sizes[2]


class PatchPromises(Harness):
    """Single entries."""

    def test_patch_changes_what_it_names(self, cut_place: Place) -> None:
        expected: list[Block] = []
        for i, (old, new) in enumerate([(2, 3), (3, 3), (1, 12), (12, 3), (2, 0), (0, 2)]):
            before = cut_place.blocks(3, rounds=old, start=10 * i)
            cut_place.collection.write(before)
            after = cut_place.block(before[1].id, rounds=new)
            changed, unset = difference(before[1], after)
            cut_place.collection.patch([Patch(after.id, changed, unset)])
            expected += [before[0], after, before[2]]
        assert_holds(cut_place.collection, expected)

    def test_patch_several_blocks(self, cut_place: Place) -> None:
        before = cut_place.blocks(4, rounds=2)
        cut_place.collection.write(before)
        after = [cut_place.block(b.id, rounds=4) for b in before]
        cut_place.collection.patch(
            [Patch(b.id, *difference(a, b)) for a, b in zip(before, after, strict=True)]
        )
        assert_holds(cut_place.collection, after)

    @pytest.mark.usefixtures("any_aggregate")
    def test_patch_says_nothing_more_of_what_it_replaced(
        self, make: Make, can: Capabilities
    ) -> None:
        """What stands aside of a value, such as its kind, is not taken for the next one's."""
        place = make("ETF")
        collection, key = place.collection, place.case.key(1)
        pairs = [pair for pair in ALIKE if is_held(can, collection, pair[0])]
        before, after = (
            place.cut(key, {"id": key, **{f"v{i}": pair[side] for i, pair in enumerate(pairs)}})
            for side in (0, 1)
        )
        values = {path: x for path, x in after.entries.items() if path.startswith("v")}
        for gone in ((), tuple(values)):
            collection.write([before])
            collection.patch([Patch(key, {}, gone)])
            for path, value in values.items():
                collection.patch([Patch(key, {path: value})])
            assert_holds(collection, [after])

    def test_patch_of_no_entry_changes_nothing(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(2)
        cut_place.collection.write(blocks)
        cut_place.collection.patch([])
        cut_place.collection.patch([Patch(blocks[0].id)])
        cut_place.collection.patch([Patch(blocks[0].id, {}, ("no.such",))])
        assert_holds(cut_place.collection, blocks)

    def test_patch_of_an_absent_block_is_terminal(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(2)
        cut_place.collection.write(blocks)
        absent = cut_place.block(cut_place.case.key(9))
        with pytest.raises(Terminal):
            cut_place.collection.patch([Patch(absent.id, absent.entries)])
        with pytest.raises(Terminal):
            cut_place.collection.patch([Patch(absent.id, {}, ("rounds[0]",))])
        assert_holds(cut_place.collection, blocks)

    @pytest.mark.usefixtures("any_aggregate")
    def test_patch_that_does_not_fit_changes_nothing(self, make: Make, can: Capabilities) -> None:
        place = make("ETF")
        limit = can.limits.nesting
        values = refused(can) + ([] if limit is None else [nest(beyond(limit))])
        if not values:
            by_capability("there is no kind and no depth that it refuses")
        block = place.block(place.case.key(1))
        place.collection.write([block])
        for value in values:
            with pytest.raises(DoesNotFit):
                place.collection.patch([Patch(block.id, {"score": 1, "v": value}, ("rounds",))])
            assert_holds(place.collection, [block])


class DeletePromises(Harness):
    """Deletion."""

    def test_delete_by_address(self, cut_place: Place) -> None:
        blocks = cut_place.blocks(7, rounds=4)
        cut_place.collection.write(blocks)
        found = scan(cut_place.collection, cut_place.collection.split(1))
        gone = [b for b in found if b.id in (blocks[0].id, blocks[3].id, blocks[6].id)]
        cut_place.collection.delete([Address(b.id, b.place) for b in gone])
        left = [b for i, b in enumerate(blocks) if i not in (0, 3, 6)]
        assert_holds(cut_place.collection, left)
        assert cut_place.collection.read_entries(blocks[0].id, list(blocks[0].entries)) is None

    def test_delete_of_absent_blocks_is_no_error(self, place: Place) -> None:
        blocks = place.blocks(2)
        place.collection.write(blocks)
        place.collection.delete([])
        place.collection.delete([Address(place.case.key(8)), Address(place.case.key(9))])
        place.collection.delete([Address(blocks[0].id), Address(place.case.key(9))])
        place.collection.delete([Address(blocks[0].id)])
        assert_holds(place.collection, blocks[1:])

    def test_deleted_key_can_come_back(self, cut_place: Place) -> None:
        cut_place.collection.write(cut_place.blocks(1, rounds=12))
        cut_place.collection.delete([Address(cut_place.case.key(0))])
        back = cut_place.blocks(1, rounds=1)
        cut_place.collection.write(back)
        assert_holds(cut_place.collection, back)


class ExpiryPromises(Harness):
    """The absolute deadline of a block."""

    def test_expiry_is_kept_or_refused(self, cut_place: Place, can: Capabilities) -> None:
        key = cut_place.case.key
        blocks = [cut_place.block(key(1), 2, DEADLINE), cut_place.block(key(2), 2)]
        if not can.expiry:
            # A block that was to end and lives for ever is a value changed silently.
            with pytest.raises(DoesNotFit) as caught:
                cut_place.collection.write(blocks)
            assert caught.value.key == key(1)
            with pytest.raises(DoesNotFit):
                cut_place.collection.size(blocks[0])
            assert_holds(cut_place.collection, [])
            return
        cut_place.collection.write(blocks)
        assert_holds(cut_place.collection, blocks)
        for reader in (cut_place.collection, cut_place.collection.observer()):
            with_, without = reader.read([key(1), key(2)])
            assert with_ is not None
            assert with_.expires is not None
            assert with_.expires // 1000 == DEADLINE // 1000
            assert without is not None
            assert without.expires is None
            paged = scan(reader, cut_place.collection.split(1))
            assert {b.expires for b in paged} == {with_.expires, None}

    def test_far_deadlines_are_kept_or_told_before(self, place: Place, can: Capabilities) -> None:
        if not can.expiry:
            by_capability("it keeps no expiry")
        kept: list[Block] = []
        for number, deadline in enumerate(FAR):
            block = place.block(place.case.key(number), 1, deadline)
            try:
                place.collection.size(block)
            except DoesNotFit:
                with pytest.raises(DoesNotFit):
                    place.collection.write([block])
            else:
                place.collection.write([block])
                kept.append(block)
        assert_holds(place.collection, kept)
        for reader in (place.collection, place.collection.observer()):
            found = reader.read([block.id for block in kept])
            seconds = [None if b is None or b.expires is None else b.expires // 1000 for b in found]
            assert seconds == [b.expires // 1000 for b in kept if b.expires is not None]

    def test_expiry_goes_with_the_block(self, cut_place: Place, can: Capabilities) -> None:
        if not can.expiry:
            by_capability("it keeps no expiry")
        key = cut_place.case.key(1)
        collection = cut_place.collection
        collection.write([cut_place.block(key, 1, DEADLINE)])
        longer = cut_place.block(key, 4)
        changed, unset = difference(cut_place.block(key, 1), longer)
        collection.patch([Patch(key, changed, unset)])
        (found,) = collection.read([key])
        assert_same(found, longer)
        assert found is not None
        assert found.expires is not None
        assert found.expires // 1000 == DEADLINE // 1000
        collection.write([cut_place.block(key, 4, DEADLINE + 5000)])
        (found,) = collection.read([key])
        assert found is not None
        assert found.expires is not None
        assert found.expires // 1000 == DEADLINE // 1000 + 5
        collection.write([longer])
        (found,) = collection.read([key])
        assert found is not None
        assert found.expires is None

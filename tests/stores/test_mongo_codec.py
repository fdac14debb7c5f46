"""Blocks to BSON and back, without a server: all kinds, the copier's reader and the observer's."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Sequence
from decimal import Decimal

import bson
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from migrator.errors import DoesNotFit, Refused
from migrator.model import value as v
from migrator.model.block import Aggregate, Block, cut
from migrator.model.canonical import equal
from migrator.model.rules import Representation, representation
from migrator.model.value import Kind, Value
from migrator.stores.mongo import codec, facts, keys
from migrator.stores.mongo.observer import MongoObserver
from migrator.stores.mongo.paging import Pager
from migrator.stores.mongo.stored import Shape
from migrator.stores.mongo.wire import Damaged
from migrator.testing import strategies
from migrator.testing.values import ODD_NAMES, ODD_VALUES

WHOLE = representation("X", ["/X/*"])


def readers(
    flat: bool, rules: Representation, expires: str | None = None
) -> tuple[Shape, MongoObserver]:
    pager = Pager(None, "docs:x")  # type: ignore[arg-type] # reads nothing here
    return Shape(flat, rules, "docs:x", expires), MongoObserver(pager, rules, flat, expires)


def there_and_back(block: Block, flat: bool, rules: Representation) -> bytes:
    shape, observer = readers(flat, rules, "expireAt")
    raw = shape.encode(block).raw
    for found in (shape.decode(raw), observer.block(raw)):
        assert equal(found.id, block.id)
        assert equal(found.entries, block.entries)
        assert found.expires == block.expires
    return raw


def test_far_deadlines_come_back_or_are_told() -> None:
    """As in the contract, by bytes: the server of the tests takes no date after the year 9999."""
    for flat in (False, True):
        for expires in (253_402_300_800_000, 2**63 - 1):
            there_and_back(Block(1, {"a": 1}, expires), flat, representation("X", ["/X/*/*"]))
        shape, _ = readers(flat, WHOLE, "expireAt")
        for expires in (2**63, 10**30):
            with pytest.raises(DoesNotFit):
                shape.size(Block(1, {"": {"a": 1}}, expires))


# ---------------------------------------------------------------- any value


def bson_only() -> st.SearchStrategy[v.Opaque]:
    text = st.text("ab", max_size=3).map(
        lambda s: struct.pack("<i", len(s) + 1) + s.encode() + b"\0"
    )
    return st.one_of(
        st.sampled_from(["minKey", "maxKey", "undefined"]).map(lambda kind: v.Opaque("bson", kind)),
        st.builds(v.Opaque, st.just("bson"), st.sampled_from(["symbol", "javascript"]), text),
        text.map(lambda t: v.Opaque("bson", "dbPointer", t + b"123456789012")),
        text.map(lambda t: v.Opaque("bson", "javascriptWithScope",
                                    struct.pack("<i", len(t) + 9) + t + b"\5\0\0\0\0")),
        # Bytes that are no such value must not get into a document.
        st.builds(v.Opaque, st.just("bson"), st.sampled_from(["symbol", "undefined", "date"]),
                  st.binary(max_size=9)),
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(strategies.aggregates(), bson_only(), st.data(), st.booleans())
def test_any_aggregate_comes_back_by_both_readers(
    aggregate: Aggregate, odd: v.Opaque, data: st.DataObject, flat: bool
) -> None:
    value = dict(aggregate.value)
    value.setdefault("odd", [odd, {"in": odd}])
    rules = data.draw(strategies.representations("X", value))
    try:
        block = cut(Aggregate(aggregate.id, value, aggregate.expires), rules)
    except Refused:  # the rules take elements of a set
        reject()
    there_and_back(block, flat, rules)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("kind", list(Kind), ids=str)
def test_every_odd_value_comes_back(kind: Kind, flat: bool) -> None:
    """C02 among them: dates of any 64 bits, held as dates."""
    for value in ODD_VALUES[kind]:
        raw = there_and_back(Block("k", {"": {"v": value, "in": [value]}}), flat, WHOLE)
        held = facts.needs_tag(value) or facts.KINDS[kind]
        parts: list[Value] = []
        v.walk(value, parts.append)
        inside = any(
            (facts.needs_tag(p) or facts.KINDS[v.kind_of(p)]).how != "native" for p in parts
        )
        assert (b"_migrator" in raw) is (held.how != "native" or inside), value


@pytest.mark.parametrize("flat", [False, True])
def test_every_name_comes_back_and_no_two_meet(flat: bool) -> None:
    """C10: the mapping of names is injective and reversible."""
    everything = {name: {name: dt.date(2024, 1, 1)} for name in ODD_NAMES}
    for rule in ("/X/*", "/X/*/*", "/X/*/**"):
        rules = representation("X", [rule])
        there_and_back(cut(Aggregate("k", everything), rules), flat, rules)


# ---------------------------------------------------------------- bytes written by others


def element(kind: int, name: bytes, data: bytes) -> bytes:
    return bytes([kind]) + name + b"\0" + data


def document(*elements: bytes) -> bytes:
    body = b"".join((element(0x10, b"_id", b"\1\0\0\0"), *elements))
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def text(data: bytes) -> bytes:
    return struct.pack("<i", len(data) + 1) + data + b"\0"


FOREIGN: Sequence[tuple[int, bytes, Value]] = [
    (0x06, b"", v.Opaque("bson", "undefined")),
    (0x0E, text(b"abc"), v.Opaque("bson", "symbol", text(b"abc"))),
    (0x0C, text(b"c") + b"1" * 12, v.Opaque("bson", "dbPointer", text(b"c") + b"1" * 12)),
    (0x0D, text(b"x=1"), v.Opaque("bson", "javascript", text(b"x=1"))),
    (0xFF, b"", v.Opaque("bson", "minKey")),
    (0x7F, b"", v.Opaque("bson", "maxKey")),
    (0x0B, b"a\0gi\0", v.Regex("a", "gi")),
    (0x0B, b"a\0im\0", v.Regex("a", "im")),
    (0x09, struct.pack("<q", 253_402_300_800_000), v.Instant(253_402_300_800 * v.NANOS)),
    (0x09, struct.pack("<q", -(2**63)), v.Instant(-(2**63) * 1_000_000)),
    (0x09, struct.pack("<q", -1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC)),
    (0x10, struct.pack("<i", 1), 1),
    (0x12, struct.pack("<q", 1), v.Int64(1)),
    (0x12, struct.pack("<q", 2**53 + 1), 2**53 + 1),
    (0x01, struct.pack("<d", 1.0), 1.0),
    (0x05, struct.pack("<i", 1) + b"\4x", v.Binary(4, b"x")),
    (0x05, struct.pack("<i", 16) + b"\3" + b"x" * 16, v.Binary(3, b"x" * 16)),
    (0x13, bson.Decimal128("1.10").bid, Decimal("1.10")),
    (0x13, b"\xff" * 14 + b"\x6f\x6c", v.Opaque("bson", "decimal", b"\xff" * 14 + b"\x6f\x6c")),
    (0x02, text(b"a\0b\x02\x06c\0"), "a\0b\x02\x06c\0"),
    (0x03, document(element(0x0A, b"$db", b"")), {"_id": 1, "$db": None}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "expected"), FOREIGN)
def test_every_bson_type_is_read_and_written_exactly(
    kind: int, data: bytes, expected: Value
) -> None:
    """C01, C02: what the driver by itself would turn into something else."""
    for around in (b"", element(0x02, b"s", text(b"x\0y")), element(0x12, b"n", b"\1" + bytes(7))):
        raw = document(around, element(kind, b"v", data))
        shape, observer = readers(False, WHOLE)
        for found in (shape.decode(raw), observer.block(raw)):
            assert equal(found.entries[""]["v"], expected)  # type: ignore[index]
        assert shape.encode(shape.decode(raw)).raw == raw


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (document(element(0x03, b"a", b"\x10\0\0\0\x02b\0\x04\0\0\0a\xdcA\0\0")), "a.b: text that"),
        (document(element(0x02, b"a", text(b"\xed\xa0\x80"))), "a: text that is not UTF-8"),
        (document(element(0x10, b"a", b"\1\0\0\0"), element(0x10, b"a", b"\2\0\0\0")), "twice"),
        (document(element(0x20, b"a", b"")), ""),
        (document(element(0x02, b"a", b"\xff\0\0\0x\0")), ""),
        (document()[:-3], ""),
    ],
)
def test_c65_what_is_no_bson_is_damaged_by_name(raw: bytes, reason: str) -> None:
    shape, observer = readers(False, WHOLE)
    for read in (shape.decode, observer.block):
        with pytest.raises(Damaged) as caught:
            read(raw)
        assert reason in str(caught.value)


def test_a_side_field_of_somebody_else_is_a_field() -> None:
    for foreign in ("text", {"other": 1}, [1]):
        raw = bson.encode({"_id": 1, "_migrator": foreign, "a": 1})
        shape, observer = readers(False, WHOLE)
        for found in (shape.decode(raw), observer.block(raw)):
            assert found.entries == {"": {"_migrator": foreign, "a": 1}}
        there_and_back(shape.decode(raw), False, WHOLE)


def test_names_that_look_escaped_are_taken_at_their_word() -> None:
    raw = bson.encode({"_id": 1, "%2E": 1, "%": 2, "a%24b": 3})
    shape, observer = readers(False, WHOLE)
    for found in (shape.decode(raw), observer.block(raw)):
        assert found.entries == {"": {"%2E": 1, "%": 2, "a%24b": 3}}


@pytest.mark.parametrize(
    "tags", [[["x", "date"]], [["", "uuid"]], [["[0]", "set"]], [[1, 2]], "x", [["", "no such"]]]
)
def test_tags_that_no_longer_fit_are_ignored(tags: object) -> None:
    raw = bson.encode({"_id": 1, "a": "2024-13-01", "_migrator": {"tags": {"a": tags, "b": tags}}})
    shape, observer = readers(False, WHOLE)
    for found in (shape.decode(raw), observer.block(raw)):
        assert found.entries == {"": {"a": "2024-13-01"}}


# ---------------------------------------------------------------- keys and bounds


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0), (1, v.Int64(1)), (1, Decimal("1.0")), (0.5, Decimal("0.50")), (0, -0.0),
        (1e22, Decimal("1E+22")), ({"a": 1}, {"a": 1.0}), ([1], {"0": 1}),
        (float("nan"), Decimal("NaN")),
        (dt.date(2024, 1, 1), "2024-01-01"), (v.Ref("Game", 1), v.Ref("Game", "1")),
        (2**63 - 1, Decimal(2**63 - 1)), ("abc", v.Opaque("bson", "symbol", text(b"abc"))),
    ],
)  # fmt: skip
def test_keys_that_mongodb_takes_for_one_are_one(left: Value, right: Value) -> None:
    assert equal(keys.compared(left), keys.compared(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, "1"), (1, True), (0.1, Decimal("0.1")), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (None, ""),
        (b"a", "a"), (2**53 + 1, float(2**53)), (b"a", v.Binary(5, b"a")), ([1, 2], [2, 1]),
    ],
)  # fmt: skip
def test_other_keys_are_two(left: Value, right: Value) -> None:
    assert not equal(keys.compared(left), keys.compared(right))


@pytest.mark.parametrize("key", [v.Regex("a"), v.Set([1]), {"$a": 1}, {"a": {"$b": 1}}])
def test_what_can_not_be_a_key_does_not_fit(key: Value) -> None:
    shape, _ = readers(False, WHOLE)
    with pytest.raises(DoesNotFit) as caught:
        shape.encode(Block(key, {"": {}}))
    assert caught.value.key is key


def test_deadline_without_a_declared_field_does_not_fit() -> None:
    shape, _ = readers(False, WHOLE)
    with pytest.raises(DoesNotFit, match="expiry"):
        shape.encode(Block(1, {"": {"a": 1}}, expires=5))


def test_own_field_named_like_the_deadline_stays_a_field() -> None:
    moment = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    block = Block(1, {"": {"expireAt": moment, "a": 1}}, expires=1_900_000_000_000)
    raw = there_and_back(block, False, WHOLE)
    assert bson.decode(raw)["expireAt"] == dt.datetime(2030, 3, 17, 17, 46, 40)
    assert bson.decode(raw)["%65xpireAt"] == dt.datetime(2030, 1, 1)


def test_an_encoder_that_is_wrong_is_seen_by_the_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, observer = readers(False, WHOLE)
    write, read = codec.encode, codec.decode
    monkeypatch.setattr(codec, "encode", lambda r: write({**r, "n": -r["n"]}))  # type: ignore[operator]
    monkeypatch.setattr(codec, "decode", lambda raw: {**read(raw), "n": -read(raw)["n"]})  # type: ignore[operator]
    block = Block("k", {"": {"n": 7}})
    raw = shape.encode(block).raw
    assert shape.decode(raw) == block
    assert observer.block(raw).entries == {"": {"n": -7}}

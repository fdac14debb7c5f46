"""Redis: what is told to lie there as expected, without decoding it, does; by no code of the
copier's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from migrator.model import json_text
from migrator.model import value as v
from migrator.model.block import Block
from migrator.model.canonical import equal
from migrator.model.move import At
from migrator.model.value import Value
from migrator.ports import Matching, StoreSettings
from migrator.stores.redis import codec, document, open_store
from migrator.stores.redis.collection import RedisCollection
from migrator.stores.redis.forms import Raw
from migrator.stores.redis.matching import matcher
from migrator.stores.redis.store import RedisStore
from migrator.testing.values import ODD_VALUES
from tests.contract import servers

LAYOUTS = ("hash", "keys", "string")
# Text that an encoder which knows more kinds makes of some values, or that looks like JSON.
_TEXTS = ["1", "-1.5e3", "null", "true", "[", "{}", "1.10", "NaN", str(UUID(int=0)), "2024-02-29"]
_NUMBERS = [2**63, 2**64, -(2**63) - 1, float(2**64), 1e300, 1e16, 5e-324, "\x7f\x00\u2028"]


@pytest.fixture
def store() -> Iterator[RedisStore]:
    made = open_store(StoreSettings("cache", servers.redis()))
    assert isinstance(made, RedisStore)
    yield made
    made.close()


@pytest.fixture
def place(store: RedisStore, request: pytest.FixtureRequest) -> Iterator[RedisCollection]:
    """A collection in the layout of the parameter."""
    name = f"{servers.namespace()}matching"
    made = store.collection("Game", At("cache", name, ("/Game/*",), request.param))
    made.drop()
    yield made
    made.drop()


def _matching(place: RedisCollection) -> Matching:
    observer = place.observer()
    assert isinstance(observer, Matching)
    return observer


def _values() -> list[Value]:
    return [*(value for values in ODD_VALUES.values() for value in values), *_TEXTS, *_NUMBERS]


def _blocks(place: RedisCollection, values: list[Value]) -> list[Block]:
    """A block for each value; in a document its fields lie in one entry."""
    if place.at.layout is not None and place.at.layout.name == "string":
        return [Block(f"{i}", {"": {"x": value, "y": 1}}) for i, value in enumerate(values)]
    return [Block(f"{i}", {"x": value, "": {"y": 1}}) for i, value in enumerate(values)]


def _lying(place: RedisCollection, blocks: list[Block]) -> list[Raw]:
    found = place._form.read([place._form.key(block.id) for block in blocks])
    assert all(isinstance(raw, Raw) for raw in found)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("place", ["hash", "string"], indirect=True)
def test_what_is_matched_is_equal_and_nothing_else_is(place: RedisCollection) -> None:
    inside: list[Value] = [[value] for value in _values()]
    for values in (_values(), inside) if place._form.type == "hash" else (inside,):
        blocks = _blocks(place, values)
        place.write(blocks)
        matches = matcher(place._form)
        raws = _lying(place, blocks)
        matched = 0
        for block in blocks:
            for other, raw in zip(blocks, raws, strict=True):
                if matches(block, raw):
                    assert equal(block.entries, other.entries), (block, other)
                    matched += block is other
        assert matched > len(blocks) / 3  # as for the rest, a no is looked at by decoding


@pytest.mark.parametrize("place", LAYOUTS, indirect=True)
def test_what_is_not_matched_is_read(place: RedisCollection) -> None:
    blocks = _blocks(place, _values())
    place.write(blocks)
    for block, found in zip(blocks, _matching(place).match(blocks), strict=True):
        assert found is not None
        assert found is block or equal(found.entries, block.entries)


@pytest.mark.parametrize("place", LAYOUTS, indirect=True)
def test_what_lies_elsewhere_or_otherwise_is_not_matched(place: RedisCollection) -> None:
    soon = 4_102_444_800_000
    whole: dict[str, Value] = {"": {"x": 1, "y": [True]}}
    place.write([Block("a", whole, soon), Block("b", whole), Block(1, whole)])
    observer = _matching(place)
    for there in (Block("a", whole, soon), Block("b", whole), Block(1, whole)):
        assert observer.match([there])[0] is there
    for other in (
        Block("a", whole, soon + 1000),
        Block("a", whole),
        Block("b", whole, soon),
        Block("b", {"": {"x": 1.0, "y": [True]}}),
        Block("b", {"": {"x": True, "y": [True]}}),
        Block("b", {"": {"x": 1, "y": [1]}}),
        Block("b", {"": {"x": 1, "y": [True], "z": None}}),
        Block("b", {"": {"x": 1}}),
        Block("b", {"": {"x": 1, "y": [True]}, "z": 1}),
        Block("b", {"z": {"x": 1, "y": [True]}}),
    ):
        (found,) = observer.match([other])
        assert found is not other
        (read,) = place.observer().read([other.id])  # type: ignore[attr-defined]
        assert found == read
    assert observer.match([Block("c", whole), Block("1", whole)]) == [None, None]


@pytest.mark.parametrize(
    ("place", "commands"),
    [
        # A second name of the same path, and an entry without a note whose key is gone.
        ("hash", [("HDEL", "", "y"), ("HSET", "", "\\#78", "1")]),
        ("keys", [("HSET", "", "y", ""), ("UNLINK", ":y")]),
    ],
    indirect=["place"],
)
def test_an_entry_that_is_gone_is_missed(
    store: RedisStore, place: RedisCollection, commands: list[tuple[str, ...]]
) -> None:
    block = _write(place, Block("a", {"x": 1, "y": "2"}))
    key = place._form.key("a")
    for word, suffix, *more in commands:
        store._wire.ask(store._wire.masters()[0], (word, key + suffix.encode(), *more))
    (raw,) = _lying(place, [block])
    assert len(raw.fields) == 2
    assert not matcher(place._form)(block, raw)


def test_names_of_the_side_are_not_taken_for_it(store: RedisStore) -> None:
    """A field of the application that is called as the notes are has a backslash where it lies."""
    at = At("cache", f"{servers.namespace()}side", ("/Game/*",), "string")
    place = store.collection("Game", at)
    record: dict[str, Value] = {"a": "AA==", "_migrator": {"tags": {"a": "bytes"}}}
    (raw,) = _lying(place, [_write(place, Block("1", {"": {"a": b"\0"}}))])
    matches = matcher(place._form)
    assert not matches(Block("1", {"": record}), raw)
    (raw,) = _lying(place, [_write(place, Block("1", {"": record}))])
    assert not matches(Block("1", {"": {"a": b"\0"}}), raw)
    assert not matches(Block("1", {"": {"\\_migrator": record["_migrator"], "a": "AA=="}}), raw)
    place.drop()


def _write(place: RedisCollection, block: Block) -> Block:
    place.write([block])
    return block


@pytest.mark.parametrize("place", LAYOUTS, indirect=True)
def test_an_order_of_fields_and_a_form_of_numbers_that_others_chose_are_equal(
    store: RedisStore, place: RedisCollection
) -> None:
    block = Block("a", {"": {"x": 1.5, "y": ["\u00e9", None]}})
    place.write([block])
    key = place._form.key("a")
    other = b'{ "y": ["\\u00e9", null], "x": 15e-1 }'
    command: tuple[Any, ...] = ("SET", key, other)
    if place.at.layout is not None and place.at.layout.name == "keys":
        command = ("SET", key + b":", other)
    elif place._form.type == "hash":
        command = ("HSET", key, "", other)
    store._wire.ask(store._wire.masters()[0], command)
    (found,) = _matching(place).match([block])
    assert found is not None
    assert found is not block
    assert equal(found.entries, block.entries)


_WRITE_JSON, _DUMP, _ENCODE = json_text.to_json, json_text.dump_bytes, codec.encode


def _forgets_notes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(codec, "encode", lambda value: (_ENCODE(value)[0], None))
    patch.setattr(document, "dump_bytes", lambda value: (_DUMP(value)[0], {}))


def _changes(old: bytes, new: bytes) -> Callable[[pytest.MonkeyPatch], None]:
    def apply(patch: pytest.MonkeyPatch) -> None:
        for module in (json_text, document):
            patch.setattr(module, "to_json", lambda value: _WRITE_JSON(value).replace(old, new))

    return apply


@pytest.mark.parametrize(
    ("break_encoder", "values"),
    [
        (
            _forgets_notes,
            [UUID(int=1), [UUID(int=1)], [b"1"], [math.inf], v.Set([1]), [v.Int64(1)]],
        ),
        (
            _changes(b"kept", b"KEPT"),
            [["kept"], {"a": ["kept"]}, {"kept": 1}, [UUID(int=1), "kept"]],
        ),
        (_changes(b"1.25", b"1.5"), [[1.25], {"a": [1.25, b"1"]}]),
    ],
    ids=["forgets notes", "changes text", "rounds numbers"],
)
@pytest.mark.parametrize("place", LAYOUTS, indirect=True)
def test_a_broken_encoder_is_found(
    place: RedisCollection,
    monkeypatch: pytest.MonkeyPatch,
    break_encoder: Callable[[pytest.MonkeyPatch], None],
    values: list[Value],
) -> None:
    break_encoder(monkeypatch)
    blocks = _blocks(place, values)
    place.write(blocks)
    for block, found in zip(blocks, _matching(place).match(blocks), strict=True):
        assert found is not None
        assert not equal(found.entries, block.entries)

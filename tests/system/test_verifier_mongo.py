"""The verifier is tried on MongoDB, where the plain driver changes one value of each kind."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from bson import (
    Binary,
    CodecOptions,
    Decimal128,
    Int64,
    MaxKey,
    ObjectId,
    Regex,
    Timestamp,
)
from bson.raw_bson import RawBSONDocument

from migrator import commands
from migrator.model import value as v
from migrator.model.phase import Phase
from migrator.model.value import Kind, Value
from migrator.ports import How
from tests.system import kit, servers
from tests.system.kit import Place, Shop, Urls

MONGODB = Place("mongo-document", "mongodb", "document")
MOMENT = dt.datetime(2024, 2, 29, 12, 0, 0, 1000, tzinfo=dt.UTC)
LATER = MOMENT + dt.timedelta(milliseconds=1)

# For each kind that MongoDB has: a value of ours; for the plain driver another value of the kind,
# and a look-alike of another kind.
KINDS: Mapping[Kind, tuple[Value, Any, Any]] = {
    Kind.NULL: (None, "", False),
    Kind.BOOLEAN: (True, False, 1),
    Kind.INT32: (1, 2, Int64(1)),
    Kind.INT64: (v.Int64(2**53 + 1), Int64(2**53 + 2), float(2**53 + 1)),
    Kind.DOUBLE: (1.0, math.nextafter(1.0, 2), 1),
    Kind.DECIMAL: (Decimal("1.10"), Decimal128("1.1"), "1.10"),
    Kind.TEXT: ("e\u0301", "\u00e9", b"e\xcc\x81"),
    Kind.BYTES: (b"a\0", b"a", "a\0"),
    Kind.BINARY: (v.Binary(128, b"a"), Binary(b"a", 129), b"a"),
    Kind.TIMESTAMP: (MOMENT, LATER, "2024-02-29T12:00:00.001Z"),
    Kind.UUID: (UUID(int=1), Binary.from_uuid(UUID(int=2)), str(UUID(int=1))),
    Kind.OBJECT_ID: (v.ObjectId(bytes(12)), ObjectId(bytes(11) + b"\1"), "0" * 24),
    Kind.BSON_TIMESTAMP: (v.BsonTimestamp(1, 1), Timestamp(1, 2), Int64(2**32 + 1)),
    Kind.REGEX: (v.Regex("a", "i"), Regex("a"), "a"),
    Kind.OPAQUE: (v.Opaque("bson", "minkey"), MaxKey(), "minkey"),
    Kind.LIST: ([1, [2]], [1, [2], None], {"0": 1, "1": [2]}),
    Kind.RECORD: ({"a": {}}, {"a": None}, [["a", {}]]),
}


@pytest.fixture
def arrived(tmp_path: Path, urls: Urls) -> Iterator[tuple[commands.Project, Any]]:
    """A verified move of a game for each kind, the value deep inside; and what lies there."""
    name, url = kit.fresh("trial"), urls("mongodb", "")
    shop = Shop(tmp_path, {"embedded": urls(None, "embedded"), MONGODB.store: url})
    source = Place("embedded", None, None)
    shop.script(f"move = {kit.move('Game', source.script(name), MONGODB.script(name))}")
    with shop.open() as project:
        games = [(k.value, {"rounds": [{"cast": x}]}) for k, (x, _, _) in KINDS.items()]
        kit.fill(project.stores.get("embedded").collection("Game", source.at(name)), games)
        commands.apply(project, commands.plan(project, "0001"), until=Phase.SHADOW_READ)
        raw: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
        with servers.connect_mongodb(url) as client:
            yield project, client.get_default_database().get_collection(name, raw)


def test_each_kind_that_mongodb_has_is_tried(arrived: tuple[commands.Project, Any]) -> None:
    kinds = arrived[0].stores.get(MONGODB.store).capabilities.kinds
    assert KINDS.keys() == {kind for kind, held in kinds.items() if held.how is How.NATIVE}


def test_one_changed_value_of_each_kind_is_found(arrived: tuple[commands.Project, Any]) -> None:
    project, lies = arrived
    for kind, (_, *others) in KINDS.items():
        before = lies.find_one({"_id": kind.value})
        for other in others:
            done = lies.update_one({"_id": kind.value}, {"$set": {"rounds.0.cast": other}})
            assert done.modified_count == 1, (kind, other)
            (found,) = commands.verify_run(project, "0001")
            counts = (found.equal, found.differ, found.missing, found.extra)
            assert counts == (len(KINDS) - 1, 1, 0, 0), (kind, other)
            assert found.told[0].key == f"Game:{kind.value}"
            assert found.told[0].paths[0].startswith("rounds[0].cast")
        lies.replace_one({"_id": kind.value}, before)
    (found,) = commands.verify_run(project, "0001")
    assert found.clean


def test_one_missing_and_one_extra_are_found(arrived: tuple[commands.Project, Any]) -> None:
    project, lies = arrived
    lies.delete_one({"_id": "double"})
    lies.insert_one({"_id": "stranger", "rounds": []})
    (found,) = commands.verify_run(project, "0001")
    assert (found.differ, found.missing, found.extra) == (0, 1, 1)
    assert {(told.key, told.what) for told in found.told} == {
        ("Game:double", "missing"),
        ("Game:stranger", "extra"),
    }

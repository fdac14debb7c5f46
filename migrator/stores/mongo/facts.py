"""What MongoDB can do and hold, as data, and what a plan should tell of a collection there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from migrator.model.value import Kind, Value, kind_of
from migrator.ports import Capabilities, Cost, Held, How, LayoutFacts, Limits
from migrator.stores.mongo import codec
from migrator.stores.mongo.stored import MAX_BYTES, MAX_NESTING

DEFAULT_LAYOUT = "document"

_NATIVE = {
    Kind.NULL: "null",
    Kind.BOOLEAN: "bool",
    Kind.INT32: "int",
    Kind.INT64: "long",
    Kind.DOUBLE: "double",
    Kind.DECIMAL: "decimal",
    Kind.TEXT: "string",
    Kind.BYTES: "binData",
    Kind.BINARY: "binData",
    Kind.TIMESTAMP: "date",
    Kind.UUID: "binData",
    Kind.OBJECT_ID: "objectId",
    Kind.BSON_TIMESTAMP: "timestamp",
    Kind.REGEX: "regex",
    Kind.LIST: "array",
    Kind.RECORD: "object",
    Kind.OPAQUE: "its own",
}
_TAGGED = {kind: "string" for kind in Kind if kind not in _NATIVE} | {Kind.SET: "array"}
KINDS = {kind: Held(How.NATIVE, type_) for kind, type_ in _NATIVE.items()} | {
    kind: Held(How.TAGGED, type_) for kind, type_ in _TAGGED.items()
}

_COSTS = {
    "get": Cost(1, "the block"),
    "put": Cost(2, "the block; again where one is there", least=1),
    "exchange": Cost(2, "the key; the block as it was, and as it becomes", whole=True, least=1),
    "delete": Cost(1, "the key"),
}
LAYOUTS = {
    "document": LayoutFacts(
        effective=True,
        unit="document",
        version="none is kept: a change on condition names the whole document as it was read",
        costs=_COSTS
        | {
            "get_entries": Cost(1, "the top-level fields of the entries; the block for the rest"),
            "update": Cost(
                2, "a top-level field or list element; else the block, there and back", least=1
            ),
            "append": Cost(1, "the entry"),
        },
    ),
    "flat": LayoutFacts(
        effective=True,
        unit="document",
        version="none is kept: a change on condition names the whole document as it was read",
        costs=_COSTS
        | {
            "get_entries": Cost(1, "the entries"),
            "update": Cost(1, "the entries"),
            "append": Cost(1, "the entry"),
        },
    ),
}
CAPABILITIES = Capabilities(
    layouts=LAYOUTS,
    default_layout=DEFAULT_LAYOUT,
    kinds=KINDS,
    # A pattern, a set (an array) and undefined can't be an _id; a list becomes a record.
    key_kinds=frozenset(Kind) - {Kind.REGEX, Kind.SET},
    key_order="bson",
    limits=Limits(
        block_bytes=MAX_BYTES, nesting=MAX_NESTING, batch_blocks=100_000, batch_bytes=48_000_000
    ),
    feed="change stream",
    expiry=True,
    transactions=True,
    reads_through=True,
)


def needs_tag(value: Value) -> Held | None:
    """How a value of a kind held natively is held after all; None where its kind's row holds."""
    if type(value) is dict:
        odd = any("\0" in name or not codec.native(name) for name in value)
        return Held(How.TAGGED, "object") if odd else None
    kind = kind_of(value)
    if kind is Kind.LIST or KINDS[kind].how is not How.NATIVE or codec.native(value):
        return None
    return Held(How.TAGGED, "binData" if kind is Kind.TEXT else "string")


def findings(
    info: Mapping[str, Any], indexes: Mapping[str, Any], expires: str | None, shard: str = ""
) -> Iterable[tuple[str, str, str]]:
    """Severity, code and text of what a plan should tell of a collection."""
    if shard:
        yield (
            "accept",
            "mongodb-shard",
            f"the server is one shard ({shard}) of a cluster: it lacks what others hold, and may "
            "have orphans, copies of what moved on to them; give the URL of a mongos",
        )
    kind, options = info.get("type", "collection"), info.get("options", {})
    if kind != "collection":
        yield "error", "mongodb-type", f"it is a {kind}; only plain collections can be moved"
    if options.get("capped"):
        yield "error", "mongodb-capped", "it is capped: MongoDB drops old documents by itself"
    if options.get("validator"):
        yield (
            "warning",
            "mongodb-validator",
            "it has a validator, which may refuse blocks (and the reserved field _migrator)",
        )
    if (options.get("collation") or {}).get("locale", "simple") != "simple":
        yield (
            "warning",
            "mongodb-collation",
            "it has a collation: keys that differ only in case or accents may be one key here, and "
            "a gateway's change on condition takes texts that differ only so for equal",
        )
    for name, index in indexes.items():
        fields = list(index.get("key", {}))
        if index.get("unique") and fields != ["_id"]:
            yield (
                "note",
                "mongodb-unique",
                f"index {name} wants {', '.join(fields)} unique: a second block with the same is "
                "refused, with both keys named",
            )
        if "expireAfterSeconds" in index and fields != [expires]:
            yield (
                "warning",
                "mongodb-ttl",
                f"index {name} expires documents by {', '.join(fields)}, which the layout does "
                "not declare: what expires during the move shows as a difference",
            )
        elif index.get("expireAfterSeconds"):
            yield (
                "warning",
                "mongodb-ttl-delay",
                f"index {name} adds {index['expireAfterSeconds']} s to the deadline in {expires}, "
                "which other stores will not",
            )

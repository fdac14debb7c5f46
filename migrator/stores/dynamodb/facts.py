"""What DynamoDB can do and hold, as data."""

from __future__ import annotations

from dataclasses import replace

from migrator.model.value import Kind, Value, kind_of
from migrator.ports import Capabilities, Cost, Held, How, LayoutFacts, Limits
from migrator.stores.dynamodb import codec, keys, sizes
from migrator.stores.dynamodb.options import GATHERED, ITEM, SPLIT

DEFAULT_LAYOUT = ITEM

_NATIVE = {
    Kind.NULL: "NULL",
    Kind.BOOLEAN: "BOOL",
    Kind.INT32: "N",
    Kind.INT64: "N",
    Kind.INTEGER: "N",
    Kind.DECIMAL: "N",
    Kind.TEXT: "S",
    Kind.BYTES: "B",
    Kind.SET: "SS, NS, BS",
    Kind.LIST: "L",
    Kind.RECORD: "M",
}
KINDS = {kind: Held(How.TAGGED, "N" if kind is Kind.DOUBLE else "S") for kind in Kind} | {
    kind: Held(How.NATIVE, type_) for kind, type_ in _NATIVE.items()
}
_ITEM_LIMITS = Limits(
    block_bytes=sizes.ITEM_BYTES,
    key_bytes=sizes.HASH_BYTES,
    name_bytes=sizes.NAME_BYTES // 3,
    nesting=sizes.NESTING,
    batch_blocks=sizes.BATCH_WRITES,
    batch_bytes=16 * 1024 * 1024,
)
_GATHERED_LIMITS = Limits(
    entry_bytes=sizes.ITEM_BYTES,
    name_bytes=sizes.RANGE_BYTES // 4,
    nesting=sizes.NESTING,
    batch_blocks=100,
    batch_bytes=16 * 1024 * 1024,
)
LAYOUTS = {
    ITEM: LayoutFacts(
        effective=True,
        unit="item",
        shared=True,
        version="none is kept: a condition names the attributes as they were read",
        costs={
            "get": Cost(1, "the key"),
            "get_entries": Cost(1, "the key and the names of the entries"),
            "put": Cost(1, "the block"),
            "update": Cost(1, "the entries; with tags or index attributes one request more"),
            "append": Cost(1, "the entry; with tags or index attributes one request more"),
            "delete": Cost(1, "the key"),
        },
        limits=_ITEM_LIMITS,
    ),
    GATHERED: LayoutFacts(
        effective=False,
        unit="item; who follows the head, as Migrator does, sees a block whole",
        shared=True,
        version="_migrator.version of the head, drawn anew by each change on condition",
        costs={
            "get": Cost(1, "the key"),
            "get_entries": Cost(1, "the keys of the head and the entries"),
            "put": Cost(3, "the block; twice where one that is there changes in several items"),
            "update": Cost(3, "the entry and the side attribute of the head; several: twice"),
            "append": Cost(3, "the entry and the side attribute of the head"),
            "delete": Cost(4, "the keys"),
        },
        limits=_GATHERED_LIMITS,
    ),
    SPLIT: LayoutFacts(
        effective=False,
        unit="item; of a block over 400 KB as in item-collection",
        version="none is kept of an item; of a large block as in item-collection",
        costs={
            "get": Cost(1, "the key; of a large block also the keys beside"),
            "get_entries": Cost(1, "the key and the names of the entries"),
            "put": Cost(2, "the block, and its key beside"),
            "update": Cost(2, "the entries; of a large block as in item-collection"),
            "append": Cost(2, "the entry; of a large block as in item-collection"),
            "exchange": Cost(
                3, "the key in both tables; the items that differ, in one transaction"
            ),
            "delete": Cost(2, "the key in both tables"),
        },
        limits=replace(_GATHERED_LIMITS, batch_blocks=sizes.BATCH_WRITES),
    ),
}
CAPABILITIES = Capabilities(
    layouts=LAYOUTS,
    default_layout=DEFAULT_LAYOUT,
    kinds=KINDS,
    key_kinds=keys.KINDS,
    key_order="none: partition keys are hashed",
    limits=_ITEM_LIMITS,
    feed="DynamoDB Streams",
    expiry=True,
    transactions=True,
)
_PLAIN = frozenset((type(None), bool, bytes))


def needs_tag(value: Value) -> Held | None:
    """How a value of a kind held natively is held after all; None where its kind's row holds."""
    kind = type(value)
    if kind in _PLAIN or kind is list:
        return None
    tags: dict[str, str] = {}
    if kind is dict:
        odd = not all(map(codec.speakable, value))  # type: ignore[call-overload]
        return Held(How.TAGGED, "M") if odd else None
    if KINDS[kind_of(value)].how is How.TAGGED:
        if kind is not float:
            return None
        ((type_, _),) = codec.hold(value, tags).items()
        return Held(How.TAGGED, "S") if type_ == "S" else None
    if kind is int and -codec.PLAIN_LIMIT < value < codec.PLAIN_LIMIT:
        return None
    ((type_, _),) = codec.hold(value, tags).items()
    return Held(How.TAGGED, type_) if "" in tags else None

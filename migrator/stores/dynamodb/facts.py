"""What DynamoDB can do and hold, as data."""

from __future__ import annotations

from dataclasses import replace

from migrator.model.value import Kind, Value, kind_of
from migrator.ports import Capabilities, Cost, Held, How, LayoutFacts, Limits
from migrator.stores.dynamodb import codec, keys, sizes
from migrator.stores.dynamodb.options import GATHERED, ITEM, SPLIT

DEFAULT_LAYOUT = ITEM
# What an item collection may have that costs more; an update reads the whole block then.
LOCATED, COMPUTED = "a locator", "attributes of an index that are made of others"

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
        version="_migrator.version, once an exchange has added an attribute; a condition names it "
        "and the attributes as they were read",
        costs={
            "get": Cost(1, "the key"),
            "get_entries": Cost(1, "the key and the names of the entries"),
            "put": Cost(1, "the block"),
            "update": Cost(3, "the entries; twice where tags are in the way", least=1),
            "append": Cost(2, "the entry; the key before where it has tags", least=1),
            "exchange": Cost(
                2, "the key; the block as it was, and what differs", whole=True, least=1
            ),
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
            "get": Cost(1, "the key; again for each further MB", extra={LOCATED: 1}),
            "get_entries": Cost(
                2,
                "the keys of the head and the entries; the key where none is there",
                least=1,
            ),
            "put": Cost(
                6,
                "the key; the block, twice where one that is there changes in several items",
                least=1,
                pages=3,
                extra={LOCATED: 6},
            ),
            "update": Cost(
                6,
                "the key; the entry and the side attribute of the head, several entries twice",
                least=2,
                pages=3,
                extra={LOCATED: 9, COMPUTED: 1},
            ),
            "append": Cost(
                3,
                "the key; the entry and the side attribute of the head",
                extra={LOCATED: 4, COMPUTED: 1},
            ),
            "exchange": Cost(
                2, "the key; the head and the entries that differ, in one transaction", least=1
            ),
            "delete": Cost(4, "the keys", least=1, pages=1, extra={LOCATED: 3}),
        },
        limits=_GATHERED_LIMITS,
    ),
    SPLIT: LayoutFacts(
        effective=False,
        unit="item; of a block over 400 KB as in item-collection",
        version="none is kept of an item; of a large block as in item-collection",
        costs={
            "get": Cost(3, "the key; of a large block also beside", least=1),
            "get_entries": Cost(
                4, "the key and the names of the entries; of a large block also beside", least=1
            ),
            "put": Cost(
                7,
                "the block, and its key beside; of a large block as in item-collection",
                least=2,
                pages=3,
            ),
            "update": Cost(
                8, "the entries; of a large block then as in item-collection", least=1, pages=3
            ),
            "append": Cost(5, "the entry; of a large block then as in item-collection", least=1),
            "exchange": Cost(
                3,
                "the key, twice where it is no item or has a deadline; an item as it was, and what "
                "differs; all else in one transaction",
                whole=True,
                least=1,
            ),
            "delete": Cost(5, "the key in both tables", least=2, pages=1),
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

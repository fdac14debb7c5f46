"""What Redis can do and hold, as data."""

from __future__ import annotations

from migrator.model import json_text
from migrator.model.json_text import NESTING
from migrator.model.value import Kind, Value, has_utf8, kind_of
from migrator.ports import Capabilities, Cost, Held, How, LayoutFacts, Limits
from migrator.stores.redis.forms import MAX_BYTES

DEFAULT_LAYOUT = "hash"

_JSON = {
    Kind.NULL: "JSON null",
    Kind.BOOLEAN: "JSON true or false",
    Kind.INT32: "JSON number",
    Kind.INT64: "JSON number",
    Kind.INTEGER: "JSON number",
    Kind.DOUBLE: "JSON number",
    Kind.LIST: "JSON list",
    Kind.RECORD: "JSON object",
}
KINDS = (
    {kind: Held(How.TAGGED, "string") for kind in Kind}
    | {kind: Held(How.NATIVE, type_) for kind, type_ in _JSON.items()}
    | {Kind.TEXT: Held(How.NATIVE, "string"), Kind.SET: Held(How.TAGGED, "JSON list")}
)

# As far as the layout declares a type for them: text as an element, the rest in one of JSON.
NATIVE_KINDS = {kind: Held(How.REFUSED) for kind in Kind} | {
    kind: Held(How.NATIVE, type_)
    for kind, type_ in (
        *_JSON.items(),
        (Kind.TEXT, "string"),
        (Kind.BYTES, "string"),
        (Kind.SET, "set"),
        (Kind.LIST, "list"),
        (Kind.RECORD, "hash"),
        (Kind.DOUBLE, "score"),
        (Kind.TIMESTAMP, "deadline"),
    )
}

_VERSION = "none is kept: the keys are watched while their content is compared"
_WHOLE = {
    "get": Cost(1, "the block"),
    "put": Cost(1, "the block"),
    "delete": Cost(1, "the key"),
}
_LIMITS = Limits(entry_bytes=MAX_BYTES, key_bytes=MAX_BYTES, nesting=NESTING)
LAYOUTS = {
    "hash": LayoutFacts(
        effective=True,
        unit="hash",
        version=_VERSION,
        costs=_WHOLE
        | {
            "get_entries": Cost(1, "the entries and the notes"),
            "update": Cost(2, "the entries; the notes where one changes"),
            "append": Cost(2, "the entry"),
            "amend": Cost(3, "the entries", least=1),
            "exchange": Cost(2, "the entries that differ"),
        },
    ),
    "keys": LayoutFacts(
        effective=True,
        unit="hash tag",
        version=_VERSION,
        costs={
            "get": Cost(2, "the block", least=1),
            "get_entries": Cost(1, "the entries"),
            "put": Cost(2, "the block"),
            "update": Cost(2, "the entries"),
            "append": Cost(2, "the entry"),
            "amend": Cost(
                3, "the names of all entries, and those that differ", whole=True, least=2
            ),
            "exchange": Cost(
                3, "the names of all entries, and those that differ", whole=True, least=2
            ),
            "delete": Cost(2, "the key and the names of the entries"),
        },
    ),
    "string": LayoutFacts(
        effective=True,
        unit="string",
        version=_VERSION,
        costs=_WHOLE
        | {
            "get_entries": Cost(1, "the block"),
            "update": Cost(2, "the block, there and back", whole=True),
            "append": Cost(2, "the block, there and back", whole=True),
            "amend": Cost(2, "the block, there and back", whole=True),
            "exchange": Cost(2, "the block, there and back", whole=True),
        },
        entries=False,
        limits=Limits(block_bytes=MAX_BYTES, key_bytes=MAX_BYTES, nesting=NESTING),
    ),
    "native": LayoutFacts(
        effective=True,
        typed=True,
        unit="MULTI over the keys of a block",
        version=_VERSION,
        costs=_WHOLE
        | {
            "get_entries": Cost(1, "the block"),
            "update": Cost(2, "the block, there and back", whole=True),
            "append": Cost(2, "the block, there and back", whole=True),
            "amend": Cost(3, "fields of the hash, or one more of a list", least=1),
            "exchange": Cost(2, "the block, there and back", whole=True),
        },
        entries=False,
        kinds=NATIVE_KINDS,
        key_kinds=frozenset({Kind.TEXT, Kind.BYTES}),
    ),
}
CAPABILITIES = Capabilities(
    layouts=LAYOUTS,
    default_layout=DEFAULT_LAYOUT,
    kinds=KINDS,
    key_kinds=frozenset(Kind),
    key_order="slot, then bytes",
    limits=_LIMITS,
    feed="replication stream",
    expiry=True,
    transactions=False,
)


def needs_tag(value: Value) -> Held | None:
    """How a value of a kind that JSON has is held after all; None where its kind's row holds."""
    kind = type(value)
    if kind is str:
        return None if has_utf8(value) else Held(How.TAGGED, "string")  # type: ignore[arg-type]
    if kind is float:
        return None if json_text.native(value) else Held(How.TAGGED, "string")
    if isinstance(value, int) and kind is not int and kind is not bool:
        return Held(How.TAGGED, "JSON number")  # a small number that is 64 bits wide
    return None


def native_needs_tag(value: Value, deadlines: bool) -> Held | None:
    """As ``needs_tag``, for layout ``native``, with ``deadlines`` as a part or without.

    What a part holds is told when the block is encoded, by its path.
    """
    return Held(How.REFUSED) if not deadlines and kind_of(value) is Kind.TIMESTAMP else None

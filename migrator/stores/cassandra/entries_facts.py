"""What the layouts ``row`` and ``partition`` hold and do, as data."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.model import json_text as codec
from migrator.model.value import Kind, Value
from migrator.ports import Cost, Held, How, LayoutFacts, Limits
from migrator.stores.cassandra.entries_write import MAX_BYTES, MAX_KEY
from migrator.stores.cassandra.table_facts import large_partitions
from migrator.stores.cassandra.table_wire import Wire

_JSON = {
    Kind.NULL: "json null",
    Kind.BOOLEAN: "json true or false",
    Kind.INT32: "json number",
    Kind.INT64: "json number",
    Kind.INTEGER: "json number",
    Kind.DOUBLE: "json number",
    Kind.TEXT: "json text",
    Kind.LIST: "json list",
    Kind.RECORD: "json object",
}
KINDS = (
    {kind: Held(How.TAGGED, "json text") for kind in Kind}
    | {kind: Held(How.NATIVE, type_) for kind, type_ in _JSON.items()}
    | {Kind.SET: Held(How.TAGGED, "json list")}
)
_LIMITS = Limits(
    block_bytes=MAX_BYTES,
    key_bytes=MAX_KEY,
    name_bytes=60_000,
    nesting=codec.NESTING,
    batch_blocks=1000,
    batch_bytes=8 << 20,
)


def _facts(unit: str, version: str, look: str) -> LayoutFacts:
    costs = {
        "get": Cost(1, "the block"),
        "get_entries": Cost(1, "the block"),
        "put": Cost(3, f"{look}; the block; looked for again where none lay there", least=2),
        "append": Cost(2, f"{look}; the entry"),
        "update": Cost(2, f"{look}; the entries"),
        "exchange": Cost(
            4,
            "the block as it lies; after a plain write the version, twice; the entries that "
            "differ; looked for again where none lay there",
            least=1,
        ),
        "delete": Cost(2, f"{look}; the key", least=1),
    }
    return LayoutFacts(
        effective=True,
        unit=unit,
        version=version,
        costs=costs,
        kinds=KINDS,
        key_kinds=frozenset(Kind),
        limits=_LIMITS,
        expiry=True,
    )


LAYOUTS = {
    "row": _facts(
        "row",
        "column version (a lightweight transaction asks for it)",
        "the block as it lies",
    ),
    "partition": _facts(
        "partition, by one batch",
        "static column version (a lightweight transaction asks for it)",
        "names and stamps of what lies there",
    ),
}


def needs_tag(value: Value) -> Held | None:
    """How a value of a kind that JSON has is held after all; None where its kind's row holds."""
    kind = type(value)
    if kind is float and not codec.native(value):
        return Held(How.TAGGED, "json text")
    if isinstance(value, int) and kind is not int and kind is not bool:
        return Held(How.TAGGED, "json text")  # a small number that is 64 bits wide
    return None


def findings(wire: Wire, keyspace: str, table: str) -> Iterator[tuple[str, str, str]]:
    """Severity, code and text of what a plan should tell of a table."""
    yield from large_partitions(wire, keyspace, table)

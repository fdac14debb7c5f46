"""What the layout ``table`` can hold and does, as data, and what a plan should tell of a table."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from migrator.model import value as v
from migrator.model.value import Kind, Value, has_utf8
from migrator.ports import Cost, Held, How, LayoutFacts, Limits
from migrator.stores.cassandra.columns import SYSTEM
from migrator.stores.cassandra.columns_nested import quoted
from migrator.stores.cassandra.table_rows import MAX_ROW
from migrator.stores.cassandra.table_shape import TableInfo
from migrator.stores.cassandra.table_spec import SIDE, Spec
from migrator.stores.cassandra.table_wire import Wire

# What a table may have that costs more.
LOCATED, STATIC = "a locator", "static columns"
ENDING = "cells that end by themselves"
STAMPED = "write times of cells"
COUNTED = 100_000
COUNTED_AT_ONCE = 20_000
_LARGE_MIB = 100
# How many rows are looked at for stamps ahead of the clock, and by how many seconds they may be.
_STAMPS_READ = 1_000
_AHEAD = 1.0

_NATIVE = {
    Kind.BOOLEAN: "boolean",
    Kind.INT32: "int",
    Kind.INT64: "bigint",
    Kind.INTEGER: "varint",
    Kind.DOUBLE: "double",
    Kind.DECIMAL: "decimal",
    Kind.TEXT: "text",
    Kind.BYTES: "blob",
    Kind.DATE: "date",
    Kind.TIME: "time",
    Kind.TIMESTAMP: "timestamp",
    Kind.INTERVAL: "duration",
    Kind.UUID: "uuid",
    Kind.SET: "set<...>",
    Kind.LIST: "list<...>",
    Kind.RECORD: "a type of its own, map<...> or json",
}
_TAGGED = {
    Kind.NULL: "an unset column",
    Kind.BINARY: "blob",
    Kind.LOCAL_TIMESTAMP: "timestamp",
    Kind.OBJECT_ID: "blob",
    Kind.BSON_TIMESTAMP: "text",
    Kind.REGEX: "text",
    Kind.OPAQUE: "text",
    Kind.REFERENCE: "text",
}
# Of a list, set or map whose elements are cells, and of a record of a declared type likewise.
EMPTY = Held(How.TAGGED, "an unset column")
KINDS = {kind: Held(How.NATIVE, type_) for kind, type_ in _NATIVE.items()} | {
    kind: Held(How.TAGGED, type_) for kind, type_ in _TAGGED.items()
}
KEY_KINDS = frozenset(
    {
        Kind.BOOLEAN,
        Kind.INT32,
        Kind.INT64,
        Kind.INTEGER,
        Kind.DOUBLE,
        Kind.DECIMAL,
        Kind.TEXT,
        Kind.BYTES,
        Kind.DATE,
        Kind.TIME,
        Kind.TIMESTAMP,
        Kind.UUID,
        Kind.OBJECT_ID,
        Kind.LIST,
    }
)
FACTS = LayoutFacts(
    effective=True,
    typed=True,
    unit="row; a logged batch where projections or a locator belong to it",
    version="column _migrator (a lightweight transaction asks for it)",
    costs={
        "get": Cost(1, "the row; with the locator its key", extra={LOCATED: 1, ENDING: 2}),
        "get_entries": Cost(1, "as get", extra={LOCATED: 1, ENDING: 2}),
        "put": Cost(
            3,
            "the stamps of the row; the row, with its projections in one batch up to 40 KB, else "
            "each by itself; looked for again where none lay there",
            least=2,
            extra={LOCATED: 2, STATIC: 1, STAMPED: 3},
        ),
        "update": Cost(
            2,
            "the row; the columns that differ; as put where its key changes",
            whole=True,
            extra={LOCATED: 3, STATIC: 1, STAMPED: 1},
        ),
        "append": Cost(
            2,
            "the row; the column that holds the list",
            whole=True,
            extra={LOCATED: 1, STATIC: 1, STAMPED: 1},
        ),
        "exchange": Cost(
            4,
            "the row; after a plain write its version, twice; the columns that differ; looked for "
            "again where none lay there",
            whole=True,
            least=1,
        ),
        "delete": Cost(
            2,
            "the stamps of the row; its key",
            least=1,
            extra={LOCATED: 1, STATIC: 2},
        ),
    },
    kinds=KINDS,
    key_kinds=KEY_KINDS,
    limits=Limits(block_bytes=MAX_ROW, key_bytes=65_535, batch_blocks=1000, batch_bytes=8 << 20),
    expiry=True,
)


def needs_tag(value: Value) -> Held | None:
    """How a value of a kind held natively is held after all, in a column of its natural type."""
    match value:
        case str() if not has_utf8(value):
            return Held(How.TAGGED, "json")
        case v.Opaque() if value.system == SYSTEM:
            return Held(How.NATIVE, "its own")
        case Decimal() if not value.is_finite():
            return Held(How.TAGGED, "text")
        case Decimal() if value.is_zero() and value.is_signed():
            return Held(How.TAGGED, "decimal")
        case v.TimeOfDay() if value.nanos >= v.DAY_NANOS:
            return Held(How.TAGGED, "text")
        case v.Interval() if (
            min(value.months, value.days, value.nanos)
            < 0
            < max(value.months, value.days, value.nanos)
        ):
            return Held(How.TAGGED, "text")
    if v.kind_of(value) is Kind.TIMESTAMP and v.nanos_of(value) % 1_000_000:
        return Held(How.TAGGED, "timestamp")
    return None


def same_key(id: Value) -> Value:
    """The key as Cassandra compares it: a clustering decimal by its value, all else by bytes."""
    if type(id) is list:
        return [same_key(part) for part in id]
    if type(id) is Decimal and id.is_finite():
        return id.normalize() if id else Decimal(0)
    return id


def estimate(wire: Wire, keyspace: str, table: str) -> int:
    """About how many partitions a table has by what its node last wrote down; 0 at first."""
    query = (
        "SELECT partitions_count FROM system.size_estimates "
        "WHERE keyspace_name = ? AND table_name = ?"
    )
    rows = wire.few(query, [keyspace.encode(), table.encode()])
    return sum(int.from_bytes(count or b"", "big") for (count,) in rows)


def findings(
    wire: Wire, keyspace: str, info: TableInfo, spec: Spec
) -> Iterator[tuple[str, str, str]]:
    """Severity, code and text of what a plan should tell of a table."""
    if info.default_ttl:
        yield (
            "warning",
            "cassandra-ttl",
            f"its rows expire after {info.default_ttl} s by default: rows without a deadline "
            "are written to stay for ever",
        )
    if not any(column.name == SIDE for column in info.columns):
        yield (
            "note",
            "cassandra-side",
            f"it has no column {SIDE}: as a target it takes only what its columns say exactly",
        )
    if any(column.role == "static" for column in info.columns):
        yield (
            "note",
            "cassandra-static",
            "it has static columns: one value for all blocks of a partition",
        )
    yield from large_partitions(wire, keyspace, spec.table)
    table = f"{quoted(keyspace)}.{quoted(spec.table)}"
    yield from _early_stamps(wire, info, table)


def _early_stamps(wire: Wire, info: TableInfo, table: str) -> Iterator[tuple[str, str, str]]:
    """A warning where rows are stamped ahead of the clock: of another unit, or by a clock that is
    ahead. Cassandra ignores whatever is written there with a smaller stamp (C63)."""
    names = [
        column.name
        for column in info.columns
        if column.role in ("regular", "static") and column.type != "counter"
        and ("<" not in column.type or column.type.startswith("frozen<"))
        and column.type not in info.types
    ]  # fmt: skip
    if not names:
        return
    asked = ", ".join(f"writetime({quoted(name)})" for name in names)
    query = f"SELECT {asked} FROM {table} LIMIT {_STAMPS_READ}"  # noqa: S608
    stamps = [_signed(cell) for row in wire.few(query) for cell in row if cell is not None]
    # Asked for after them: what is written meanwhile is not ahead.
    ((now,),) = wire.few("SELECT toTimestamp(now()) FROM system.local")
    ahead = max(stamps, default=0) / 1_000_000 - _signed(now or b"") / 1000
    if ahead > _AHEAD:
        yield (
            "warning",
            "cassandra-stamps",
            f"of its first {_STAMPS_READ:,} rows some were stamped {ahead:,.0f} s ahead of the "
            "server's clock: writes of applications without a larger stamp change nothing there "
            "until then; set the clocks, or the unit, of its writers right (microseconds)",
        )


def _signed(cell: bytes) -> int:
    return int.from_bytes(cell, "big", signed=True)


def large_partitions(wire: Wire, keyspace: str, table: str) -> Iterator[tuple[str, str, str]]:
    """A warning where a partition is larger than Cassandra bears well."""
    query = (
        "SELECT mebibytes FROM system_views.max_partition_size "
        "WHERE keyspace_name = ? AND table_name = ?"
    )
    for (size,) in wire.few(query, [keyspace.encode(), table.encode()]):
        largest = int.from_bytes(size or b"", "big")
        if largest > _LARGE_MIB:
            yield (
                "warning",
                "cassandra-partition",
                f"its largest partition has {largest:,} MiB: over 100 MB reads, repair and "
                "compaction suffer; add a bucket to the partition key",
            )

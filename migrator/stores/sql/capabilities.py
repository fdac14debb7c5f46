"""What the relational systems can do, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from migrator.model.value import Kind
from migrator.ports import Capabilities, Cost, Held, How, LayoutFacts, Limits
from migrator.stores.sql.options import Dialect

_NATIVE: Mapping[Dialect, Mapping[Kind, str]] = {
    "postgresql": {
        Kind.NULL: "NULL",
        Kind.BOOLEAN: "boolean",
        Kind.INT32: "integer",
        Kind.INT64: "bigint",
        Kind.INTEGER: "number in jsonb",
        Kind.DOUBLE: "double precision",
        Kind.DECIMAL: "numeric",
        Kind.TEXT: "text",
        Kind.BYTES: "bytea",
        Kind.DATE: "date",
        Kind.TIME: "time",
        Kind.TIMESTAMP: "timestamptz",
        Kind.LOCAL_TIMESTAMP: "timestamp",
        Kind.INTERVAL: "interval",
        Kind.UUID: "uuid",
        Kind.LIST: "array, jsonb or child table",
        Kind.RECORD: "jsonb or child table",
        Kind.REFERENCE: "the column's type, holding the id",
    },
    "mysql": {
        Kind.NULL: "NULL",
        Kind.INT32: "int",
        Kind.INT64: "bigint",
        Kind.DOUBLE: "double",
        Kind.DECIMAL: "decimal(p,s)",
        Kind.TEXT: "varchar or longtext",
        Kind.BYTES: "varbinary or longblob",
        Kind.DATE: "date",
        Kind.TIME: "time(6)",
        Kind.TIMESTAMP: "timestamp(6)",
        Kind.LOCAL_TIMESTAMP: "datetime(6)",
        Kind.SET: "set",
        Kind.LIST: "json or child table",
        Kind.RECORD: "json or child table",
        Kind.REFERENCE: "the column's type, holding the id",
    },
    "sqlite": {
        Kind.NULL: "NULL",
        Kind.INT32: "INTEGER",
        Kind.INT64: "BIGINT",
        Kind.DOUBLE: "REAL",
        Kind.TEXT: "TEXT",
        Kind.BYTES: "BLOB",
        Kind.LIST: "JSON TEXT or child table",
        Kind.RECORD: "JSON TEXT or child table",
        Kind.REFERENCE: "the column's type, holding the id",
    },
}

# Held by a column whose declared type says what its carrier means.
_CARRIED: Mapping[Dialect, Mapping[Kind, str]] = {
    "postgresql": {},
    "mysql": {Kind.BOOLEAN: "boolean (declared)", Kind.UUID: "char(36)"},
    "sqlite": {
        Kind.BOOLEAN: "BOOLEAN (declared)",
        Kind.INTEGER: "BIGNUM TEXT",
        Kind.DECIMAL: "DECIMAL TEXT",
        Kind.DATE: "DATE TEXT",
        Kind.TIME: "TIME TEXT",
        Kind.TIMESTAMP: "TIMESTAMPTZ TEXT",
        Kind.LOCAL_TIMESTAMP: "TIMESTAMP TEXT",
        Kind.INTERVAL: "SPAN TEXT",
        Kind.UUID: "UUID TEXT",
    },
}

_KEYS = frozenset(
    {
        Kind.BOOLEAN,
        Kind.INT32,
        Kind.INT64,
        Kind.INTEGER,
        Kind.DECIMAL,
        Kind.TEXT,
        Kind.BYTES,
        Kind.DATE,
        Kind.TIME,
        Kind.TIMESTAMP,
        Kind.LOCAL_TIMESTAMP,
        Kind.UUID,
        Kind.LIST,
    }
)


# Where rows lie one level below the root at most; deeper ones take a request for each statement.
_AT_ONCE: Mapping[str, Cost] = {
    "get": Cost(1, ""),
    "put": Cost(2, "", least=1),
    "update": Cost(2, "", least=1),
    "append": Cost(2, ""),
    "exchange": Cost(2, "", least=1),
    "delete": Cost(2, "", least=1),
}

# Of the layout ``tables``, without what travels.
_COSTS: Mapping[Dialect, Mapping[str, Cost]] = {
    "postgresql": _AT_ONCE,
    "mysql": _AT_ONCE,
    "sqlite": {
        "get": Cost(1, "", more=1, least=1),
        "put": Cost(2, "", more=4, least=2),
        "update": Cost(2, "", more=3, least=2),
        "append": Cost(2, "", more=1),
        "exchange": Cost(3, "", more=5, least=2),
        "delete": Cost(2, "", more=2, least=1),
    },
}

_GET: Mapping[Dialect, str] = {
    "postgresql": "one query (one for each table where links fold)",
    "mysql": "one query (one for each table where some lie deeper than below the root)",
    "sqlite": "a query for each table",
}


def tables(dialect: Dialect) -> LayoutFacts:
    """What is true of the layout ``tables``; servers read one aggregate by one statement."""
    changed = "the key, and the rows that differ; in one transaction"
    if dialect != "sqlite":
        changed += " (a request for each statement where rows lie deeper than below the root)"
    cost = _COSTS[dialect]
    return LayoutFacts(
        effective=False,
        typed=True,
        unit="transaction",
        version="none: the row lock of the root for the length of the transaction",
        costs={
            "get": replace(cost["get"], sends=f"the key: {_GET[dialect]}, in one snapshot"),
            "get_entries": replace(cost["get"], sends="as get"),
            "put": replace(cost["put"], sends=changed),
            "update": replace(cost["update"], sends=changed),
            "append": replace(cost["append"], sends=changed),
            "exchange": replace(cost["exchange"], sends=changed),
            "delete": replace(cost["delete"], sends="the keys of all rows"),
        },
        entries=True,
    )


def kinds(dialect: Dialect) -> dict[Kind, Held]:
    """How the layout ``tables`` holds each kind, given a column of the type named."""
    held = {kind: Held(How.REFUSED) for kind in Kind}
    held.update({kind: Held(How.NATIVE, type) for kind, type in _NATIVE[dialect].items()})
    held.update({kind: Held(How.TAGGED, type) for kind, type in _CARRIED[dialect].items()})
    return held


def limits(dialect: Dialect) -> Limits:
    """The bounds of one system: bytes of a value and of a name."""
    if dialect == "postgresql":
        return Limits(entry_bytes=1 << 30, key_bytes=2700, name_bytes=63, batch_blocks=1000)
    if dialect == "mysql":
        return Limits(key_bytes=3072, name_bytes=64, batch_blocks=1000, batch_bytes=8 << 20)
    return Limits(entry_bytes=1_000_000_000, batch_blocks=1000)


def capabilities(dialect: Dialect, layouts: Mapping[str, LayoutFacts]) -> Capabilities:
    """The capabilities of a store with these layouts."""
    return Capabilities(
        layouts=layouts,
        default_layout="entries" if "entries" in layouts else "tables",
        kinds=kinds(dialect),
        key_kinds=_KEYS,
        key_order="the server's own order of the key columns, by their collation",
        limits=limits(dialect),
        transactions=True,
        in_process=dialect == "sqlite",
    )

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


def tables(dialect: Dialect) -> LayoutFacts:
    """What is true of the layout ``tables``; PostgreSQL reads one aggregate by one statement."""
    single = dialect == "postgresql"
    get = "one query (one for each table where links fold)" if single else "a query for each table"
    changes = Cost(5, "", more=3) if single else Cost(4, "", more=4)
    changed = replace(changes, sends="the key, and the rows that differ; in one transaction")
    return LayoutFacts(
        effective=False,
        typed=True,
        unit="transaction",
        version="none: the row lock of the root for the length of the transaction",
        costs={
            "get": Cost(1, f"the key: {get}, in one snapshot", more=0 if single else 1),
            "get_entries": Cost(1, "as get", more=0 if single else 1),
            "put": Cost(
                3 if single else 4,
                "the key, and the rows that differ from what is there",
                more=changes.more,
            ),
            "update": changed,
            "append": replace(
                changes, sends="the key, and the rows that are new; in one transaction"
            ),
            "exchange": changed,
            "delete": Cost(2, "the keys of all rows", more=1 if single else 2),
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

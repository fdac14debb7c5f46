"""Types of a schema that is made: translated from another system, or by the kind of its values.

Translation keeps the kind of every value or refuses: there is no column for a numeric without
precision on MySQL, and to call a text one would change what the target says it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from migrator.errors import Refused
from migrator.model.value import Kind
from migrator.stores.sql.catalog import Column, Table
from migrator.stores.sql.columns_sqlite import BIG, BOOLEANS, CARRIED, affinity
from migrator.stores.sql.options import Dialect

MYSQL_KEY_TEXT = 255

# The kind of the values that a column of each system gives.
_POSTGRESQL = {
    "int2": Kind.INT32,
    "int4": Kind.INT32,
    "int8": Kind.INT64,
    "numeric": Kind.DECIMAL,
    "float8": Kind.DOUBLE,
    "float4": Kind.DOUBLE,
    "text": Kind.TEXT,
    "varchar": Kind.TEXT,
    "bpchar": Kind.TEXT,
    "name": Kind.TEXT,
    "citext": Kind.TEXT,
    "enum": Kind.TEXT,
    "bytea": Kind.BYTES,
    "bool": Kind.BOOLEAN,
    "date": Kind.DATE,
    "time": Kind.TIME,
    "timestamp": Kind.LOCAL_TIMESTAMP,
    "timestamptz": Kind.TIMESTAMP,
    "interval": Kind.INTERVAL,
    "uuid": Kind.UUID,
    "json": Kind.RECORD,
    "jsonb": Kind.RECORD,
}
_MYSQL = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "year"), Kind.INT32),
    "bigint": Kind.INT64,
    "decimal": Kind.DECIMAL,
    "double": Kind.DOUBLE,
    "float": Kind.DOUBLE,
    **dict.fromkeys(
        ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum"), Kind.TEXT
    ),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Kind.BYTES
    ),
    "date": Kind.DATE,
    "time": Kind.TIME,
    "datetime": Kind.LOCAL_TIMESTAMP,
    "timestamp": Kind.TIMESTAMP,
    "uuid": Kind.UUID,
    "json": Kind.RECORD,
}
_AFFINITIES = {
    "INTEGER": Kind.INT32,
    "REAL": Kind.DOUBLE,
    "NUMERIC": Kind.DOUBLE,
    "TEXT": Kind.TEXT,
    "BLOB": Kind.BYTES,
}

TYPES: Mapping[Dialect, Mapping[Kind, str]] = {
    "postgresql": {
        Kind.BOOLEAN: "boolean",
        Kind.INT32: "integer",
        Kind.INT64: "bigint",
        Kind.INTEGER: "jsonb",  # a numeric is a decimal
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
        Kind.RECORD: "jsonb",
        Kind.LIST: "jsonb",
    },
    "mysql": {
        Kind.BOOLEAN: "boolean",
        Kind.INT32: "int",
        Kind.INT64: "bigint",
        Kind.DOUBLE: "double",
        Kind.TEXT: "longtext",
        Kind.BYTES: "longblob",
        Kind.DATE: "date",
        Kind.TIME: "time(6)",
        Kind.TIMESTAMP: "timestamp(6)",
        Kind.LOCAL_TIMESTAMP: "datetime(6)",
        Kind.RECORD: "json",
        Kind.LIST: "json",
    },
    "sqlite": {
        Kind.BOOLEAN: BOOLEANS[0],
        Kind.INT32: "INTEGER",
        Kind.INT64: "BIGINT",
        Kind.INTEGER: "BIGNUM TEXT",
        Kind.DOUBLE: "REAL",
        Kind.DECIMAL: "DECIMAL TEXT",
        Kind.TEXT: "TEXT",
        Kind.BYTES: "BLOB",
        Kind.DATE: "DATE TEXT",
        Kind.TIME: "TIME TEXT",
        Kind.TIMESTAMP: "TIMESTAMPTZ TEXT",
        Kind.LOCAL_TIMESTAMP: "TIMESTAMP TEXT",
        Kind.INTERVAL: "SPAN TEXT",
        Kind.UUID: "UUID TEXT",
        Kind.RECORD: "JSON TEXT",
        Kind.LIST: "JSON TEXT",
    },
}


def split_declared(declared: str) -> tuple[str, str]:
    """A declared type as SQL has it, and the words after it that are ours: ``POSITION`` for a
    row's index in its list, ``BLOCK KEY`` for a part of the block's key that is no field."""
    words = declared.split()
    upper = [word.upper() for word in words]
    ours = 1 if upper[-1:] == ["POSITION"] else 2 if upper[-2:] == ["BLOCK", "KEY"] else 0
    cut = len(words) - ours
    return " ".join(words[:cut]), " ".join(upper[cut:])


def remark(dialect: Dialect, declared: str) -> str:
    """What the catalogue must keep of a declared type beside the type itself, "" for nothing:
    else a script that only names the table would read it otherwise than it was written."""
    if split_declared(declared)[1]:
        return declared
    flag = dialect == "mysql" and declared.strip().lower() in ("boolean", "bool")
    return declared if flag else ""


def kind_of_column(dialect: Dialect, column: Column) -> Kind | None:
    """The kind of a column's values, None where they have none of their own."""
    if column.array:
        return None
    if dialect == "postgresql":
        return _POSTGRESQL.get(column.base)
    if dialect == "mysql":
        return None if column.unsigned and column.base == "bigint" else _MYSQL.get(column.base)
    if column.base in CARRIED:
        return next(iter(CARRIED[column.base][0]))
    if column.base in BIG:
        return Kind.INT64
    if column.base == "JSON TEXT":
        return Kind.RECORD
    return Kind.BOOLEAN if column.base in BOOLEANS else _AFFINITIES[affinity(column.base)]


def translate(table: Table, source: Dialect, target: Dialect, where: str) -> Table:
    """A table of one system as another makes it: types, nulls, keys and plain indexes.

    Raises Refused where a type has no lossless counterpart.
    """
    indexed = {name for key in (table.key, *(i.columns for i in table.indexes)) for name in key}
    columns = []
    for column in table.columns:
        said = column.said.lower() in ("boolean", "bool")
        kind = Kind.BOOLEAN if said else kind_of_column(source, column)
        type_ = _translated(column, kind, target, column.name in indexed) if kind else None
        if type_ is None:
            raise Refused(
                f"{table.name}.{column.name} is of type {column.type}, which has no lossless "
                f"counterpart on {target}",
                where=where,
                hint=f'declare it: tables("{table.name}", columns={{"{column.name}": "..."}}), '
                "with an evolution that converts the values",
            )
        identity = "default" if column.identity and target == "postgresql" else ""
        told = remark(target, f"{type_} {split_declared(column.said)[1]}".strip())
        columns.append(
            Column(column.name, type_, "", nullable=column.nullable, identity=identity, said=told)
        )
    return replace(
        table,
        schema=None,
        columns=tuple(columns),
        indexes=tuple(replace(i, definition="") for i in table.indexes if i.columns),
        checks=(),
        sql="",
        key_name="",
        foreign=tuple(replace(key, definition="") for key in table.foreign),
    )


def _translated(column: Column, kind: Kind, target: Dialect, indexed: bool) -> str | None:
    if kind is Kind.TEXT and target != "sqlite":
        fixed = column.base in ("varchar", "char", "bpchar", "VARCHAR", "NVARCHAR", "CHARACTER")
        if fixed and column.args and column.args[0] <= 16_000:
            return f"varchar({column.args[0]})"
        return (
            f"varchar({MYSQL_KEY_TEXT})"
            if indexed and target == "mysql"
            else "longtext"
            if (target == "mysql")
            else "text"
        )
    if kind is Kind.DECIMAL and target == "postgresql":
        return f"numeric({','.join(map(str, column.args))})" if column.args else "numeric"
    if kind is Kind.DECIMAL and target == "mysql":
        precision, scale = (*column.args, 0, 0)[:2]
        return f"decimal({precision},{scale})" if 0 < precision <= 65 and scale <= 30 else None
    if kind is Kind.BYTES and target == "mysql" and column.base in ("binary", "varbinary"):
        return f"varbinary({(column.args or (1,))[0]})"
    if kind is Kind.UUID and target == "mysql":
        return "uuid"  # a type of MariaDB's own; MySQL has none
    return TYPES[target].get(kind)

"""Types of a schema that is made: translated from another system, declared, or inferred.

Translation keeps the kind of every value or refuses: there is no column for a numeric without
precision on MySQL, and to call a text one would change what the target says it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from migrator.errors import Refused
from migrator.model import value as v
from migrator.model.move import Tables
from migrator.model.path import child as child_path
from migrator.model.value import Kind, Record, Value, kind_of
from migrator.stores.sql.catalog import Column, Table
from migrator.stores.sql.columns_sqlite import BIG, BOOLEANS, CARRIED, affinity
from migrator.stores.sql.options import Dialect

_MYSQL_KEY_TEXT = 255

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

_TYPES: Mapping[Dialect, Mapping[Kind, str]] = {
    "postgresql": {
        Kind.BOOLEAN: "boolean",
        Kind.INT32: "integer",
        Kind.INT64: "bigint",
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
        kind = kind_of_column(source, column)
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
        columns.append(Column(column.name, type_, "", nullable=column.nullable, identity=identity))
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
            f"varchar({_MYSQL_KEY_TEXT})"
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
    return _TYPES[target].get(kind)


@dataclass
class _Field:
    """What is known of one column from the records seen."""

    kinds: dict[Kind, int] = field(default_factory=dict)
    longest: int = 0
    whole: int = 1
    scales: set[int] = field(default_factory=set)
    rows: int = 0

    def add(self, value: Value) -> None:
        self.rows += 1
        if type(value) is v.Ref:
            value = value.id
        kind = kind_of(value)
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if type(value) is str:
            self.longest = max(self.longest, len(value))
        if type(value) is Decimal and value.is_finite():
            _, digits, exponent = value.as_tuple()
            assert isinstance(exponent, int)
            self.scales.add(max(0, -exponent))
            self.whole = max(self.whole, len(digits) + exponent)


def infer(spec: Tables, records: Iterable[Record], dialect: Dialect, where: str = "") -> Tables:
    """The same tables with the columns that these records need, nested lists as child tables.

    All records should be given, not a sample: a field first met during the copy is refused
    there, never dropped (hard case C24). Raises Refused for a field of mixed kinds, with how
    many there are of each.
    """
    seen = _Profile(spec)
    for record in records:
        seen.add(record)
    return seen.declared(dialect, where, "")


class _Profile:
    def __init__(self, spec: Tables) -> None:
        self.spec = spec
        self.fields: dict[str, _Field] = {}
        self.children = {name: _Profile(below) for name, below in spec.children.items()}

    def add(self, record: Value) -> None:
        held = {self.spec.value: record} if self.spec.value is not None else record
        if type(held) is not dict:
            return
        for name, value in held.items():
            if name in self.children:
                items = value if type(value) is list else [value]
                for item in items:
                    if item is not None:
                        self.children[name].add(item)
            else:
                self.fields.setdefault(name, _Field()).add(value)

    def declared(self, dialect: Dialect, where: str, path: str) -> Tables:
        keys = {*self.spec.key, *filter(None, [self.spec.value])}
        columns = {
            name: self.spec.columns.get(name)
            or _inferred(seen, dialect, name in keys, where, child_path(path, name))
            for name, seen in self.fields.items()
        }
        children = {
            name: below.declared(dialect, where, child_path(path, name))
            for name, below in self.children.items()
        }
        return replace(self.spec, columns={**columns, **self.spec.columns}, children=children)


def _inferred(seen: _Field, dialect: Dialect, key: bool, where: str, path: str) -> str:
    kinds = {kind for kind in seen.kinds if kind is not Kind.NULL}
    if not kinds:
        raise Refused(
            f"{path} is null in all {seen.rows} records: its type can't be told",
            where=where,
            hint="declare it in columns=, or drop it with an evolution",
        )
    if kinds <= {Kind.RECORD, Kind.LIST}:
        return _TYPES[dialect][Kind.RECORD]
    if len(kinds) > 1:
        counts = ", ".join(f"{kind} in {seen.kinds[kind]}" for kind in sorted(kinds))
        raise Refused(
            f"{path} is of several kinds: {counts}",
            where=where,
            hint="a column has one: convert the field with an evolution, or keep it in a json "
            "column by nesting it",
        )
    (kind,) = kinds
    if kind is Kind.TEXT and dialect == "mysql" and key:
        return f"varchar({max(_MYSQL_KEY_TEXT, seen.longest)})"
    if kind is Kind.DECIMAL and dialect == "mysql" and len(seen.scales) == 1:
        (scale,) = seen.scales
        return f"decimal({min(65, max(seen.whole + scale, 10 + scale))},{scale})"
    type_ = _TYPES[dialect].get(kind)
    if type_ is None:
        raise Refused(
            f"{path} is of the kind {kind}, for which {dialect} has no column",
            where=where,
            hint="convert it with an evolution",
        )
    return type_

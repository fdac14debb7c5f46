"""The two tables of a collection in the layout ``entries``.

    games_blocks (block, expires)                  one row for each block
    games        (block, entry, value, tags)       one row for each entry

The row of a block is what a writer locks, so that two whole-block writes never mix their
entries, and what pages, counts and ranges are made of. Keys compare by their bytes: text with
collation "C", VARBINARY on MySQL, where every collation would take some keys for equal (C09).
Values are of type ``json`` on PostgreSQL (not ``jsonb``, which refuses U+0000 and rewrites
numbers) and text elsewhere: SQLite's JSON would turn numbers, MariaDB's allows 32 levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection
from sqlalchemy.types import TypeEngine, UserDefinedType

from migrator.errors import Refused
from migrator.model.json_text import NESTING
from migrator.model.value import Kind
from migrator.ports import Cost, Held, How, Json, LayoutFacts, Limits
from migrator.stores.sql.options import Dialect

# Together they keep below what an index takes: 2,704 bytes on PostgreSQL, 3,072 on InnoDB.
KEY_BYTES = 1000
PATH_BYTES = 1600
LARGEST = 1_000_000_000


@dataclass(frozen=True)
class Bounds:
    """The most bytes of a key, of an access path and of a value with its tags."""

    key: int
    path: int
    value: int


def bounds(dialect: Dialect) -> Bounds:
    """What the columns of one system hold, and its indexes."""
    if dialect == "sqlite":
        return Bounds(LARGEST, LARGEST, LARGEST)
    return Bounds(KEY_BYTES, PATH_BYTES, LARGEST)


_NATIVE = {
    Kind.NULL: "null",
    Kind.BOOLEAN: "boolean",
    Kind.INT32: "number",
    Kind.INT64: "number",
    Kind.INTEGER: "number",
    Kind.DOUBLE: "number",
    Kind.TEXT: "string",
    Kind.LIST: "array",
    Kind.RECORD: "object",
}
_KINDS = {
    kind: Held(How.NATIVE, f"json {_NATIVE[kind]}")
    if kind in _NATIVE
    else Held(How.TAGGED, "json array" if kind is Kind.SET else "json string")
    for kind in Kind
}


def facts(dialect: Dialect) -> LayoutFacts:
    """What is true of the layout in one system."""
    most = bounds(dialect)
    return LayoutFacts(
        effective=True,
        unit="transaction",
        version="none is kept: a transaction locks the block's row and compares the entries",
        costs={
            "get": Cost(2, "the key; the block"),
            "get_entries": Cost(2, "the key and paths; the entries asked for", least=1),
            "put": Cost(3, "the block's row; the key; the block"),
            "update": Cost(2, "the key; the entries changed"),
            "append": Cost(2, "the key; the new entry"),
            "exchange": Cost(
                7 if dialect == "postgresql" else 5,
                "the key; the entries changed; where none lay there, in a savepoint",
                least=2,
            ),
            "delete": Cost(2, "the key, twice"),
        },
        kinds=_KINDS,
        key_kinds=frozenset(Kind),
        limits=Limits(
            entry_bytes=most.value,
            key_bytes=most.key,
            nesting=NESTING,
            batch_blocks=1000,
            batch_bytes=16_000_000,
        ),
        expiry=True,
    )


class _Json(UserDefinedType[str]):
    """PostgreSQL's json, written and read as its text."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"

    def bind_expression(self, bindvalue: sa.BindParameter[str]) -> sa.ColumnElement[str]:
        return sa.cast(bindvalue, self)

    def column_expression(self, column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
        return sa.cast(column, sa.Text)


def _types(dialect: Dialect) -> tuple[TypeEngine[Any], TypeEngine[Any], TypeEngine[Any]]:
    """The types of keys, of access paths and of values."""
    if dialect == "postgresql":
        key = sa.Text(collation="C")
        return key, key, _Json()
    if dialect == "mysql":
        value = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
        return sa.VARBINARY(KEY_BYTES), sa.VARBINARY(PATH_BYTES), value
    return sa.Text(), sa.Text(), sa.Text()


class EntryTables:
    """The tables of one collection. Raises Refused for a name that is too long."""

    def __init__(self, dialect: Dialect, collection: str, where: str) -> None:
        self.where = where
        longest = {"postgresql": 63, "mysql": 64}.get(dialect)
        blocks = f"{collection}_blocks"
        if longest is not None and len(blocks.encode()) > longest:
            raise Refused(
                f"the table name {blocks} is longer than {longest} bytes",
                where=where,
                hint="give the collection a shorter name",
            )
        key, path, value = _types(dialect)
        self.metadata = sa.MetaData()
        self.blocks = sa.Table(
            blocks,
            self.metadata,
            sa.Column("block", key, primary_key=True, nullable=False),
            sa.Column("expires", sa.BigInteger),
            mysql_engine="InnoDB",
            mysql_charset="utf8mb4",
        )
        self.entries = sa.Table(
            collection,
            self.metadata,
            sa.Column("block", key, primary_key=True, nullable=False),
            sa.Column("entry", path, primary_key=True, nullable=False),
            sa.Column("value", value, nullable=False),
            sa.Column("tags", value),
            mysql_engine="InnoDB",
            mysql_charset="utf8mb4",
        )

    def exist(self, connection: Connection) -> bool:
        """Whether both tables are there. Raises Refused for a table of somebody else's."""
        there = [self._ours(connection, table) for table in (self.blocks, self.entries)]
        return all(there)

    def _ours(self, connection: Connection, table: sa.Table) -> bool:
        inspector = sa.inspect(connection)
        if not inspector.has_table(table.name):
            return False
        found = [column["name"] for column in inspector.get_columns(table.name)]
        if found != table.columns.keys():
            raise Refused(
                f"there is a table {table.name} that is no table of a collection of entries",
                where=self.where,
                hint=f'for the table itself write tables("{table.name}"); for a collection beside '
                "it choose another name",
            )
        return True

    def describe(self, connection: Connection) -> Json:
        """The columns and indexes as the server has them; None where they are not there."""
        if not self.exist(connection):
            return None
        inspector = sa.inspect(connection)
        return {
            table.name: {
                "columns": [
                    [column["name"], str(column["type"]), bool(column["nullable"])]
                    for column in inspector.get_columns(table.name)
                ],
                "key": list(inspector.get_pk_constraint(table.name)["constrained_columns"]),
                "indexes": sorted(str(i["name"]) for i in inspector.get_indexes(table.name)),
            }
            for table in (self.blocks, self.entries)
        }

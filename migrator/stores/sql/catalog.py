"""What the server says of a table: columns, keys, indexes, exactly as its catalogue has them.

Read from the catalogues rather than through SQLAlchemy's types, since a schema that is to be
made again elsewhere must keep what those leave out (collations, precision, identity, checks).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from sqlalchemy.engine import Connection

from migrator.stores.sql.options import Dialect


@dataclass(frozen=True)
class Column:
    """A column. ``type`` is the server's text, ``base`` the bare name of its type.

    ``args`` are length, or precision and scale, or fractional digits. ``identity`` is "" or
    what makes numbers: "always", "default", "auto" or "serial". ``folds`` says that its
    collation may hold two different texts for equal. ``said`` is the declared type where it says
    more than the server's own (``INTEGER POSITION``, ``... BLOCK KEY``, ``boolean`` on MySQL):
    tables made here keep it in the column's comment, SQLite in the type itself.
    """

    name: str
    type: str
    base: str
    args: tuple[int, ...] = ()
    nullable: bool = True
    default: str | None = None
    generated: str | None = None
    identity: str = ""
    collation: str | None = None
    folds: bool = False
    labels: tuple[str, ...] = ()
    array: bool = False
    unsigned: bool = False
    json: bool = False
    said: str = ""


REMARK = "migrator: "


def said_in(comment: str | None) -> str:
    """The declared type that a column's comment keeps, "" for any other comment."""
    return comment.removeprefix(REMARK) if comment and comment.startswith(REMARK) else ""


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key: from these columns to those of another table."""

    name: str
    columns: tuple[str, ...]
    table: str
    refs: tuple[str, ...]
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"
    definition: str = ""


@dataclass(frozen=True)
class Index:
    """An index or unique constraint; without columns it is on an expression or partial."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    constraint: bool = False
    definition: str = ""


@dataclass(frozen=True)
class Table:
    """A table as it lies on a server. ``sql`` is the statement that made it, where kept.
    ``identity`` tells it from another that took its name, where what follows it by its name does
    not. ``members`` are the tables below whose rows it shows too: partitions and those that
    inherit from it, by schema, name, and whether it is a partition. ``made`` tells a column from
    one of the same name and type whose values were written anew without a word in a feed."""

    name: str
    schema: str | None
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    foreign: tuple[ForeignKey, ...] = ()
    indexes: tuple[Index, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    sql: str = ""
    key_name: str = ""
    referenced: tuple[tuple[str, ForeignKey], ...] = field(default=(), compare=False)
    identity: str = field(default="", compare=False)
    members: tuple[tuple[str, str, bool], ...] = field(default=(), compare=False)
    made: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @property
    def uniques(self) -> list[Index]:
        """The unique indexes and constraints on plain columns, beside the primary key."""
        return [index for index in self.indexes if index.unique and index.columns]

    def described(self) -> dict[str, object]:
        """The table as JSON, for the fingerprint of a plan."""
        told = asdict(replace(self, sql="", referenced=(), identity="", members=(), made=()))
        return {name: value for name, value in told.items() if value not in ("", ())}

    def shape(self) -> dict[str, object]:
        """What of it blocks depend on, by name: other indexes and checks may come and go."""
        return {
            "identity": self.identity,
            "columns": {column.name: asdict(column) for column in self.columns},
            "order": [column.name for column in self.columns],
            "key": list(self.key),
            "foreign": sorted(
                [*key.columns, key.table, *key.refs, key.on_delete, key.on_update]
                for key in self.foreign
            ),
            "unique": sorted([*index.columns] for index in self.uniques),
            "made": dict(self.made),
        }


def read_table(connection: Connection, dialect: Dialect, name: str) -> Table | None:
    """The table of a name (``schema.table`` where the plain name is none), None for no table."""
    found = _reader(dialect)(connection, None, name)
    if found is None and dialect != "sqlite" and "." in name:
        schema, _, table = name.partition(".")
        found = _reader(dialect)(connection, schema, table)
    return found


def mark(connection: Connection, dialect: Dialect, names: list[str]) -> list[str] | None:
    """What is another once any of these tables has another ``shape``, asked for at once; None for
    names of other schemas."""
    if any("." in name for name in names):
        return None
    if dialect == "sqlite":
        from migrator.stores.sql.catalog_sqlite import mark as mark_of
    elif dialect == "postgresql":
        from migrator.stores.sql.catalog_postgresql import mark as mark_of
    else:
        from migrator.stores.sql.catalog_mysql import mark as mark_of
    return mark_of(connection, names)


def _reader(dialect: Dialect) -> Callable[[Connection, str | None, str], Table | None]:
    if dialect == "sqlite":
        from migrator.stores.sql.catalog_sqlite import read
    elif dialect == "postgresql":
        from migrator.stores.sql.catalog_postgresql import read
    else:
        from migrator.stores.sql.catalog_mysql import read
    return read

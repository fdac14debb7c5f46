"""The shape of a table: its columns with their codecs, and which of them give the block key.

Made from what the catalogue says where the table is there, and from the declaration where it is
still to be made; whatever is ambiguous or can't be moved is refused here, before a row is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from migrator.errors import Refused
from migrator.stores.cassandra.columns import Codec
from migrator.stores.cassandra.columns_nested import (
    Type,
    Types,
    UnknownType,
    codec_of,
    names_of,
    parse_type,
    quoted,
)
from migrator.stores.cassandra.derived import BLOCK_KEY, Derived
from migrator.stores.cassandra.table_spec import SIDE, Key, Spec

DECLARED = ("json", "timestamp local")


class Role(StrEnum):
    """What a column is in its table, in the words of ``system_schema.columns``."""

    PARTITION = "partition_key"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"


@dataclass(frozen=True)
class ColumnInfo:
    """A column as the catalogue describes it."""

    name: str
    type: str
    role: Role
    position: int = -1
    descending: bool = False


@dataclass(frozen=True)
class TableInfo:
    """A table as the catalogue describes it, with the user-defined types of its keyspace."""

    columns: tuple[ColumnInfo, ...]
    types: Types = field(default_factory=dict)
    indexes: Mapping[str, str] = field(default_factory=dict)
    default_ttl: int = 0

    def key(self) -> Key:
        def of(role: Role) -> tuple[ColumnInfo, ...]:
            return tuple(
                sorted((c for c in self.columns if c.role is role), key=lambda c: c.position)
            )

        clustering = of(Role.CLUSTERING)
        return Key(
            tuple(c.name for c in of(Role.PARTITION)),
            tuple(c.name for c in clustering),
            frozenset(c.name for c in clustering if c.descending),
        )

    def described(self) -> dict[str, object]:
        """The table as JSON, for the fingerprint."""
        columns = {
            column.name: [column.type, column.role.value, column.position, column.descending]
            for column in self.columns
        }
        used = {name: fields for name, fields in self.types.items() if self._uses(name)}
        return {"columns": columns, "types": used, "indexes": dict(self.indexes),
                "default_time_to_live": self.default_ttl}  # fmt: skip

    def _uses(self, name: str) -> bool:
        return any(name in names_of(parse_type(c.type), self.types) for c in self.columns)


@dataclass(frozen=True)
class Column:
    """A column of the full table."""

    name: str
    type: Type
    codec: Codec
    role: Role

    @cached_property
    def quoted(self) -> str:
        return quoted(self.name)

    @property
    def multicell(self) -> bool:
        return self.type.multicell


@dataclass(frozen=True)
class Shape:
    """The full table of a location.

    ``id`` are the columns whose values are the block key, one or a list; ``fields`` those that
    are fields of the aggregate. ``located`` says that the block key does not give the address.
    """

    spec: Spec
    key: Key
    columns: Mapping[str, Column]
    id: tuple[str, ...]
    fields: tuple[str, ...]
    located: bool
    side: bool
    types: Types

    @property
    def regular(self) -> list[Column]:
        """The columns that have a stamp and a deadline of their own in each row."""
        return [c for c in self.columns.values() if c.role is Role.REGULAR]

    @property
    def static(self) -> list[Column]:
        return [c for c in self.columns.values() if c.role is Role.STATIC]

    def derived(self, name: str) -> Derived | None:
        return self.spec.derivations.get(name)


def shape_of(spec: Spec, info: TableInfo | None, where: str) -> Shape:
    """The shape of a table. Raises Refused for what can't be moved, or is not declared."""
    if info is None:
        if spec.key is None:
            raise Refused(
                "nothing says what the table looks like",
                where=where,
                hint="declare it: layout=cassandra_table(key=..., columns={...})",
            )
        key, types = spec.key, spec.types
        columns = _declared(spec, key, types, where)
    else:
        key, types = info.key(), info.types
        columns = _catalogued(spec, info, where)
        if spec.key is not None and spec.key != key:
            raise Refused(
                f"the table has the key {_shown(key)}, not {_shown(spec.key)}",
                where=where,
                hint="declare the key that it has, or give the target another name",
            )
        missing = [n for n in {**spec.columns, **spec.derived} if n not in columns]
        if missing:
            raise Refused(
                f"the table has no column {missing[0]!r}",
                where=where,
                hint="its columns are: " + ", ".join(columns),
            )
    for option, name in spec.cellwise.items():
        if name in columns:
            raise Refused(
                f"{option}={name!r} is a column of the table, too",
                where=where,
                hint="give the field that is to hold them another name",
            )
    id = _id(spec, key, columns, where)
    for projection in spec.projections:
        apart = [name for name in id if name not in projection.key.columns]
        if apart:
            raise Refused(
                f"the key of the projection {projection.name} lacks {apart[0]}: two blocks could "
                "share a row",
                where=where,
                hint=f"put {apart[0]} at the end of its clustering=",
            )
    derived = {name for name in spec.derived if name in columns}
    outside = {SIDE, *derived, *filter(None, [spec.rest])}
    return Shape(
        spec,
        key,
        columns,
        id,
        tuple(name for name in columns if name not in outside),
        any(not _known(name, spec, id) for name in key.columns),
        SIDE in columns,
        types,
    )


def _known(name: str, spec: Spec, id: tuple[str, ...]) -> bool:
    """Whether the block key gives the value of a key column."""
    made = spec.derived.get(name)
    return name in id if made is None else made.by_key


def _shown(key: Key) -> str:
    parts = [f"{n} desc" if n in key.descending else n for n in key.clustering]
    return f"(({', '.join(key.partition)}){''.join(f', {part}' for part in parts)})"


def _codec(name: str, type_: Type, types: Types, nulls: bool, where: str) -> Codec:
    try:
        return codec_of(type_, types, nulls)
    except UnknownType as error:
        raise Refused(
            f"column {name}: {error}", where=where, hint="leave the table out, or change the column"
        ) from None


def _declared(spec: Spec, key: Key, types: Types, where: str) -> dict[str, Column]:
    wanted = dict(spec.columns)
    for name, made in spec.derived.items():
        if name not in wanted and made.type is not None:
            wanted[name] = made.type
    wanted[SIDE] = Type("text")
    return {
        name: Column(
            name, type_, _codec(name, type_, types, spec.nulls, where), _role(name, spec, key)
        )
        for name, type_ in wanted.items()
    }


def _role(name: str, spec: Spec, key: Key) -> Role:
    if name in key.partition:
        return Role.PARTITION
    if name in key.clustering:
        return Role.CLUSTERING
    return Role.STATIC if name in spec.static else Role.REGULAR


def _catalogued(spec: Spec, info: TableInfo, where: str) -> dict[str, Column]:
    columns = {}
    for column in info.columns:
        try:
            type_ = parse_type(column.type)
        except UnknownType as error:
            raise Refused(
                f"column {column.name}: {error}",
                where=where,
                hint="such a table can't be moved; leave it where it is",
            ) from None
        declared = spec.columns.get(column.name)
        if declared is not None and declared.cql != type_.cql:
            raise Refused(
                f"column {column.name} is of the type {type_.cql}, not {declared.cql}",
                where=where,
                hint="declare the type that it has, or give the target another name",
            )
        if declared is not None and declared.name in DECLARED:
            type_ = declared
        codec = _codec(column.name, type_, info.types, spec.nulls, where)
        columns[column.name] = Column(column.name, type_, codec, column.role)
    return columns


def _id(spec: Spec, key: Key, columns: Mapping[str, Column], where: str) -> tuple[str, ...]:
    by_key = [n for n, made in spec.derived.items() if made.text == BLOCK_KEY]
    id = spec.id or tuple(by_key) or tuple(n for n in key.columns if n not in spec.derived)
    outside: Sequence[str] = [name for name in id if name not in columns]
    if outside or not id:
        raise Refused(
            f"no column {outside[0]!r} gives the block key" if outside
            else "no column gives the block key",
            where=where,
            hint="name it: id=..., or derive one: derived={...: \"block key\"}",
        )  # fmt: skip
    apart = [name for name in id if name not in key.columns]
    if apart:
        raise Refused(
            f"{apart[0]} is to give the block key but is no part of the key {_shown(key)}",
            where=where,
            hint="put it at the end of clustering=, so that no two blocks share a row",
        )
    return id

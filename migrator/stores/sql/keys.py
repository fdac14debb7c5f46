"""Keys in JSON, for ranges and positions; and the conditions that page by them.

A page begins after a key. The comparison is the server's own, on the key's columns as they
are, so that collations and composite keys need no rule of ours (hard case C12).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

import sqlalchemy as sa

from migrator.errors import Refused, Terminal
from migrator.model import tags
from migrator.model import value as v
from migrator.model.value import Value
from migrator.ports import Json
from migrator.stores.sql.columns import Codec, server_cast
from migrator.stores.sql.documents import JSON_NULL
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.shape import Node
from migrator.stores.sql.unfit import Unfit

Key = tuple[Value, ...]


def key_of(id: Value, width: int) -> Key | None:
    """The key's values of a block's id, None where the id is no such key."""
    if width == 1:
        return (id,)
    return tuple(id) if type(id) is list and len(id) == width else None


def id_of(key: Key) -> Value:
    """The block's id: the key's value, or the list of a composite key's values."""
    return key[0] if len(key) == 1 else list(key)


def sure(key: Key, where: str) -> Key:
    """The same key. Raises Terminal for one that is JSON's null, at least in part, which is the key
    of no block: such a row came since the shape was looked up."""
    if JSON_NULL in key:
        raise Terminal(
            "a row's key is null in part (JSON's null)", where=where,
            hint="give that row another key, or remove it",
        )  # fmt: skip
    return key


def to_json(key: Key) -> Json:
    """A key as JSON: text and plain numbers as they are, the rest with their tag."""
    return [_part(value) for value in key]


def _part(value: Value) -> Json:
    if type(value) in (int, bool):
        return value
    if type(value) is str and value.isprintable():
        return value
    if type(value) is v.Opaque:
        return [f"opaque:{value.system}:{value.kind}", tags.to_carrier(value)[1]]
    tag, carrier = tags.to_carrier(value)
    if isinstance(carrier, bytes):
        return ["hex", carrier.hex()]
    return [tag, carrier]


def from_json(given: Json, where: str) -> Key:
    """The key behind its JSON. Raises Refused for what is none."""
    if not isinstance(given, list):
        raise Refused("a position of another kind of store", where=where, hint="plan again")
    try:
        return tuple(_whole(part) for part in given)
    except (ValueError, TypeError, KeyError):
        raise Refused("a position that can't be read", where=where, hint="plan again") from None


def _whole(part: Json) -> Value:
    if not isinstance(part, list):
        return part
    tag, carrier = part
    if tag == "hex":
        return bytes.fromhex(carrier).decode("utf-8", "surrogatepass")
    return tags.from_carrier(tag, carrier)


def bind(codec: Codec, value: Value) -> sa.ColumnElement[Any]:
    """A parameter for a column. Raises Unfit where the column can't hold the value."""
    raw = codec.encode(value)
    made: sa.ColumnElement[Any] = sa.bindparam(None, raw, type_=sa.types.NullType(), unique=True)
    return server_cast(made, codec.cast) if codec.cast else made


def selected(codec: Codec, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A column as it is read."""
    if codec.select is None:
        return column
    return server_cast(column, codec.select).label(codec.name)


def after(node: Node, dialect: Dialect, key: Key) -> sa.ColumnElement[bool]:
    """Rows whose key comes after this one."""
    return _compare(node, dialect, key, operator.gt, operator.gt)


def up_to(node: Node, dialect: Dialect, key: Key) -> sa.ColumnElement[bool]:
    """Rows whose key comes no later than this one."""
    return _compare(node, dialect, key, operator.lt, operator.le)


def _compare(
    node: Node, dialect: Dialect, key: Key, strict: Any, last: Any
) -> sa.ColumnElement[bool]:
    columns = [node.table.c[name] for name in node.key]
    if len(key) != len(columns):
        raise Unfit(f"it has {len(key)} parts")
    binds = [bind(codec, value) for codec, value in zip(node.codecs_of(node.key), key, strict=True)]
    pairs = list(zip(columns, binds, strict=True))
    if len(pairs) == 1:
        return cast(sa.ColumnElement[bool], last(*pairs[0]))
    if dialect != "mysql":
        return cast(sa.ColumnElement[bool], last(sa.tuple_(*columns), sa.tuple_(*binds)))
    # MySQL reads the whole table for a comparison of row values; this form uses the index.
    steps = []
    for i, (column, value) in enumerate(pairs):
        compare = last if i == len(pairs) - 1 else strict
        steps.append(sa.and_(*(c == b for c, b in pairs[:i]), compare(column, value)))
    bound = operator.ge if strict is operator.gt else operator.le
    return sa.and_(bound(*pairs[0]), sa.or_(*steps))


def between(
    node: Node, dialect: Dialect, range_: Json, position: Json, where: str
) -> list[sa.ColumnElement[bool]]:
    """The conditions of a range and a position; a range is ``[after, up to]``, None for open."""
    if not isinstance(range_, list) or len(range_) != 2:
        if range_ is not None:
            raise Refused("a range of another kind of store", where=where, hint="plan again")
        range_ = [None, None]
    low, high = range_
    conditions = []
    try:
        for start in (position if position is not None else low,):
            if start is not None:
                conditions.append(after(node, dialect, from_json(start, where)))
        if high is not None:
            conditions.append(up_to(node, dialect, from_json(high, where)))
    except Unfit as error:
        raise Refused(
            f"a position that is no key of {node.info.name}: {error.why}",
            where=where,
            hint="the key's type has changed: plan again",
        ) from None
    return conditions


def among(
    codecs: Sequence[Codec],
    columns: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
    dialect: Dialect,
) -> sa.ColumnElement[bool]:
    """Rows whose columns hold one of these keys, given as the codecs encode them."""
    if dialect == "postgresql":
        return _among_arrays(codecs, columns, keys)
    if len(columns) == 1:
        return columns[0].in_([key[0] for key in keys])
    return sa.tuple_(*columns).in_([tuple(key) for key in keys])


def exactly(
    codecs: Sequence[Codec],
    columns: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
    dialect: Dialect,
) -> sa.ColumnElement[bool]:
    """As ``among``, and on SQLite no row that only the index over the columns tells from these:
    it may have another collation than they have."""
    found = among(codecs, columns, keys, dialect)
    if dialect != "sqlite" or all(codec.family for codec in codecs):
        return found
    # What is made of what lies there may be spelled otherwise than that.
    as_is = [codec.decode is None or codec.json for codec in codecs]
    exact = [sa.collate(c, "BINARY") if x else c for c, x in zip(columns, as_is, strict=True)]
    return sa.and_(found, among(codecs, exact, keys, dialect))


def _among_arrays(
    codecs: Sequence[Codec],
    columns: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
) -> sa.ColumnElement[bool]:
    arrays = [
        server_cast(
            sa.bindparam(None, [key[i] for key in keys], sa.types.NullType(), unique=True),
            f"{codec.cast}[]",
        )
        for i, codec in enumerate(codecs)
    ]
    if len(columns) == 1:
        return columns[0] == sa.func.any(arrays[0])
    unnested = sa.func.unnest(*arrays).table_valued(
        *(f"k{i}" for i in range(len(arrays))), name="keys"
    )
    unnested = unnested.render_derived()
    wanted = sa.select(*(unnested.c[f"k{i}"] for i in range(len(arrays))))
    return sa.tuple_(*columns).in_(wanted)

"""What a plan should tell of tables, and when two keys are one to the server."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from migrator.model.value import Value, has_utf8
from migrator.stores.sql.catalog import Column
from migrator.stores.sql.catalog_mysql import pads_not
from migrator.stores.sql.keys import id_of, key_of
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.shape import Node

if TYPE_CHECKING:
    from migrator.stores.sql.tables import TablesCollection

Finding = tuple[str, str, str]
_ACTS = ("CASCADE", "SET NULL", "SET DEFAULT")


def findings(collection: TablesCollection) -> Iterable[Finding]:
    """Severity, code and text of each finding."""
    if not collection.whole:
        return _undrafted(collection)
    return [
        finding
        for node in collection.root.walk()
        for finding in (
            *actions(node, collection.root),
            *_orphans(collection, node),
            *_folding(node),
            *_kinds(node),
            *_keyless(node),
        )
    ]


def _undrafted(collection: TablesCollection) -> list[Finding]:
    """What can't be told of tables that are still to be made."""
    if collection.shape_to_be is not None:
        return []
    return [
        (
            "note",
            "T009",
            f"what the columns of {collection.where} can't hold is told by the copy alone: the "
            "store's user may make no temporary table, in which they would be tried",
        )
    ]


def actions(node: Node, root: Node) -> Iterator[Finding]:
    """A cascade from outside changes rows without a write of anybody."""
    inside = {other.info.name for other in root.walk()}
    for key in node.info.foreign:
        if key.table in inside and key.columns == node.parent:
            continue
        if key.on_delete in _ACTS or key.on_update in _ACTS:
            act = key.on_delete if key.on_delete in _ACTS else key.on_update
            yield (
                "error",
                "T001",
                f"{node.info.name}.{','.join(key.columns)} has the referential action {act} from "
                f"{key.table}, outside the aggregate: its rows change without a write to them",
            )
    for table, key in node.info.referenced:
        if table not in inside and key.on_delete in _ACTS:
            yield (
                "warning",
                "T002",
                f"deleting a row of {node.info.name} does {key.on_delete} in {table}, which is "
                "outside the aggregate",
            )


def _orphans(collection: TablesCollection, node: Node) -> Iterator[Finding]:
    """Rows that hang below no parent belong to no aggregate and would stay behind."""
    if node.up is None:
        return
    up = node.up.table.alias("parent")
    on = [node.table.c[a] == up.c[b] for a, b in zip(node.parent, node.refs, strict=True)]
    query = sa.select(sa.func.count()).select_from(node.table)
    query = query.where(~sa.exists().where(*on))
    with collection.database.reading(collection.where) as connection:
        count = int(connection.execute(query).scalar_one())
    if count:
        yield (
            "accept",
            "T003",
            f"{count} rows of {node.info.name} point to no row of {node.up.info.name}: they "
            "belong to no aggregate, are not moved, and go with the tables at finish",
        )


def _folding(node: Node) -> Iterator[Finding]:
    for codec in node.codecs_of(node.key):
        if codec.column.folds:
            yield (
                "warning",
                "T004",
                f"the key {node.info.name}.{codec.name} has the collation "
                f"{codec.column.collation}, which holds different texts to be equal: keys may "
                "collide",
            )


def _kinds(node: Node) -> Iterator[Finding]:
    for codec in node.codecs:
        declared = node.spec.columns.get(codec.name)
        if codec.decode is not None and codec.select == "text" and _is_opaque(codec.column):
            yield (
                "note",
                "T005",
                f"{node.info.name}.{codec.name} is of type {codec.column.type}, which is carried "
                'as it is; declare it as "text" to read its text',
            )
        if codec.column.generated is not None:
            yield (
                "note",
                "T006",
                f"{node.info.name}.{codec.name} is computed by the server: it is read, and not "
                "written",
            )
        if declared is None and codec.column.type.lower().startswith("tinyint(1)"):
            yield (
                "note",
                "T007",
                f"{node.info.name}.{codec.name} is tinyint(1) and read as a number; declare it "
                'as "boolean" if it is one',
            )


def _is_opaque(column: Column) -> bool:
    from migrator.stores.sql.columns_postgresql import TEXTS

    known = (*TEXTS, "text", "varchar", "bpchar", "name", "citext", "enum", "date")
    return column.base not in (*known, "timestamp", "timestamptz", "interval")


def _keyless(node: Node) -> Iterator[Finding]:
    if not node.key:
        yield (
            "warning",
            "T008",
            f"{node.info.name} has no primary key: the rows of one parent are written as a whole",
        )


def unfit_text(dialect: Dialect, text: str) -> str:
    """Why no text column can hold a text, empty where one can."""
    if dialect == "postgresql" and "\0" in text:
        return "no U+0000 in text"
    return "" if has_utf8(text) else "no unpaired surrogate in text"


def unfit_float(dialect: Dialect, value: float) -> str:
    """Why no column of doubles can hold a number, empty where one can."""
    if dialect == "mysql" and not math.isfinite(value):
        return "no NaN or infinity"
    if dialect == "sqlite" and math.isnan(value):
        return "no NaN"
    negative_zero = not value and math.copysign(1, value) < 0
    return "no -0.0" if dialect != "postgresql" and negative_zero else ""


def same_key(collection: TablesCollection, id: Value) -> Value:
    """The key by the comparison of its columns: equal for keys that the server holds equal."""
    root = collection.shape_to_be
    if root is None:
        return id  # tables made here compare keys byte by byte
    key = key_of(id, len(root.key))
    if key is None:
        return id
    codecs = root.codecs_of(root.key)
    return id_of(
        tuple(
            _fold(collection, codec.column, part)
            if codec.column.folds and type(part) is str
            else part
            for codec, part in zip(codecs, key, strict=True)
        )
    )


def _fold(collection: TablesCollection, column: Column, text: str) -> Value:
    if collection.dialect == "sqlite":
        return _fold_sqlite(column, text)
    if collection.dialect == "postgresql":
        return text.lower() if column.base == "citext" else _by_letters(text)
    collation = column.collation or ""
    if not pads_not(collation):
        text = text.rstrip(" ")
    if collation.endswith("bin"):
        return text
    weight: Any = sa.func.weight_string(sa.collate(sa.literal(text), collation))
    with collection.database.reading(collection.where) as connection:
        found = connection.execute(sa.select(sa.func.hex(weight))).scalar()
    return _by_letters(text) if found is None else str(found)


def _fold_sqlite(column: Column, text: str) -> str:
    if column.collation == "NOCASE":  # folds the letters of ASCII only
        return "".join(c.lower() if c.isascii() else c for c in text)
    return text.rstrip(" ") if column.collation == "RTRIM" else _by_letters(text)


def _by_letters(text: str) -> str:
    """Text without case, accents and trailing blanks: no collation folds more that we know."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in plain if not unicodedata.combining(c)).rstrip(" ")

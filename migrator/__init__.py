"""Migrator moves data between representations of aggregates and between stores, and back.

What a migration script imports lies here: ``Move``, ``At``, ``tables`` and the evolutions.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from migrator.model.evolution import (
        AddDefault,
        Boolean,
        Bucket,
        ChangeId,
        Convert,
        Date,
        Day,
        Double,
        Drop,
        Id,
        Integer,
        Join,
        Keep,
        ListToRecord,
        ListToSet,
        MergeIn,
        Month,
        MoveField,
        Nest,
        Number,
        RecordToList,
        ReKey,
        Rename,
        SetToList,
        Shard,
        Split,
        SplitOut,
        Template,
        Text,
        Timestamp,
        Unnest,
    )
    from migrator.model.layouts import (
        cassandra_row,
        cassandra_table,
        index,
        item,
        item_collection,
        projection,
        redis_native,
    )
    from migrator.model.move import At, Layout, Move, Tables, tables
    from migrator.model.value import Kind, Ref

_MOVES = frozenset({"At", "Layout", "Move", "Tables", "tables"})
_LAYOUTS = frozenset(
    {
        "cassandra_row",
        "cassandra_table",
        "index",
        "item",
        "item_collection",
        "projection",
        "redis_native",
    }
)
_VALUES = frozenset({"Kind", "Ref"})

__all__ = [
    "AddDefault",
    "At",
    "Boolean",
    "Bucket",
    "ChangeId",
    "Convert",
    "Date",
    "Day",
    "Double",
    "Drop",
    "Id",
    "Integer",
    "Join",
    "Keep",
    "Kind",
    "Layout",
    "ListToRecord",
    "ListToSet",
    "MergeIn",
    "Month",
    "Move",
    "MoveField",
    "Nest",
    "Number",
    "ReKey",
    "RecordToList",
    "Ref",
    "Rename",
    "SetToList",
    "Shard",
    "Split",
    "SplitOut",
    "Tables",
    "Template",
    "Text",
    "Timestamp",
    "Unnest",
    "cassandra_row",
    "cassandra_table",
    "index",
    "item",
    "item_collection",
    "projection",
    "redis_native",
    "tables",
]


def __getattr__(name: str) -> object:
    """Load a name when it is first asked for: `migrator --help` needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _MOVES:
        from migrator.model import move as module
    elif name in _LAYOUTS:
        from migrator.model import layouts as module  # type: ignore[no-redef]
    elif name in _VALUES:
        from migrator.model import value as module  # type: ignore[no-redef]
    else:
        from migrator.model import evolution as module  # type: ignore[no-redef]
    found: object = getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

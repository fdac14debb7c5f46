"""Migrator moves data between representations of aggregates and between stores, and back.

What a migration script imports lies here: ``Move``, ``At``, ``tables`` and the evolutions.
"""

from migrator.model.evolution import (
    AddDefault,
    Boolean,
    ChangeId,
    Convert,
    Date,
    Double,
    Drop,
    Integer,
    Join,
    ListToRecord,
    ListToSet,
    MoveField,
    Nest,
    Number,
    RecordToList,
    Rename,
    SetToList,
    Split,
    Text,
    Timestamp,
    Unnest,
)
from migrator.model.move import At, Layout, Move, Tables, tables
from migrator.model.value import Kind, Ref

__all__ = [
    "AddDefault",
    "At",
    "Boolean",
    "ChangeId",
    "Convert",
    "Date",
    "Double",
    "Drop",
    "Integer",
    "Join",
    "Kind",
    "Layout",
    "ListToRecord",
    "ListToSet",
    "Move",
    "MoveField",
    "Nest",
    "Number",
    "RecordToList",
    "Ref",
    "Rename",
    "SetToList",
    "Split",
    "Tables",
    "Text",
    "Timestamp",
    "Unnest",
    "tables",
]

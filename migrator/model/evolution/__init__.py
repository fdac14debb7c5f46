"""Evolutions: changes of shape with their way back (lenses on aggregates).

Local ones stay within an aggregate; regrouping ones make several of one, or one of several.

An evolution is data: a frozen object with a readable repr and a one-line ``describe()``. It
says by ``laws`` whether what went forward comes back, and whether what was written after the
cut-over survives a rollback. Paths are access paths; ``*`` stands for every field of a record
and ``[*]`` for every element of a list.
"""

from migrator.model.evolution.base import KEPT, Evolution, Law, Laws
from migrator.model.evolution.fields import AddDefault, Drop, MoveField, Nest, Rename, Unnest
from migrator.model.evolution.identity import ChangeId, ReKey
from migrator.model.evolution.keys import Day, Id, Key, KeyPart, Month, Shard, Template
from migrator.model.evolution.kinds import (
    Boolean,
    Convert,
    Date,
    Double,
    Integer,
    Number,
    Text,
    Timestamp,
)
from migrator.model.evolution.lists import ListToRecord, ListToSet, RecordToList, SetToList
from migrator.model.evolution.projection import Keep
from migrator.model.evolution.regroup import Bucket, MergeIn, Regrouping, SplitOut
from migrator.model.evolution.texts import Join, Split

__all__ = [
    "KEPT",
    "AddDefault",
    "Boolean",
    "Bucket",
    "ChangeId",
    "Convert",
    "Date",
    "Day",
    "Double",
    "Drop",
    "Evolution",
    "Id",
    "Integer",
    "Join",
    "Keep",
    "Key",
    "KeyPart",
    "Law",
    "Laws",
    "ListToRecord",
    "ListToSet",
    "MergeIn",
    "Month",
    "MoveField",
    "Nest",
    "Number",
    "ReKey",
    "RecordToList",
    "Regrouping",
    "Rename",
    "SetToList",
    "Shard",
    "Split",
    "SplitOut",
    "Template",
    "Text",
    "Timestamp",
    "Unnest",
]

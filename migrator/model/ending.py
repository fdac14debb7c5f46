"""Deadlines of single fields: a field of the aggregate holds them, a record of timestamps.

Which field that is, and whose fields they are, the location declares. What has reached its
deadline is absent, whether its store has removed it yet, or ever will.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from migrator.model.value import Kind, Record, Value, kind_of, nanos_of

# By the field that holds deadlines: the field whose fields they are, "" for the aggregate itself.
Ending: TypeAlias = Mapping[str, str]


def without_ended(record: Record, ending: Ending, now: int) -> Record:
    """The record without the fields that have ended by ``now``, in nanoseconds since 1970, and
    without their deadlines; the very same one where none has."""
    for name, of in ending.items():
        deadlines = record.get(name)
        if type(deadlines) is not dict:
            continue
        gone = {field for field, at in deadlines.items() if _has_passed(at, now)}
        if gone:
            record = {**record, name: _without(deadlines, gone)}
            if not of:
                record = _without(record, gone)
            elif type(held := record.get(of)) is dict:
                record[of] = _without(held, gone)
    return record


def _has_passed(at: Value, now: int) -> bool:
    return kind_of(at) is Kind.TIMESTAMP and nanos_of(at) <= now


def _without(record: Record, fields: set[str]) -> Record:
    return {name: value for name, value in record.items() if name not in fields}

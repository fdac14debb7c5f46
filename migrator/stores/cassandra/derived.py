"""Columns computed from a block: parts of a date, buckets, and the block's own key.

They serve the queries (invoices by month, a hot partition in buckets) and are no fields of the
aggregate: they are written with it and never read back into it.
"""

from __future__ import annotations

import datetime as dt
import re
import zlib
from dataclasses import dataclass

from migrator.model.path import child
from migrator.model.value import Record, Value, show
from migrator.stores.cassandra.columns import Unfit
from migrator.stores.cassandra.columns_nested import Type

BLOCK_KEY = "block key"
_PARTS = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}
_TEXT = re.compile(r"(?:(year|month|day|hour)|bucket (\d+)) of (.+)", re.DOTALL)


@dataclass(frozen=True)
class Derived:
    """How a column is computed: a part of a date, a bucket, or the block key as it is.

    ``source`` is the field that it comes from, None for the block key.
    """

    text: str
    part: str = ""
    buckets: int = 0
    source: str | None = None

    @property
    def type(self) -> Type | None:
        """The type of the column, None where it has to be declared."""
        if self.part:
            return Type("int" if self.part == "year" else "text")
        return Type("int") if self.buckets else None

    @property
    def by_key(self) -> bool:
        """Whether the block key alone gives it."""
        return self.source is None

    def value(self, key: bytes, record: Record) -> Value:
        """The column's value for a block whose key has these bytes.

        Raises Unfit where there is none.
        """
        if self.source is None:
            return zlib.crc32(key) % self.buckets
        found = record.get(self.source)
        if found is None:
            raise Unfit(f"{self.text}: there is no value", child("", self.source))
        if self.buckets:
            return zlib.crc32(show(found).encode("utf-8", "surrogatepass")) % self.buckets
        return _part(found, self.part, child("", self.source))


def derived(text: str) -> Derived:
    """Read ``month of date``, ``bucket 16 of block key`` and the like. Raises ValueError."""
    if text == BLOCK_KEY:
        return Derived(text)
    found = _TEXT.fullmatch(text)
    if found is None or (found[2] is not None and int(found[2]) < 1):
        raise ValueError(
            f'{text!r} is none of "year|month|day|hour of FIELD", "bucket N of FIELD" and '
            f'"{BLOCK_KEY}"'
        )
    source = None if found[3] == BLOCK_KEY else found[3]
    return Derived(text, found[1] or "", int(found[2] or 0), source)


def _part(value: Value, part: str, path: str) -> Value:
    if type(value) is dt.datetime and value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    if type(value) not in (dt.datetime, dt.date) or (part == "hour" and type(value) is dt.date):
        raise Unfit(f"{show(value)} has no {part} between the years 1 and 9999", path)
    assert isinstance(value, dt.date)
    if part == "year":
        return value.year
    # strftime does not fill up the early years on every system.
    return f"{value.year:04}{value.strftime(_PARTS[part][2:])}"

"""Walking a table by token, and reading single rows by key.

A range is a pair of tokens (from, to], either None where it is open. A position is the primary
key of the last row seen, as bytes in hexadecimal; in it null stands for a partition that has
nothing but static columns, and so no row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migrator.errors import Transient
from migrator.ports import Json
from migrator.retry import request
from migrator.stores.cassandra.columns_nested import quoted
from migrator.stores.cassandra.table_lives import is_untold
from migrator.stores.cassandra.table_shape import Shape
from migrator.stores.cassandra.table_wire import NOW, Bytes, Name, Row, Statement, Values, Wire

# Longer than reading a row by its key takes.
_EARLY_MS = 250
MAX_ROWS = 5000


@dataclass
class Listed:
    """Rows of a range with the position after them, None at its end."""

    rows: list[Values]
    next: Json


class TableReader:
    """Reads rows of the full table as the bytes of their columns."""

    def __init__(self, wire: Wire, shape: Shape, table: str) -> None:
        self._wire = wire
        self._shape = shape
        self._table = table
        self._partition = shape.key.partition
        self._clustering = shape.key.clustering
        self._at_once = MAX_ROWS
        self._token = f"token({', '.join(map(quoted, self._partition))})"

    # ------------------------------------------------------------ walking

    def listing(self, range_: Json, position: Json, limit: int, names: Sequence[Name]) -> Listed:
        """Up to ``limit`` rows of a range after a position, with these columns."""
        wanted: list[Name] = list(dict.fromkeys((*self._shape.key.columns, *names)))
        rows: list[Row] = []
        whole = True
        for cql, values in self._steps(range_, position):
            query = _query(wanted, self._table, cql) + " LIMIT ?"
            some, whole = request(self._some, query, values, limit - len(rows))
            rows += some
            if not whole:
                break
        next_ = None
        if not whole:
            next_ = [
                None if x is None else x.hex() for x in rows[-1][: len(self._shape.key.columns)]
            ]
        found = [dict(zip(wanted, row, strict=True)) for row in rows]
        return Listed([row for row in found if self.is_row(row)], next_)

    def _some(self, query: str, values: list[Bytes], most: int) -> tuple[list[Row], bool]:
        """Up to so many rows of a query, and whether these are all of them.

        What is not answered in time is asked for anew with half the rows (C56).
        """
        most = min(most, self._at_once)
        try:
            found = list(self._wire.rows(query, [*values, most.to_bytes(4, "big")]))
        except Transient:
            self._at_once = max(1, most // 2)
            raise
        self._at_once = min(MAX_ROWS, 2 * self._at_once)
        return found, len(found) < most

    def is_row(self, row: Values) -> bool:
        """Whether it is a row, not a partition's static columns alone."""
        return not self._clustering or row[self._clustering[0]] is not None

    def _steps(self, range_: Json, position: Json) -> Iterator[tuple[str, list[Bytes]]]:
        """The conditions that, one after another, give what is left of a range."""
        start, end = range_ if isinstance(range_, list) else (None, None)
        if isinstance(position, list):
            key = [None if x is None else bytes.fromhex(x) for x in position]
            partition, clustering = key[: len(self._partition)], key[len(self._partition) :]
            if clustering and clustering[0] is not None:
                yield from self._after(partition, clustering)
            yield from self._beside(partition)
            conditions = [f"{self._token} > token({_marks(self._partition)})"]
            values = list(partition)
        else:
            conditions = [] if start is None else [f"{self._token} > ?"]
            values = [] if start is None else [_token(start)]
        if end is not None:
            conditions.append(f"{self._token} <= ?")
            values.append(_token(end))
        yield (f" WHERE {' AND '.join(conditions)}" if conditions else "", values)

    def _after(
        self, partition: list[Bytes], clustering: list[Bytes]
    ) -> Iterator[tuple[str, list[Bytes]]]:
        """The rest of a partition: rows that share ever less of the key, each then after it."""
        for i in reversed(range(len(self._clustering))):
            same = [*self._partition, *self._clustering[:i]]
            name = self._clustering[i]
            sign = "<" if name in self._shape.key.descending else ">"
            where = [f"{quoted(column)} = ?" for column in same] + [f"{quoted(name)} {sign} ?"]
            yield f" WHERE {' AND '.join(where)}", [*partition, *clustering[: i + 1]]

    def _beside(self, partition: list[Bytes]) -> Iterator[tuple[str, list[Bytes]]]:
        """Other partitions of the same token that come later: rare, but not to be passed over."""
        where = f" WHERE {self._token} = token({_marks(self._partition)})"
        query = _query(self._partition, self._table, where, "DISTINCT ")
        beside = [list(row) for row in self._wire.few(query, partition)]
        if partition in beside:
            beside = beside[beside.index(partition) + 1 :]
        where = " AND ".join(f"{quoted(column)} = ?" for column in self._partition)
        for other in beside:
            yield f" WHERE {where}", other

    def count(self, range_: Json) -> int:
        """How many rows a range has, counted by the server."""
        counted = quoted(self._clustering[0]) if self._clustering else "*"
        ((where, values),) = self._steps(range_, None)
        query = f"SELECT count({counted}) FROM {self._table}{where}"  # noqa: S608
        return sum(int.from_bytes(row[0] or b"", "big") for row in self._wire.rows(query, values))

    # ------------------------------------------------------------ by key

    def by_key(
        self, keys: Sequence[Sequence[bytes] | None], names: Sequence[Name]
    ) -> Iterator[Values | None]:
        """The rows of some primary keys, in their order; None where there is none."""
        where = " AND ".join(f"{quoted(column)} = ?" for column in self._shape.key.columns)
        query = _query(names, self._table, f" WHERE {where}")
        found = self._wire.each(Statement(query, key) for key in keys if key is not None)
        for key in keys:
            rows = next(found) if key is not None else []
            row: Values = dict(zip(names, rows[0], strict=True)) if rows else {}
            yield row if row and self.is_row(row) else None

    def timed(self, rows: list[Values]) -> None:
        """Read again, with the server's time, those rows whose cells alone say how long they live.

        A life is told in seconds from when the query began. What is read early in a second of
        the server's may be of the second before and is read once more, so that a deadline is the
        same however often it is asked for.
        """
        names = [*all_columns(self._shape), NOW]
        left = [i for i, row in enumerate(rows) if is_untold(self._shape, row)]
        while left:
            keys = [tuple(rows[i][name] or b"" for name in self._shape.key.columns) for i in left]
            again = []
            for i, row in zip(left, self.by_key(keys, names), strict=True):
                if row is None:
                    continue  # it has ended since: its deadline was no more than that
                rows[i] = row
                if int.from_bytes(row[NOW] or b"", "big") % 1000 < _EARLY_MS:
                    again.append(i)
            left = again
            if left:
                time.sleep(_EARLY_MS / 1000)

    def partition(self, key: Sequence[bytes], names: Sequence[Name], limit: int) -> list[Values]:
        """Some rows of one partition."""
        where = " AND ".join(f"{quoted(column)} = ?" for column in self._partition)
        query = _query(names, self._table, f" WHERE {where} LIMIT ?")
        rows = self._wire.few(query, [*key, limit.to_bytes(4, "big")])
        return [dict(zip(names, row, strict=True)) for row in rows]


def all_columns(shape: Shape) -> list[Name]:
    """What a block is read from: every column, and how long its cells still live; with their
    stamps, where cells may have deadlines of their own."""
    names: list[Name] = [*shape.columns, *(("ttl", column.name) for column in shape.regular)]
    if shape.spec.cellwise:
        names += [("writetime", column.name) for column in shape.regular]
    return names


def selected(names: Sequence[Name]) -> str:
    """Columns, and functions of columns, as a query names them."""
    return ", ".join(map(_selected, names))


def _selected(name: Name) -> str:
    if name == NOW:
        return "toUnixTimestamp(now())"
    return quoted(name) if isinstance(name, str) else f"{name[0]}({quoted(name[1])})"


def _query(names: Sequence[Name], table: str, where: str, distinct: str = "") -> str:
    # Whatever stands in it is quoted; values are bound.
    return f"SELECT {distinct}{selected(names)} FROM {table}{where}"  # noqa: S608


def _marks(names: Sequence[str]) -> str:
    return ", ".join("?" for _ in names)


def _token(token: object) -> bytes:
    if not isinstance(token, int):
        raise TypeError(f"{token!r} is no token")
    return token.to_bytes(8, "big", signed=True)

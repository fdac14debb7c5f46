"""How long rows and cells live: by what is left of the cells' lives, and as the side column says;
and when cells were written.

A life is told by the server in whole seconds; the side column keeps a deadline exactly. Of the
whole row it goes before what the cells say; of a single cell it holds only as long as that cell
is of the same write, so that a cell which others put anew has the deadline that they gave it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from migrator.stores.cassandra.columns import Marks
from migrator.stores.cassandra.columns_nested import pieces
from migrator.stores.cassandra.table_shape import Column, Shape
from migrator.stores.cassandra.table_spec import SIDE
from migrator.stores.cassandra.table_wire import NOW, Values

Side: TypeAlias = dict[str, Marks]
# Where the side column keeps the deadlines of single columns, beside that of the row, and the
# stamps of those of its write that were given another than itself.
_ENDS = "ends"
_STAMPS = "stamps"
_MILLI, _SECOND = 10**6, 10**9
# Of cells that were put together one may be a second behind.
_TOGETHER_MS = 1000


@dataclass(frozen=True)
class Lives:
    """The deadline of a row, in milliseconds since 1970, and those of fields that have another,
    in nanoseconds."""

    expires: int | None
    ends: Mapping[str, int]


def numbers(data: bytes | None, column: Column) -> list[int | None]:
    """A column's stamp or life, or those of each element of a collection."""
    if data is None or not column.multicell:
        return [None if data is None else int.from_bytes(data, "big", signed=True)]
    return [
        None if piece is None else int.from_bytes(piece, "big", signed=True)
        for piece in pieces(data, 4)
    ]


def latest(data: bytes | None, column: Column) -> int | None:
    """The latest of a column's stamps; a collection has one for each of its elements."""
    return max((stamp for stamp in numbers(data, column) if stamp is not None), default=None)


# ---------------------------------------------------------------- what the side column says


def side_of(data: bytes | None) -> Side:
    """What a side column says; nothing where it is not ours."""
    if data is None:
        return {}
    try:
        side = json.loads(data)
    except ValueError:
        return {}
    if type(side) is not dict or not all(type(marks) is dict for marks in side.values()):
        return {}
    return side


def side_text(side: Side) -> bytes:
    """What lies in a side column."""
    return json.dumps(side, ensure_ascii=False, separators=(",", ":")).encode()


def keep_deadline(side: Side, expires: int) -> None:
    """Tell a deadline by the side column."""
    side.setdefault("", {})[""] = ["expires", str(expires)]


def deadline(side: Mapping[str, Marks]) -> int | None:
    """The deadline of the row that the side column keeps to the millisecond."""
    mark = side.get("", {}).get("")
    return int(mark[1]) if type(mark) is list and mark[0] == "expires" else None


def keep_ends(side: Side, ends: Mapping[str, int]) -> None:
    """Note the deadlines of single columns."""
    if ends:
        side.setdefault("", {})[_ENDS] = [x for name, at in ends.items() for x in (name, str(at))]


def kept_ends(side: Mapping[str, Marks]) -> dict[str, int]:
    """The deadlines of single columns that the side column keeps."""
    return _pairs(side, _ENDS)


def keep_stamps(side: Side, stamps: Mapping[str, int]) -> None:
    """Note the stamps of single columns."""
    if stamps:
        told = [x for name, at in stamps.items() for x in (name, str(at))]
        side.setdefault("", {})[_STAMPS] = told


def _pairs(side: Mapping[str, Marks], what: str) -> dict[str, int]:
    told = side.get("", {}).get(what, [])
    return {name: int(at) for name, at in zip(told[::2], told[1::2], strict=True)}


# ---------------------------------------------------------------- what the cells say


def is_untold(shape: Shape, row: Values) -> bool:
    """Whether some cell ends, and nothing tells exactly when."""
    ending = [
        name[1]
        for name, life in row.items()
        if type(name) is tuple
        and name[0] == "ttl"
        and latest(life, shape.columns[name[1]]) is not None
    ]
    if not ending:
        return False
    if shape.spec.deadlines is not None:
        return not _ours(shape, row).issuperset(ending)
    return deadline(side_of(row.get(SIDE))) is None


def lives(
    shape: Shape, values: Values, expires: int | None, kept: Mapping[str, int] | None = None
) -> Lives:
    """The deadlines of a row, of which the side column keeps ``expires`` and ``kept``.

    Raises ValueError, naming the columns, for what can't be a deadline of the row or of a field.
    """
    if shape.spec.deadlines is None:
        undeclared = [name for name in kept or () if values.get(name) is not None]
        if undeclared:
            raise _by_themselves(undeclared)
        return Lives(_remaining(shape, values) if expires is None else expires, {})
    ours = _ours(shape, values)
    told = {n: at for n, at in (kept or {}).items() if n in ours}
    moments = _moments(shape, values, expires, told, ours)
    whole = expires
    if None in moments.values():
        whole = None
    elif moments:
        last = max(at for at in moments.values() if at is not None) // _MILLI
        whole = last if expires is None or abs(last - expires) > _TOGETHER_MS else expires
    apart = {
        name: at
        for name, at in moments.items()
        if at is not None and (whole is None or abs(at // _MILLI - whole) > _TOGETHER_MS)
    }
    others = [n for n in apart if n not in shape.fields and n not in (SIDE, *shape.spec.derived)]
    if others:
        raise ValueError(f"cells of {', '.join(others)} expire by themselves, and are no fields")
    ends = {name: at for name, at in apart.items() if name in shape.fields}
    # What is to end after the whole keeps its deadline for as long as that is the whole's own.
    return Lives(whole, ends | (told if whole == expires else {}))


def _moments(
    shape: Shape,
    values: Values,
    expires: int | None,
    told: Mapping[str, int],
    ours: Container[str],
) -> dict[str, int | None]:
    """When each column ends, in nanoseconds since 1970; None for never.

    Raises ValueError where elements of a collection end apart.
    """
    found: dict[str, int | None] = {}
    whole = None if expires is None else expires * _MILLI
    since = _seconds(values)
    for name, cells in _cells(shape, values).items():
        life = _one(name, cells)
        if name in told:
            found[name] = told[name] if whole is None else min(told[name], whole)
        elif name in ours and life is not None and whole is not None:
            found[name] = whole
        else:
            found[name] = None if life is None else (since + life) * _SECOND
    return found


def _cells(shape: Shape, values: Values) -> dict[str, list[int | None]]:
    """By column that holds something: what is left of the life of each of its cells."""
    return {
        column.name: numbers(values["ttl", column.name], column)
        for column in shape.regular
        if values.get(column.name) is not None and ("ttl", column.name) in values
    }


def _remaining(shape: Shape, values: Values) -> int | None:
    """The deadline by what is left of the cells' lives.

    Raises ValueError where only a part of them ends, naming their columns.
    """
    found = _cells(shape, values)
    every = [life for cells in found.values() for life in cells]
    ends = [life for life in every if life is not None]
    if not ends:
        return None
    if len(ends) < len(every) or max(ends) - min(ends) > 1:
        raise _by_themselves([n for n, cells in found.items() if set(cells) - {None}])
    return (_seconds(values) + max(ends)) * 1000


def _by_themselves(names: Sequence[str]) -> ValueError:
    return ValueError(
        f"cells of {', '.join(names)} expire by themselves, and a block ends as a whole: "
        "deadlines= of the layout table carries those of fields"
    )


def _one(name: str, cells: Sequence[int | None]) -> int | None:
    """The life of a field. Raises ValueError where elements of a collection have several."""
    ends = [life for life in cells if life is not None]
    if not ends:
        return None
    if len(ends) < len(cells) or max(ends) - min(ends) > 1:
        raise ValueError(f"elements of {name} expire by themselves, and a field ends as a whole")
    return max(ends)


def _ours(shape: Shape, values: Values) -> frozenset[str]:
    """The columns that hold something of the very write that left the side column."""
    mark = values.get(("writetime", SIDE)) if shape.side else None
    if mark is None:
        return frozenset()
    given = _pairs(side_of(values.get(SIDE)), _STAMPS)
    stamp = int.from_bytes(mark, "big", signed=True)
    return frozenset(
        column.name
        for column in shape.regular
        if values.get(column.name) is not None
        and set(numbers(values.get(("writetime", column.name)), column))
        == {given.get(column.name, stamp)}
    )


def is_stamped(column: Column) -> bool:
    """Whether a column may be put with a stamp that it had before. A list that is not frozen may
    not: each time it gets elements of new names, which one stamp does not tell apart."""
    return not (column.multicell and column.type.name == "list")


def written(shape: Shape, values: Values) -> dict[str, int]:
    """When each field was written, in microseconds since 1970: of a collection its last element."""
    stamps = {
        column.name: latest(values.get(("writetime", column.name)), column)
        for column in shape.regular
        if column.name in shape.fields
        and is_stamped(column)
        and values.get(column.name) is not None
    }
    return {name: stamp for name, stamp in stamps.items() if stamp is not None}


def _seconds(values: Values) -> int:
    """When the lives were asked for, by the server's clock where it was asked for, too."""
    now = values.get(NOW)
    return int(time.time()) if now is None else int.from_bytes(now, "big") // 1000

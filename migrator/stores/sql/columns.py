"""How the values of one column are read and written.

A codec is exact or refuses: what ``encode`` lets pass reads back equal, canonical form and all.
So a ``Decimal("5")`` does not go into a ``numeric(10,2)``, which would give back ``5.00``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import partial
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from migrator.model import value as v
from migrator.model.value import Kind, Value, has_utf8, kind_of
from migrator.stores.sql.catalog import Column
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.unfit import Unfit

Decode: TypeAlias = Callable[[Any], Value]
Encode: TypeAlias = Callable[[Value], Any]


class _Cast(FunctionElement[Any]):
    """A cast by the server's own name of a type; SQLAlchemy's leaves out those it thinks odd."""

    name = "server_cast"
    inherit_cache = True


@compiles(_Cast)
def _compile_cast(element: _Cast, compiler: Any, **options: Any) -> str:
    value, type_ = element.clauses
    return f"CAST({compiler.process(value, **options)} AS {compiler.process(type_, **options)})"


def server_cast(value: sa.ColumnElement[Any], type_: str) -> sa.ColumnElement[Any]:
    """``CAST(value AS type_)``, the type in the server's words."""
    return _Cast(value, sa.literal_column(type_))


@dataclass(frozen=True)
class Codec:
    """Reading and writing of one column.

    ``decode`` is None where the driver's value is the value. ``select`` is the type the column
    is cast to when read, ``cast`` the one a parameter is cast to. ``ordered`` says that Python
    orders its values as the server does, and ``sorts`` of which kinds it does, where all are of
    one. ``json``: NULL is absence, None is JSON's null.
    ``text`` decodes the server's text, for the observer.
    """

    column: Column
    encode: Encode
    decode: Decode | None = None
    select: str | None = None
    cast: str | None = None
    ordered: bool = False
    family: str = ""
    json: bool = False
    text: Decode | None = None
    sorts: frozenset[type] = frozenset()

    @property
    def name(self) -> str:
        return self.column.name


def codec(
    dialect: Dialect, column: Column, declared: str | None, *, by_bytes: bool = False
) -> Codec:
    """The codec of a column; ``declared`` is the type that the script gives it, if any, and
    ``by_bytes`` says of SQLite that texts of this table compare by their bytes alone."""
    if dialect == "sqlite":
        from migrator.stores.sql.columns_sqlite import make as make_sqlite

        return make_sqlite(column, declared, by_bytes=by_bytes)
    if dialect == "postgresql":
        from migrator.stores.sql.columns_postgresql import make
    else:
        from migrator.stores.sql.columns_mysql import make
    return make(column, declared)


def misfit(value: Value, column: Column) -> Unfit:
    """The refusal of a value by its kind."""
    if type(value) is v.Ref:  # a reference is written as its id, which was refused
        value = value.id
    return Unfit(f"a column of type {column.type} can't hold {kind_of(value)} as it is")


def need_text(value: Value, column: Column) -> str:
    """The text of a value. Raises Unfit for other kinds and unpaired surrogates."""
    if type(value) is not str:
        raise misfit(value, column)
    if not has_utf8(value):
        raise Unfit("the text holds an unpaired surrogate")
    return value


def need_int(value: Value, column: Column, low: int, high: int) -> int:
    """A plain whole number within bounds. Raises Unfit."""
    if type(value) is not int:
        raise misfit(value, column)
    if not low <= value <= high:
        raise Unfit(f"{value} is outside {low} .. {high}, the range of {column.type}")
    return value


def need_int64(value: Value, column: Column) -> int:
    """A whole number of the kind int64. Raises Unfit."""
    if not isinstance(value, int) or kind_of(value) is not Kind.INT64:
        raise misfit(value, column)
    return int(value)


def need_length(text: str | bytes, column: Column) -> None:
    """Raises Unfit where a value is longer than the column is declared."""
    if column.args and len(text) > column.args[0]:
        unit = "characters" if isinstance(text, str) else "bytes"
        raise Unfit(f"{len(text)} {unit} are more than {column.type} takes")


def need_scale(nanos: int, digits: int, column: Column) -> int:
    """Raises Unfit where a time has more fractional digits than the column keeps."""
    if nanos % 10 ** (9 - digits):
        raise Unfit(f"{column.type} keeps {digits} digits of a second, and the value has more")
    return nanos


# The server's own bounds are those of 64 bits, so that Int64 need not check them again.
wide: Callable[[Any], Any] = partial(int.__new__, v.Int64)


_FIRST_NORMAL, _PAST_SINGLES = 2.0**-126, 2.0**128


def single(number: float) -> float:
    """The double with the shortest digits that name the same 32-bit number, and no other.

    This is how a ``real`` reads: 0.1 and not 0.10000000149011612.
    """
    if not number or number - number != 0:
        return number
    size = abs(number)
    least, most = _around(size)
    # Numbers lie nearer below a power of two than above: the next name up may be nearer, too.
    is_power = math.frexp(size)[0] == 0.5
    for digits in range(6 if size >= _FIRST_NORMAL else 1, 10):
        short = float(f"{size:.{digits}g}")
        if short <= least and is_power:
            short = _up(size, digits)
        if least < short < most:
            return math.copysign(short, number)
    return number


def _around(number: float) -> tuple[float, float]:
    """The doubles amid a positive 32-bit number and those before and after it."""
    (bits,) = struct.unpack("I", struct.pack("f", number))
    below, above = struct.unpack("2f", struct.pack("2I", bits - 1, bits + 1))
    return (below + number) / 2, (number + min(above, _PAST_SINGLES)) / 2


def _up(number: float, digits: int) -> float:
    return float(Context(digits, ROUND_CEILING).create_decimal_from_float(number))


def need_single(value: Value, column: Column) -> float:
    """The 32-bit number that a column gives back as this double. Raises Unfit."""
    if type(value) is not float:
        raise misfit(value, column)
    try:
        held: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        raise Unfit(f"{value!r} is outside the range of {column.type}") from None
    if value == value and single(held) != value:
        raise Unfit(f"{value!r} is not what {column.type} would give back")
    return held

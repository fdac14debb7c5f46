"""Values of the model as DynamoDB's attribute values, in the service's own JSON, and back.

A number is native where reading it gives it back: a whole number is an ``int``, any other a
decimal without trailing zeros. What N can hold but not tell apart (doubles, ``Decimal("1.50")``,
small 64-bit numbers) lies as N all the same, so that others can compute and index it, and a tag
says what it is; the rest is carried as ``model/tags.py`` says.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from decimal import Context, Decimal, DecimalException, Inexact
from typing import Any, TypeAlias

from migrator.model import percent
from migrator.model import value as v
from migrator.model.path import format_path
from migrator.model.tags import Tags, from_carrier, raise_, to_carrier
from migrator.model.value import Value, has_utf8

Av: TypeAlias = dict[str, Any]
"""An attribute value on the wire: one type and what it holds, as ``{"S": "mary"}``."""
Item: TypeAlias = dict[str, Av]

DIGITS = 38
_LARGEST, _SMALLEST = 125, -130
PLAIN_LIMIT = 10**DIGITS
# Decimals of any real length, and no rounding without a word.
_EXACT = Context(prec=1000, Emax=999_999, Emin=-999_999, traps=[Inexact])
_TEXT_DIGITS = 500
# What can't be part of a name: unpaired surrogates have no UTF-8.
ODD_NAME = re.compile("[%\ud800-\udfff]")
NAMES = "names"


class Unreadable(Exception):
    """An attribute value that is none, with its reason."""


# ---------------------------------------------------------------- numbers


def fits_number(number: Decimal) -> bool:
    """Whether N holds a number with all its digits."""
    if not number.is_finite():
        return False
    digits = "".join(map(str, number.as_tuple().digits)).strip("0")
    return not digits or (len(digits) <= DIGITS and _SMALLEST <= number.adjusted() <= _LARGEST)


def read_number(text: str) -> int | Decimal:
    """The number behind N, in the one form that it has in the model."""
    if "." not in text and "e" not in text and "E" not in text:
        return int(text)
    number = Decimal(text).normalize(_EXACT)
    exponent = number.as_tuple().exponent
    return int(number) if isinstance(exponent, int) and exponent >= 0 else number


def same_number(text: str) -> str:
    """The one form of the number behind N, which a server may give otherwise than it was sent."""
    return _shortest(Decimal(text))


def _native_decimal(value: Decimal) -> bool:
    _, digits, exponent = value.as_tuple()
    return type(exponent) is int and exponent < 0 and digits[-1] != 0 and fits_number(value)


def _native_integer(value: int) -> bool:
    return -PLAIN_LIMIT < value < PLAIN_LIMIT or fits_number(Decimal(value))


def _hold_number(value: Value) -> tuple[str, str | None] | None:
    """The digits of N and the tag that goes with them; None where N can't hold the number."""
    if type(value) is float:
        minus_zero = value == 0 and math.copysign(1, value) < 0
        if minus_zero or not math.isfinite(value) or not fits_number(Decimal(repr(value))):
            return None
        return repr(value), "double"
    if type(value) is Decimal:
        if _native_decimal(value):
            return str(value), None
        sign, digits, exponent = value.as_tuple()
        if not fits_number(value) or len(digits) > _TEXT_DIGITS or (sign and not any(digits)):
            return None
        return _shortest(value), f"decimal:{exponent}"
    assert isinstance(value, int)
    if not _native_integer(value):
        return None
    wide = type(value) is v.Int64 and v.INT32_MIN <= value <= v.INT32_MAX
    return str(int(value)), "int64" if wide else None


def _shortest(value: Decimal) -> str:
    return str(value.normalize(_EXACT)) if value else "0"


def _from_number(tag: str, held: int | Decimal) -> Value:
    """The value behind a number and its tag. Raises ValueError where they do not fit."""
    name, _, rest = tag.partition(":")
    if name == "int64" and type(held) is int:
        return v.Int64(held)
    if name == "double":
        double = float(held)
        if math.isinf(double) or Decimal(repr(double)) != held:
            raise ValueError("not a double")
        return double
    if name == "decimal" and rest:
        try:
            return Decimal(held).quantize(Decimal((0, (1,), int(rest))), context=_EXACT)
        except DecimalException:
            raise ValueError("it has more digits than the tag says") from None
    raise ValueError(f"no number has the tag {tag}")


# ---------------------------------------------------------------- writing

_NUMBERS = (int, float, Decimal, v.Int64)
Steps: TypeAlias = tuple[Any, ...]
"""The way to a value, innermost first: ``(step, (step, ()))``; its text is seldom needed."""


def hold(value: Value, tags: Tags, at: Steps = ()) -> Av:
    """The attribute value of a value; what had to be carried is noted in ``tags`` by path.

    Raises TypeError for what is no value of the model.
    """
    kind = type(value)
    if kind is str:
        if value.isascii() or has_utf8(value):  # type: ignore[attr-defined, arg-type]
            return {"S": value}
    elif kind is dict:
        return _hold_record(value, tags, at)  # type: ignore[arg-type]
    elif kind is list:
        return {"L": [hold(x, tags, (i, at)) for i, x in enumerate(value)]}  # type: ignore[var-annotated, arg-type]
    elif kind is bool:
        return {"BOOL": value}
    elif value is None:
        return {"NULL": True}
    elif kind in _NUMBERS:
        held = _hold_number(value)
        if held is not None:
            if held[1]:
                tags[path_text(at)] = held[1]
            return {"N": held[0]}
    elif kind is bytes:
        return {"B": b64encode(value).decode()}  # type: ignore[arg-type]
    elif kind is v.Set and (native := _native_set(value)):  # type: ignore[arg-type]
        return native
    return _carry(value, tags, at)


def _hold_record(record: v.Record, tags: Tags, at: Steps) -> Av:
    if not all(map(speakable, record)):
        tags[path_text(at)] = NAMES
        record = {percent.escape(name, ODD_NAME): x for name, x in record.items()}
    return {"M": {name: hold(x, tags, (name, at)) for name, x in record.items()}}


def speakable(name: str) -> bool:
    """Whether DynamoDB takes a name as it is."""
    return name != "" and (name.isascii() or has_utf8(name))


def _native_set(members: v.Set) -> Av | None:
    """A set of DynamoDB's own; None where it has none that is the same."""
    kinds = set(map(type, members))
    if kinds == {str} and all(map(speakable, members)):  # type: ignore[arg-type]
        return {"SS": list(members)}
    if kinds == {bytes} and all(members):
        return {"BS": [b64encode(x).decode() for x in members]}  # type: ignore[arg-type]
    if kinds and kinds <= {int, Decimal}:
        held = [_hold_number(x) for x in members]
        if all(x is not None and x[1] is None for x in held):
            return {"NS": [x[0] for x in held if x is not None]}
    return None


def _carry(value: Value, tags: Tags, at: Steps) -> Av:
    tag, carrier = to_carrier(value)
    while type(carrier) is str and not has_utf8(carrier):
        outer, carrier = to_carrier(carrier)
        tag = f"{outer}/{tag}"
    tags[path_text(at)] = tag
    return hold(carrier, tags, at)


def path_text(at: Steps) -> str:
    """The access path of a way."""
    steps = []
    while at:
        step, at = at
        steps.append(step)
    return format_path(steps[::-1])


# ---------------------------------------------------------------- reading


def read(av: Av) -> Value:
    """The native value of an attribute value, tags aside. Raises Unreadable."""
    try:
        ((type_, held),) = av.items()
        match type_:
            case "S":
                return held
            case "N":
                return read_number(held)
            case "M":
                return {name: read(x) for name, x in held.items()}
            case "L":
                return [read(x) for x in held]
            case "BOOL":
                return bool(held)
            case "NULL":
                return None
            case "B":
                return b64decode(held)
            case "SS":
                return v.Set(held)
            case "NS":
                return v.Set(map(read_number, held))
            case "BS":
                return v.Set(map(b64decode, held))
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise Unreadable(f"no attribute value: {error}") from None
    raise Unreadable(f"DynamoDB's type {type_} is unknown")


def release(value: Value, tags: Mapping[str, str]) -> Value:
    """The value behind its tags; tags that do not fit are passed by."""
    try:
        return raise_(value, tags, _from)
    except ValueError:
        return value


def _from(tag: str, held: Value) -> Value:
    if tag == NAMES:
        if type(held) is not dict:
            raise TypeError("only a record has names")
        return {percent.unescape(name): item for name, item in held.items()}
    if type(held) in (int, Decimal):
        return _from_number(tag, held)  # type: ignore[arg-type]
    return from_carrier(tag, held)

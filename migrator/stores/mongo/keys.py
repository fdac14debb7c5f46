"""Block keys as ``_id`` values, and how MongoDB compares them."""

from __future__ import annotations

import math
from decimal import Decimal

from migrator.errors import DamagedBlock, DoesNotFit
from migrator.model import value as v
from migrator.model.value import Value, show
from migrator.stores.mongo import carry, wire
from migrator.stores.mongo.wire import Damaged, Unheld

Key = tuple[int, bytes]


def key_of(id: Value) -> Key:
    """Type and bytes of the ``_id`` of a block. Raises DoesNotFit for what can't be one."""
    try:
        return wire.write_value(carry.hold_id(id)[0])
    except (Unheld, TypeError) as error:
        raise DoesNotFit(f"{show(id)} can't be an _id: {error}", key=id) from None


def value_of(key: Key) -> Value:
    """The value of an ``_id`` as it lies, carriers not released; bytes where it is unreadable."""
    try:
        return wire.read_value(key[1], key[0], 0, len(key[1]), "")
    except (Damaged, ValueError, IndexError):
        return v.Opaque("bson", f"0x{key[0]:02x}", key[1])


def unreadable(id: Value, error: Damaged, where: str) -> DamagedBlock:
    """The error for a single block that was asked for and can't be read."""
    return DamagedBlock(
        f"{show(id)} can't be read: {error}",
        where=where,
        hint="mend or remove the document with the application that wrote it",
    )


def compared(id: Value) -> Value:
    """The key as MongoDB compares it: 1, 1.0, Int64(1) and Decimal("1") are one (and collide)."""
    return _compared(carry.hold_id(id)[0])


def _compared(value: Value) -> Value:
    match value:
        case bool():
            return value
        case int():
            return int(value)
        case float() | Decimal():
            return _number(value)
        case v.Opaque("bson", "symbol", data):
            return data[4:-1].decode()
        case dict():
            # Unlike a record of the model, one in an _id has an order of its fields.
            return [[name, _compared(item)] for name, item in value.items()]
        case list():
            return [_compared(item) for item in value]
    return value


def _number(value: float | Decimal) -> Value:
    if value != value:
        return math.nan
    exact = Decimal(value)
    if exact.is_infinite():
        return math.inf if exact > 0 else -math.inf
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return 0
    kept = len("".join(map(str, digits)).rstrip("0"))
    exponent += len(digits) - kept
    if 0 <= exponent <= 40:
        return int(Decimal((sign, digits[:kept], exponent)))
    return Decimal((sign, digits[:kept], exponent))

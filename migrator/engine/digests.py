"""Keys and whole blocks as numbers that can be added up, in whatever order they come."""

from __future__ import annotations

import math
from collections.abc import Callable
from hashlib import blake2b

import msgpack

from migrator.model.block import Block
from migrator.model.canonical import encode
from migrator.model.value import Int64, Value


def hash_of(id: Value) -> int:
    """A number for a key."""
    return digest_of(encode(id))


def digest(block: Block) -> int:
    """A number for a block: its key, its entries and its deadline to the second.

    Blocks of the same number are equal in canonical form. Nearly all that are equal have the same
    number; fields in another order, or a NaN of other bits, may give another one.
    """
    return _number(block, lambda value: value)


def exact(block: Block) -> int:
    """As ``digest``, and all that are equal have the same number; it takes longer."""
    return _number(block, _ordered)


def _number(block: Block, form: Callable[[Value], Value]) -> int:
    seconds = None if block.expires is None else block.expires // 1000
    flat: list[Value] = [block.id, seconds]
    for path in sorted(block.entries):
        flat += (path, block.entries[path])
    try:
        # A fraction of the form's cost; it refuses whatever is not of Python's own types.
        return digest_of(b"m" + msgpack.packb(form(flat), strict_types=True, default=_plain))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return digest_of(b"c" + encode(flat))


def _ordered(value: Value) -> Value:
    """A value whose fields are in order, and whose NaN is the one there is."""
    kind = type(value)
    if kind is dict:
        record: dict[str, Value] = value  # type: ignore[assignment]
        return {name: _ordered(record[name]) for name in sorted(record)}
    if kind is list:
        return [_ordered(item) for item in value]  # type: ignore[attr-defined]
    return math.nan if kind is float and value != value else value


def _plain(value: object) -> int:
    """Beyond 32 bits a number is one of 64 bits, however it is written."""
    if type(value) is Int64 and not -(2**31) <= value < 2**31:
        return int(value)
    raise TypeError


def digest_of(form: bytes) -> int:
    """A number for bytes, such as a block as its store holds it."""
    return int.from_bytes(blake2b(form, digest_size=16).digest(), "big")

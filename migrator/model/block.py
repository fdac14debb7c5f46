"""Aggregates and blocks: what the engine moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from migrator.errors import DoesNotFit
from migrator.model.rules import Entries, Representation, assemble
from migrator.model.value import Record, Value, show

EXPIRES = "(expires)"
"""What stands for the deadline of a block among its access paths."""


@dataclass(slots=True)
class Aggregate:
    """A record with an identifier; its class is the collection's.

    ``expires`` is an absolute deadline in milliseconds since 1970, or None for never.
    """

    id: Value
    value: Record
    expires: int | None = None


@dataclass(slots=True)
class Block:
    """One aggregate as the entries that lie in a store, keyed by access path.

    ``place`` is where the block lies, for layouts whose address the key alone does not give.
    """

    id: Value
    entries: Entries
    expires: int | None = None
    place: Value = None


def check_deadline(id: Value, expires: int | None, where: str = "") -> None:
    """Raise DoesNotFit for a deadline beyond the 64 bits of milliseconds that stores count in."""
    if expires is not None and not -(2**63) < expires < 2**63:
        raise DoesNotFit(
            f"{show(id)}: its deadline is beyond the 64 bits of milliseconds that can be kept",
            key=id,
            path=EXPIRES,
            where=where,
            hint="give it none, or one that comes",
        )


def has_ended(expires: int | None, now: float) -> bool:
    """Whether a deadline has been reached; ``now`` is in seconds since 1970."""
    return expires is not None and expires <= now * 1000


class Address(NamedTuple):
    """Where a block lies: its key and, where the key does not say it all, the place."""

    id: Value
    place: Value = None


@dataclass(slots=True)
class Patch:
    """A change of single entries of a block that exists: entries to set, paths to remove."""

    id: Value
    set: Entries = field(default_factory=dict)
    unset: tuple[str, ...] = ()


def cut(aggregate: Aggregate, representation: Representation) -> Block:
    """The block of an aggregate."""
    entries = representation.partition(aggregate.value)
    return Block(aggregate.id, entries, aggregate.expires)


def join(block: Block) -> Aggregate:
    """The aggregate of a block. Raises CorruptBlock where its entries give none."""
    return Aggregate(block.id, assemble(block.entries), block.expires)


def name(cls: str, id: Value) -> str:
    """How a block is named to people: ``Class:id``."""
    return f"{cls}:{show(id)}"

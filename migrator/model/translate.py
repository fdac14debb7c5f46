"""What a move does to an aggregate and to its key, in both directions.

The mapping of keys is in this one place: mirror, backfill, verification and rollback ask
``affects`` and ``sources`` and nothing else. Every evolution is local so far, hence both give
one key; they return lists so that regrouping evolutions need no other interface.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from migrator.errors import DoesNotFit, Terminal
from migrator.model import block
from migrator.model.block import Aggregate
from migrator.model.canonical import equal
from migrator.model.evolution import Evolution, Law, Laws
from migrator.model.move import Move
from migrator.model.path import lookup, parse_path
from migrator.model.references import DeclaredReferences, rewrite_refs
from migrator.model.rules import Representation
from migrator.model.value import Record, Value


@dataclass(frozen=True)
class Translation:
    """The evolutions of a move between the representations of both sides.

    ``source`` and ``target`` are the representations that blocks are cut by.
    """

    move: Move
    source: Representation
    target: Representation

    @cached_property
    def chain(self) -> tuple[Evolution, ...]:
        """What is applied, in order: declared references first."""
        declared = self.move.references
        first = (DeclaredReferences(declared),) if declared else ()
        return (*first, *self.move.evolve)

    @property
    def identity(self) -> bool:
        """Whether aggregates and keys are the same on both sides."""
        return not self.chain

    @cached_property
    def changes_key(self) -> bool:
        """Whether ``affects`` and ``sources`` need the value of the aggregate."""
        return any(evolution.changes_key for evolution in self.chain)

    def forward(self, aggregate: Aggregate) -> list[Aggregate]:
        """The aggregates of the new shape. Raises DoesNotFit, naming the block of the source."""
        if not self.chain:
            return [aggregate]
        with self._named(aggregate.id):
            return [self._shapes(aggregate)[-1]]

    def backward(self, new: Aggregate, old: Aggregate | None = None) -> Aggregate:
        """The old shape of an aggregate; ``old`` is what the old side holds, if anything.

        Raises DoesNotFit, naming the block of the new side.
        """
        if not self.chain:
            return new
        with self._named(new.id):
            # b1(b2(b, f1(a)), a): each step back sees the old value in its own old shape.
            shapes = [None] * len(self.chain) if old is None else self._shapes(old)
            for evolution, shape in reversed(list(zip(self.chain, shapes, strict=False))):
                new = evolution.backward(new, shape)
            return new

    def affects(self, id: Value, value: Record | None = None) -> list[Value]:
        """The mirror keys that a source aggregate maps to; none where it maps to no block.

        ``value`` is the aggregate in the old shape, needed where ``changes_key``. Raises
        Terminal where it is missing then, DoesNotFit where it gives no key.
        """
        if not self.changes_key:
            return [id]
        return [new.id for new in self.forward(Aggregate(id, self._needed(id, value)))]

    def sources(self, mirror_id: Value, value: Record | None = None) -> list[Value]:
        """The source keys that a mirror block is made of; the inverse of ``affects``.

        ``value`` is the aggregate in the new shape, needed where ``changes_key``. Raises as
        ``affects``.
        """
        if not self.changes_key:
            return [mirror_id]
        return [self.backward(Aggregate(mirror_id, self._needed(mirror_id, value))).id]

    def residue(self, old: Aggregate) -> Record | None:
        """What is to be kept aside of an aggregate, by evolution and access path, or None.

        The outer names are the positions in the chain, as text. Raises DoesNotFit.
        """
        if not self.chain:
            return None
        with self._named(old.id):
            shapes = self._shapes(old)
            parts = [e.residue(shape) for e, shape in zip(self.chain, shapes, strict=False)]
        return {str(i): part for i, part in enumerate(parts) if part is not None} or None

    def laws(self) -> Laws:
        """The laws of the whole chain: kept where every evolution keeps them."""
        each = [(evolution.describe(), evolution.laws) for evolution in self.chain]
        returns = [f"{what}: {laws.returns.broken}" for what, laws in each if laws.returns.broken]
        survives = [
            f"{what}: {laws.survives.broken}" for what, laws in each if laws.survives.broken
        ]
        remarks = [f"{what}: {laws.remark}" for what, laws in each if laws.remark]
        return Laws(Law("; ".join(returns)), Law("; ".join(survives)), "; ".join(remarks))

    def _shapes(self, old: Aggregate) -> list[Aggregate]:
        """The aggregate before, between and after the evolutions."""
        shapes = [old]
        for evolution in self.chain:
            shapes.append(evolution.forward(shapes[-1]))
        return shapes

    def _needed(self, id: Value, value: Record | None) -> Record:
        if value is None:
            raise Terminal(
                "the key on the other side comes from the value, which is not at hand",
                where=block.name(self.move.cls, id),
                hint="read the aggregate on the side that holds it, and ask again with its value",
            )
        return value

    @contextmanager
    def _named(self, id: Value) -> Iterator[None]:
        try:
            yield
        except DoesNotFit as error:
            error.key = id
            error.where = block.name(self.move.cls, id)
            raise


def key_agrees(aggregate: Aggregate, identifier: str) -> bool:
    """Whether the value at the identifier's path is the block key, in value and in kind.

    An absent field does not agree. Raises ValueError where ``identifier`` is no access path.
    """
    try:
        return equal(lookup(aggregate.value, parse_path(identifier)), aggregate.id)
    except KeyError:
        return False


__all__ = ["Translation", "key_agrees", "rewrite_refs"]

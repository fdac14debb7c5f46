"""What a move does to an aggregate and to its key, in both directions.

The mapping of keys is in this one place: mirror, backfill, verification and rollback ask
``affects`` and ``sources`` and nothing else. Local evolutions give one key for one; a move that
*spreads* gives several mirror keys for a source key, one that *gathers* one for several.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from migrator.errors import DoesNotFit, Terminal
from migrator.model import block
from migrator.model.block import Aggregate
from migrator.model.canonical import encode, equal
from migrator.model.evolution import Evolution, Law, Laws, MergeIn, Regrouping
from migrator.model.evolution.base import misfit
from migrator.model.evolution.keys import unfit
from migrator.model.evolution.lens import Lens
from migrator.model.evolution.places import ABSENT, find
from migrator.model.evolution.regroup import divide
from migrator.model.move import Move
from migrator.model.path import lookup, parse_path
from migrator.model.references import DeclaredReferences, rewrite_refs
from migrator.model.rules import Representation
from migrator.model.value import Record, Value

Local = tuple[Evolution, ...]


@dataclass(frozen=True)
class Translation:
    """The evolutions of a move between the representations of both sides.

    ``source`` and ``target`` are the representations that blocks are cut by.
    """

    move: Move
    source: Representation
    target: Representation

    def __post_init__(self) -> None:
        _ = self._divided

    @cached_property
    def chain(self) -> tuple[Evolution | Regrouping, ...]:
        """What is applied, in order: declared references first."""
        declared = self.move.references
        first = (DeclaredReferences(declared),) if declared else ()
        return (*first, *self.move.evolve)

    @cached_property
    def _divided(self) -> tuple[Local, Regrouping | None, Local]:
        return divide(self.chain)

    @property
    def regrouping(self) -> Regrouping | None:
        """The evolution that regroups, where there is one."""
        return self._divided[1]

    @cached_property
    def _lens(self) -> Lens:
        assert self.regrouping is not None
        return Lens(self.regrouping, self.move.cls if self.gathers else self.move.source_cls)

    @property
    def identity(self) -> bool:
        """Whether aggregates and keys are the same on both sides."""
        return not self.chain

    @cached_property
    def changes_key(self) -> bool:
        """Whether ``affects`` and ``sources`` need the value of the aggregate."""
        local = [step for step in self.chain if isinstance(step, Evolution)]
        return self.regrouping is not None or any(step.changes_key for step in local)

    @cached_property
    def spreads(self) -> bool:
        """Whether a source aggregate becomes several, or none."""
        return self.regrouping is not None and not self.regrouping.gathers

    @cached_property
    def gathers(self) -> bool:
        """Whether several source aggregates become one."""
        return self.regrouping is not None and self.regrouping.gathers

    @property
    def merged(self) -> MergeIn | None:
        """What is merged in from a second collection, where that is so."""
        return self.regrouping if isinstance(self.regrouping, MergeIn) else None

    # ------------------------------------------------------------------ one to one, one to many

    def forward(self, aggregate: Aggregate) -> list[Aggregate]:
        """The aggregates of the new shape. Raises DoesNotFit, naming the block of the source.

        Not for a move that gathers: see ``together``.
        """
        if not self.chain:
            return [aggregate]
        before, regrouping, after = self._divided
        with self._named(aggregate.id, self.move.source_cls):
            shape = _shapes(before, aggregate)[-1]
            if regrouping is None:
                return [shape]
            return [_shapes(after, part)[-1] for part in self._lens.apart(shape)]

    def backward(
        self, new: Aggregate, old: Aggregate | None = None, kept: Record | None = None
    ) -> Aggregate:
        """The old shape of an aggregate; ``old`` is what the old side holds, if anything.

        Where it holds nothing, ``kept`` gives what ``residue`` told of it once. Raises DoesNotFit,
        naming the block of the new side. Not for a move that regroups.
        """
        if not self.chain:
            return new
        with self._named(new.id, self.move.cls):
            return _back(self._divided[0], new, old, kept)

    def returned(
        self,
        id: Value,
        news: Sequence[Aggregate],
        old: Aggregate | None,
        fresh: Collection[bytes] = (),
    ) -> Aggregate | None:
        """Where a move spreads: the source aggregate whose parts are exactly ``news``.

        ``id`` is its key and ``old`` what the old side holds. Parts whose keys are ``fresh``, by
        canonical form, were deleted and made anew: they inherit nothing, and neither does a whole
        that lives by its parts where nothing else is left of it. None where nothing is left at
        all. Raises DoesNotFit, naming the block of the source.
        """
        before, _, after = self._divided
        with self._named(id, self.move.source_cls):
            shapes = None if old is None else _shapes(before, old)
            held = [] if shapes is None else self._lens.apart(shapes[-1])
            if not news and not held:
                return old
            lives_by_parts = self._lens.spec.back is None
            if shapes is None and not lives_by_parts:
                raise unfit(
                    "it is not there, yet parts of it are", "(whole)",
                    "put it back, or delete what refers to it",
                )  # fmt: skip
            if not news and lives_by_parts:
                return None
            by_key = {encode(part.id): part for part in held}
            parts, lives_on = [], not fresh
            for new in news:
                at = _back(after, new, None)
                there = None if encode(new.id) in fresh else by_key.get(encode(at.id))
                lives_on = lives_on or there is not None
                parts.append(at if there is None or not after else _back(after, new, there))
            if lives_by_parts and not lives_on:
                old = shapes = None
            whole = self._lens.together(id, parts, None if shapes is None else shapes[-1])
            return _back(before, whole, old)

    # ------------------------------------------------------------------ many to one

    def together(
        self, id: Value, parts: Sequence[Aggregate], main: Aggregate | None = None
    ) -> Aggregate:
        """Where a move gathers: the mirror aggregate ``id`` of these source aggregates.

        ``main`` is the one that others are merged into. Raises DoesNotFit, naming the mirror's.
        """
        with self._named(id, self.move.cls):
            return _shapes(self._divided[2], self._whole(id, parts, main))[-1]

    def _whole(self, id: Value, parts: Sequence[Aggregate], main: Aggregate | None) -> Aggregate:
        before, _, _ = self._divided
        if self.merged is None:
            return self._lens.together(id, [_shapes(before, part)[-1] for part in parts])
        if main is None:
            raise unfit("it is not there, yet parts of it are", "(whole)")
        rest = _shapes(before, main)[-1]
        if find(rest.value, self.merged.names, "") is not ABSENT:
            raise misfit(self.merged.path, "is there already")
        return self._lens.together(id, parts, rest)

    def apart(
        self,
        new: Aggregate,
        parts: Sequence[Aggregate] = (),
        main: Aggregate | None = None,
    ) -> tuple[Aggregate | None, list[Aggregate]]:
        """The way back of ``together``: the one that others were merged into, and the parts.

        ``parts`` and ``main`` are what the old side holds. Raises DoesNotFit, naming the
        mirror's.
        """
        before, _, after = self._divided
        with self._named(new.id, self.move.cls):
            old = self._whole_if_any(new.id, self._own(new.id, parts), main) if after else None
            whole = _back(after, new, old)
            if self.merged is not None:
                rest = self._lens.rest(whole)
                return _back(before, rest, main), self._lens.apart(whole)
            self._lens.expect_whole(whole)
            held = {encode(_shapes(before, part)[-1].id): part for part in parts}
            made = self._lens.apart(whole)
            return None, [_back(before, part, held.get(encode(part.id))) for part in made]

    def _own(self, id: Value, parts: Sequence[Aggregate]) -> list[Aggregate]:
        """Those that belong to the mirror aggregate ``id``, as long as it is known of all."""
        if self.merged is not None:
            return list(parts)
        try:
            return [part for part in parts if equal(self.affects(part.id, part.value)[0], id)]
        except DoesNotFit:
            return list(parts)

    def _whole_if_any(
        self, id: Value, parts: Sequence[Aggregate], main: Aggregate | None
    ) -> Aggregate | None:
        try:
            return self._whole(id, parts, main) if parts or main is not None else None
        except DoesNotFit:
            return None  # it never reached the other side

    # ------------------------------------------------------------------ keys

    def affects(self, id: Value, value: Record | None = None, of: str | None = None) -> list[Value]:
        """The mirror keys that a source aggregate maps to; none where it maps to no block.

        ``value`` is the aggregate in the old shape, needed where ``changes_key``; ``of`` its
        class, where the source holds two. Raises Terminal where the value is missing, DoesNotFit
        where it gives no key.
        """
        if not self.changes_key:
            return [id]
        if self.merged is not None and of != self.merged.of:
            return [id]
        old = Aggregate(id, self._needed(id, value))
        if not self.gathers:
            return [new.id for new in self.forward(old)]
        with self._named(id, of or self.move.source_cls):
            before: Local = () if self.merged is not None else self._divided[0]
            return [self._lens.whole_of(_shapes(before, old)[-1])]

    def sources(
        self, mirror_id: Value, value: Record | None = None, of: str | None = None
    ) -> list[Value]:
        """The source keys that a mirror block is made of; the inverse of ``affects``.

        ``value`` is the aggregate in the new shape, needed where ``changes_key``; ``of`` the
        class that is asked for, where the source holds two. Raises as ``affects``.
        """
        if not self.changes_key:
            return [mirror_id]
        if self.merged is not None and of != self.merged.of:
            return [mirror_id]
        new = Aggregate(mirror_id, self._needed(mirror_id, value))
        if self.gathers:
            return [part.id for part in self.apart(new)[1]]
        if not self.spreads:
            return [self.backward(new).id]
        with self._named(mirror_id, self.move.cls):
            return [self._lens.whole_of(_back(self._divided[2], new, None))]

    @cached_property
    def key_alone(self) -> bool:
        """Whether each side's key follows from the other's, whatever the aggregate holds."""
        return all(isinstance(step, Evolution) and step.key_alone for step in self.chain)

    def key_onward(self, id: Value) -> Value:
        """The mirror key of a source key, where ``key_alone``. Raises DoesNotFit."""
        with self._named(id, self.move.source_cls):
            for step in self._divided[0]:
                id = step.onward(id)
            return id

    def key_back(self, mirror_id: Value) -> Value:
        """The source key of a mirror key, where ``key_alone``. Raises DoesNotFit."""
        with self._named(mirror_id, self.move.cls):
            for step in reversed(self._divided[0]):
                mirror_id = step.back(mirror_id)
            return mirror_id

    # ------------------------------------------------------------------ what is told of it

    @cached_property
    def archives(self) -> bool:
        """Whether ``residue`` may give something."""
        return any(step.archives for step in self._divided[0])

    def residue(self, old: Aggregate) -> Record | None:
        """What is to be kept aside of an aggregate, by evolution and access path, or None.

        The outer names are the positions in the chain, as text. Raises DoesNotFit. Only what
        stands before a regrouping is kept aside.
        """
        before = self._divided[0]
        if not before:
            return None
        with self._named(old.id, self.move.source_cls):
            shapes = _shapes(before, old)
            parts = [e.residue(shape) for e, shape in zip(before, shapes, strict=False)]
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

    def _needed(self, id: Value, value: Record | None) -> Record:
        if value is None:
            raise Terminal(
                "the key on the other side comes from the value, which is not at hand",
                where=block.name(self.move.cls, id),
                hint="read the aggregate on the side that holds it, and ask again with its value",
            )
        return value

    @contextmanager
    def _named(self, id: Value, cls: str) -> Iterator[None]:
        try:
            yield
        except DoesNotFit as error:
            error.key = id
            error.where = block.name(cls, id)
            raise


def _shapes(chain: Local, old: Aggregate) -> list[Aggregate]:
    """The aggregate before, between and after local evolutions."""
    shapes = [old]
    for evolution in chain:
        shapes.append(evolution.forward(shapes[-1]))
    return shapes


def _back(
    chain: Local, new: Aggregate, old: Aggregate | None, kept: Record | None = None
) -> Aggregate:
    """The way back: b1(b2(b, f1(a)), a), each step sees the old value in its own old shape."""
    shapes = [None] * len(chain) if old is None else _shapes(chain, old)
    for i, (evolution, shape) in reversed(list(enumerate(zip(chain, shapes, strict=False)))):
        new = evolution.backward(new, shape)
        part = kept.get(str(i)) if kept is not None and shape is None else None
        if type(part) is dict:
            new = evolution.restored(new, part)
    return new


def key_agrees(aggregate: Aggregate, identifier: str) -> bool:
    """Whether the value at the identifier's path is the block key, in value and in kind.

    An absent field does not agree. Raises ValueError where ``identifier`` is no access path.
    """
    try:
        return equal(lookup(aggregate.value, parse_path(identifier)), aggregate.id)
    except KeyError:
        return False


__all__ = ["Translation", "key_agrees", "rewrite_refs"]

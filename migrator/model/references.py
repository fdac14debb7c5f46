"""Declared references: which values refer to which class, and how the source writes them.

References are declared by path in the script and never guessed from text with a colon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from migrator.errors import Refused
from migrator.model.block import Aggregate
from migrator.model.canonical import equal
from migrator.model.evolution.base import Evolution, Laws, misfit, named
from migrator.model.evolution.places import ABSENT, Pattern, change, pattern
from migrator.model.value import Record, Ref, Set, Value, kind_of


@dataclass(frozen=True)
class DeclaredReferences(Evolution):
    """Values at declared paths become references, and are written as before on the way back.

    ``"Game"`` declares a bare identifier, ``"Game:"`` text that holds ``Game:id``. What is a
    reference already stays one, null stays null; other values raise DoesNotFit.
    """

    references: Mapping[str, str]

    def __post_init__(self) -> None:
        _ = self._places

    @cached_property
    def _places(self) -> list[tuple[Pattern, str, bool]]:
        places = []
        for text, declared in self.references.items():
            cls = declared.removesuffix(":")
            try:
                Ref(cls, "")
            except ValueError as error:
                raise Refused(f"reference {text}: {error}") from None
            places.append((pattern(text), cls, declared != cls))
        return places

    @property
    def laws(self) -> Laws:
        return Laws()

    def describe(self) -> str:
        return "refer " + ", ".join(
            f"{path} to {declared.removesuffix(':')}" for path, declared in self.references.items()
        )

    def _forward(self, old: Record) -> Record:
        value: Value = old
        for steps, cls, prefixed in self._places:

            def act(
                held: Value, old: Value, path: str, cls: str = cls, full: bool = prefixed
            ) -> Value:
                if held is None or type(held) is Ref:
                    return held
                return _refer(held, cls, full, path)

            value = change(value, ABSENT, steps, act)
        return value  # type: ignore[return-value]

    def _backward(self, new: Record, old: Record | None) -> Record:
        value: Value = new
        for steps, cls, prefixed in self._places:

            def act(
                held: Value, old: Value, path: str, cls: str = cls, full: bool = prefixed
            ) -> Value:
                if held is None or (type(held) is Ref and (held.cls != cls or _same(held, old))):
                    return held
                if type(held) is not Ref:
                    raise misfit(path, f"is of the kind {kind_of(held)}, not a reference to {cls}")
                return _written(held, full, path)

            value = change(value, ABSENT if old is None else old, steps, act)
        return value  # type: ignore[return-value]


def _same(held: Ref, old: Value) -> bool:
    return type(old) is Ref and equal(held, old)


def _refer(held: Value, cls: str, prefixed: bool, path: str) -> Ref:
    if not prefixed:
        if type(held) in (list, dict, Set):
            raise misfit(path, f"is of the kind {kind_of(held)}, not an identifier of {cls}")
        return Ref(cls, held)
    if type(held) is not str or not held.startswith(f"{cls}:"):
        raise misfit(path, f"is not text that begins with {cls}:, as its reference is declared")
    return Ref(cls, held[len(cls) + 1 :])


def _written(ref: Ref, prefixed: bool, path: str) -> Value:
    if not prefixed:
        if ref.id is None or type(ref.id) is Ref:
            raise misfit(path, f"refers by {kind_of(ref.id)}, which would not come back")
        return ref.id
    if type(ref.id) is not str:
        raise misfit(path, f"refers by {kind_of(ref.id)}, but is declared as text {ref.cls}:id")
    return f"{ref.cls}:{ref.id}"


def rewrite_refs(
    aggregate: Aggregate, patterns: Sequence[str], mapping: Callable[[Ref], Ref]
) -> Aggregate:
    """The aggregate with every reference at the declared paths sent through ``mapping``.

    Used where a move changes identifiers or the class of what is referred to. Values that are
    no references stay. Returns the aggregate itself where nothing changed. Raises DoesNotFit
    where a path meets a value it can't go through.
    """

    def act(held: Value, old: Value, path: str) -> Value:
        if type(held) is not Ref:
            return held
        mapped = mapping(held)
        return held if equal(mapped, held) else mapped

    value: Value = aggregate.value
    with named(aggregate.id):
        for text in patterns:
            value = change(value, ABSENT, pattern(text), act)
    if value is aggregate.value:
        return aggregate
    return Aggregate(aggregate.id, value, aggregate.expires)  # type: ignore[arg-type]

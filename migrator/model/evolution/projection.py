"""The evolution of a projection: part of an aggregate, often under another key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.errors import Refused
from migrator.model.evolution.base import Evolution, Laws, misfit
from migrator.model.path import child, escape
from migrator.model.value import Record


@dataclass(frozen=True)
class Keep(Evolution):
    """Keep these top-level fields and leave all others out of the new shape.

    The old side keeps them until ``finish``. A field beyond these that is written after the
    cut-over raises DoesNotFit on the way back.
    """

    fields: Sequence[str]

    def __post_init__(self) -> None:
        if isinstance(self.fields, str) or not self.fields:
            raise Refused("Keep: it needs a list of fields")
        object.__setattr__(self, "fields", tuple(self.fields))

    @property
    def laws(self) -> Laws:
        return Laws(
            remark="what is left out comes back only where the old side still holds the key"
        )

    def describe(self) -> str:
        return f"keep {', '.join(map(escape, self.fields))} and nothing else"

    def _forward(self, old: Record) -> Record:
        return {name: item for name, item in old.items() if name in self.fields}

    def _backward(self, new: Record, old: Record | None) -> Record:
        for name in new:
            if name not in self.fields:
                raise misfit(child("", name), "was left out of this shape, yet it is there")
        kept = {name: item for name, item in (old or {}).items() if name not in self.fields}
        return {**kept, **new}

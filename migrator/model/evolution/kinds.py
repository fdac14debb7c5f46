"""The evolution that changes the kind of values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from migrator.errors import Refused
from migrator.model.canonical import equal
from migrator.model.evolution.base import Evolution, Laws, misfit
from migrator.model.evolution.conversions import CONVERTIBLE, Inexact, convert
from migrator.model.evolution.places import ABSENT, Pattern, change, pattern
from migrator.model.value import Kind, Record, Value, kind_of

Boolean = Kind.BOOLEAN
Integer = Kind.INTEGER
Double = Kind.DOUBLE
Number = Kind.DECIMAL
Text = Kind.TEXT
Date = Kind.DATE
Timestamp = Kind.TIMESTAMP


@dataclass(frozen=True)
class Convert(Evolution):
    """Turn the values at a path into another kind, never rounding; null stays.

    ``was`` is the kind before. Without it a value goes back to the kind that the old side holds
    at its place, and stays as it is where that holds none. A value that has no exact equal
    of the wanted kind, in either direction, raises DoesNotFit.
    """

    path: str
    to: Kind
    was: Kind | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", Kind(self.to))
        for kind in (self.to, self.was):
            if kind is not None and kind not in CONVERTIBLE:
                raise Refused(f"convert {self.path}: nothing converts to or from {kind}")
        _ = self._steps

    @cached_property
    def _steps(self) -> Pattern:
        return pattern(self.path)

    @property
    def laws(self) -> Laws:
        if self.was is not None:
            return Laws()
        return Laws(
            remark=f"{self.path} of a key that is born after the cut-over goes back as {self.to}, "
            "since the kind before is not declared (was=...)"
        )

    def describe(self) -> str:
        before = f" from {self.was}" if self.was is not None else ""
        return f"convert {self.path}{before} to {self.to}"

    def _forward(self, old: Record) -> Record:
        return change(old, ABSENT, self._steps, self._there)  # type: ignore[return-value]

    def _backward(self, new: Record, old: Record | None) -> Record:
        before = ABSENT if old is None else old
        return change(new, before, self._steps, self._back)  # type: ignore[return-value]

    def _there(self, held: Value, old: Value, path: str) -> Value:
        if held is None:
            return None
        try:
            return convert(held, self.to)
        except Inexact as error:
            raise misfit(path, f"{error} (to become {self.to})") from None

    def _back(self, held: Value, old: Value, path: str) -> Value:
        if held is None:
            return None
        if not self._is_new(held):
            raise misfit(path, f"is of the kind {kind_of(held)}, not {self.to}")
        if old is not ABSENT and self._comes_back(old, held):
            return old  # its very form: 1.50 stays 1.50 while the number is the same
        was = self.was
        if was is None:
            was = self.to if old is ABSENT or old is None else kind_of(old)
        try:
            found = convert(held, was)
        except Inexact as error:
            if self.was is None:
                return held
            raise misfit(path, f"{error} (to become {was} again)") from None
        if self._comes_back(found, held):
            return found
        if self.was is None:
            return held
        raise misfit(path, f"would not come back from {was} as it is")

    def _is_new(self, held: Value) -> bool:
        try:
            return convert(held, self.to) is held
        except Inexact:
            return False

    def _comes_back(self, old: Value, new: Value) -> bool:
        try:
            return equal(convert(old, self.to), new)
        except Inexact:
            return False

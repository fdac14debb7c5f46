"""Evolutions that split a text into several, and join them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from migrator.errors import Refused
from migrator.model.evolution.base import Evolution, Laws, misfit
from migrator.model.evolution.places import Pattern, change_records, field
from migrator.model.path import child, escape
from migrator.model.value import Record


@dataclass(frozen=True)
class _Cut:
    """One field on one side, several on the other, within a record."""

    whole: str
    parts: tuple[str, ...]
    separator: str

    def split(self, record: Record, path: str) -> Record:
        here = child(path, self.whole)
        left = {name: item for name, item in record.items() if name != self.whole}
        self._expect_free(left, self.parts, path)
        if self.whole not in record:
            return record
        text = record[self.whole]
        if text is None:
            return {**left, **dict.fromkeys(self.parts)}
        if type(text) is not str:
            raise misfit(here, "is not text")
        pieces = text.split(self.separator)
        if len(pieces) != len(self.parts):
            raise misfit(here, f"does not split into {len(self.parts)} but {len(pieces)}")
        return {**left, **dict(zip(self.parts, pieces, strict=True))}

    def join(self, record: Record, path: str) -> Record:
        left = {name: item for name, item in record.items() if name not in self.parts}
        self._expect_free(left, (self.whole,), path)
        pieces = [record[name] for name in self.parts if name in record]
        if not pieces:
            return record
        if len(pieces) < len(self.parts):
            gone = next(name for name in self.parts if name not in record)
            raise misfit(child(path, gone), "is absent, while its other parts are there")
        if all(piece is None for piece in pieces):
            return {**left, self.whole: None}
        for name, piece in zip(self.parts, pieces, strict=True):
            if type(piece) is not str:
                raise misfit(child(path, name), "is not text")
        text = self.separator.join(map(str, pieces))
        if text.split(self.separator) != pieces:
            raise misfit(
                child(path, self.parts[0]),
                f"and its other parts would not come apart again at {self.separator!r}",
            )
        return {**left, self.whole: text}

    def _expect_free(self, record: Record, names: Sequence[str], path: str) -> None:
        for name in names:
            if name in record:
                raise misfit(child(path, name), "is there already")


def _check(what: str, parts: Sequence[str], separator: str) -> None:
    if len(parts) < 2 or len(set(parts)) < len(parts):
        raise Refused(f"{what}: it needs two or more different fields")
    if not separator:
        raise Refused(f"{what}: the separator is empty")


@dataclass(frozen=True)
class Split(Evolution):
    """Split a text field at a separator into several fields of the same record.

    The text must give exactly as many pieces as there are fields. Null becomes null in each,
    an absent field becomes none. On the way back the pieces must come apart again.
    """

    path: str
    into: Sequence[str]
    separator: str = " "

    def __post_init__(self) -> None:
        object.__setattr__(self, "into", tuple(self.into))
        _check(self.describe(), self.into, self.separator)
        _ = self._cut

    @cached_property
    def _cut(self) -> tuple[Pattern, _Cut]:
        above, name = field(self.path)
        return above, _Cut(name, tuple(self.into), self.separator)

    @property
    def laws(self) -> Laws:
        return Laws()

    def describe(self) -> str:
        return f"split {self.path} at {self.separator!r} into {', '.join(map(escape, self.into))}"

    def _forward(self, old: Record) -> Record:
        above, cut = self._cut
        return change_records(old, None, above, lambda record, _, path: cut.split(record, path))

    def _backward(self, new: Record, old: Record | None) -> Record:
        above, cut = self._cut
        return change_records(new, None, above, lambda record, _, path: cut.join(record, path))


@dataclass(frozen=True)
class Join(Evolution):
    """Join text fields of a record into one, with a separator between them: Split, reversed.

    ``to`` is the path of the new field, ``fields`` are names in the same record. Texts that
    would not come apart again raise DoesNotFit.
    """

    fields: Sequence[str]
    to: str
    separator: str = " "

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        _check(self.describe(), self.fields, self.separator)
        _ = self._cut

    @cached_property
    def _cut(self) -> tuple[Pattern, _Cut]:
        above, name = field(self.to)
        return above, _Cut(name, tuple(self.fields), self.separator)

    @property
    def laws(self) -> Laws:
        return Laws()

    def describe(self) -> str:
        return f"join {', '.join(map(escape, self.fields))} with {self.separator!r} into {self.to}"

    def _forward(self, old: Record) -> Record:
        above, cut = self._cut
        return change_records(old, None, above, lambda record, _, path: cut.join(record, path))

    def _backward(self, new: Record, old: Record | None) -> Record:
        above, cut = self._cut
        return change_records(new, None, above, lambda record, _, path: cut.split(record, path))

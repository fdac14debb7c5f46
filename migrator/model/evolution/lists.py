"""Evolutions between lists, keyed records and sets."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from migrator.model.canonical import encode
from migrator.model.evolution.base import Evolution, Law, Laws, misfit
from migrator.model.evolution.places import ABSENT, Pattern, as_record, change, pattern
from migrator.model.path import child
from migrator.model.value import Record, Set, Value, kind_of


@dataclass(frozen=True)
class _Whole(Evolution):
    """A container at a path becomes another one; absent and null stay as they are."""

    path: str

    def __post_init__(self) -> None:
        _ = self._steps

    @cached_property
    def _steps(self) -> Pattern:
        return pattern(self.path)

    def _forward(self, old: Record) -> Record:
        def act(held: Value, old: Value, path: str) -> Value:
            return None if held is None else self._there(held, path)

        return change(old, ABSENT, self._steps, act)  # type: ignore[return-value]

    def _backward(self, new: Record, old: Record | None) -> Record:
        def act(held: Value, old: Value, path: str) -> Value:
            return None if held is None else self._back(held, old, path)

        return change(new, ABSENT if old is None else old, self._steps, act)  # type: ignore[return-value]

    @abstractmethod
    def _there(self, held: Value, path: str) -> Value:
        """The new container."""

    @abstractmethod
    def _back(self, held: Value, old: Value, path: str) -> Value:
        """The old container, in the order that ``old`` gives where it gives one."""


def _as_list(held: Value, path: str) -> list[Value]:
    if type(held) is not list:
        raise misfit(path, f"is of the kind {kind_of(held)}, not a list")
    return held


def _as_set(held: Value, path: str) -> Set:
    if type(held) is not Set:
        raise misfit(path, f"is of the kind {kind_of(held)}, not a set")
    return held


def _keyed(held: Value, by: str, path: str) -> Record:
    """A list of records as one record, named by a field that each of them has."""
    record: Record = {}
    for i, item in enumerate(_as_list(held, path)):
        here = f"{path}[{i}]"
        element = as_record(item, here)
        name = element.get(by, ABSENT)
        if type(name) is not str:
            what = "absent" if name is ABSENT else f"of the kind {kind_of(name)}"
            raise misfit(
                child(here, by),
                f"is {what}, but names of fields are text",
                f"convert it first: Convert('{path}[*].{by}', Text)",
            )
        if name in record:
            raise misfit(child(here, by), "names a second element, which would take its place")
        record[name] = {key: value for key, value in element.items() if key != by}
    return record


def _listed(held: Value, by: str, path: str, order: list[str]) -> list[Value]:
    """The opposite of ``_keyed``: elements in the given order, further ones by name."""
    record = as_record(held, path)
    for name, item in record.items():
        if by in as_record(item, child(path, name)):
            raise misfit(child(child(path, name), by), "stands where the name itself goes")
    first = [name for name in order if name in record]
    names = [*first, *sorted(record.keys() - set(first))]
    return [{by: name, **as_record(record[name], path)} for name in names]


@dataclass(frozen=True)
class ListToRecord(_Whole):
    """Turn a list of records into one record, named by the text field ``by`` of each element.

    The order of the list is kept on the old side alone; elements that are new go to its end.
    Elements without the field, or two with the same name, raise DoesNotFit.
    """

    by: str

    @property
    def laws(self) -> Laws:
        return Laws(remark=f"the order of {self.path} is kept on the old side alone")

    def describe(self) -> str:
        return f"turn the list {self.path} into a record keyed by {self.by}"

    def _there(self, held: Value, path: str) -> Value:
        return _keyed(held, self.by, path)

    def _back(self, held: Value, old: Value, path: str) -> Value:
        order: list[str] = []
        if type(old) is list:
            names = [item.get(self.by) for item in old if type(item) is dict]
            order = list(dict.fromkeys(name for name in names if type(name) is str))
        return _listed(held, self.by, path, order)


@dataclass(frozen=True)
class RecordToList(_Whole):
    """Turn a record of records into a list, in the order of the names, kept in the field ``by``."""

    by: str

    @property
    def laws(self) -> Laws:
        return Laws(
            survives=Law(
                f"a rollback loses the order of {self.path}: going forward again, its elements "
                f"stand in the order of {self.by}"
            )
        )

    def describe(self) -> str:
        return f"turn the record {self.path} into a list, its names in {self.by}"

    def _there(self, held: Value, path: str) -> Value:
        return _listed(held, self.by, path, [])

    def _back(self, held: Value, old: Value, path: str) -> Value:
        return _keyed(held, self.by, path)


@dataclass(frozen=True)
class ListToSet(_Whole):
    """Turn a list into a set; what stands in it twice stands in the set once."""

    @property
    def laws(self) -> Laws:
        return Laws(
            remark=f"the order of {self.path}, and how often a value stands in it, is kept on "
            "the old side alone"
        )

    def describe(self) -> str:
        return f"turn the list {self.path} into a set"

    def _there(self, held: Value, path: str) -> Value:
        return Set(_as_list(held, path))

    def _back(self, held: Value, old: Value, path: str) -> Value:
        members = _as_set(held, path)
        kept = [item for item in old if item in members] if type(old) is list else []
        known = {encode(item) for item in kept}
        return kept + [item for item in members if encode(item) not in known]


@dataclass(frozen=True)
class SetToList(_Whole):
    """Turn a set into a list, in the order of the canonical form."""

    @property
    def laws(self) -> Laws:
        return Laws(
            survives=Law(
                f"a rollback loses the order of {self.path}, and all but one of equal elements"
            )
        )

    def describe(self) -> str:
        return f"turn the set {self.path} into a list"

    def _there(self, held: Value, path: str) -> Value:
        return list(_as_set(held, path))

    def _back(self, held: Value, old: Value, path: str) -> Value:
        return Set(_as_list(held, path))

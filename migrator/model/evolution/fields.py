"""Evolutions of fields: rename, move, nest, unnest, drop, add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

from migrator.errors import DoesNotFit, Refused
from migrator.model.block import Aggregate
from migrator.model.canonical import equal
from migrator.model.evolution.base import Evolution, Law, Laws, misfit, named
from migrator.model.evolution.places import (
    ABSENT,
    Names,
    Pattern,
    change_records,
    field,
    find,
    pattern,
    put,
    take,
)
from migrator.model.path import child, escape
from migrator.model.rules import Any_
from migrator.model.value import Record, Value, show


@dataclass(frozen=True)
class Rename(Evolution):
    """Give a field another name, in the record where it is.

    ``path`` may hold ``*`` and ``[*]`` before its last step; ``to`` is a bare name. A record
    that has the other name already raises DoesNotFit.
    """

    path: str
    to: str

    def __post_init__(self) -> None:
        if self._place[1] == self.to:
            raise Refused(f"rename {self.path}: the new name is the old one")

    @cached_property
    def _place(self) -> tuple[Pattern, str]:
        return field(self.path)

    @property
    def laws(self) -> Laws:
        return Laws()

    def describe(self) -> str:
        return f"rename {self.path} to {escape(self.to)}"

    def _forward(self, old: Record) -> Record:
        return self._rename(old, self._place[1], self.to)

    def _backward(self, new: Record, old: Record | None) -> Record:
        return self._rename(new, self.to, self._place[1])

    def _rename(self, value: Record, name: str, to: str) -> Record:
        def act(record: Record, old: Record | None, path: str) -> Record:
            if to in record:
                raise misfit(child(path, to), "is there already")
            if name not in record:
                return record
            return {to if key == name else key: item for key, item in record.items()}

        return change_records(value, None, self._place[0], act)


class _Relocation(Evolution):
    """Fields that go to other places of the same record, all at once.

    Going forward, a record that is emptied goes too, and records on the way are made. Going
    back does the same the other way round, and asks the old side which empty records it had.
    """

    @cached_property
    def _moves(self) -> tuple[Pattern, list[tuple[Names, Names]]]:
        """The record and the places below it, from and to."""
        raise NotImplementedError

    @property
    def laws(self) -> Laws:
        return Laws()

    def _forward(self, old: Record) -> Record:
        above, pairs = self._moves

        def act(record: Record, old: Record | None, path: str) -> Record:
            left, taken = _take_all(record, [source for source, _ in pairs], path)
            for _, target in pairs:
                _expect_free(left, target, path)
            for (_, target), value in zip(pairs, taken, strict=True):
                left = left if value is ABSENT else put(left, target, value, path)
            return left

        return change_records(old, None, above, act)

    def _backward(self, new: Record, old: Record | None) -> Record:
        above, pairs = self._moves

        def act(record: Record, old: Record | None, path: str) -> Record:
            before = _remainder(old, [source for source, _ in pairs], path)
            emptied: set[Names] = set()

            def stays(names: Names) -> bool:
                if not _has_record(before, names):
                    return False
                emptied.add(names)
                return True

            left, taken = record, []
            for _, target in pairs:
                left, value = take(left, target, path, stays)
                taken.append(value)
            for source, _ in pairs:
                _expect_free(left, source, path)
            for (source, _), value in zip(pairs, taken, strict=True):
                left = left if value is ABSENT else put(left, source, value, path, emptied)
            return left

        return change_records(new, old, above, act)


def _take_all(record: Record, places: Sequence[Names], path: str) -> tuple[Record, list[Value]]:
    taken = []
    for names in places:
        record, value = take(record, names, path, lambda names: False)
        taken.append(value)
    return record, taken


def _remainder(old: Record | None, places: Sequence[Names], path: str) -> Record:
    try:
        return _take_all(old, places, path)[0] if old else {}
    except DoesNotFit:
        return {}  # only asked which empty records it has; what is misshapen has none to keep


def _has_record(record: Record, names: Names) -> bool:
    value: Value = record
    for name in names:
        value = value.get(name) if type(value) is dict else None
    return type(value) is dict


def _expect_free(record: Record, names: Names, path: str) -> None:
    if find(record, names, path) is not ABSENT:
        for name in names:
            path = child(path, name)
        raise misfit(path, "is there already")


@dataclass(frozen=True)
class MoveField(_Relocation):
    """Move a field to another place of the aggregate.

    Where the paths hold ``*`` or ``[*]``, they must agree up to the last of them: the field
    moves within each record there.
    """

    path: str
    to: str

    def __post_init__(self) -> None:
        if self.path == self.to:
            raise Refused(f"move {self.path}: it is there already")
        _ = self._moves

    @cached_property
    def _moves(self) -> tuple[Pattern, list[tuple[Names, Names]]]:
        source, target = pattern(self.path), pattern(self.to)
        at = max((i + 1 for i, s in enumerate(source) if isinstance(s, Any_)), default=0)
        below = source[at:], target[at:]
        if source[:at] != target[:at] or not all(
            part and all(isinstance(step, str) for step in part) for part in below
        ):
            raise Refused(
                f"move {self.path} to {self.to}: the paths must agree up to the last * or [*], "
                "and end in a field name"
            )
        return source[:at], [(_names(below[0]), _names(below[1]))]

    def describe(self) -> str:
        return f"move {self.path} to {self.to}"


def _names(steps: Pattern) -> Names:
    return tuple(str(step) for step in steps)


@dataclass(frozen=True)
class Nest(_Relocation):
    """Put fields of a record into a record below it: ``Nest("name", {"first": "firstName"})``.

    ``fields`` maps the name inside to the name outside. Where none of them is there, neither
    is the record; other fields it holds stay in it.
    """

    path: str
    fields: Mapping[str, str]

    def __post_init__(self) -> None:
        _check_fields(self.describe(), self.fields)
        _ = self._moves

    @cached_property
    def _moves(self) -> tuple[Pattern, list[tuple[Names, Names]]]:
        above, name = field(self.path)
        return above, [((outer,), (name, inner)) for inner, outer in self.fields.items()]

    def describe(self) -> str:
        return f"nest {', '.join(map(escape, self.fields.values()))} into {self.path}"


@dataclass(frozen=True)
class Unnest(_Relocation):
    """Lift fields out of a record into the one above: ``Unnest("name", {"first": "firstName"})``.

    ``fields`` maps the name inside to the name outside. Fields that are not named stay inside;
    the record goes when it is empty.
    """

    path: str
    fields: Mapping[str, str]

    def __post_init__(self) -> None:
        _check_fields(self.describe(), self.fields)
        _ = self._moves

    @cached_property
    def _moves(self) -> tuple[Pattern, list[tuple[Names, Names]]]:
        above, name = field(self.path)
        return above, [((name, inner), (outer,)) for inner, outer in self.fields.items()]

    def describe(self) -> str:
        return f"unnest {', '.join(map(escape, self.fields))} from {self.path}"


def _check_fields(what: str, fields: Mapping[str, str]) -> None:
    if not fields:
        raise Refused(f"{what}: no field is named")
    if len(set(fields.values())) < len(fields):
        raise Refused(f"{what}: a field is named twice")


@dataclass(frozen=True)
class Drop(Evolution):
    """Leave a field out of the new shape.

    The old side keeps it until ``finish``; with ``archive`` it is also kept aside, as a residue
    in the archive of the move. A field of that name that is written after the cut-over raises
    DoesNotFit on the way back. With ``default`` a record that is born after the cut-over comes
    back with that: for an old side that must bear the field, as tables must a list.
    """

    path: str
    archive: bool = False
    _: KW_ONLY
    default: Value = ABSENT

    def __post_init__(self) -> None:
        _ = self._place
        if self.archive and self.default is not ABSENT:
            raise Refused(f"Drop({self.path!r}): say archive or default, not both")

    @cached_property
    def _place(self) -> tuple[Pattern, str]:
        return field(self.path)

    @property
    def laws(self) -> Laws:
        above = self._place[0]
        also = " or the archive" if self.archive else ""
        only = "only " if self.default is ABSENT else ""
        remark = f"{self.path} comes back {only}where the old side{also} still holds the key"
        if not only:
            remark += ", else the default does"
        if Any_.ELEMENT in above:
            remark += ", and goes to the element of the same position"
        return Laws(remark=remark)

    def describe(self) -> str:
        told = ""
        if self.default is not ABSENT:
            told = f", {show(self.default) or repr(self.default)} for what is born later"
        return f"drop {self.path}" + (" (archived)" if self.archive else "") + told

    @property
    def archives(self) -> bool:
        return self.archive

    def residue(self, old: Aggregate) -> Record | None:
        kept: Record = {}
        name = self._place[1]

        def act(record: Record, old: Record | None, path: str) -> Record:
            if name in record:
                kept[child(path, name)] = record[name]
            return record

        if self.archive:
            change_records(old.value, None, self._place[0], act)
        return kept or None

    def restored(self, old: Aggregate, kept: Record) -> Aggregate:
        above, name = self._place

        def act(record: Record, _: Record | None, path: str) -> Record:
            place = child(path, name)
            return {**record, name: kept[place]} if place in kept else record

        with named(old.id):
            return Aggregate(old.id, change_records(old.value, None, above, act), old.expires)

    def _forward(self, old: Record) -> Record:
        above, name = self._place

        def act(record: Record, old: Record | None, path: str) -> Record:
            if name not in record:
                return record
            return {key: item for key, item in record.items() if key != name}

        return change_records(old, None, above, act)

    def _backward(self, new: Record, old: Record | None) -> Record:
        above, name = self._place

        def act(record: Record, old: Record | None, path: str) -> Record:
            if name in record:
                raise misfit(child(path, name), "was dropped from this shape, yet it is there")
            if old is None:
                if self.default is ABSENT:
                    return record
                return {**record, name: deepcopy(self.default)}
            return {**record, name: old[name]} if name in old else record

        return change_records(new, old, above, act)


@dataclass(frozen=True)
class AddDefault(Evolution):
    """Give a field a value wherever its record has none; a null that is there stays.

    Going back, the field is taken out again where the old side had none. With ``keep`` it is
    taken out only while it holds the default, so that a rollback loses nothing; the old side
    must then bear the field.
    """

    path: str
    default: Value
    keep: bool = False

    def __post_init__(self) -> None:
        _ = self._place

    @cached_property
    def _place(self) -> tuple[Pattern, str]:
        return field(self.path)

    @property
    def laws(self) -> Laws:
        if self.keep:
            return Laws()
        return Laws(
            survives=Law(
                f"a rollback loses what was written to {self.path} since the cut-over, where the "
                "old side had no such field: it would come back as the default"
            )
        )

    def describe(self) -> str:
        return f"add {self.path}, {show(self.default)} where there is none"

    def _forward(self, old: Record) -> Record:
        above, name = self._place

        def act(record: Record, old: Record | None, path: str) -> Record:
            return record if name in record else {**record, name: deepcopy(self.default)}

        return change_records(old, None, above, act)

    def _backward(self, new: Record, old: Record | None) -> Record:
        above, name = self._place

        def act(record: Record, old: Record | None, path: str) -> Record:
            if name not in record:
                if self.keep:
                    raise misfit(child(path, name), "is absent, yet the new shape always has it")
                return record
            if old is not None and name in old:
                return record
            if self.keep and not equal(record[name], self.default):
                return record
            return {key: item for key, item in record.items() if key != name}

        return change_records(new, old, above, act)

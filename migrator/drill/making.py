"""Keys and values of a drill, made like those that lie there. Pure."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from migrator.drill.history import State
from migrator.errors import Refused
from migrator.gateway import changes
from migrator.model.block import Aggregate
from migrator.model.canonical import equal
from migrator.model.json_text import dump_bytes
from migrator.model.path import format_path, lookup, parse_path
from migrator.model.value import Int64, Record, Value

PLACES, PARTS = 10_000, 100
"""How many keys a writer may have, and how many may follow one another in the place of each."""


@dataclass(frozen=True)
class Maker:
    """Makes the keys of a class that belong to a drill alone: ``1.7.0`` is the first key in place
    7 of writer 1. ``base`` is a text where keys are text, bytes or UUIDs, else the first number."""

    like: Value
    base: str | int

    def id(self, name: str) -> Value:
        """The key of a name."""
        if isinstance(self.base, int):
            writer, place, part = map(int, name.split("."))
            number = self.base + (writer * PLACES + place) * PARTS + part
            return Int64(number) if isinstance(self.like, Int64) else number
        text = f"{self.base}{name}"
        if isinstance(self.like, uuid.UUID):
            return uuid.uuid5(uuid.NAMESPACE_OID, text)
        return text.encode() if isinstance(self.like, bytes) else text


def maker(like: Value, drill: str, number: int, where: str) -> Maker:
    """How keys are made like one; ``drill`` names the drill, ``number`` is a random one of it.

    Raises Refused where none can be.
    """
    if isinstance(like, str | bytes | uuid.UUID):
        return Maker(like, f"drill-{drill}-")
    if isinstance(like, int) and not isinstance(like, bool):
        # Far above what is counted up, and within 32 bits where the keys there are.
        return Maker(like, 1_000_000_000 + number % 900 * 1_000_000)
    raise Refused(
        f"no keys of a drill's own can be made like {type(like).__name__}", where=where,
        hint="keys are text, whole numbers, UUIDs or bytes",
    )  # fmt: skip


def version(value: Record) -> str:
    """A digest of what an aggregate is; a drill writes no deadlines."""
    return changes.version(Aggregate(None, value))


@dataclass(frozen=True)
class Shape:
    """What of a class a drill writes. ``mark`` is the field that tells one write from another,
    ``items`` a list that grows ("" for none), ``item_mark`` what tells its elements apart ("" where
    they are scalars), ``ordinals`` what counts them."""

    cls: str
    maker: Maker
    samples: tuple[Record, ...]
    key_fields: tuple[str, ...]
    mark: str
    items: str = ""
    item_mark: str = ""
    ordinals: tuple[str, ...] = ()

    @property
    def mark_path(self) -> str:
        """The access path of the mark."""
        return format_path((self.mark,))

    @property
    def items_path(self) -> str:
        """The access path of the list."""
        return format_path((self.items,))

    def value(self, name: str, sample: int, mark: int) -> Record:
        """A whole aggregate like a sample."""
        value = dict(self.samples[sample % len(self.samples)])
        for field in self.key_fields:
            value[field] = self.maker.id(name)
        value[self.mark] = _as(value[self.mark], mark)
        return value

    def own(self, value: Record, name: str, mark: int) -> Record:
        """A whole aggregate of somebody else's, under a key of the drill and with a mark."""
        made = dict(value)
        for field in self.key_fields:
            made[field] = self.maker.id(name)
        made[self.mark] = _as(self.samples[0][self.mark], mark)
        return made

    def own_element(self, item: Value, value: Record, mark: int) -> Value:
        """An element of somebody else's, marked and counted on where it is a record."""
        like = self.element(value, mark)
        if not isinstance(item, dict) or not isinstance(like, dict):
            return item
        fields = (self.item_mark, *self.ordinals) if self.item_mark else self.ordinals
        return {**item, **{field: like[field] for field in fields}}

    def nearest(self, size: int) -> int:
        """The number of the sample whose size in bytes of JSON is nearest to one."""
        sizes = self._sizes
        return min(range(len(sizes)), key=lambda number: abs(sizes[number] - size))

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(dump_bytes(sample)[0]) for sample in self.samples]

    def element(self, value: Record, mark: int) -> Value:
        """One more element for the list of an aggregate."""
        there = _list(value, self.items)
        template = there[-1] if there else self._template()
        if not isinstance(template, dict):
            return _as(template, mark)
        made = dict(template)
        if self.item_mark:
            made[self.item_mark] = _as(made[self.item_mark], mark)
        for field in self.ordinals:
            made[field] = _as(made[field], int(made[field]) + 1)
        return made

    def _template(self) -> Value:
        return next(_list(s, self.items)[0] for s in self.samples if _list(s, self.items))

    def state(self, value: Record | None) -> State | None:
        """What a value is, as a history has it."""
        if value is None:
            return None
        marks = [self._item(item) for item in _list(value, self.items)] if self.items else []
        return State(version(value), str(value.get(self.mark, "")), tuple(marks))

    def part(self, value: Record | None, paths: Sequence[str]) -> State | None:
        """What a value holds at some access paths, as a history has it."""
        if value is None:
            return None
        there: Record = {}
        for path in paths:
            with suppress(KeyError):
                there[path] = lookup(value, parse_path(path))
        return self.part_state(there)

    def part_state(self, there: Record) -> State:
        """What lies at some access paths, as a history has it."""
        return State(version(there))

    def _item(self, item: Value) -> str:
        if not isinstance(item, dict):
            return str(item)
        fields = (self.item_mark, *self.ordinals) if self.item_mark else self.ordinals
        return " ".join(str(item.get(field)) for field in fields)


def shape(cls: str, found: Sequence[Aggregate], make: Callable[[Value], Maker]) -> Shape:
    """What of a class can be written, told from samples. Raises Refused where that is nothing."""
    if not found:
        raise Refused(
            "nothing lies there that values could be made like", where=cls,
            hint="put some aggregates into the source first",
        )  # fmt: skip
    keys = _key_fields(found)
    marks = Counter(
        name for each in found for name, item in each.value.items()
        if name not in keys and _markable(item)
    )  # fmt: skip
    if not marks:
        raise Refused(
            "it has no field of text or whole numbers beside its key, by which one write could be "
            "told from another",
            where=cls, hint="drill a move of a class that has one",
        )  # fmt: skip
    mark = min(marks, key=lambda name: (-marks[name], name))
    whole = [each.value for each in found if _markable(each.value.get(mark))]
    lists = Counter(
        name for value in whole for name in value
        if _list(value, name) and _alike(_list(value, name))
    )  # fmt: skip
    made = make(found[0].id)
    if not lists:
        return Shape(cls, made, tuple(whole), keys, mark)
    items = min(lists, key=lambda name: (-lists[name], name))
    whole = [value for value in whole if _alike(_list(value, items))]
    elements = [_list(value, items) for value in whole]
    ordinals = _ordinals(elements)
    return Shape(
        cls, made, tuple(whole), keys, mark, items, _item_mark(elements, ordinals), ordinals
    )


def _key_fields(found: Sequence[Aggregate]) -> tuple[str, ...]:
    """The fields that hold the key itself, as tables have it."""
    names = {name for each in found for name in each.value}
    return tuple(
        name for name in sorted(names)
        if all(name in each.value and equal(each.value[name], each.id) for each in found)
    )  # fmt: skip


def _markable(item: Value) -> bool:
    return isinstance(item, str | int) and not isinstance(item, bool)


def _list(value: Record, name: str) -> list[Value]:
    there = value.get(name)
    return there if isinstance(there, list) else []


def _alike(items: list[Value]) -> bool:
    """Whether an element can be made like these: by a field that they all have, or as a scalar."""
    if all(isinstance(item, dict) for item in items):
        return not items or bool(_common(items))
    return all(_markable(item) for item in items)


def _common(items: Sequence[Value]) -> list[str]:
    records = [item for item in items if isinstance(item, dict)]
    names = records[0] if records else ()
    return sorted(name for name in names if all(_markable(r.get(name)) for r in records))


def _ordinals(lists: Sequence[list[Value]]) -> tuple[str, ...]:
    """The fields that count the elements: whole numbers that grow in each list."""
    if not any(len(items) > 1 for items in lists):
        return ()
    return tuple(
        name for name in _common([item for items in lists for item in items])
        if all(_grows(items, name) for items in lists)
    )  # fmt: skip


def _grows(items: list[Value], name: str) -> bool:
    numbers = [item[name] for item in items if isinstance(item, dict)]
    return all(isinstance(n, int) for n in numbers) and all(a < b for a, b in pairwise(numbers))


def _item_mark(lists: Sequence[list[Value]], ordinals: Sequence[str]) -> str:
    flat = [item for items in lists for item in items]
    return next((name for name in _common(flat) if name not in ordinals), "")


def _as(like: Value, mark: int) -> Value:
    """A mark of the kind of another value."""
    if isinstance(like, Int64):
        return Int64(mark)
    return mark if isinstance(like, int) else str(mark)

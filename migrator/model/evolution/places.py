"""Finding and changing places in a record, without changing the record that was given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from migrator.errors import Refused
from migrator.model.evolution.base import misfit
from migrator.model.path import child
from migrator.model.rules import Any_, PatternStep, parse_pattern
from migrator.model.value import Record, Value, kind_of


class Absent:
    """The mark for "there is nothing", which null is not."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"  # there is one of it, also in another process


ABSENT = Absent()
Names: TypeAlias = tuple[str, ...]
Pattern: TypeAlias = tuple[PatternStep, ...]
Act: TypeAlias = Callable[[Value, Value, str], Value]
ActOnRecord: TypeAlias = Callable[[Record, Record | None, str], Record]


def pattern(text: str) -> Pattern:
    """The steps of a path pattern. Raises Refused where it is none, or ends in ``**``."""
    try:
        steps = parse_pattern(text)
    except ValueError as error:
        raise Refused(f"{text!r} is no path of an evolution: {error}") from None
    if Any_.DEEP in steps:
        raise Refused(f"{text!r} is no path of an evolution: ** can't stand in it")
    return steps


def field(text: str) -> tuple[Pattern, str]:
    """The record and the name behind a path that ends in a field. Raises Refused."""
    *above, name = pattern(text)
    if not isinstance(name, str):
        raise Refused(f"{text!r} does not end in a field name, which this evolution needs")
    return tuple(above), name


def change(value: Value, old: Value, steps: Pattern, act: Act, path: str = "") -> Value:
    """The value with ``act(value, old, path)`` in every place that the steps match.

    ``old`` is walked alongside: fields by name, elements by position, ABSENT where it has
    nothing. Raises DoesNotFit where a step meets another kind than it needs; null has no places.
    """
    if not steps:
        return act(value, old, path)
    if value is None:
        return None
    step, rest = steps[0], steps[1:]
    if step is Any_.ELEMENT:
        if type(value) is not list:
            raise misfit(path, f"is {_a(value)}, not a list")
        olds = old if type(old) is list else []
        items = [
            change(item, olds[i] if i < len(olds) else ABSENT, rest, act, f"{path}[{i}]")
            for i, item in enumerate(value)
        ]
        return value if all(map(_is, items, value)) else items
    record = as_record(value, path)
    before: Mapping[str, Value] = old if type(old) is dict else {}
    names = list(record) if step is Any_.FIELD else [step] if step in record else []
    left = record
    for name in names:
        held = record[str(name)]
        done = change(held, before.get(str(name), ABSENT), rest, act, child(path, str(name)))
        if done is not held:
            left = dict(record) if left is record else left
            left[str(name)] = done
    return left


def _is(left: Value, right: Value) -> bool:
    return left is right


def change_records(value: Record, old: Record | None, steps: Pattern, act: ActOnRecord) -> Record:
    """As ``change``, for places that hold records."""

    def on_record(value: Value, old: Value, path: str) -> Value:
        if value is None:
            return None
        return act(as_record(value, path), old if type(old) is dict else None, path)

    done = change(value, old, steps, on_record)
    return done  # type: ignore[return-value]


def as_record(value: Value, path: str) -> Record:
    """The value, which must be a record. Raises DoesNotFit."""
    if type(value) is not dict:
        raise misfit(path, f"is {_a(value)}, not a record")
    return value


def _a(value: Value) -> str:
    return f"of the kind {kind_of(value)}"


def find(record: Record, names: Names, path: str) -> Value:
    """The value below a record, or ABSENT. Raises DoesNotFit where a field on the way is none."""
    value: Value = record
    for name in names:
        if value is None:
            return ABSENT
        value = as_record(value, path).get(name, ABSENT)
        if value is ABSENT:
            return ABSENT
        path = child(path, name)
    return value


def take(
    record: Record, names: Names, path: str, stays: Callable[[Names], bool], at: Names = ()
) -> tuple[Record, Value]:
    """The record without the value below it, and the value (ABSENT where there is none).

    A record that is emptied by this goes too, unless ``stays`` says otherwise.
    """
    name, rest = names[0], names[1:]
    if name not in record:
        return record, ABSENT
    below = child(path, name)
    if rest:
        if record[name] is None:
            return record, ABSENT
        inner, found = take(as_record(record[name], below), rest, below, stays, (*at, name))
        if found is ABSENT:
            return record, ABSENT
        if inner or stays((*at, name)):
            return {**record, name: inner}, found
    else:
        found = record[name]
    return {key: item for key, item in record.items() if key != name}, found


def put(
    record: Record,
    names: Names,
    value: Value,
    path: str,
    usable: Collection[Names] | None = None,
    at: Names = (),
) -> Record:
    """The record with a value below it; records on the way are made where there are none.

    Raises DoesNotFit where something else stands on the way. With ``usable`` also where an
    empty record does that is not among it: taking the value out again would remove it.
    """
    name, rest = names[0], names[1:]
    if not rest:
        return {**record, name: value}
    below = child(path, name)
    inner = as_record(record.get(name, {}), below)
    here = (*at, name)
    if usable is not None and name in record and not inner and here not in usable:
        raise misfit(below, "is an empty record, which would not come back", _EMPTY)
    return {**record, name: put(inner, rest, value, below, usable, here)}


_EMPTY = "the other shape can't tell it from none: remove the empty record"

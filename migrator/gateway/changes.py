"""What a change makes of an aggregate, and what of it travels. Pure: values in, values out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from migrator.errors import Refused
from migrator.exchange import Change
from migrator.model.block import Aggregate, Block, Patch
from migrator.model.canonical import encode, equal
from migrator.model.path import Step, Steps, child, format_path, lookup, parse_path
from migrator.model.rules import Any_, Representation, Rule
from migrator.model.value import Record, Value, kind_of

Container: TypeAlias = dict[str, Value] | list[Value]
_DEPTH = 200
_TEXT = frozenset((str,))
_SURE = frozenset((bool, float, int, str, type(None)))  # of the model, whatever their value


def version(aggregate: Aggregate) -> str:
    """The digest of what an aggregate is: the same on both sides of a move."""
    form = encode([aggregate.value, aggregate.expires])
    return hashlib.blake2b(form, digest_size=16).hexdigest()


def refuse_odd(value: Value, where: str, path: str = "", depth: int = 0) -> None:
    """Raise Refused, naming the path, for what is no value of the model."""
    if _is_sure(value, depth):
        return
    kind = type(value)
    if kind is dict or kind is list:
        if depth == _DEPTH:
            raise Refused(f"{path}: it nests deeper than {_DEPTH}", where=where)
        items: Sequence[tuple[Step, Value]] = (
            list(value.items()) if isinstance(value, dict) else list(enumerate(value))  # type: ignore[arg-type]
        )
        for step, item in items:
            if kind is dict and type(step) is not str:
                raise Refused(
                    f"{path or '(whole)'}: the name {step!r} is no text", where=where,
                    hint="names of fields are text",
                )  # fmt: skip
            refuse_odd(item, where, child(path, step), depth + 1)
        return
    if kind in _SURE:
        return
    try:
        kind_of(value)
        encode(value)
    except (TypeError, ValueError) as error:
        raise Refused(
            f"{path or '(whole)'}: {error}", where=where,
            hint="the kinds of value are listed in docs/stores.md",
        ) from None  # fmt: skip


def _is_sure(value: Value, depth: int) -> bool:
    """Whether nothing of it has to be looked at closely; this runs for all that is written."""
    items: Iterable[Value]
    if type(value) is dict:
        if not _TEXT.issuperset(map(type, value)):
            return False
        items = value.values()
    elif type(value) is list:
        items = value
    else:
        return type(value) in _SURE
    if depth == _DEPTH:
        return False
    if _SURE.issuperset(map(type, items)):
        return True
    return all(type(item) in _SURE or _is_sure(item, depth + 1) for item in items)


def is_sure_record(value: Value) -> bool:
    """Whether a value is an aggregate's, as most are; where not, ``refuse_none`` says."""
    return type(value) is dict and _is_sure(value, 0)


def refuse_none(value: Value, where: str) -> None:
    """Raise Refused for what is no aggregate's value."""
    if type(value) is not dict:
        raise Refused(f"an aggregate is a record (dict), not {type(value).__name__}", where=where)
    refuse_odd(value, where)


def refuse_one(paths: Sequence[str], where: str) -> None:
    """Raise Refused for one access path in the place of several: its letters would be paths."""
    if isinstance(paths, str):
        raise Refused(
            f"{paths!r} is one access path, not a list of them", where=where,
            hint=f"put it into one: [{paths!r}]",
        )  # fmt: skip


def steps_of(path: str, where: str) -> Steps:
    """The steps of a path below an aggregate. Raises Refused for the empty path and for none."""
    try:
        steps = parse_path(path)
    except ValueError as error:
        raise Refused(str(error), where=where) from None
    if not steps:
        raise Refused("the empty path is the whole aggregate", where=where, hint="use put")
    return steps


# ---------------------------------------------------------------------- changing a value


def updated(old: Record, set_: Mapping[str, Value], remove: Sequence[str], where: str) -> Record:
    """The aggregate with some places set and some removed; the old one stays as it is.

    Raises Refused where there is no place for a value. Removing what is not there does nothing.
    """
    value = old
    for path in remove:
        value = _without(value, steps_of(path, where))
    for path, item in set_.items():
        value = _with(value, steps_of(path, where), item, path, where)
    return value


def top_fields(at: Mapping[str, Value], where: str) -> dict[str, Value] | None:
    """What lies at paths that are fields of the aggregate itself, by name; None for others."""
    fields: dict[str, Value] = {}
    for path, item in at.items():
        steps = steps_of(path, where)
        if len(steps) != 1 or type(steps[0]) is not str:
            return None
        fields[steps[0]] = item
    return fields


def appended(old: Record, path: str, item: Value, where: str) -> Record:
    """The aggregate with an element more at the end of a list."""
    steps = steps_of(path, where)
    try:
        there = lookup(old, steps)
    except KeyError:
        there = None
    if type(there) is not list:
        found = "nothing" if there is None else "no list"
        raise Refused(
            f"{path}: there is {found} to append to", where=where,
            hint=f"put a list there first: update(id, {{{path!r}: []}})",
        )  # fmt: skip
    return _with(old, steps, [*there, item], path, where)


def _with(old: Record, steps: Steps, item: Value, path: str, where: str) -> Record:
    new = dict(old)
    at: Container = new
    for step in steps[:-1]:
        inner = _inner(at, step)
        if inner is None:
            raise Refused(f"{path}: there is no place for it in this aggregate", where=where)
        at[step] = inner  # type: ignore[index]
        at = inner
    last = steps[-1]
    if not _has_room(at, last):
        raise Refused(
            f"{path}: there is no place for it in this aggregate", where=where,
            hint="a list grows by append",
        )  # fmt: skip
    at[last] = item  # type: ignore[index]
    return new


def _without(old: Record, steps: Steps) -> Record:
    new = dict(old)
    at: Container = new
    for step in steps[:-1]:
        inner = _inner(at, step)
        if inner is None:
            return old
        at[step] = inner  # type: ignore[index]
        at = inner
    last = steps[-1]
    if isinstance(at, dict):
        if type(last) is str:
            at.pop(last, None)
    elif type(last) is int and last < len(at):
        del at[last]
    return new


def _inner(at: Container, step: Step) -> Container | None:
    """A copy of the container one step below; None where there is none."""
    if isinstance(at, dict):
        found = at.get(step) if type(step) is str else None
    else:
        found = at[step] if type(step) is int and step < len(at) else None
    if type(found) is dict:
        return dict(found)
    return list(found) if type(found) is list else None


def _has_room(at: Container, step: Step) -> bool:
    if isinstance(at, dict):
        return type(step) is str
    return type(step) is int and step < len(at)


# ---------------------------------------------------------------------- what travels


def change_of(held: Block | None, new: Block, *, apart: bool) -> Change:
    """What has to be written to make one block another: single entries where they lie apart."""
    if held is None or not apart or held.expires != new.expires:
        return new
    set_ = {
        path: value
        for path, value in new.entries.items()
        if path not in held.entries or not equal(held.entries[path], value)
    }
    unset = tuple(path for path in held.entries if path not in new.entries)
    if len(set_) == len(new.entries):
        return new
    return Patch(new.id, set_, unset)


def is_same(held: Block | None, change: Change) -> bool:
    """Whether a change changes nothing."""
    if isinstance(change, Patch):
        return not change.set and not change.unset
    if change is None or held is None:
        return held is change
    return (
        held.expires == change.expires
        and held.entries.keys() == change.entries.keys()
        and all(equal(held.entries[path], value) for path, value in change.entries.items())
    )


def entry_of(rules: Representation, path: str, where: str) -> str | None:
    """The one entry that holds what lies at a path, if it is there at all; None for several.

    It follows from the rules alone, so that only this entry has to be read.
    """
    steps = steps_of(path, where)
    for rule in rules.rules:
        depth = _reaches(rule, steps)
        if depth is None:
            return None
        if depth >= 0:
            return format_path(steps[:depth])
    return None


def _reaches(rule: Rule, steps: Steps) -> int | None:
    """How many steps of a path lead to what a rule takes; -1 where it takes nothing of it, None
    where that depends on the aggregate."""
    for i, wanted in enumerate(rule.steps):
        if wanted is Any_.DEEP or i == len(steps):
            return None  # its entries lie below the path, or at a depth that only the value tells
        step = steps[i]
        if not (
            wanted == step
            or (wanted is Any_.FIELD and type(step) is str)
            or (wanted is Any_.ELEMENT and type(step) is int)
        ):
            return -1
    return len(rule.steps)

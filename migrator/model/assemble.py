"""Putting the entries of a block together again: the inverse of ``Representation.partition``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from migrator.model.path import Step, Steps, format_path, parse_path
from migrator.model.value import Record, Value

Entries: TypeAlias = dict[str, Value]


class _Gone(Enum):
    GONE = 0


GONE = _Gone.GONE


class CorruptBlock(Exception):
    """The entries are not the cut of any aggregate: some overlap, or one is missing."""


def assemble(entries: Mapping[str, Value]) -> Record:
    """Put the entries of a block together again.

    Raises CorruptBlock where entries overlap, an element is missing or there is none.
    """
    if len(entries) == 1 and "" in entries:
        whole = entries[""]
        if type(whole) is dict:
            return whole
    try:
        flat = _assemble_flat(entries)
        return _assemble_tree(entries) if flat is None else flat
    except ValueError as error:
        raise CorruptBlock(str(error)) from None


def _assemble_flat(entries: Mapping[str, Value]) -> Record | None:
    """The common case, fields and elements of top-level lists; None where it is not all of it."""
    base = entries.get("", GONE)
    if base is GONE:
        record: Record = {}
    elif type(base) is dict:
        record = base.copy()
    else:
        return None
    lists: dict[Step, dict[Step, Value]] = {}
    for path, value in entries.items():
        steps = parse_path(path)
        if len(steps) == 2:
            name, index = steps
            elements = lists.get(name)
            if elements is None:
                if type(index) is not int or type(name) is not str or name in record:
                    return None
                lists[name] = elements = {}
            elements[index] = value
        elif len(steps) == 1:
            name = steps[0]
            if type(name) is not str or name in record:
                return None
            record[name] = value
        elif steps:
            return None
    for name, elements in lists.items():
        # Stores give entries in the order of their text: rounds[10] before rounds[2].
        indexes = range(len(elements))
        if name in record or not all(map(elements.__contains__, indexes)):
            return None
        record[name] = [elements[i] for i in indexes]  # type: ignore[index]
    return record if entries else None


class _Node:
    """A place that has an entry of its own, or entries below it, or both."""

    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.value: Value = GONE
        self.children: dict[Step, _Node] = {}


def _assemble_tree(entries: Mapping[str, Value]) -> Record:
    root = _Node()
    for path, value in entries.items():
        node = root
        for step in parse_path(path):
            children = node.children
            following = children.get(step)
            if following is None:
                following = children[step] = _Node()
            node = following
        node.value = value
    whole = _merge(root, root.value, ())
    if type(whole) is not dict:
        raise CorruptBlock("the entries give no record" if entries else "a block has no entry")
    return whole


def _merge(node: _Node, base: Value, at: Steps) -> Value:
    """What stands in a place: ``base``, which may hold room for it, with the entries below."""
    children = node.children
    if not children:
        return base
    is_list = type(next(iter(children))) is int
    if base is GONE:
        base = [] if is_list else {}
    if type(base) is dict:
        return _merge_record(base, children, at)
    if type(base) is list:
        return _merge_list(base, children, at)
    raise CorruptBlock(f"entry {format_path(at)} has no room for the entries below it")


def _merge_record(base: Record, children: Mapping[Step, _Node], at: Steps) -> Record:
    record = base.copy()
    for name, node in children.items():
        if type(name) is not str:
            raise CorruptBlock(f"{format_path(at) or 'the aggregate'} is a list and a record")
        record[name] = _child(record.get(name, GONE), node, (*at, name))
    return record


def _merge_list(base: list[Value], children: Mapping[Step, _Node], at: Steps) -> list[Value]:
    items = base.copy()
    if any(type(step) is not int for step in children):
        raise CorruptBlock(f"{format_path(at)} is a list and a record")
    for index in sorted(int(step) for step in children):
        if index > len(items):
            raise CorruptBlock(f"{format_path((*at, len(items)))} is missing")
        if index == len(items):
            items.append(GONE)
        items[index] = _child(items[index], children[index], (*at, index))
    return items


def _child(held: Value, node: _Node, at: Steps) -> Value:
    """What stands below: an entry of its own, or what the entry above holds there."""
    if held is GONE:
        held = node.value
    elif node.value is not GONE:
        raise CorruptBlock(f"entry {format_path(at)} overlaps another")
    return _merge(node, held, at)

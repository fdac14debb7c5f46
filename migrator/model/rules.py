"""Representations: ordered rules that say which entries an aggregate is cut into (NoAM).

    /Game/*              what is left, as one entry with the empty key
    /Game/*/*            each top-level field that is left
    /Game/*/**           each atomic value that is left, keyed by its access path
    /Game/*/rounds[*]    each element of rounds

The first rule that matches takes the matched value out whole; the rest goes on to the next.
A container whose whole content was taken goes with it; only where that would shift the
elements of a list does it stay behind, empty, to hold the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from migrator.errors import Refused
from migrator.model.assemble import GONE, CorruptBlock, Entries, assemble
from migrator.model.path import child, escape, format_path, parse_path, unescape
from migrator.model.value import Record, Set, Value

# Paths of elements are built once for so many of a top-level list: the hot path of ROUNDS.
_FEW = 64


class Any_(Enum):
    """The pattern steps that stand for more than one step."""

    FIELD = "*"
    ELEMENT = "[*]"
    DEEP = "**"


PatternStep: TypeAlias = str | int | Any_


@dataclass(frozen=True)
class Rule:
    """One rule: a class (or ``*``) and the pattern of the values it takes."""

    text: str
    cls: str
    steps: tuple[PatternStep, ...]

    def applies_to(self, cls: str) -> bool:
        return self.cls in ("*", cls)


@dataclass(frozen=True)
class Representation:
    """The rules of one class, checked: they cover every aggregate and each can match."""

    cls: str
    rules: tuple[Rule, ...]

    @property
    def name(self) -> str:
        """EAO, ETF, EAV, or the taken fields in capitals (ROUNDS, ROUNDS+ETF)."""
        *taken, last = self.rules
        parts = [
            "_".join(str(s).upper() for s in r.steps if isinstance(s, str)) or "*" for r in taken
        ]
        match last.steps:
            case ():
                parts += [] if parts else ["EAO"]
            case (Any_.DEEP,):
                parts.append("EAV")
            case _:
                parts.append("ETF")
        return "+".join(parts)

    @property
    def texts(self) -> list[str]:
        return [rule.text for rule in self.rules]

    def takes_whole(self, name: str) -> bool:
        """Whether a top-level field is always an entry of its own, whatever it holds."""
        steps = self._first(name)
        return len(steps) == 1 and steps[0] is not Any_.DEEP

    def takes_elements(self, name: str) -> bool:
        """Whether each element is one of its own where a top-level field holds some in a list."""
        return self._first(name)[1:] == (Any_.ELEMENT,)

    def _first(self, name: str) -> tuple[PatternStep, ...]:
        """The pattern that a top-level field meets first."""
        for rule in self.rules:
            if not rule.steps or rule.steps[0] in (name, Any_.FIELD, Any_.DEEP):
                return rule.steps
        return ()

    def partition(self, aggregate: Record) -> Entries:
        """Cut an aggregate into its entries. Raises Refused where ``[*]`` meets a set."""
        if not self.rules[0].steps:
            return {"": aggregate}
        entries: Entries = {}
        left: Value = aggregate
        for rule in self.rules:
            left = _take(left, rule, 0, "", entries)
            if left is GONE:
                break
        if left is not GONE and not entries:
            entries[""] = left  # an empty aggregate is a block too, and a block has an entry
        return entries


def _take(value: Value, rule: Rule, at: int, path: str, entries: Entries) -> Value:
    """Move what the rule matches below ``value`` into ``entries``; the rest, or GONE."""
    if at == len(rule.steps):
        entries[path] = value
        return GONE
    step = rule.steps[at]
    if step is Any_.DEEP:
        return _take_atoms(value, path, entries, top=True)
    if type(value) is dict:
        if step is not Any_.ELEMENT:
            return _take_fields(value, rule, at, path, entries)
    elif step is Any_.ELEMENT:
        if type(value) is list:
            return _take_elements(value, rule, at, path, entries)
        if type(value) is Set:
            raise Refused(
                f"rule {rule.text} takes elements of {path or 'the aggregate'}, which is a set: "
                "the elements of a set have no index",
                hint="take the set whole, or turn it into a list first",
            )
    return value


def _take_fields(value: Record, rule: Rule, at: int, path: str, entries: Entries) -> Value:
    step, last = rule.steps[at], at + 1 == len(rule.steps)
    if step is Any_.FIELD:
        if last and value:
            for name, item in value.items():
                entries[child(path, name)] = item
            return GONE
        names = list(value)
    elif step in value:
        names = [step]
    else:
        return value
    left = value
    for name in names:
        item = value[name]
        rest = _take(item, rule, at + 1, child(path, name), entries)
        if rest is item:
            continue
        if left is value:
            left = value.copy()
        if rest is GONE:
            del left[name]
        else:
            left[name] = rest
    return left if left or not value else GONE


def _take_elements(value: list[Value], rule: Rule, at: int, path: str, entries: Entries) -> Value:
    if at + 1 == len(rule.steps) and value:
        if at == 1 and len(value) <= _FEW:
            entries.update(zip(_element_paths(path), value, strict=False))
        else:
            entries.update((f"{path}[{i}]", item) for i, item in enumerate(value))
        return GONE
    rests = [_take(item, rule, at + 1, f"{path}[{i}]", entries) for i, item in enumerate(value)]
    if not value or all(rest is item for rest, item in zip(rests, value, strict=True)):
        return value
    if all(rest is GONE for rest in rests):
        return GONE
    return [type(item)() if rest is GONE else rest for rest, item in zip(rests, value, strict=True)]


@lru_cache(maxsize=1024)
def _element_paths(path: str) -> list[str]:
    return [f"{path}[{i}]" for i in range(_FEW)]


def _take_atoms(value: Value, path: str, entries: Entries, top: bool = False) -> Value:
    if type(value) is dict and value:
        for name, item in value.items():
            _take_atoms(item, child(path, name), entries)
        return GONE
    if type(value) is list and value:
        for i, item in enumerate(value):
            _take_atoms(item, f"{path}[{i}]", entries)
        return GONE
    if top:
        return value  # ** takes what lies below; the value itself is the next rule's
    entries[path] = value
    return GONE


# ---------------------------------------------------------------- reading and checking rules


def parse_rule(text: str) -> Rule:
    """Read one rule. Raises Refused where the text is none."""

    def refuse(why: str) -> Refused:
        return Refused(
            f"rule {text!r}: {why}",
            hint="a rule looks like /Game/*, /Game/*/*, /Game/*/** or /Game/*/rounds[*]",
        )

    parts = text.split("/", 3)
    if len(parts) < 3 or parts[0] or not parts[1]:
        raise refuse("it must begin with /Class/*")
    if parts[2] != "*":
        raise refuse("the identifier must be *, since a representation holds for a whole class")
    if len(parts) == 3:
        return Rule(text, parts[1], ())
    if not parts[3]:
        raise refuse("it ends with a slash")
    try:
        steps = _parse_pattern(parts[3])
    except ValueError as error:
        raise refuse(str(error)) from None
    return Rule(text, parts[1], steps)


def _parse_pattern(text: str) -> tuple[PatternStep, ...]:
    if not text:
        raise ValueError("it is empty")
    steps: list[PatternStep] = []
    for piece in _split(text):
        if piece == "**":
            steps.append(Any_.DEEP)
        elif piece == "*":
            steps.append(Any_.FIELD)
        elif piece == "[*]":
            steps.append(Any_.ELEMENT)
        elif piece.startswith("["):
            raise ValueError(f"{piece} names one element; only [*] can be taken")
        else:
            if not _is_name(piece):
                raise ValueError(f"{piece!r} is no field name (put \\ before . [ ] \\ *)")
            steps.append(unescape(piece))
    if Any_.DEEP in steps[:-1]:
        raise ValueError("** can only stand at the end")
    if steps[0] is Any_.ELEMENT:
        raise ValueError("an aggregate is a record, it has no elements")
    return tuple(steps)


def _is_name(piece: str) -> bool:
    try:
        return parse_path(piece) == (unescape(piece),) and escape(unescape(piece)) == piece
    except ValueError:
        return False


def _split(text: str) -> list[str]:
    pieces: list[str] = []
    piece = ""
    i = 0
    while i < len(text):
        char = text[i]
        if char == "\\" and i + 1 < len(text):
            piece += text[i : i + 2]
            i += 2
            continue
        if char == ".":
            if not piece and not (pieces and pieces[-1].startswith("[")):
                raise ValueError("a field name is empty (the empty name is written \\e)")
            if piece:
                pieces.append(piece)
            piece = ""
            if i + 1 == len(text):
                raise ValueError("it ends with a dot")
        elif char == "[":
            if piece:
                pieces.append(piece)
            end = text.find("]", i)
            if end < 0:
                raise ValueError("[ is not closed")
            pieces.append(text[i : end + 1])
            piece = ""
            i = end
        else:
            if not piece and pieces and pieces[-1].startswith("[") and text[i - 1] == "]":
                raise ValueError("after ] comes . or [")
            piece += char
        i += 1
    if piece:
        pieces.append(piece)
    return pieces


def _covers(general: PatternStep, special: PatternStep) -> bool:
    if general is Any_.FIELD:
        return special is Any_.FIELD or isinstance(special, str)
    return general == special


def _taken_by(earlier: Rule, steps: Sequence[PatternStep]) -> bool:
    """Whether everything the steps match is gone once the earlier rule has taken."""
    taken = earlier.steps
    if taken and taken[-1] is Any_.DEEP:
        taken = taken[:-1]
        if len(steps) <= len(taken):
            return False
    return len(steps) >= len(taken) and all(map(_covers, taken, steps))


def _takers(before: Sequence[Rule], rule: Rule) -> list[Rule]:
    """The rules that together leave nothing for a later one; none where it can match."""
    ways = [rule.steps]
    if rule.steps and rule.steps[-1] is Any_.DEEP:
        # What lies below is reached through fields or elements; an aggregate has no elements.
        above = rule.steps[:-1]
        ways = [(*above, step) for step in (Any_.FIELD, Any_.ELEMENT)][: 2 if above else 1]
    found = [next((r for r in before if _taken_by(r, way)), None) for way in ways]
    return [] if None in found else list(dict.fromkeys(r for r in found if r is not None))


def representation(cls: str, texts: Sequence[str]) -> Representation:
    """The checked representation of a class.

    Raises Refused where a rule is unreadable, stands there twice or can never match, or where
    the rules leave something over.
    """
    rules = tuple(rule for rule in map(parse_rule, texts) if rule.applies_to(cls))
    for i, rule in enumerate(rules):
        for earlier in rules[:i]:
            if earlier.steps == rule.steps:
                raise Refused(
                    f"rule {rule.text} is ambiguous for class {cls}: it takes the same as "
                    f"{earlier.text}",
                    hint="leave one of them out",
                )
        takers = _takers(rules[:i], rule)
        if takers:
            names = " and ".join(earlier.text for earlier in takers)
            raise Refused(
                f"rule {rule.text} can never match for class {cls}: {names}, before it, "
                "takes all that it could match",
                hint=f"put {rule.text} before {takers[0].text}, or leave it out",
            )
    if not rules or rules[-1].steps not in ((), (Any_.FIELD,), (Any_.DEEP,)):
        taken = ", ".join(r.text for r in rules)
        left = f"all fields that {taken} do not take" if rules else "everything: no rule is for it"
        raise Refused(
            f"the rules {list(texts)} leave something over for class {cls}: {left}",
            hint=f"end the list with /{cls}/* (the rest as one entry), /{cls}/*/* or /{cls}/*/**",
        )
    return Representation(cls, rules)


def pattern_matches(pattern: Sequence[PatternStep], steps: Sequence[str | int]) -> bool:
    """Whether a pattern (without ``**``) matches a path of the same length."""
    return len(pattern) == len(steps) and all(
        (p is Any_.ELEMENT and isinstance(s, int))
        or (p is Any_.FIELD and isinstance(s, str))
        or p == s
        for p, s in zip(pattern, steps, strict=True)
    )


def parse_pattern(text: str) -> tuple[PatternStep, ...]:
    """A path pattern such as ``games[*].opponent``. Raises ValueError where it is none."""
    return _parse_pattern(text)


def lies_below(pattern: Sequence[PatternStep], path: Sequence[PatternStep]) -> bool:
    """Whether all that a path with ``[*]`` names lies at or below what a pattern matches."""
    return len(path) >= len(pattern) and all(map(_covers, pattern, path))


def general_path(path: str) -> str:
    """A path with its indexes as ``[*]``: the name of a kind of entry in plans."""
    return "".join(
        "[*]" if isinstance(s, int) else _dot(i, s) for i, s in enumerate(parse_path(path))
    )


def _dot(i: int, name: str) -> str:
    return ("." if i else "") + escape(name)


__all__ = [
    "Any_",
    "CorruptBlock",
    "Entries",
    "Representation",
    "Rule",
    "assemble",
    "format_path",
    "general_path",
    "lies_below",
    "parse_pattern",
    "parse_rule",
    "pattern_matches",
    "representation",
]

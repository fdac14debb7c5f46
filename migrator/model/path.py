r"""Access paths: where a value sits in an aggregate.

Text form: field names joined by ``.``, list indexes as ``[n]``; the empty text is the whole
aggregate. Every name is legal: ``. [ ] \ *`` take a backslash, NUL is ``\0`` and the empty name
``\e``. ``a\.b`` is a field named "a.b"; ``a.b`` is the field b of a.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

Step: TypeAlias = str | int
Steps: TypeAlias = tuple[Step, ...]

_SPECIAL = re.compile(r"[.\[\]\\*\0]")
_TOKEN = re.compile(r"\[(\d+)\]|(\.?)((?:[^.\[\]\\*\0]|\\[.\[\]\\*0e])+)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@lru_cache(maxsize=65_536)
def escape(name: str) -> str:
    """A field name as it stands in a path."""
    if not name:
        return "\\e"
    if _SPECIAL.search(name) is None:
        return name
    return _SPECIAL.sub(lambda m: "\\0" if m[0] == "\0" else "\\" + m[0], name)


def unescape(text: str) -> str:
    """The field name behind its escaped form."""
    if text == "\\e":
        return ""
    return _ESCAPED.sub(lambda m: "\0" if m[1] == "0" else m[1], text) if "\\" in text else text


def child(path: str, step: Step) -> str:
    """The path one step below another."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{escape(step)}" if path else escape(step)


def format_path(steps: Sequence[Step]) -> str:
    """The text of a path."""
    text = ""
    for step in steps:
        text = child(text, step)
    return text


@lru_cache(maxsize=65_536)
def parse_path(text: str) -> Steps:
    """The steps of a path. Raises ValueError where the text is no path."""
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or (found[3] is not None and bool(found[2]) != bool(steps)):
            raise ValueError(f"{text!r} is no access path (at character {at + 1})")
        if found[1] is not None:
            index = int(found[1])
            if str(index) != found[1]:
                raise ValueError(f"{text!r} is no access path: index {found[1]}")
            steps.append(index)
        else:
            name = found[3]
            if "\\e" in name and name != "\\e" and _has_bare_empty(name):
                raise ValueError(f"{text!r} is no access path: \\e stands for a whole name")
            steps.append(unescape(name))
        at = found.end()
    return tuple(steps)


def _has_bare_empty(name: str) -> bool:
    return any(m[1] == "e" for m in _ESCAPED.finditer(name))


def lookup(value: object, steps: Sequence[Step]) -> object:
    """The value at a path. Raises KeyError where there is none."""
    for step in steps:
        if type(step) is int:
            there = type(value) is list and 0 <= step < len(value)
        else:
            there = type(value) is dict and step in value
        if not there:
            raise KeyError(format_path(steps))
        value = value[step]  # type: ignore[index]
    return value

"""PostgreSQL's text form of arrays: ``{1,NULL,"a,b"}``, nested for more dimensions."""

from __future__ import annotations

import re
from collections.abc import Callable

from migrator.model.value import Value
from migrator.stores.sql.unfit import Unfit

_TOKEN = re.compile(r'[{},]|"((?:[^"\\]|\\.)*)"|((?:[^{},"\\]|\\.)+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = re.compile(r'(["\\])')


def write_array(items: list[Value], encode: Callable[[Value], str]) -> str:
    """The text of a list. Raises Unfit for a list that is no array."""
    _shape(items, "")
    return _write(items, encode, "")


def _shape(items: list[Value], path: str) -> tuple[int, ...]:
    shapes = [
        _shape(item, f"{path}[{i}]") if type(item) is list else () for i, item in enumerate(items)
    ]
    if len(set(shapes)) > 1:
        raise Unfit("the lists of an array have one length and depth", path)
    if shapes and shapes[0] and 0 in shapes[0]:
        raise Unfit("an array has no empty lists inside", path)
    return (len(items), *(shapes[0] if shapes else ()))


def _write(items: list[Value], encode: Callable[[Value], str], path: str) -> str:
    parts = []
    for i, item in enumerate(items):
        below = f"{path}[{i}]"
        if item is None:
            parts.append("NULL")
        elif type(item) is list:
            parts.append(_write(item, encode, below))
        else:
            try:
                text = encode(item)
            except Unfit as error:
                raise Unfit(error.why, below + error.path) from None
            parts.append('"' + _QUOTED.sub(r"\\\1", text) + '"')
    return "{" + ",".join(parts) + "}"


def read_array(text: str, read: Callable[[str], Value]) -> list[Value]:
    """The list of an array's text. Raises ValueError for what is none."""
    top: list[Value] = []
    open_lists = [top]
    for found in _TOKEN.finditer(text):
        mark = found[0]
        if mark == "{":
            fresh: list[Value] = []
            open_lists[-1].append(fresh)
            open_lists.append(fresh)
        elif mark == "}":
            open_lists.pop()
        elif mark != ",":
            quoted, bare = found[1], found[2]
            if quoted is None and bare.upper() == "NULL":
                open_lists[-1].append(None)
            else:
                held = quoted if quoted is not None else bare
                open_lists[-1].append(read(_ESCAPED.sub(r"\1", held)))
    match top:
        case [list() as whole]:
            return whole
    raise ValueError(f"{text!r} is no array")

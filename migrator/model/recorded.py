"""Calls of an application as they are recorded: one JSON object a line.

    {"at": 1767225600.25, "call": "append", "class": "Game", "key": "5d0c8a", "path": "rounds"}

Gateways write such lines, drills replay them. ``key`` is any text that stands for one aggregate,
``at`` seconds from any moment. What JSON has no kind for is its carrier, with a tag under ``tags``
by its access path in the line. A line without values is replayed with values made like those that
lie there. Pure: text in, lines out.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from migrator.model.json_text import native, raise_all, strict_json, to_json
from migrator.model.path import parse_path
from migrator.model.tags import Tags, lower

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
Paths: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class _Line(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="call", forbid_unknown_fields=True,
    omit_defaults=True,
):  # fmt: skip
    at: Annotated[float, msgspec.Meta(ge=0)]
    cls: Text = msgspec.field(name="class")
    key: Text


class Put(_Line, frozen=True, kw_only=True, tag="put"):
    """A whole aggregate; or, of one that was not kept, its size in bytes of JSON, and how long the
    lists are that are fields of it."""

    value: dict[str, Any] | None = None
    size: Count | None = None
    lists: dict[str, Count] = {}


class Update(_Line, frozen=True, kw_only=True, tag="update"):
    """What was set and removed by access path; or, where that was not kept, the fields that were
    touched."""

    set: dict[str, Any] | None = None
    remove: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


class Append(_Line, frozen=True, kw_only=True, tag="append"):
    """An element at the end of a list."""

    path: Text
    item: Any = msgspec.UNSET


class Delete(_Line, frozen=True, kw_only=True, tag="delete"):
    """An aggregate that was removed."""


class Get(_Line, frozen=True, kw_only=True, tag="get"):
    """A whole aggregate that was read, and whether it was there."""

    found: bool = True


class GetEntries(_Line, frozen=True, kw_only=True, tag="get_entries"):
    """Some entries of an aggregate that were read, and whether it was there."""

    paths: Paths
    found: bool = True


Line: TypeAlias = Put | Update | Append | Delete | Get | GetEntries
CALLS: Final = ("put", "update", "append", "delete", "get", "get_entries")


def kept(line: Line) -> bool:
    """Whether a line holds values of the application."""
    match line:
        case Put(value=value):
            return value is not None
        case Update(set=set_, remove=remove):
            return set_ is not None or bool(remove)
        case Append(item=item):
            return item is not msgspec.UNSET
    return False


def line_bytes(line: Line) -> bytes:
    """A line as a file holds it, its end included. Raises one of UNFIT for what can't be held."""
    tags: Tags = {}
    match line:
        case Put(value=value) if value is not None:
            line = replace(line, value=lower(value, native, "value", tags))
        case Update(set=set_) if set_ is not None:
            line = replace(line, set=lower(set_, native, "set", tags))
        case Append(item=item) if item is not msgspec.UNSET:
            line = replace(line, item=lower(item, native, "item", tags))
    try:
        data = msgspec.json.encode(line)
    except UnicodeEncodeError:
        data = to_json(msgspec.to_builtins(line))
    return data[:-1] + b',"tags":' + to_json(dict(tags)) + b"}\n" if tags else data + b"\n"


def read_line(text: bytes) -> Line:
    """The call that a line tells. Raises ValueError, which says what is wrong with it."""
    try:
        body = strict_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if type(body) is not dict:
        raise ValueError("it is no JSON object")
    call, tags = body.get("call"), body.pop("tags", {})
    if call not in CALLS:
        raise ValueError(f"call is {json.dumps(call)[:40]}, and none of {', '.join(CALLS)}")
    try:
        line: Line = msgspec.convert(raise_all(body, tags), Line)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`$.", "`")) from None
    _check(line)
    return line


def _check(line: Line) -> None:
    paths: tuple[str, ...] = ()
    match line:
        case Update(set=set_, remove=remove, paths=paths):
            if bool(paths) == kept(line):
                raise ValueError("an update has set and remove, or else paths")
            paths = (*paths, *remove, *(set_ or ()))
        case Append(path=path):
            paths = (path,)
        case GetEntries(paths=paths):
            pass
    for path in paths:
        if not parse_path(path):
            raise ValueError("the empty path is the whole aggregate")

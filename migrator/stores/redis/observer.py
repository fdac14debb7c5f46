"""The verifier's decoder: JSON by libraries of its own, tags by the second reader.

Nothing of the copier's decoding is used (``codec``, ``document``); only the bytes are shared.
The standard library reads whatever JSON there is. A faster one, which makes doubles of large
whole numbers, is asked before it and believed where it writes what it read the same again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import orjson

from migrator.model.block import Block
from migrator.model.json_text import reader
from migrator.model.path import parse_path
from migrator.model.rules import Representation
from migrator.model.value import Record, Value
from migrator.model.witness import untag
from migrator.stores.redis.forms import Form, Raw, StringForm
from migrator.stores.redis.names import Damaged
from migrator.stores.redis.native import NativeForm

SIDE = "_migrator"
_MISFIT = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError)
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def observed(form: Form, rules: Representation) -> Callable[[Value, Raw], Block]:
    """The decoder of a form's blocks."""
    if isinstance(form, StringForm):
        return lambda id_, raw: Block(id_, rules.partition(_document(raw)), raw.expires)
    if isinstance(form, NativeForm):
        read = form.record
        return lambda id_, raw: Block(id_, rules.partition(read(raw, "observe")), raw.expires)
    return lambda id_, raw: _entries(id_, raw, rules)


def _entries(id_: Value, raw: Raw, rules: Representation) -> Block:
    if raw.notes is None:
        record: Record = {
            str(name, "utf-8", "surrogateescape"): _unmarked(held or b"")
            for name, held in raw.fields.items()
        }
        return Block(id_, rules.partition(record), raw.expires)
    notes = notes_of(raw.notes)
    entries: Record = {}
    for name, held in raw.fields.items():
        path = path_of(name)
        if held is None:
            raise Damaged(path, "its key is gone")
        entries[path] = value_of(held, notes.get(path))
    if not entries:
        raise Damaged("", "a block has no entry")
    return Block(id_, entries, raw.expires)


def notes_of(held: bytes | dict[bytes, bytes]) -> dict[str, Any]:
    """The notes of a block by access path."""
    if isinstance(held, dict):
        return {path_of(name): _json_or_none(note) for name, note in held.items() if note}
    if held == b"{}":  # nearly always
        return {}
    side = _json_or_none(held)
    tags = side.get("tags") if isinstance(side, dict) else None
    return tags if isinstance(tags, dict) else {}


@lru_cache(maxsize=65_536)
def path_of(name: bytes) -> str:
    """The access path of an entry, from its name. Raises Damaged for what is none."""
    try:
        if name.startswith(b"\\#"):
            path = str(bytes.fromhex(str(name[2:], "ascii")), "utf-8", "surrogatepass")
        else:
            path = str(name, "utf-8")
        parse_path(path)
    except ValueError:
        raise Damaged(str(name, "utf-8", "backslashreplace"), "no access path") from None
    return path


def looks_like_json(held: bytes) -> bool:
    """Whether bytes without a note are read as JSON."""
    return (
        held[:1] in (b"{", b"[")
        or held in (b"true", b"false", b"null")
        or _NUMBER.fullmatch(held) is not None
    )


def value_of(held: bytes, note: Any) -> Value:
    """The value of an entry of ours."""
    if note is not None:
        try:
            return _noted(held, note)
        except _MISFIT:
            pass
    if looks_like_json(held):
        try:
            return _json(held)
        except _MISFIT:
            pass
    return _unmarked(held)


def _noted(held: bytes, note: Any) -> Value:
    if note == "raw":
        return held
    if note == "text":
        return str(held, "utf-8", "surrogatepass")
    if isinstance(note, str) and note != "set":
        text = str(held, "utf-8", "surrogatepass")
        found = untag(text, {"": note})
        if found is text:
            raise ValueError("the note does not fit")
        return found
    tags = {"": note} if isinstance(note, str) else note
    if not (tags and all(isinstance(tag, str) for tag in tags.values())):
        raise TypeError("that is no note")
    return untag(_json(held), tags)


def _unmarked(held: bytes) -> Value:
    try:
        return str(held, "utf-8")
    except UnicodeDecodeError:
        return held


def _document(raw: Raw) -> Record:
    try:
        record = _json(raw.fields[b""] or b"")
    except _MISFIT as error:
        raise Damaged("", f"it is no JSON: {error}") from None
    if not isinstance(record, dict):
        raise Damaged("", "it is JSON, but no record")
    tags: dict[str, str] = {}
    side = record.get(SIDE)
    if isinstance(side, dict) and not set(side) - {"tags", "version"}:
        given = side.get("tags")
        if isinstance(given, dict) and all(isinstance(tag, str) for tag in given.values()):
            del record[SIDE]
            tags = given
    shown = {
        name.removeprefix("\\") if name.lstrip("\\") == SIDE else name: item
        for name, item in record.items()
    }
    return untag(shown, tags)  # type: ignore[return-value]


def _json_or_none(held: bytes) -> Any:
    try:
        return _json(held)
    except _MISFIT:
        return None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _float(text: str) -> float:
    found = float(text)
    if found - found != 0:
        raise ValueError("a number out of range")
    return found


def _json(held: bytes) -> Any:
    """The value of JSON. Raises one of _MISFIT for what is none."""
    try:
        found = orjson.loads(held)
        if orjson.dumps(found) == held:
            return found
    except (ValueError, TypeError):  # how it refuses to read, and to write
        pass
    return _any_json(str(held, "utf-8"))


# Made once: that takes as long as reading a small value.
_any_json = reader(json.JSONDecoder(strict=False, parse_constant=_no_number, parse_float=_float))

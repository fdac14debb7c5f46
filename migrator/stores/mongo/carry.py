"""Values that BSON has no kind for: carried by others, with a tag aside.

Tags are pairs of path and tag, in the order in which they were given: what stands inside a
carrier comes after it, so that they are taken off from the last to the first. A tag that no
longer fits what lies there is ignored.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from migrator.model.path import child, parse_path
from migrator.model.tags import from_carrier, to_carrier
from migrator.model.value import Record, Value
from migrator.stores.mongo.codec import PLAIN_TYPES, native

Pairs: TypeAlias = list[list[str]]

_UNSPEAKABLE = re.compile("[\0%\ud800-\udfff]")
_ESCAPE = re.compile("%([0-9A-F]{2})|%U([0-9A-F]{4})|%$")


def escape(name: str, also: str = "") -> str:
    """A name that any MongoDB takes, with the characters of ``also`` escaped too.

    Escapes are ``%`` and two hexadecimal digits, ``%U`` and four for an unpaired surrogate;
    the empty name is a lone ``%``.
    """
    pattern = re.compile(f"{_UNSPEAKABLE.pattern[:-1]}{re.escape(also)}]") if also else _UNSPEAKABLE
    return pattern.sub(lambda m: _escaped(ord(m[0])), name) or "%"


def escape_first(escaped: str) -> str:
    """A reserved name, or one that begins with ``$``: its first character escaped as well."""
    return _escaped(ord(escaped[0])) + escaped[1:]


def _escaped(code: int) -> str:
    return f"%{code:02X}" if code < 256 else f"%U{code:04X}"


def unescape(name: str) -> str:
    """The name behind its escaped form."""
    return _ESCAPE.sub(lambda m: chr(int(m[1] or m[2], 16)) if m[1] or m[2] else "", name)


def looks_escaped(name: str) -> bool:
    """Whether a name could be taken for the escaped form of another."""
    return _ESCAPE.search(name) is not None


def _speakable(record: Record) -> bool:
    names = "\1".join(record)
    return "\0" not in names and native(names)


def _native(value: Value) -> bool:
    """As ``native``, quick for what is plain; lists and records have to be looked into."""
    kind = type(value)
    return kind in PLAIN_TYPES or (kind is str and value.isascii()) or native(value)  # type: ignore[attr-defined]


def hold(value: Value, path: str, pairs: Pairs) -> Value:
    """The value as native kinds; what had to be carried is noted in ``pairs``.

    Raises TypeError for what is no value of the model.
    """
    if type(value) is dict:
        if not _speakable(value):
            pairs.append([path, "names"])
            value = {escape(name): item for name, item in value.items()}
        return {
            name: item if _native(item) else hold(item, child(path, name), pairs)
            for name, item in value.items()
        }
    if type(value) is list:
        return [
            item if _native(item) else hold(item, f"{path}[{i}]", pairs)
            for i, item in enumerate(value)
        ]
    if native(value):
        return value
    tag, carrier = to_carrier(value)
    pairs.append([path, tag])
    return hold(carrier, path, pairs)


def release(value: Value, pairs: Pairs) -> Value:
    """The value behind its carriers; lists and records are changed in place."""
    for path, tag in reversed(pairs):
        try:
            *above, last = parse_path(path) or ("",)
            if not path:
                value = _release_one(value, tag)
                continue
            parent = value
            for step in above:
                parent = parent[step]  # type: ignore[index]
            parent[last] = _release_one(parent[last], tag)  # type: ignore[index]
        except (ValueError, TypeError, ArithmeticError, LookupError):
            continue
    return value


def _release_one(held: Value, tag: str) -> Value:
    if tag == "names":
        if type(held) is not dict:
            raise TypeError("only a record has names")
        return {unescape(name): item for name, item in held.items()}
    if tag == "list":
        if type(held) is not dict or list(held) != [str(i) for i in range(len(held))]:
            raise TypeError("a composite key is carried by numbered fields")
        return list(held.values())
    return from_carrier(tag, held)


def hold_id(id: Value) -> tuple[Value, Pairs]:
    """A block key as MongoDB takes it for ``_id``: a list becomes a record of its numbers."""
    pairs: Pairs = []
    if type(id) is list:
        pairs.append(["", "list"])
        id = {str(i): item for i, item in enumerate(id)}
    return hold(id, "", pairs), pairs


def pairs_of(held: Value) -> Pairs:
    """The pairs in a stored side field; anything else in there is not ours and ignored."""
    if type(held) is not list:
        return []
    return [
        pair
        for pair in held
        if type(pair) is list and len(pair) == 2 and all(type(part) is str for part in pair)
    ]

"""Keys and field names as bytes: what stands after ``Class:``, and what an entry is called.

An identifier that is text stands there as it is, so that people find ``Player:mary``; so do
bytes that are no text. Every other kind is ``#`` and JSON (``#2345``, ``#"6500…" {"":
"objectid"}``). Whatever bytes another application used are some identifier's, and no two
identifiers share a key.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from migrator.model import tags as copier
from migrator.model import witness
from migrator.model.json_text import UNFIT, escaped
from migrator.model.path import parse_path
from migrator.model.value import Value, has_utf8

SIDE = b"_migrator"
MARK = b"#"
# No access path has such an escape, so no other entry's name is the same.
_HEX = b"\\#"
_BRACE = re.compile(rb"%(?=7D|25)|}")
_BRACED = re.compile(rb"%(7D|25)")
_DECODER = json.JSONDecoder(strict=False)


class Damaged(Exception):
    """What lies in a key is no block: access path and reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


# ---------------------------------------------------------------- identifiers


def id_bytes(id: Value) -> bytes:
    """An identifier as it stands in a key. Raises one of UNFIT for what can be none."""
    literal = _literal(id)
    if literal is not None and (literal[:1] != MARK or id_of(literal) == id):
        return literal
    return escaped(id).encode()


def id_of(data: bytes) -> Value:
    """The identifier behind bytes of a key, whoever wrote them."""
    if data[:1] == MARK:
        try:
            value = _unescaped(data)
            # Only what ``id_bytes`` would write is an escape; all else is meant literally.
            if id_bytes(value) == data:
                return value
        except (*UNFIT, LookupError):
            pass
    return _plain(data)


def observed_id(data: bytes) -> Value:
    """As ``id_of``, for verifying: tags are taken off by the second reader."""
    literal = _plain(data)
    if data[:1] != MARK or id_of(data) == literal:
        return literal
    text = data[1:].decode()
    held, end = _DECODER.raw_decode(text)
    rest = text[end:].strip()
    return witness.untag(held, json.loads(rest)) if rest else held


def _literal(id: Value) -> bytes | None:
    """Text as UTF-8 and bytes that are none, as they are; None for all others."""
    if type(id) is str:
        return id.encode() if has_utf8(id) else None
    if type(id) is bytes:
        return id if type(_plain(id)) is bytes else None
    return None


def _plain(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _unescaped(data: bytes) -> Value:
    text = data[1:].decode()
    held, end = _DECODER.raw_decode(text)
    tags = _DECODER.decode(text[end + 1 :]) if text[end:] else {}
    return copier.raise_(held, tags)


def braced(data: bytes) -> bytes:
    """Bytes that may stand in a hash tag, which ends at the first closing brace."""
    return _BRACE.sub(lambda m: b"%25" if m[0] == b"%" else b"%7D", data)


def unbraced(data: bytes) -> bytes:
    """The bytes behind ``braced``."""
    return _BRACED.sub(lambda m: b"%" if m[1] == b"25" else b"}", data)


# ---------------------------------------------------------------- names of entries


@lru_cache(maxsize=65_536)
def field_of(path: str) -> bytes:
    """What the entry at an access path is called."""
    data = path.encode("utf-8", "surrogatepass")
    if data == SIDE or not has_utf8(path):
        return _HEX + data.hex().encode()
    return data


@lru_cache(maxsize=65_536)
def path_of(field: bytes) -> str:
    """The access path of an entry, from its name. Raises Damaged for what is none."""
    try:
        if field[:2] == _HEX:
            path = bytes.fromhex(field[2:].decode()).decode("utf-8", "surrogatepass")
        else:
            path = field.decode()
        parse_path(path)
    except ValueError:
        raise Damaged(shown(field), "this name is no access path") from None
    return path


def foreign_name(field: bytes) -> str:
    """The name of a field that another application chose, whatever its bytes.

    Bytes that are no UTF-8 become the unpaired surrogates that Python uses for them.
    """
    return field.decode("utf-8", "surrogateescape")


def shown(data: bytes) -> str:
    """Bytes for people."""
    return data.decode("utf-8", "backslashreplace").replace("\0", "\\0")

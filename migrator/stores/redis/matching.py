"""Tells without decoding whether what lies in Redis is an expected block; for verifying.

The encoder is not the copier's. It makes text of kinds that Redis holds by a note (a UUID) and
null of doubles that JSON lacks: the first are refused by a packer that knows plain kinds alone,
the others show in its bytes. A no may be wrong and is looked at by decoding.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgpack
import orjson

from migrator.model.block import Block
from migrator.model.canonical import equal
from migrator.model.value import Value
from migrator.stores.redis import observer
from migrator.stores.redis.forms import Form, Raw, StringForm
from migrator.stores.redis.names import Damaged
from migrator.stores.redis.native import NativeForm

Matches = Callable[[Block, Raw], bool]

_OPTIONS = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
)
_UNFIT = (TypeError, ValueError, LookupError, OverflowError, RecursionError)
# How MessagePack begins doubles of the largest exponents, and so those that are not finite.
# UTF-8 has neither, and elsewhere it only costs a look.
_LARGEST = re.compile(rb"\xcb[\x7f\xff]")


def matcher(form: Form) -> Matches:
    """What tells whether keys of a form hold a block. One for each thread."""
    if isinstance(form, NativeForm):
        return lambda block, raw: False
    pack = msgpack.Packer(strict_types=True).pack
    entries = _is_document if isinstance(form, StringForm) else _are_entries

    def matches(block: Block, raw: Raw) -> bool:
        if block.expires != raw.expires:
            return False
        try:
            return entries(block, raw, pack)
        except (*_UNFIT, Damaged):
            return False

    return matches


def _is_plain(values: list[Value], pack: Callable[[object], bytes]) -> bool:
    """Whether JSON has all of these. Raises one of _UNFIT where it has not."""
    return _LARGEST.search(pack(values)) is None


def _are_entries(block: Block, raw: Raw, pack: Callable[[object], bytes]) -> bool:
    expected = block.entries
    if raw.notes is None or len(raw.fields) != len(expected):
        return False
    notes = observer.notes_of(raw.notes)
    path_of, encode = observer.path_of, orjson.dumps
    plain: list[Value] = []
    for name, held in raw.fields.items():
        if held is None or name.startswith(b"\\#"):
            return False  # its key is gone; or it may be the second name of one path
        path = path_of(name)
        value = expected[path]
        if path in notes:
            if not equal(observer.value_of(held, notes[path]), value):
                return False
            continue
        if held != (_text(value) if type(value) is str else encode(value, None, _OPTIONS)):
            return False
        plain.append(value)
    return _is_plain(plain, pack)


def _text(value: str) -> bytes | None:
    """What lies there for text without a note; None for what would be taken for JSON."""
    data = bytes(value, "utf-8")
    return None if observer.looks_like_json(data) else data


def _is_document(block: Block, raw: Raw, pack: Callable[[object], bytes]) -> bool:
    # In several entries it is assembled, which is the copier's way.
    if block.entries.keys() != {""}:
        return False
    whole = block.entries[""]
    if type(whole) is not dict or any(name.endswith(observer.SIDE) for name in whole):
        return False
    return raw.fields[b""] == orjson.dumps(whole, None, _OPTIONS) and _is_plain([whole], pack)

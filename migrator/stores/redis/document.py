"""The layout ``string``: a whole aggregate as one JSON text, with its tags inside.

Where something had to be carried, the top-level field ``_migrator`` says so, by access path; a
field that is called so itself has a backslash before its name.
"""

from __future__ import annotations

import re

from migrator.model import tags as copier
from migrator.model.json_text import dump_bytes, native, to_json
from migrator.model.value import Record
from migrator.stores.redis import codec
from migrator.stores.redis.names import Damaged

FIELD = "_migrator"
_LIKE = re.compile(r"\\*_migrator")


def write(record: Record) -> bytes:
    """The text of an aggregate. Raises one of UNFIT for what can't be held."""
    data, tags = dump_bytes(record)
    if not tags and not any(map(_LIKE.fullmatch, record)):
        return data
    tags = {}
    held = copier.lower(record, native, "", tags)
    renamed = {_escaped(name): item for name, item in held.items()}  # type: ignore[attr-defined]
    return to_json(renamed | ({FIELD: {"tags": tags}} if tags else {}))


def _escaped(name: str) -> str:
    return "\\" + name if _LIKE.fullmatch(name) else name


def _unescaped(name: str) -> str:
    return name.removeprefix("\\") if _LIKE.fullmatch(name) else name


def read(data: bytes) -> Record:
    """The aggregate of a text. Raises Damaged for what is none."""
    try:
        record = codec.from_json(data)
    except (ValueError, RecursionError) as error:
        raise Damaged("", f"it is no JSON: {error}") from None
    if type(record) is not dict:
        raise Damaged("", "it is JSON, but no record")
    tags = tags_of(record)
    if any(map(_LIKE.fullmatch, record)):
        record = {_unescaped(name): item for name, item in record.items()}
    try:
        return copier.raise_(record, tags)  # type: ignore[return-value]
    except (ValueError, TypeError):
        return record


def tags_of(record: Record) -> copier.Tags:
    """Take the tags out of a record; none where what is called so is somebody else's."""
    side = record.get(FIELD)
    tags = side.get("tags") if type(side) is dict and side.keys() <= {"tags", "version"} else None
    if type(tags) is not dict or not all(type(tag) is str for tag in tags.values()):
        return {}
    del record[FIELD]
    return tags

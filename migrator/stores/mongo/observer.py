"""The verifier's reader: the driver's own types, mapped here and nowhere else.

Nothing of the copier's mapping is used (``codec``, ``wire``, ``carry``, ``stored``); only the
way to the raw documents is shared. A document is decoded by the driver without any hooks; that
it was read exactly is shown by writing it again; what the driver can't read exactly is read here
byte by byte.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import bson
import msgpack
from bson.codec_options import CodecOptions, DatetimeConversion

from migrator.model import value as v
from migrator.model.block import Block
from migrator.model.path import parse_path
from migrator.model.rules import Representation, assemble
from migrator.model.tags import from_carrier
from migrator.model.value import Record, Value
from migrator.ports import Json, Page
from migrator.stores.mongo.collection import read_blocks, read_page
from migrator.stores.mongo.paging import Pager
from migrator.stores.mongo.wire import Damaged

_DRIVER: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True,
    tzinfo=dt.UTC,
    uuid_representation=4,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)

# Names that may lie there under another: escaped ones, and those of the layout itself.
_ODD = re.compile(r"[.%$\0]|^_|^$").search


class MongoObserver:
    """Reads the blocks of one location for comparison."""

    def __init__(
        self, pager: Pager, representation: Representation, flat: bool, expires: str | None
    ) -> None:
        self._pager = pager
        self._representation = representation
        self._flat = flat
        self._expires = expires

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return read_page(self._pager, self.block, range_, position, limit)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return read_blocks(self._pager, self.block, ids)

    def forms(self, range_: Json, position: Json, limit: int) -> tuple[list[bytes], Json]:
        return self._pager.batch(range_, position, limit)

    def form(self, expected: Block) -> bytes | None:
        """The document of a block that needs no tags, none of this driver's types and no name
        but its own: as the driver writes it, where the driver reads the same again."""
        fields = dict(expected.entries) if self._flat else assemble(expected.entries)
        rest = {"_": fields.pop("")} if self._flat and "" in fields else {}
        if expected.expires is not None or type(expected.id) is list or any(map(_ODD, fields)):
            return None
        document = {"_id": expected.id, **fields, **rest}
        try:
            plain = msgpack.packb(document, strict_types=True)
            raw = bson.encode(document, codec_options=_DRIVER)
            read = msgpack.packb(bson.decode(raw, _DRIVER))
        except Exception:  # noqa: BLE001 - whatever they say, it is for the other reader then
            return None
        return raw if read == plain else None

    def block(self, raw: bytes) -> Block:
        """The block of a document. Raises Damaged for what can't be read."""
        record = _values(raw)
        id_ = record.pop("_id", None)
        deadline = record.get(self._expires) if self._expires else None
        expires = None
        if type(deadline) is v.Instant or (type(deadline) is dt.datetime and deadline.tzinfo):
            expires = v.nanos_of(record.pop(str(self._expires))) // 1_000_000
        side = record.get("_migrator")
        if type(side) is dict and set(side) <= {"tags", "names", "id", "version"}:
            del record["_migrator"]
            id_ = _untag(id_, side.get("id"))
        else:
            side = {}
        record = self._shown(record, side)
        if not self._flat:
            return Block(id_, self._representation.partition(record), expires)
        for path in record:
            _check_path(path)
        return Block(id_, record, expires)

    def _shown(self, record: Record, side: Record) -> Record:
        """The fields under their own names, with their tags taken off."""
        tags, names = side.get("tags"), side.get("names")
        tags = tags if type(tags) is dict else {}
        names = names if type(names) is dict else {}
        rest = "_" if self._flat else None
        if not tags and not names and rest not in record:
            return record
        result: Record = {}
        for name, value in record.items():
            shown = "" if name == rest else _name(name) if name in names else name
            if shown in result:
                raise Damaged(shown, "two fields stand for this one")
            result[shown] = _untag(value, tags[name]) if name in tags else value
        return result


def _check_path(path: str) -> None:
    try:
        parse_path(path)
    except ValueError as error:
        raise Damaged(path, str(error)) from None


# ---------------------------------------------------------------- tags


def _untag(value: Value, tags: Value) -> Value:
    """The value behind its tags, the innermost (last) first; those that misfit are passed by."""
    box: Record = {"": value}
    for pair in reversed(tags) if type(tags) is list else ():
        try:
            path, tag = pair
            place: Any = box
            steps: list[str | int] = ["", *parse_path(path)]
            for step in steps[:-1]:
                place = place[step]
            place[steps[-1]] = _carried(tag, place[steps[-1]])
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError):
            continue
    return box[""]


def _carried(tag: str, held: Any) -> Value:
    if tag == "names":
        return {_name(name): item for name, item in dict(held.items()).items()}
    if tag == "list":
        if [*held] != [str(i) for i in range(len(held))]:
            raise ValueError("no numbered fields")
        return [*held.values()]
    return from_carrier(tag, held)


def _name(stored: str) -> str:
    """The name behind ``%2E`` and the like."""
    if stored == "%":
        return ""
    head, *parts = stored.split("%")
    for part in parts:
        width = 5 if part.startswith("U") else 2
        head += chr(int(part[:width].lstrip("U"), 16)) + part[width:]
    return head


# ---------------------------------------------------------------- values


def _values(raw: bytes) -> Record:
    try:
        found = bson.decode(raw, _DRIVER)
        exact = bson.encode(found, codec_options=_DRIVER) == raw
    except Exception:  # noqa: BLE001 - whatever the driver says, the bytes decide
        exact = False
    if not exact:
        try:
            return _record(raw, 0, len(raw), "")
        except (LookupError, struct.error, ValueError, RecursionError) as error:
            raise Damaged("", f"no BSON document: {error}") from None
    try:
        msgpack.packb(found, strict_types=True)
        return found  # nothing but Python's own types: they are the model's
    except (TypeError, ValueError, OverflowError):
        return {name: _model(value) for name, value in found.items()}


_OWN = frozenset((str, int, float, bool, type(None), bytes, UUID, dt.datetime))
_MODEL: dict[type, Callable[[Any], Value]] = {
    bson.Int64: lambda x: v.Int64(x),
    bson.ObjectId: lambda x: v.ObjectId(x.binary),
    bson.Decimal128: lambda x: _decimal(x),
    bson.Binary: lambda x: v.Binary(x.subtype, bytes(x)),
    bson.Timestamp: lambda x: v.BsonTimestamp(x.time, x.inc),
    bson.Regex: lambda x: _regex(x),
    bson.DatetimeMS: lambda x: v.instant(int(x) * 1_000_000),
    bson.MinKey: lambda _: v.Opaque("bson", "minKey"),
    bson.MaxKey: lambda _: v.Opaque("bson", "maxKey"),
    bson.Code: lambda x: _code(x),
    bson.DBRef: lambda x: _model(dict(x.as_doc())),
}


def _model(value: Any) -> Value:
    kind = type(value)
    if kind in _OWN:
        return value
    if kind is dict:
        return {name: x if type(x) in _OWN else _model(x) for name, x in value.items()}
    if kind is list:
        return [x if type(x) in _OWN else _model(x) for x in value]
    return _MODEL[kind](value)


def _decimal(value: bson.Decimal128) -> Value:
    # More than one row of bits may stand for a number; only the usual one is the number.
    number = value.to_decimal()
    usual = bson.Decimal128(number).bid == value.bid
    return number if usual else v.Opaque("bson", "decimal", value.bid)


def _regex(value: bson.Regex[Any]) -> v.Regex:
    # Written by the driver alone, a pattern shows its letters: type, empty name, pattern, letters.
    letters = bson.encode({"": value})[6:-2].rsplit(b"\0", 1)[1]
    return v.Regex(value.pattern, letters.decode())


def _code(value: bson.Code) -> v.Opaque:
    kind = "javascript" if value.scope is None else "javascriptWithScope"
    return v.Opaque("bson", kind, bson.encode({"": value}, codec_options=_DRIVER)[6:-1])


def _record(raw: bytes, at: int, end: int, path: str) -> Record:
    if struct.unpack_from("<i", raw, at)[0] != end - at or raw[end - 1] != 0:
        raise Damaged(path, "the length of the document is wrong")
    record: Record = {}
    at += 4
    while raw[at]:
        stop = raw.index(0, at + 1, end)
        name = _utf8(raw[at + 1 : stop], path)
        below = f"{path}.{name}" if path else name
        width = _width(raw, raw[at], stop + 1)
        if name in record:
            raise Damaged(below, "the field stands there twice")
        if not 0 <= width < end - stop - 1:
            raise Damaged(below, "the document is cut short")
        record[name] = _value(raw, raw[at], stop + 1, stop + 1 + width, below)
        at = stop + 1 + width
    if at != end - 1:
        raise Damaged(path, "bytes after the end of the document")
    return record


def _width(raw: bytes, kind: int, at: int) -> int:
    if kind == 0x0B:
        return raw.index(0, raw.index(0, at) + 1) + 1 - at
    fixed, counted = _WIDTHS[kind]
    return int(fixed + (struct.unpack_from("<i", raw, at)[0] if counted else 0))


_WIDTHS = {
    0x01: (8, 0), 0x02: (4, 1), 0x03: (0, 1), 0x04: (0, 1), 0x05: (5, 1), 0x06: (0, 0),
    0x07: (12, 0), 0x08: (1, 0), 0x09: (8, 0), 0x0A: (0, 0), 0x0C: (16, 1), 0x0D: (4, 1),
    0x0E: (4, 1), 0x0F: (0, 1), 0x10: (4, 0), 0x11: (8, 0), 0x12: (8, 0), 0x13: (16, 0),
    0x7F: (0, 0), 0xFF: (0, 0),
}  # fmt: skip
_ONLY_BSON = {0x06: "undefined", 0x0C: "dbPointer", 0x0D: "javascript", 0x0E: "symbol"}


def _value(raw: bytes, kind: int, at: int, end: int, path: str) -> Value:
    data = raw[at:end]
    if kind in _ONLY_BSON:
        return v.Opaque("bson", _ONLY_BSON[kind], data)
    if kind == 0x0F:
        return v.Opaque("bson", "javascriptWithScope", data)
    if kind == 0x02:
        return _utf8(data[4:-1], path)
    if kind == 0x03:
        return _record(raw, at, end, path)
    if kind == 0x04:
        return list(_record(raw, at, end, path).values())
    if kind == 0x05 and data[4] == 4 and len(data) != 21:
        return v.Binary(4, data[5:])  # no UUID, whatever the subtype says
    if kind == 0x0B:
        pattern, flags = data[:-1].split(b"\0")
        return v.Regex(_utf8(pattern, path), _utf8(flags, path))
    held = bson.decode(b"%b%c\0%b\0" % (struct.pack("<i", len(data) + 7), kind, data), _DRIVER)
    return _model(held[""])


def _utf8(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Damaged(path, f"text that is not UTF-8: 0x{data[:40].hex()}") from None

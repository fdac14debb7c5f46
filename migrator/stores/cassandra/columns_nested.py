"""CQL's collections, tuples and user-defined types, and JSON text; and reading a type's name.

The members of a set and the keys of a map have no path of their own, so that only what their
type says exactly can stand there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from migrator.model import value as v
from migrator.model.path import child
from migrator.model.tags import Tags, from_carrier, lower, raise_, to_carrier
from migrator.model.value import Value, has_utf8, kind_of
from migrator.stores.cassandra.columns import LOCAL, SCALARS, Codec, Marks, Unfit, shown

JSON = "json"
# Why a type can't be a column of an aggregate.
REFUSED = {
    "counter": "a counter can only be added to: it takes no value, no deadline and no stamp, so "
    "that a copy could neither be repeated nor compared",
    "vector": "vectors are not read or written yet",
}

Types: TypeAlias = Mapping[str, Mapping[str, str]]


class UnknownType(Exception):
    """A type that is none, or that Migrator does not move; the text says which and why."""


def _piece(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else len(data).to_bytes(4, "big") + data


def pieces(data: bytes, at: int = 0) -> Iterator[bytes | None]:
    """The parts of a value, each behind its length. Raises ValueError where one is cut off."""
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if size < 0:
            yield None
            continue
        if at + size > len(data):
            raise ValueError("it ends before its last part")
        yield data[at : at + size]
        at += size


def _counted(data: bytes) -> Iterator[bytes]:
    for piece in pieces(data, 4):
        if piece is None:
            raise ValueError("a collection holds no null")
        yield piece


def _unlike(value: Value, text: str, path: str) -> Unfit:
    return Unfit(f"{kind_of(value)} {shown(value)} can't be held by the type {text}", path)


def _exact(codec: Codec, value: Value, path: str, what: str) -> bytes:
    """The bytes of what can't be marked. Raises Unfit where it would have to be."""
    marks: Marks = {}
    data = codec.write(value, "", marks)
    if marks:
        raise Unfit(f"{kind_of(value)} {shown(value)} can't be {what} of {codec.text}", path)
    return data


@dataclass(frozen=True)
class ListOf:
    """``list<...>``; a set of the model is carried by one with a mark."""

    item: Codec
    text: str

    def write(self, value: Value, path: str, marks: Marks) -> bytes:
        if type(value) is v.Set:
            marks[path] = "set"
            value = list(value)
        if type(value) is not list:
            raise _unlike(value, self.text, path)
        out = [len(value).to_bytes(4, "big")]
        for i, item in enumerate(value):
            at = f"{path}[{i}]"
            if item is None:
                raise Unfit("a collection of CQL holds no null", at)
            out.append(_piece(self.item.write(item, at, marks)))
        return b"".join(out)

    def read(self, data: bytes, path: str, marks: Marks) -> Value:
        items = [
            self.item.read(piece, f"{path}[{i}]", marks) for i, piece in enumerate(_counted(data))
        ]
        return v.Set(items) if marks.get(path) == "set" else items


@dataclass(frozen=True)
class SetOf:
    """``set<...>``."""

    item: Codec
    text: str

    def write(self, value: Value, path: str, marks: Marks) -> bytes:
        if type(value) is not v.Set:
            raise _unlike(value, self.text, path)
        members = [_exact(self.item, member, path, "a member") for member in value]
        return len(members).to_bytes(4, "big") + b"".join(map(_piece, members))

    def read(self, data: bytes, path: str, marks: Marks) -> Value:
        return v.Set([self.item.read(piece, path, {}) for piece in _counted(data)])


@dataclass(frozen=True)
class MapOf:
    """``map<..., ...>`` as a record; keys that are no text are named by their carrier."""

    key: Codec
    item: Codec
    text: str

    def write(self, value: Value, path: str, marks: Marks) -> bytes:
        if type(value) is not dict:
            raise _unlike(value, self.text, path)
        out = [len(value).to_bytes(4, "big")]
        for name, item in value.items():
            at = child(path, name)
            if item is None:
                raise Unfit("a collection of CQL holds no null", at)
            out.append(_piece(self._key(name, at)))
            out.append(_piece(self.item.write(item, at, marks)))
        return b"".join(out)

    def _key(self, name: str, path: str) -> bytes:
        try:
            key = _key_of(name, self.key.text)
            if _name_of(key) != name:
                raise ValueError("two names of one key")
        except (ValueError, TypeError):
            raise Unfit(f"{name!r} can't be a key of {self.text}", path) from None
        return _exact(self.key, key, path, "a key")

    def read(self, data: bytes, path: str, marks: Marks) -> Value:
        record: dict[str, Value] = {}
        pieces = _counted(data)
        for piece in pieces:
            name = _name_of(self.key.read(piece, "", {}))
            record[name] = self.item.read(next(pieces), child(path, name), marks)
        return record


_KEY_TAGS = {
    "int": "integer",
    "smallint": "integer",
    "tinyint": "integer",
    "varint": "integer",
    "bigint": "int64",
    "decimal": "decimal",
    "double": "double",
    "float": "double",
    "boolean": "boolean",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    LOCAL: "local timestamp",
    "duration": "interval",
    "blob": "bytes",
    "uuid": "uuid",
    "timeuuid": "uuid",
}


def _name_of(key: Value) -> str:
    if type(key) is str:
        return key
    tag, carrier = to_carrier(key)
    if type(carrier) is not str:
        raise ValueError("no name for such a key")
    # What datetime can't hold has a tag of its own; its carrier alone could be another's.
    return f"{tag} {carrier}" if tag.endswith((" ns", " days")) or "opaque" in tag else carrier


def _key_of(name: str, text: str) -> Value:
    tag = _KEY_TAGS.get(text)
    if tag is None:
        return name
    for odd in (f"{tag} ns", f"{tag} days"):
        if name.startswith(f"{odd} "):
            return from_carrier(odd, name.removeprefix(f"{odd} "))
    key = from_carrier(tag, name)
    # A plain number of 64 bits is a 64-bit number however it is written.
    return int(key) if type(key) is v.Int64 and kind_of(int(key)) is v.Kind.INT64 else key


@dataclass(frozen=True)
class TupleOf:
    """``tuple<...>`` as a list of so many values."""

    items: tuple[Codec, ...]
    text: str

    def write(self, value: Value, path: str, marks: Marks) -> bytes:
        if type(value) is not list or len(value) != len(self.items):
            raise _unlike(value, self.text, path)
        parts = [
            None if part is None else codec.write(part, f"{path}[{i}]", marks)
            for i, (codec, part) in enumerate(zip(self.items, value, strict=True))
        ]
        return b"".join(map(_piece, parts))

    def read(self, data: bytes, path: str, marks: Marks) -> Value:
        parts: list[bytes | None] = list(pieces(data))
        parts += [None] * (len(self.items) - len(parts))
        return [
            None if piece is None else codec.read(piece, f"{path}[{i}]", marks)
            for i, (codec, piece) in enumerate(zip(self.items, parts, strict=False))
        ]


@dataclass(frozen=True)
class UserType:
    """A user-defined type as a record; which of null and absent is usual, ``nulls`` says."""

    fields: Mapping[str, Codec]
    nulls: bool
    text: str

    def write(self, value: Value, path: str, marks: Marks) -> bytes:
        if type(value) is not dict:
            raise _unlike(value, self.text, path)
        for name in value:
            if name not in self.fields:
                raise Unfit(f"the type {self.text} has no field {name!r}", child(path, name))
        out = []
        for name, codec in self.fields.items():
            at = child(path, name)
            given = value.get(name)
            if given is None:
                if (name in value) is not self.nulls:
                    marks[at] = "null" if name in value else "absent"
                out.append(_piece(None))
            else:
                out.append(_piece(codec.write(given, at, marks)))
        return b"".join(out)

    def read(self, data: bytes, path: str, marks: Marks) -> Value:
        record: dict[str, Value] = {}
        parts: list[bytes | None] = list(pieces(data))
        # Fields added to the type since this was written are not there at all.
        parts += [None] * (len(self.fields) - len(parts))
        for (name, codec), piece in zip(self.fields.items(), parts, strict=False):
            at = child(path, name)
            if piece is not None:
                record[name] = codec.read(piece, at, marks)
            elif is_null(marks.get(at), self.nulls):
                record[name] = None
        return record


def is_null(mark: object, nulls: bool) -> bool:
    """Whether what is not there is null rather than absent."""
    return mark == "null" if not nulls else mark != "absent"


@dataclass(frozen=True)
class JsonText:
    """``text`` with JSON, for what no type of CQL describes; our own word for such a column."""

    text: str = JSON

    def write(self, value: Value, path: str, marks: Marks) -> bytes:
        tags: Tags = {}
        held = lower(value, _in_json, path, tags)
        marks.update(tags)
        text = json.dumps(held, ensure_ascii=False, separators=(",", ":"))
        if not has_utf8(text):
            text = json.dumps(held, separators=(",", ":"))
        return text.encode()

    def read(self, data: bytes, path: str, marks: Marks) -> Value:
        # Paths of marks begin at the column's value, and so does what JSON holds.
        return raise_(json.loads(data), {k: t for k, t in marks.items() if type(t) is str})


def _in_json(value: Value) -> bool:
    kind = type(value)
    return (
        value is None
        or kind is bool
        or kind is int
        or kind is str
        or (kind is float and math.isfinite(value))  # type: ignore[arg-type]
    )


# ---------------------------------------------------------------- reading types

_TOKEN = re.compile(r'\s*("(?:[^"]|"")+"|[\w.]+|[<>,])')


@dataclass(frozen=True)
class Type:
    """A type as CQL writes it, taken apart."""

    name: str
    args: tuple[Type, ...] = ()
    frozen: bool = False

    @property
    def multicell(self) -> bool:
        """Whether each element is a cell of its own, so that an empty value is none at all."""
        if self.frozen or self.name == "tuple":
            return False
        return self.name in ("list", "set", "map") or self.name not in {*SCALARS, JSON}

    @property
    def cql(self) -> str:
        """The type as it stands in a declaration of ours that goes to the server."""
        name = "text" if self.name == JSON else self.name.removesuffix(" local")
        if name not in {*SCALARS, "list", "set", "map", "tuple"}:
            name = quoted(name)
        inner = f"<{', '.join(arg.cql for arg in self.args)}>" if self.args else ""
        return f"frozen<{name}{inner}>" if self.frozen else name + inner


def quoted(name: str) -> str:
    """An identifier in quotes."""
    return '"' + name.replace('"', '""') + '"'


def parse_type(text: str) -> Type:
    """Read a type. Raises UnknownType where it can't be read."""
    if text.strip().lower() == LOCAL:
        return Type(LOCAL)
    tokens: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise UnknownType(f"{text!r} is no type of CQL")
        tokens.append(found[1])
        at = found.end()
    made = _parse(tokens, text)
    if tokens:
        raise UnknownType(f"{text!r} is no type of CQL")
    return made


def _parse(tokens: list[str], text: str) -> Type:
    if not tokens or tokens[0] in "<>,":
        raise UnknownType(f"{text!r} is no type of CQL")
    word = tokens.pop(0)
    name = word[1:-1].replace('""', '"') if word[0] == '"' else word.lower()
    if name == "varchar":
        name = "text"
    if word[0] != '"' and name in REFUSED:
        raise UnknownType(f"{text}: {REFUSED[name]}")
    args: list[Type] = []
    if tokens and tokens[0] == "<":
        while tokens[0] in "<,":
            tokens.pop(0)
            args.append(_parse(tokens, text))
            if not tokens:
                raise UnknownType(f"{text!r} is no type of CQL")
        if tokens.pop(0) != ">":
            raise UnknownType(f"{text!r} is no type of CQL")
    if name == "frozen" and word[0] != '"':
        if len(args) != 1:
            raise UnknownType(f"{text!r} is no type of CQL")
        # A tuple is frozen in any case.
        return Type(args[0].name, args[0].args, frozen=args[0].name != "tuple")
    wanted = {"list": 1, "set": 1, "map": 2}.get(name, len(args) if name == "tuple" else 0)
    if len(args) != wanted or (name == "tuple" and not args):
        raise UnknownType(f"{text!r} is no type of CQL")
    return Type(name, tuple(args))


def codec_of(type_: Type, types: Types, nulls: bool) -> Codec:
    """The codec of a type; ``types`` are the user-defined ones. Raises UnknownType."""
    text = type_.cql.removeprefix("frozen<").removesuffix(">") if type_.frozen else type_.cql

    def below(index: int) -> Codec:
        if type_.args[index].name == JSON:
            raise UnknownType("json is a column of its own, no part of another type")
        return codec_of(type_.args[index], types, nulls)

    if type_.name == JSON:
        return JsonText()
    if type_.name in SCALARS:
        return SCALARS[type_.name]
    match type_.name:
        case "list":
            return ListOf(below(0), text)
        case "set":
            return SetOf(below(0), text)
        case "map":
            return MapOf(below(0), below(1), text)
        case "tuple":
            return TupleOf(tuple(below(i) for i in range(len(type_.args))), text)
    if type_.name not in types:
        raise UnknownType(f"there is no type {type_.name!r}")
    fields = {
        name: codec_of(parse_type(of), types, nulls) for name, of in types[type_.name].items()
    }
    return UserType(fields, nulls, type_.name)


def names_of(type_: Type, types: Types) -> Sequence[str]:
    """The user-defined types that a type needs, those that others stand on first."""
    needed: list[str] = []
    for arg in type_.args:
        needed += names_of(arg, types)
    if type_.name in types:
        for of in types[type_.name].values():
            needed += names_of(parse_type(of), types)
        needed.append(type_.name)
    return list(dict.fromkeys(needed))

"""Types of Redis as values: what is asked for, how it is read (twice) and how it is put.

Elements are text, or bytes where they are no UTF-8; ``of json`` says that each is JSON. A sorted
set is a record of scores; a stream is a list of records with ``id`` and ``values``. The deadlines
of single fields of a hash are a record of timestamps.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from migrator.model.json_text import dump_bytes
from migrator.model.value import (
    INT64_MAX,
    INT64_MIN,
    Instant,
    Kind,
    Record,
    Set,
    Value,
    has_utf8,
    instant,
    kind_of,
    nanos_of,
)
from migrator.stores.redis import codec
from migrator.stores.redis.names import foreign_name
from migrator.stores.redis.wire import Command, Reply

_WHOLE_NUMBER = re.compile(rb"0|-?[1-9]\d*")
_STREAM_ID = re.compile(r"(0|[1-9]\d*)-(0|[1-9]\d*)")
# What Redis takes as the deadline of a field, in milliseconds: the year 4199.
_LAST_DEADLINE = 2**46 - 2
_MILLISECOND = 1_000_000
_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Element = Callable[[bytes], Value]
Put = Callable[[Any], tuple[list[Command], Reply]]


@dataclass(frozen=True)
class Type:
    """One way to hold a part.

    ``put`` gives the commands, without their key, and what ``get`` will answer then; it raises
    ValueError or TypeError for what it does not hold. ``empty`` is the value of an absent key,
    None where the field is absent then.
    """

    name: str
    redis: str
    asks: Command
    rest: Command
    copy: Callable[[Reply], Value]
    observe: Callable[[Reply], Value]
    put: Put
    empty: Callable[[], Value]

    def get(self, key: bytes) -> Command:
        return (*self.asks, key, *self.rest)


# ---------------------------------------------------------------- elements


def _to_text(value: Value) -> bytes:
    if type(value) is str and has_utf8(value):
        return value.encode()
    if type(value) is bytes and type(codec.plain(value)) is bytes:
        return value
    raise TypeError(f"{type(value).__name__} {value!r:.40} is no text")


def _to_json(value: Value) -> bytes:
    data, tags = dump_bytes(value)
    if tags:
        path, tag = next(iter(tags.items()))
        raise TypeError(f"JSON has no {tag} ({path or 'the whole'})")
    return data


def _to_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> Value:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return data


def _observed_json(data: bytes) -> Value:
    def no_number(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    def number(text: str) -> float:
        return float(text) if abs(float(text)) < math.inf else no_number(text)

    held: Value = json.loads(
        str(data, "utf-8"), strict=False, parse_constant=no_number, parse_float=number
    )
    return held


# ---------------------------------------------------------------- the types


def _pairs(held: Sequence[Any]) -> zip[tuple[Any, Any]]:
    return zip(held[::2], held[1::2], strict=True)


def _record(value: Value) -> Record:
    if type(value) is not dict:
        raise TypeError(f"{type(value).__name__} is no record")
    return value


def _put_hash(write: Callable[[Value], bytes]) -> Put:
    def put(value: Value) -> tuple[list[Command], Reply]:
        flat = [x for name, item in _record(value).items() for x in (_to_name(name), write(item))]
        return ([("HSET", *flat)] if flat else []), flat

    return put


def _put_items(command: str, kind: type, write: Callable[[Value], bytes]) -> Put:
    def put(value: Any) -> tuple[list[Command], Reply]:
        if type(value) is not kind:
            raise TypeError(f"{type(value).__name__} is no {kind.__name__.lower()}")
        items = [write(item) for item in value]  # type: ignore[attr-defined]
        return ([(command, *items)] if items else []), items

    return put


def _put_scores(value: Value) -> tuple[list[Command], Reply]:
    command: list[bytes] = []
    held: list[bytes] = []
    for name, score in _record(value).items():
        if type(score) is not float or score != score:
            raise TypeError(f"the score of {name} is no double")
        if not score and math.copysign(1, score) < 0:
            raise ValueError(f"the score of {name} is -0.0, which a sorted set makes 0")
        member, text = _to_name(name), repr(score).encode()
        command += [text, member]
        held += [member, text]
    return ([("ZADD", *command)] if command else []), held


def _put_deadlines(value: Value) -> tuple[list[Command], Reply]:
    by_moment: dict[int, list[bytes]] = {}
    for name, moment in _record(value).items():
        if kind_of(moment) is not Kind.TIMESTAMP:
            raise TypeError(f"the deadline of {name} is no timestamp")
        since, rest = divmod(nanos_of(moment), _MILLISECOND)
        if rest or not 0 <= since <= _LAST_DEADLINE:
            raise ValueError(f"the deadline of {name} is none in milliseconds from 1970 to 4199")
        by_moment.setdefault(since, []).append(_to_name(name))
    held = [part for since, names in by_moment.items() for n in names for part in (n, since)]
    return [("HPEXPIREAT", at, "FIELDS", len(n), *n) for at, n in by_moment.items()], held


def _put_stream(value: Any) -> tuple[list[Command], Reply]:
    if type(value) is not list:
        raise TypeError(f"{type(value).__name__} is no list")
    commands: list[Command] = []
    held = []
    last = (0, 0)
    for entry in value:
        found = _STREAM_ID.fullmatch(str(_record(entry).get("id")))
        values = _record(entry.get("values"))
        if entry.keys() != {"id", "values"} or found is None or not values:
            raise TypeError('an entry of a stream is {"id": "1-0", "values": {...}}')
        number = int(found[1]), int(found[2])
        if number <= last or max(number) >= 2**64:
            raise ValueError(f"the entry {entry['id']} does not follow the one before")
        last = number
        flat = [x for name, item in values.items() for x in (_to_name(name), _to_text(item))]
        commands.append(("XADD", entry["id"], *flat))
        held.append([entry["id"].encode(), flat])
    return commands, held


def _put_one(write: Callable[[Value], bytes]) -> Put:
    def put(value: Value) -> tuple[list[Command], Reply]:
        data = write(value)
        return [("SET", data)], data

    return put


def _to_integer(value: Value) -> bytes:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise TypeError("no whole number of 64 bits")
    return str(value).encode()


def _integer(data: bytes) -> Value:
    if not _WHOLE_NUMBER.fullmatch(data):
        raise ValueError("no whole number")
    return int(data)


def _hash(read: Element) -> Callable[[Reply], Value]:
    return lambda held: {foreign_name(name): read(item) for name, item in _pairs(held)}


def _scores(held: Reply) -> Value:
    return {foreign_name(member): float(score) for member, score in _pairs(held)}


def _deadlines(held: Reply) -> Value:
    return {foreign_name(name): instant(since * _MILLISECOND) for name, since in _pairs(held)}


def _observed_deadlines(held: Reply) -> Value:
    found: dict[str, Value] = {}
    for name, since in _pairs(held):
        try:
            moment: Value = _START + dt.timedelta(milliseconds=since)
        except OverflowError:
            moment = Instant(since * _MILLISECOND)
        found[str(name, "utf-8", "surrogateescape")] = moment
    return found


def _stream(read: Element) -> Callable[[Reply], Value]:
    def stream(held: Reply) -> Value:
        entries: list[Value] = []
        for number, flat in held:
            values = {foreign_name(name): read(item) for name, item in _pairs(flat)}
            if len(values) * 2 != len(flat):
                raise ValueError(f"entry {number.decode()} has a name twice")
            entries.append({"id": number.decode(), "values": values})
        return entries

    return stream


def _lists(command: Command, rest: Command, name: str, redis: str, put: str) -> list[Type]:
    kind: type = list if name == "list" else Set
    elements: dict[str, tuple[Element, Element, Callable[[Value], bytes]]] = {
        name: (codec.plain, _text, _to_text),
        f"{name} of json": (lambda data: codec.from_json(data), _observed_json, _to_json),
    }
    return [
        Type(
            called,
            redis,
            command,
            rest,
            lambda held, read=copy: kind(map(read, held)),  # type: ignore[misc]
            lambda held, read=observe: kind([read(item) for item in held]),  # type: ignore[misc]
            _put_items(put, kind, write),
            kind,
        )
        for called, (copy, observe, write) in elements.items()
    ]


def _nothing() -> None:
    return None


_ALL = [
    Type("hash", "hash", ("HGETALL",), (), _hash(codec.plain), _hash(_text), _put_hash(_to_text),
         dict),
    Type("hash of json", "hash", ("HGETALL",), (), _hash(lambda data: codec.from_json(data)),
         _hash(_observed_json), _put_hash(_to_json), dict),
    *_lists(("LRANGE",), (0, -1), "list", "list", "RPUSH"),
    *_lists(("SMEMBERS",), (), "set", "set", "SADD"),
    Type("sorted set", "zset", ("ZRANGE",), (0, -1, "WITHSCORES"), _scores, _scores, _put_scores,
         dict),
    Type("stream", "stream", ("XRANGE",), ("-", "+"), _stream(codec.plain), _stream(_text),
         _put_stream, list),
    Type("string", "string", ("GET",), (), codec.plain, _text, _put_one(_to_text), _nothing),
    Type("json", "string", ("GET",), (), lambda data: codec.from_json(data), _observed_json,
         _put_one(_to_json), _nothing),
    Type("deadlines", "hash", ("HPEXPIRETIME",), (), _deadlines, _observed_deadlines,
         _put_deadlines, dict),
    Type("integer", "string", ("GET",), (), _integer, _integer, _put_one(_to_integer), _nothing),
]  # fmt: skip
TYPES = {each.name: each for each in _ALL}
# Of the fields of a hash that is another part: what is asked for are the fields that it has.
DEADLINES = "deadlines"

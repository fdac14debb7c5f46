"""Tags: how a store keeps the kind of a value it can't hold natively.

The value is carried as text, bytes, a number or a list that a reader with the plain driver
understands; a tag, kept aside and keyed by access path, says what it really is. A tag that no
longer fits its carrier (somebody changed the value) is ignored.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import TypeAlias
from uuid import UUID

from migrator.model import value as v
from migrator.model.path import child, parse_path
from migrator.model.value import Value

Tags: TypeAlias = dict[str, str]
Native: TypeAlias = Callable[[Value], bool]
Reader: TypeAlias = Callable[[str, Value], Value]


def lower(value: Value, native: Native, path: str = "", tags: Tags | None = None) -> Value:
    """The value as a store holds it; what ``native`` refuses becomes a carrier, noted in ``tags``.

    ``native`` is asked for every scalar and set. Lists and records are rebuilt only where
    something inside them changed. Raises TypeError for what is no value of the model.
    """
    if type(value) is dict:
        changed = {}
        for name, item in value.items():
            held = lower(item, native, child(path, name), tags)
            if held is not item:
                changed[name] = held
        return {**value, **changed} if changed else value
    if type(value) is list:
        items = [lower(item, native, f"{path}[{i}]", tags) for i, item in enumerate(value)]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if native(value):
        return value
    tag, carrier = to_carrier(value)
    while type(carrier) in (str, bytes) and not native(carrier) and not tag.startswith("bytes/"):
        # The text of a reference or regex may hold what the store's own text can't.
        outer, carrier = to_carrier(carrier)
        tag = f"{outer}/{tag}"
    if tags is not None:
        tags[path] = tag
    # The members of a set are tagged by their index in the list that carries it.
    return lower(carrier, native, path, tags) if type(value) is v.Set else carrier


def raise_(value: Value, tags: Mapping[str, str], read: Reader | None = None) -> Value:
    """The value behind its carriers; what does not fit its tag any more stays as it is.

    ``read`` is asked instead of ``from_carrier`` by a store with carriers of its own. Lists and
    records are changed in place. Raises ValueError where a tag has no access path.
    """
    read = read or from_carrier
    # Deepest first: the members of a set get their kinds before the list becomes a set.
    for path in sorted(tags, key=lambda p: -len(parse_path(p))):
        steps = parse_path(path)
        if not steps:
            value = _raise_one(value, tags[path], read)
            continue
        parent = value
        for step in steps[:-1]:
            parent = _step(parent, step)
        last = steps[-1]
        held = _step(parent, last)
        if held is not _MISSING:
            parent[last] = _raise_one(held, tags[path], read)  # type: ignore[index]
    return value


_MISSING = object()


def _step(value: Value, step: str | int) -> Value:
    if type(value) is dict and type(step) is str:
        return value.get(step, _MISSING)
    if type(value) is list and type(step) is int and step < len(value):
        return value[step]
    return _MISSING


def _raise_one(held: Value, tag: str, read: Reader) -> Value:
    try:
        return read(tag, held)
    except (ValueError, TypeError):
        return held


def to_carrier(value: Value) -> tuple[str, Value]:
    """The tag and the carrier of any scalar or set. Raises TypeError for other values."""
    match value:
        case None:
            return "null", ""
        case bool():
            return "boolean", "true" if value else "false"
        case v.Int64():
            return "int64", str(int(value))
        case int():
            return "integer", str(value)
        case float():
            return "double", _double_text(value)
        case Decimal():
            return "decimal", str(value)
        case str():
            return "text", value.encode("utf-8", "surrogatepass")
        case bytes():
            return "bytes", base64.b64encode(value).decode()
        case v.Binary():
            return f"binary:{value.subtype}", base64.b64encode(value.data).decode()
        case dt.datetime() if value.tzinfo is None:
            return "local timestamp", value.isoformat()
        case dt.datetime():
            try:
                return "timestamp", value.astimezone(dt.UTC).isoformat()
            except OverflowError:  # a zone carries it over the edge of the years 1 to 9999
                return "timestamp ns", str(v.nanos_of(value))
        case dt.date():
            return "date", value.isoformat()
        case dt.time():
            return "time", value.isoformat()
        case v.Instant():
            return "timestamp ns", str(value.nanos)
        case v.LocalTimestamp():
            return "local timestamp ns", str(value.nanos)
        case v.LongDate():
            return "date days", str(value.days)
        case v.TimeOfDay():
            return "time ns", str(value.nanos)
        case v.Interval():
            return "interval", f"P{value.months}M{value.days}D{value.nanos}N"
        case UUID():
            return "uuid", str(value)
        case v.ObjectId():
            return "objectid", str(value)
        case v.BsonTimestamp():
            return "bson timestamp", f"{value.time},{value.increment}"
        case v.Regex():
            return f"regex:{value.flags}", value.pattern
        case v.Opaque():
            data = base64.b64encode(value.data).decode()
            return f"opaque:{value.system}:{value.kind}", data
        case v.Ref():
            if isinstance(value.id, str):
                return "reference", f"{value.cls}:{value.id}"
            tag, held = _composite(value.id) if type(value.id) is list else to_carrier(value.id)
            return f"reference:{tag}", f"{value.cls}:{held}"
        case v.Set():
            return "set", list(value)
    raise TypeError(f"{type(value).__name__} has no carrier")


def _composite(parts: list[Value]) -> tuple[str, str]:
    """The tag and the carrier of a composite key: its parts, with commas between them."""
    tags, texts = ["list"], []
    for part in parts:
        tag, held = ("", part) if type(part) is str else to_carrier(part)
        if type(held) is not str or "," in tag:
            raise TypeError(f"{type(part).__name__} in a composite key has no carrier")
        tags.append(tag)
        texts.append(held.replace("\\", "\\\\").replace(",", "\\,"))
    return ",".join(tags), ",".join(texts)


def _parts(tag: str, held: str) -> list[Value]:
    tags = tag.split(",")[1:]
    texts = re.findall(r"(?:^|,)((?:[^,\\]|\\.)*)", held, re.DOTALL) if tags else []
    if len(texts) != len(tags):
        raise ValueError("a composite key of other parts")
    plain = [re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) for text in texts]
    return [from_carrier(t, x) if t else x for t, x in zip(tags, plain, strict=True)]


def _double_text(value: float) -> str:
    return "nan" if math.isnan(value) else repr(value)


def from_carrier(tag: str, held: Value) -> Value:
    """The value behind a carrier. Raises ValueError or TypeError where the tag does not fit."""
    outer, chained, inner = tag.partition("/")
    if chained and outer in ("text", "bytes"):
        return from_carrier(inner, from_carrier(outer, held))
    name, _, rest = tag.partition(":")
    if name == "set":
        if type(held) is not list:
            raise TypeError("a set is carried by a list")
        return v.Set(held)
    if name == "text":
        if type(held) is not bytes:
            raise TypeError("such text is carried by bytes")
        return held.decode("utf-8", "surrogatepass")
    if type(held) is not str:
        raise TypeError(f"{name} is carried by text")
    if name == "reference":
        cls, colon, id_ = held.partition(":")
        if not colon:
            raise ValueError("a reference is carried as Class:id")
        if rest.partition(",")[0] == "list":
            return v.Ref(cls, _parts(rest, id_))
        return v.Ref(cls, from_carrier(rest, id_) if rest else id_)
    reader = _READERS.get(name)
    if reader is None:
        raise ValueError(f"no tag is called {name}")
    try:
        return reader(held, rest)
    except (KeyError, ArithmeticError) as error:
        raise ValueError(f"{name} is not carried like this") from error


def _integer(held: str) -> int:
    if re.fullmatch(r"-?[0-9]+", held) is None:
        raise ValueError("not a whole number")
    return int(held)


def _decimal(held: str) -> Decimal:
    try:
        return Decimal(held)
    except InvalidOperation:
        raise ValueError("not a decimal number") from None


def _datetime(held: str, zoned: bool) -> dt.datetime:
    found = dt.datetime.fromisoformat(held)
    if zoned is (found.tzinfo is None):
        raise ValueError("a zone is missing, or there is one")
    return found


def _interval(held: str) -> v.Interval:
    found = re.fullmatch(r"P(-?\d+)M(-?\d+)D(-?\d+)N", held)
    if found is None:
        raise ValueError("not an interval")
    return v.Interval(*map(int, found.groups()))


def _null(held: str) -> None:
    if held:
        raise ValueError("null is carried by empty text")


def _boolean(held: str) -> bool:
    return {"true": True, "false": False}[held]


def _pair(held: str) -> v.BsonTimestamp:
    time, increment = held.split(",")
    return v.BsonTimestamp(int(time), int(increment))


def _opaque(held: str, rest: str) -> v.Opaque:
    system, _, kind = rest.partition(":")
    return v.Opaque(system, kind, base64.b64decode(held, validate=True))


_READERS: dict[str, Callable[[str, str], Value]] = {
    "null": lambda held, _: _null(held),
    "boolean": lambda held, _: _boolean(held),
    "int64": lambda held, _: v.Int64(_integer(held)),
    "integer": lambda held, _: _integer(held),
    "double": lambda held, _: float(held),
    "decimal": lambda held, _: _decimal(held),
    "bytes": lambda held, _: base64.b64decode(held, validate=True),
    "binary": lambda held, rest: v.Binary(int(rest), base64.b64decode(held, validate=True)),
    "timestamp": lambda held, _: _datetime(held, zoned=True).astimezone(dt.UTC),
    "local timestamp": lambda held, _: _datetime(held, zoned=False),
    "date": lambda held, _: dt.date.fromisoformat(held),
    "time": lambda held, _: dt.time.fromisoformat(held),
    "timestamp ns": lambda held, _: v.instant(_integer(held)),
    "local timestamp ns": lambda held, _: v.local_timestamp(_integer(held)),
    "date days": lambda held, _: v.day(_integer(held)),
    "time ns": lambda held, _: v.time_of_day(_integer(held)),
    "interval": lambda held, _: _interval(held),
    "uuid": lambda held, _: UUID(held),
    "objectid": lambda held, _: v.ObjectId(bytes.fromhex(held)),
    "bson timestamp": lambda held, _: _pair(held),
    "regex": lambda held, rest: v.Regex(held, rest),
    "opaque": _opaque,
}

"""The second reader of tagged values, for observers alone.

It reads what ``tags.to_carrier`` wrote, from the written form's description and not by that
module's own reader: a mistake in one of the two shows up as a mismatch instead of agreeing
with itself.
"""

from __future__ import annotations

import datetime as dt
from base64 import b64decode
from collections.abc import Mapping
from decimal import Decimal
from uuid import UUID

from migrator.model import value as v
from migrator.model.path import child
from migrator.model.value import Value

_MICROSECOND = dt.timedelta(microseconds=1)


def untag(value: Value, tags: Mapping[str, str], path: str = "") -> Value:
    """The model's value behind a held one, rebuilt from the leaves up."""
    if type(value) is dict:
        value = {name: untag(item, tags, child(path, name)) for name, item in value.items()}
    elif type(value) is list:
        value = [untag(item, tags, f"{path}[{i}]") for i, item in enumerate(value)]
    tag = tags.get(path)
    if tag is None:
        return value
    try:
        return witness(tag, value)
    except (ValueError, TypeError, ArithmeticError, AttributeError):
        return value


def witness(tag: str, held: Value) -> Value:
    """The value behind a tag and its carrier. Raises ValueError and the like if they disagree."""
    around, slash, inside = tag.partition("/")
    if slash and around in {"text", "bytes"}:
        return witness(inside, witness(around, held))
    word, *more = tag.split(":")
    match word, held:
        case "set", list():
            return v.Set(held)
        case "text", bytes():
            return held.decode("utf-8", "surrogatepass")
        case "null", "":
            return None
        case "boolean", "true" | "false":
            return held == "true"
        case "int64", str():
            return v.Int64(int(held, 10))
        case "integer", str():
            return int(held, 10)
        case "double", str():
            return float(held)
        case "decimal", str():
            return Decimal(held)
        case "bytes", str():
            return b64decode(held)
        case "binary", str():
            return v.Binary(int(more[0]), b64decode(held))
        case "timestamp", str():
            moment = dt.datetime.fromisoformat(held) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
            return v.instant(moment // _MICROSECOND * 1000)
        case "local timestamp", str():
            since = dt.datetime.fromisoformat(held) - dt.datetime(1970, 1, 1)
            return v.local_timestamp(since // _MICROSECOND * 1000)
        case "timestamp ns", str():
            return v.instant(int(held))
        case "local timestamp ns", str():
            return v.local_timestamp(int(held))
        case "date", str():
            return dt.date.fromisoformat(held)
        case "date days", str():
            return v.day(int(held))
        case "time", str():
            return dt.time.fromisoformat(held)
        case "time ns", str():
            return v.time_of_day(int(held))
        case "interval", str():
            months, _, rest = held[1:].partition("M")
            days, _, nanos = rest.partition("D")
            return v.Interval(int(months), int(days), int(nanos.removesuffix("N")))
        case "uuid", str():
            return UUID(held)
        case "objectid", str():
            return v.ObjectId(bytes.fromhex(held))
        case "bson timestamp", str():
            seconds, _, ordinal = held.partition(",")
            return v.BsonTimestamp(int(seconds), int(ordinal))
        case "regex", str():
            return v.Regex(held, ":".join(more))
        case "opaque", str():
            return v.Opaque(more[0], ":".join(more[1:]), b64decode(held))
        case "reference", str() if ":" in held:
            cls, _, id_ = held.partition(":")
            below = ":".join(more)
            if below == "list" or below.startswith("list,"):
                return v.Ref(cls, _key_parts(below.split(",")[1:], id_))
            return v.Ref(cls, witness(below, id_) if more else id_)
    raise ValueError(f"tag {tag} does not fit")


def _key_parts(tags: list[str], held: str) -> list[Value]:
    """The parts of a composite key, walked character by character."""
    parts, escaped = [""], False
    for char in held:
        if escaped or char not in "\\,":
            parts[-1] += char
            escaped = False
        elif char == ",":
            parts.append("")
        else:
            escaped = True
    if not tags:
        return []
    if len(parts) != len(tags):
        raise ValueError("a composite key of other parts")
    return [witness(tag, part) if tag else part for tag, part in zip(tags, parts, strict=True)]

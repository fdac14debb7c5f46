"""JSON columns: nested values in, the same text out.

A number that Python's float writes in the same way is a double, any other with a fraction or
an exponent (``1.10``) is a decimal, so that each keeps its text; whole numbers are whole.
Only what reads back equal is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal

from migrator.model import value as v
from migrator.model.path import child
from migrator.model.value import Value, has_utf8
from migrator.stores.sql.unfit import Unfit


def _number(text: str) -> Value:
    number = float(text)
    return number if repr(number) == text else Decimal(text)


class _Twice(ValueError):
    pass


def _once(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise _Twice
    return record


def _refuse(word: str) -> Value:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(
    parse_float=_number, parse_constant=_refuse, object_pairs_hook=_once, strict=False
)


def read_json(text: str, system: str) -> Value:
    """The value of a JSON text; opaque where a record has a name twice or it is no JSON."""
    try:
        return _DECODER.decode(text)
    except ValueError:
        return v.Opaque(system, "json", text.encode("utf-8", "surrogatepass"))


class _JsonNull:
    """JSON's null on its way through a row, where None is SQL's NULL (hard case C05)."""


JSON_NULL = _JsonNull()


def read_column(text: str, system: str) -> Value:
    """As ``read_json``, with a mark for JSON's null."""
    value = read_json(text, system)
    return JSON_NULL if value is None else value


def write_json(value: Value) -> str:
    """The JSON text of a value. Raises Unfit, naming the path, for what would change."""
    if value is JSON_NULL:
        return "null"
    if type(value) is v.Opaque and value.kind == "json":
        return value.data.decode("utf-8", "surrogatepass")
    out: list[str] = []
    _write(value, "", out)
    return "".join(out)


def encoder(
    type_: str, keeps: Callable[[bytes], bool] | None, deepest: int | None = None
) -> Callable[[Value], str]:
    """What writes the documents of a column whose server takes nothing but JSON, of so many levels
    at most; ``keeps``: whether it gives back a text that could not be read here, where not only
    the server knows."""

    def encode(value: Value) -> str:
        if type(value) is v.Opaque and value.kind == "json":
            if keeps is not None and not keeps(value.data):
                raise Unfit(f"{type_} would not give back this text")
        elif deepest is not None and _depth(value) > deepest:
            raise Unfit(f"{type_} holds {deepest} levels of lists and records")
        return write_json(value)

    return encode


def is_json(data: bytes) -> bool:
    """Whether a text is JSON, as which also long numbers and names that stand twice count."""
    return _can_parse(data, dict)


def names_each_once(data: bytes) -> bool:
    """Whether a text is JSON whose names all stand once."""
    return _can_parse(data, _once)


def _can_parse(data: bytes, record: Callable[[list[tuple[str, Value]]], Value]) -> bool:
    try:
        # Python makes no numbers of more than a few thousand digits.
        json.loads(data.decode(), parse_int=str, parse_constant=_refuse, object_pairs_hook=record)
    except ValueError:
        return False
    return True


def _depth(value: Value) -> int:
    items = value.values() if type(value) is dict else value if type(value) is list else None
    return 0 if items is None else 1 + max(map(_depth, items), default=0)


def _write(value: Value, path: str, out: list[str]) -> None:
    kind = type(value)
    if kind is dict:
        record: dict[str, Value] = value  # type: ignore[assignment]
        out.append("{")
        for i, (name, item) in enumerate(record.items()):
            out.append((", " if i else "") + _string(name, child(path, name)) + ": ")
            _write(item, child(path, name), out)
        out.append("}")
    elif kind is list:
        out.append("[")
        for i, item in enumerate(value):  # type: ignore[arg-type]
            if i:
                out.append(", ")
            _write(item, f"{path}[{i}]", out)
        out.append("]")
    else:
        out.append(_scalar(value, path))


def _scalar(value: Value, path: str) -> str:
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is str:
        return _string(value, path)
    if type(value) is float and math.isfinite(value) and _plain(repr(value)):
        return repr(value)
    if type(value) is Decimal and value.is_finite():
        text = str(value)
        if _plain(text) and "." in text and repr(float(text)) != text:
            return text
    raise Unfit(f"JSON has no place for {v.kind_of(value)} as it is", path)


def _plain(text: str) -> bool:
    # An exponent or a negative zero would be written otherwise by the server.
    return "e" not in text.lower() and not (text.startswith("-") and not text.strip("-0."))


def _string(text: str, path: str) -> str:
    if "\0" in text:
        raise Unfit("JSON in this store can't hold U+0000", path)
    if not has_utf8(text):
        raise Unfit("the text holds an unpaired surrogate", path)
    return json.dumps(text, ensure_ascii=False)

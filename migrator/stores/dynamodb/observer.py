"""The verifier's reader of items: from the service's JSON, by a decoder of its own.

Nothing of the copier's mapping is used (``codec``, ``side``, ``item``, ``keys``); only the way
to the raw items is shared. Values are built from the leaves up, each with its tag at hand.
"""

from __future__ import annotations

from base64 import standard_b64decode
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from migrator.model import value as v
from migrator.model.block import Block
from migrator.model.path import child, escape, parse_path
from migrator.model.rules import CorruptBlock, Representation, assemble
from migrator.model.value import Record, Value
from migrator.model.witness import witness
from migrator.ports import Json, Page
from migrator.stores.dynamodb.codec import Unreadable
from migrator.stores.dynamodb.collection import read_blocks, read_page
from migrator.stores.dynamodb.table import Table

_SIDE, _REST = "_migrator", "_"
_KNOWN = {"tags", "names", "id", "key", "version", "head", "stamp", "expires", "sum"}
Wire = Mapping[str, Any]


class ItemObserver:
    """Reads the blocks of one table for comparison."""

    def __init__(self, table: Table, representation: Representation) -> None:
        self._table = table
        self._rules = representation
        options = table.options
        self._key = options.hash.name
        self._expires = options.expires
        self._derived = set(options.attributes)
        self._as_field = representation.partition({self._key: 0}).keys() == {escape(self._key)}

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return read_page(self._table, self.block, range_, position, limit)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return read_blocks(self._table, self.block, ids)

    def block(self, item: Wire) -> Block:
        """The block of an item. Raises Unreadable."""
        side = side_of(item)
        key = item[self._key]
        rest = {name: av for name, av in item.items() if name not in self._derived}
        del rest[self._key]
        if side is not None:
            del rest[_SIDE]
        said: dict[str, Any] = side or {}
        expires = deadline_of(rest, self._expires, said)
        foreign = _REST not in rest and said.get("key") != {"BOOL": False}
        entries = fields_of(rest, said, as_paths=True)
        if foreign and self._as_field:
            if escape(self._key) in entries:
                raise Unreadable(f"{self._key} is there twice")
            entries[escape(self._key)] = value_of(key)
        elif foreign:
            entries = self._cut(entries, key)
        return Block(key_of(key, said.get("id")), entries, expires)

    def _cut(self, fields: Record, key: Wire) -> Record:
        try:
            return self._rules.partition({self._key: value_of(key)} | assemble(fields))
        except CorruptBlock as error:
            raise Unreadable(str(error)) from None


def side_of(item: Wire) -> dict[str, Any] | None:
    """What the side attribute says; None where there is none, or it is somebody's own."""
    match item.get(_SIDE):
        case {"M": dict(side)} if side.keys() <= _KNOWN:
            return side
    return None


def deadline_of(rest: dict[str, Any], name: str | None, side: Wire) -> int | None:
    """Take the deadline out, in milliseconds, where there is one."""
    exact = int(side.get("expires", {}).get("N", 0))
    match rest.get(name) if name else None:
        case {"N": str(seconds)} if type(number_of(seconds)) is int:
            del rest[str(name)]
            whole = int(number_of(seconds)) * 1000
            return exact if whole - 1000 < exact <= whole else whole
    return None


def fields_of(attributes: Wire, side: Wire, as_paths: bool) -> Record:
    """The values of attributes by their own names, or by access paths."""
    escaped = set(side.get("names", {}).get("SS", ()))
    tags = side.get("tags", {}).get("M", {})
    found: Record = {}
    for name, av in attributes.items():
        says = {path: tag["S"] for path, tag in tags.get(name, {}).get("M", {}).items()}
        shown = _unescape(name) if name in escaped else name
        if as_paths:
            shown = "" if name == _REST else shown if _is_path(shown) else escape(shown)
        if shown in found:
            raise Unreadable(f"{shown} is there twice")
        found[shown] = value_of(av, says)
    return found


def _is_path(name: str) -> bool:
    try:
        return bool(parse_path(name))
    except ValueError:
        return False


def key_of(key: Wire, tag: Wire | None) -> Value:
    """The block key."""
    said = tag["S"] if tag else None
    if "S" in key:
        return text_key(key["S"], said)
    held = value_of(key)
    return held if said is None else _number(said, held)


def text_key(text: str, tag: str | None) -> Value:
    """The block key behind a text."""
    if tag is None:
        return text
    try:
        ref = witness(f"reference:{tag}", f"K:{text}")
    except (ValueError, TypeError, ArithmeticError):
        return text
    assert isinstance(ref, v.Ref)
    return ref.id


def value_of(av: Wire, tags: Mapping[str, str] | None = None, path: str = "") -> Value:
    """The value of an attribute value, ``tags`` by the path below it. Raises Unreadable."""
    tag = (tags or {}).get(path or ".")
    match av:
        case {"S": str(text)}:
            return _tagged(tag, text)
        case {"N": str(digits)}:
            number = number_of(digits)
            return number if tag is None else _number(tag, number)
        case {"BOOL": bool(truth)}:
            return truth
        case {"NULL": True}:
            return None
        case {"B": str(data)}:
            return _tagged(tag, standard_b64decode(data))
        case {"M": dict(members)}:
            record = {n: value_of(x, tags, child(path, n)) for n, x in members.items()}
            return {_unescape(n): x for n, x in record.items()} if tag == "names" else record
        case {"L": list(items)}:
            values = [value_of(x, tags, f"{path}[{i}]") for i, x in enumerate(items)]
            return v.Set(values) if tag == "set" else values
        case {"SS": list(texts)}:
            return v.Set(texts)
        case {"NS": list(numbers)}:
            return v.Set(number_of(x) for x in numbers)
        case {"BS": list(data)}:
            return v.Set(standard_b64decode(x) for x in data)
    raise Unreadable(f"{path}: no attribute value: {list(av)}")


def _tagged(tag: str | None, held: str | bytes) -> Value:
    if tag is None:
        return held
    try:
        return witness(tag, held)
    except (ValueError, TypeError, ArithmeticError, AttributeError):
        return held


def number_of(digits: str) -> int | Decimal:
    """A number without the zeros that say nothing; whole ones as integers."""
    try:
        sign, figures, exponent = Decimal(digits).as_tuple()
    except ArithmeticError:
        raise Unreadable(f"{digits!r} is no number") from None
    assert isinstance(exponent, int)
    while len(figures) > 1 and figures[-1] == 0:
        figures, exponent = figures[:-1], exponent + 1
    if exponent >= 0 or not any(figures):
        whole: int = int("".join(map(str, figures))) * 10 ** max(exponent, 0)
        return -whole if sign else whole
    return Decimal((sign, figures, exponent))


def _number(tag: str, held: Any) -> Value:
    """The number that a tag says; the number as it lies where the tag does not fit."""
    if tag == "int64" and type(held) is int and v.INT64_MIN <= held <= v.INT64_MAX:
        return v.Int64(held)
    if tag == "double":
        double = float(held)
        same: bool = Decimal(repr(double)) == held
        return double if same else held
    if tag.startswith("decimal:"):
        sign, figures, exponent = Decimal(held).as_tuple()
        assert isinstance(exponent, int)
        wanted = int(tag.removeprefix("decimal:"))
        if not any(figures):
            return Decimal((0, (0,), wanted))
        while exponent < wanted and figures[-1] == 0:
            figures, exponent = figures[:-1], exponent + 1
        if exponent >= wanted:
            return Decimal((sign, figures + (0,) * (exponent - wanted), wanted))
    return held


def _unescape(name: str) -> str:
    """The name behind ``%25`` and the like."""
    if name == "%":
        return ""
    head, *parts = name.split("%")
    for part in parts:
        width = 5 if part.startswith("U") else 2
        head += chr(int(part[:width].lstrip("U"), 16)) + part[width:]
    return head

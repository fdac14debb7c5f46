"""The keys of markers: items of ours in the followed table, since a stream shows one table alone.

Their keys are made of a head that nobody else has and of digits: which marker it is, of which set,
and which of how many. They are drawn, so that they fall on all partitions. Readers pass them by.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from migrator.stores.dynamodb.codec import Av, Item
from migrator.stores.dynamodb.keys import RESERVED
from migrator.stores.dynamodb.options import SIDE, Options

HEAD = RESERVED
# A number of 38 digits that begins so, which is all that a number may have.
_NUMBER = "-718281828459"
_BYTES = b64encode(HEAD.encode()).decode()
_RANGE = {"S": "-", "N": "0", "B": "LQ=="}
_CODE, _SET, _COUNT = 12, 6, 4
_MARK = "mark"
UNCOUNTED = {
    "FilterExpression": "attribute_not_exists(#s.#m)",
    "ExpressionAttributeNames": {"#s": SIDE, "#m": _MARK},
}
"""What of a scan's request leaves markers out of a count."""


@dataclass(frozen=True, slots=True)
class Marker:
    """One item of a marker: ``code`` says which marker, ``set`` what was written together."""

    code: str
    set: str
    index: int
    of: int

    @property
    def digits(self) -> str:
        return f"{self.code}{self.set}{self.index:0{_COUNT}}{self.of:0{_COUNT}}"


def new_code() -> str:
    return f"{secrets.randbelow(10**_CODE):0{_CODE}}"


def new_set(code: str, count: int) -> list[Marker]:
    """Markers to be written together; the caller sees to it that they are fewer than 10,000."""
    return all_of(code, f"{secrets.randbelow(10**_SET):0{_SET}}", count)


def all_of(code: str, set: str, count: int) -> list[Marker]:
    """The markers of one set."""
    return [Marker(code, set, index, count) for index in range(count)]


def key_of(marker: Marker, options: Options) -> Item:
    """The key of a marker in a table."""
    text = f"{HEAD}{marker.digits}"
    held: dict[str, Av] = {
        "S": {"S": text},
        "N": {"N": f"{_NUMBER}{marker.digits}"},
        "B": {"B": b64encode(text.encode()).decode()},
    }
    key: Item = {options.hash.name: held[options.hash.type]}
    if options.range is not None:
        key[options.range.name] = {options.range.type: _RANGE[options.range.type]}
    return key


def item_of(marker: Marker, options: Options, run: str, name: str) -> Item:
    """A marker as an item: whose it is, and what it is called."""
    return key_of(marker, options) | {SIDE: {"M": {"run": {"S": run}, _MARK: {"S": name}}}}


def said_by(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """The run and the name that a marker's item tells; None where it does not."""
    held = item.get(SIDE, {}).get("M", {})
    if "run" not in held or _MARK not in held:
        return None
    return str(held["run"].get("S")), str(held[_MARK].get("S"))


def read(av: Mapping[str, Any]) -> Marker | None:
    """The marker that a key attribute stands for; None for any other key."""
    if not is_marker(av):
        return None
    digits = str(next(iter(av.values())))
    if "B" in av:
        digits = b64decode(digits).decode(errors="replace")
    digits = digits[-(_CODE + _SET + 2 * _COUNT) :]
    if not digits.isdecimal():
        return None
    code, rest = digits[:_CODE], digits[_CODE:]
    return Marker(code, rest[:_SET], int(rest[_SET:-_COUNT]), int(rest[-_COUNT:]))


def is_marker(av: Mapping[str, Any]) -> bool:
    """Whether a key attribute is of a marker."""
    for type_, head in (("S", HEAD), ("N", _NUMBER), ("B", _BYTES)):
        if type_ in av:
            return str(av[type_]).startswith(head)
    return False


def without(items: Iterable[Item], hash_name: str) -> list[Item]:
    """Items without those of markers."""
    return [item for item in items if not is_marker(item[hash_name])]

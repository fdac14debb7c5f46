"""How large the service counts things: names and values in UTF-8, containers with an overhead."""

from __future__ import annotations

from typing import Any

from migrator.stores.dynamodb.codec import Av, Item

ITEM_BYTES = 400 * 1024
HASH_BYTES = 2048
RANGE_BYTES = 1024
NAME_BYTES = 65_535
NESTING = 32
# A request may have 16 MB; what JSON adds to the last item must still fit.
BATCH_BYTES = 12_000_000
BATCH_WRITES = 25
BATCH_READS = 100


def item_size(item: Item) -> int:
    """The bytes of an item by the rule of the limit of 400 KB; a little over, never under."""
    return sum(_text(name) + size(av) for name, av in item.items())


def size(av: Av) -> int:
    """The bytes of one attribute value, nested ones included."""
    ((type_, held),) = av.items()
    match type_:
        case "S":
            return _text(held)
        case "N":
            return number_size(held)
        case "B":
            return _bytes(held)
        case "M":
            return 3 + sum(1 + _text(name) + size(x) for name, x in held.items())
        case "L":
            return 3 + sum(1 + size(x) for x in held)
        case "SS":
            return sum(map(_text, held))
        case "NS":
            return sum(map(number_size, held))
        case "BS":
            return sum(map(_bytes, held))
    return 1


def number_size(text: str) -> int:
    """The bytes of a number: about one for two digits, and one or two more."""
    digits = sum(char.isdigit() for char in text.partition("e")[0].partition("E")[0])
    return min(digits, 39) // 2 + 3


def nests_too_deep(av: Av, left: int = NESTING) -> bool:
    """Whether an attribute value holds more than 32 levels of lists and maps."""
    if "M" in av:
        inside: Any = av["M"].values()
    elif "L" in av:
        inside = av["L"]
    else:
        return False
    return left == 0 or any(nests_too_deep(x, left - 1) for x in inside)


def _text(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _bytes(base64: str) -> int:
    return len(base64) // 4 * 3 - base64.count("=", -2)

"""The matrix of pairs, as the tests leave it on their reports: what travels, source x target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

PAIR = "pair"


def system(place: str) -> str:
    """The system of a place; the relational ones have one layout here, which they share."""
    name, _, layout = place.partition("-")
    return layout if name == "entries" else name


def lines(reports: Iterable[Any]) -> Iterator[str]:
    """The matrix as lines, none without a pair; a system is a row as source, a column as target."""
    cells: dict[tuple[str, str], str] = {}
    refusing: dict[str, int] = {}
    for report in reports:
        for name, held in getattr(report, "user_properties", ()):
            if name == PAIR:
                source, target, *counts = held
                # Within one system the way back is between its layouts, too: the way there counts.
                cells.setdefault((system(source), system(target)), "/".join(map(str, counts)))
                if counts[-1]:
                    refusing[f"{source} to {target}"] = counts[-1]
    names = list(dict.fromkeys(name for pair in cells for name in pair))
    if not names:
        return
    wide = max(map(len, names)) + 1
    width = max(map(len, (*names, *cells.values()))) + 2
    yield " " * wide + "".join(f"{name:>{width}}" for name in names)
    for source in names:
        row = "".join(f"{cells.get((source, target), ''):>{width}}" for target in names)
        yield f"{source:<{wide}}{row}"
    yield "values of the odd data set that were held natively / tagged / refused, and so left out"
    # Which layouts of two systems meet goes round: what one of them refuses, others need not.
    for pair, count in refusing.items():
        yield f"{count} refused in {pair}"

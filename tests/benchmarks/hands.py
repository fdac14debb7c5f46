"""What an application has without a gateway, for ``tests.benchmarks.gateway``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from migrator.model.value import Record

TABLE = "game"
SPELLS = ["spell"] * 6


def game(key: str, number: int) -> Record:
    return {"id": key, "n": number, "rounds": [round_(i, s) for i, s in enumerate(SPELLS)]}


def round_(place: int, spell: str = "more") -> Record:
    return {"pos": place, "spell": spell}


@dataclass
class Hand:
    """Single calls by the plain driver.

    ``update`` changes the number of a game, ``append`` adds a round at a place: atomically, only
    where there is such a game, and both give the game as it is after that, as a gateway does. The
    ``bare`` ones send the change alone. ``sent`` are the requests that a gateway's put, update and
    append make of the store, by the driver and with nothing around them, where they are not what is
    done by hand: they ask for what has to be so, and a journal of ours may cost a tenth more than
    their sum.
    """

    get: Callable[[str], object]
    put: Callable[[str, int], object]
    update: Callable[[str, int], object]
    append: Callable[[str, int], object]
    bare_update: Callable[[str, int], object] | None = None
    bare_append: Callable[[str, int], object] | None = None
    sent: dict[str, Callable[[str, int], object]] = field(default_factory=dict)


def must(found: Any) -> Any:
    """What was found: an application that changes what is not there has to know."""
    if not found:
        raise LookupError("there is no such game")
    return found

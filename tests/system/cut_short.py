"""Calls of gateways that are killed at named points, each gateway in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from migrator.gateway import Gateway
from migrator.model.value import Record
from tests.gateway.kit import QUICK, opened
from tests.system import sendings
from tests.system.dying import LONG, Doomed, die

_PATIENT = replace(QUICK, bound=LONG)
# For those that die: whoever waited for their leases to run out would come too late.
_DOOMED = replace(_PATIENT, lease=1_000.0)
_AT_ONCE = 4


def game(key: str, n: int, *rounds: int) -> Record:
    return {"id": key, "n": n, "rounds": [{"pos": i, "n": each} for i, each in enumerate(rounds)]}


@dataclass(frozen=True)
class Call:
    """What a gateway is asked for, where the game is before, and what there is after it: numbers
    of ``game``, or None. ``do`` gives what is asked for at last, and may look before."""

    do: Callable[[Gateway, str], Callable[[], object]]
    before: tuple[int, ...] | None
    after: tuple[int, ...] | None


def _update_if(games: Gateway, key: str) -> Callable[[], object]:
    found = games.get(key)
    assert found is not None
    return lambda: games.update(key, {"n": 2}, expected=found.version)


_OLD = (1, 3, 4)
CALLS = {
    "put": Call(lambda games, key: lambda: games.put(key, game(key, 2, 5)), _OLD, (2, 5)),
    "insert": Call(
        lambda games, key: lambda: games.put(key, game(key, 2, 5, 6), expected=None),
        None, (2, 5, 6),
    ),
    "append": Call(
        lambda games, key: lambda: games.append(key, "rounds", {"pos": 2, "n": 5}),
        _OLD, (1, 3, 4, 5),
    ),
    "update if": Call(_update_if, _OLD, (2, 3, 4)),
    "delete": Call(lambda games, key: lambda: games.delete(key), _OLD, None),
}  # fmt: skip

Point: TypeAlias = str
"""A call, and a word of ``sendings`` with how manieth it is where that is not the first: it is
killed as it comes to that."""
Left: TypeAlias = dict[str, tuple[Record | None, ...]]
"""What there may be of games whose calls were cut short, by key."""

_ALL = ("delete at permitted", "put at answered", "append at answered")
# Behind all that goes before the last request; somewhere amid a put of several rows; once it was
# sent. By the store that is the primary, and what its driver shows.
SOURCES: dict[str, tuple[Point, ...]] = {
    "postgresql": (
        *_ALL, "put at COMMIT", "put at COMMIT sent", "insert at COMMIT", "append at SELECT",
        "update if at COMMIT", "delete at COMMIT",
    ),
    "mariadb": (
        *_ALL, "put at UPDATE", "put at COMMIT", "put at COMMIT sent", "insert at COMMIT",
        "append at COMMIT", "update if at COMMIT", "delete at COMMIT",
    ),
    "sqlite": (
        *_ALL, "put at DELETE", "put at COMMIT", "insert at INSERT 5", "insert at COMMIT 2",
        "append at COMMIT 2", "update if at COMMIT 2", "delete at COMMIT",
    ),
    "mongodb": (
        *_ALL, "put at update", "put at update sent", "insert at insert sent",
        "append at findAndModify sent", "update if at update sent", "delete at delete sent",
    ),
    "redis": (
        *_ALL, "put at EXEC", "put at EXEC sent", "insert at EXEC 2", "append at EVALSHA sent",
        "update if at EXEC 2", "delete at UNLINK sent",
    ),
    "dynamodb": (
        *_ALL, "put at BatchWriteItem sent", "insert at PutItem sent", "append at UpdateItem sent",
        "update if at UpdateItem sent", "delete at BatchWriteItem sent",
    ),
}  # fmt: skip
TARGETS: dict[str, tuple[Point, ...]] = {
    "outbox": (
        *_ALL, "put at DELETE", "put at INSERT 2", "put at COMMIT", "insert at COMMIT 2",
        "append at COMMIT 2", "update if at COMMIT 2", "delete at COMMIT",
    ),
    "tracking": (
        *_ALL, "put at EXEC", "put at EXEC sent", "insert at EXEC", "append at EXEC",
        "update if at EXEC 2", "delete at EXEC",
    ),
}  # fmt: skip


def cut_short(config: Path, points: Sequence[Point]) -> Left:
    """Kill a gateway at each of some points, and see that another finds each game as it was, or as
    it was to be where that was carried out: never half. Some are written by that one then."""
    keys = {f"{number} {point}": point for number, point in enumerate(points)}
    left = {key: _either(key, point) for key, point in keys.items()}
    with opened(config, _PATIENT) as games:
        for key, point in keys.items():
            if (before := _call(point).before) is not None:
                games.put(key, game(key, *before))
        doomed = [_doomed(config, key, point) for key, point in keys.items()]
        for some in range(0, len(doomed), _AT_ONCE):
            die(*doomed[some : some + _AT_ONCE])
        found = {key: games.get(key) for key in keys}
        there = {key: None if each is None else each.value for key, each in found.items()}
        assert [key for key in keys if there[key] not in left[key]] == [], there
        for key in [key for key in keys if not key.endswith(" sent")][::3]:  # it may come late
            left[key] = (game(key, 7, 8, 9, 10),)
            games.put(key, game(key, 7, 8, 9, 10))
    return left


def _call(point: Point) -> Call:
    return CALLS[point.partition(" at ")[0]]


def _either(key: str, point: Point) -> tuple[Record | None, ...]:
    """What may be there: nobody knows of what was sent whether it was carried out."""
    call = _call(point)
    before, after = (
        None if held is None else game(key, *held) for held in (call.before, call.after)
    )
    if point.endswith(" sent"):
        return before, after
    return (after,) if point.endswith(" answered") else (before,)


def _doomed(config: Path, key: str, point: Point) -> Doomed:
    word, _, nth = point.partition(" at ")[2].rpartition(" ")
    if not nth.isdigit():
        word, nth = f"{word} {nth}".strip(), "1"
    return partial(_do, config, key, point), word, int(nth)


def _do(config: Path, key: str, point: Point) -> None:
    sendings.hook_in()
    with opened(config, _DOOMED) as games:
        call = _call(point).do(games, key)
        sendings.tell()
        call()

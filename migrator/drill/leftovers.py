"""What a drill that was killed leaves, and the next removes: parts of a recording, and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.drill import traffic
from migrator.drill.history import Known
from migrator.drill.making import Maker, Shape, maker
from migrator.drill.sides import SIDES, left
from migrator.model.value import Value
from migrator.route import Route
from migrator.state import Run


def part_file(here: Path, number: int) -> Path:
    """The part of a recording that one writer of a drill replays."""
    return here / f"replay-{number}.txt"


def number_file(here: Path) -> Path:
    """What the keys of a drill are made of, as long as there may be any."""
    return here / "number"


def forget_parts(here: Path) -> None:
    """Remove the parts of a recording: it may hold what an application wrote."""
    for file in here.glob("replay-*.txt"):
        file.unlink(missing_ok=True)


def maker_of(number: int, cls: str) -> Callable[[Value], Maker]:
    """What makes the keys of a drill like one that lies there."""
    return lambda id: maker(id, f"{number:08x}", number, cls)


def names_of(known: Known, cls: str) -> list[str]:
    """The names of all keys of a class that were ever written."""
    return [name for of, name in known.certain if of == cls]


def remove_keys(folder: Path, runs: Iterable[Run], ways: Sequence[tuple[Route, Shape]]) -> None:
    """Remove the keys of drills of a revision, whose runs have ended."""
    for run in runs:
        file = number_file(folder / run.id)
        if not run.phase.ended or not file.exists():
            continue
        # One that was killed before it wrote its number has made no key.
        number, known, remain = int(file.read_text() or 0), traffic.known(file.parent), 0
        for route, each in ways:
            its = replace(each, maker=maker_of(number, route.cls)(each.maker.like))
            names = names_of(known, route.cls)
            remain += sum(left(route, side, its, names, remove=True) for side in SIDES)
        if not remain:
            file.unlink()

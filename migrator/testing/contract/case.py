"""What an adapter gives to be held to the contract: one case for each layout of its store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

import pytest

from migrator.model.move import At
from migrator.model.value import Record, Value
from migrator.ports import Collection, Store

CLS = "Game"

REPRESENTATIONS: Mapping[str, tuple[str, ...]] = {
    "EAO": ("/Game/*",),
    "ROUNDS": ("/Game/*/rounds[*]", "/Game/*"),
    "ROUNDS+ETF": ("/Game/*/rounds[*]", "/Game/*/*"),
    "ETF": ("/Game/*/*",),
    "EAV": ("/Game/*/**",),
}


def game(key: Value, rounds: int) -> Record:
    """A game of the running example: a handful of fields and a list of rounds."""
    return {
        "id": key,
        "firstPlayer": "ann",
        "secondPlayer": "bob",
        "score": {"ann": rounds, "bob": 0.5},
        "rounds": [
            {"number": n, "moves": f"e{n} d{n}", "comments": ["good", None] if n % 2 else []}
            for n in range(rounds)
        ],
    }


@dataclass(frozen=True)
class FixedSchema:
    """What a layout with a fixed schema can hold, where it can't hold any aggregate.

    ``game`` gives an aggregate of a key and a number of rounds, in the field ``rounds``;
    ``odd`` are further aggregates, by key, with the oddest values that the schema takes;
    ``keys`` are odd keys.
    """

    game: Callable[[Value, int], Record]
    odd: Sequence[tuple[Value, Record]]
    keys: Sequence[Value]


@dataclass
class Traffic:
    """What was sent to a server: requests, and the bytes that they carried."""

    requests: int = 0
    sent: int = 0


Meter = Callable[[Store], AbstractContextManager[Traffic]]


@dataclass(frozen=True)
class ContractCase:
    """One layout of one store.

    ``open`` opens the store; the folder is empty at first and the same for every call of one
    test class, and a second call gives a second, independent handle. ``at`` is a location for
    a collection name and a list of rules. ``break_copier`` changes the copier's encoder and
    decoder so that they go on agreeing with each other on a text ``kept``, while something
    else lies in the store. ``key`` gives the i-th ordinary key, in ascending order for the
    store. ``exclusions`` names promises (by pattern) that can't be tried here, with a reason, and
    ``representation NAME`` and ``values KIND`` where a promise is tried without these;
    ``refused_keys`` and ``refused_names`` are odd ones that the store says no to. ``empty``
    takes all out of a collection by the plain driver: where given, collections are kept from test
    to test, for stores in which making one takes long. ``meter`` counts what a store sends while
    its context is open; ``tables`` is how many a location has, where costs go by their number, and
    ``has`` what else of it costs more.
    ``module`` is the name of the store's module, for a check that each has a case.
    """

    name: str
    layout: str
    open: Callable[[Path], Store]
    at: Callable[[str, Sequence[str]], At]
    break_copier: Callable[[pytest.MonkeyPatch], None]
    key: Callable[[int], Value] = "game-{:05}".format
    schema: FixedSchema | None = None
    module: str = ""
    exclusions: Mapping[str, str] = field(default_factory=dict)
    refused_keys: Callable[[Value], bool] = lambda key: False
    refused_names: Callable[[str], bool] = lambda name: False
    empty: Callable[[Collection], None] | None = None
    meter: Meter | None = None
    tables: int = 1
    has: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.name} {self.layout}"

    def game(self, key: Value, rounds: int) -> Record:
        """An aggregate that this layout can hold."""
        return (self.schema.game if self.schema else game)(key, rounds)

    def excluded(self, promise: str) -> str | None:
        """Why this promise can't be tried here; None where it can."""
        for pattern, reason in self.exclusions.items():
            if fnmatchcase(promise, pattern):
                return reason
        return None


def by_capability(reason: str) -> NoReturn:
    """Skip a promise that the store's capabilities leave out."""
    pytest.skip(f"capabilities: {reason}")


def declared(reason: str) -> NoReturn:
    """Skip a promise for a reason that stands in the case."""
    pytest.skip(f"declared: {reason}")

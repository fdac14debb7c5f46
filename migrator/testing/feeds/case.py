"""What an adapter gives to have its feed and its fence held to the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from migrator.model.move import At
from migrator.ports import Collection, Json, Store

RULES = ("/Game/*",)


@dataclass(frozen=True)
class Write:
    """A kind of write: what it needs to be there before, what it does in one transaction, and
    the keys that it touches, each with whether it was deleted; ``whole`` where no key is told,
    ``fenced`` where a fence of this store can stop it."""

    name: str
    before: Callable[[], object]
    act: Callable[[], object]
    touched: Mapping[str, bool]
    whole: bool = False
    fenced: bool = True


class Application(Protocol):
    """A program that writes to the collection by the plain driver, over one session."""

    def make(self) -> None:
        """Make what the store itself is not to make: tables of the application's own."""

    def put(self, key: str, number: int) -> None:
        """Make the aggregate of a key, or change it, so that its field ``v`` is a number."""

    def fill(self, keys: Sequence[str]) -> None:
        """Make aggregates that are not there yet, all in one transaction where there is one."""

    def delete(self, key: str) -> None:
        """Remove an aggregate; no error where there is none."""

    def writes(self) -> Iterator[Write]:
        """Every kind of write that the layout knows; after each, its keys may be anything."""

    def holding(self, key: str) -> AbstractContextManager[object] | None:
        """A transaction that has put a key and commits at the end; None where there is none."""

    def left(self) -> set[str]:
        """What lies on the server beside the data: slots, triggers, functions, settings."""

    def close(self) -> None:
        """End the session."""


@dataclass(frozen=True)
class FeedCase:
    """One feed of one store.

    ``open`` opens the store; the folder is empty at first and the same for every call of one
    test class. ``elsewhere`` turns a position into one of another server. ``cut`` ends the
    server's side of the sessions of the feed of a run, by the run's name; None where there is
    no session. ``keeps`` tells whether the server keeps something for a feed, so that one that
    was dropped is lost.
    """

    name: str
    layout: str
    open: Callable[[Path], Store]
    at: Callable[[str], At]
    application: Callable[[Path, Collection], Application]
    elsewhere: Callable[[Json], Json]
    cut: Callable[[str], object] | None = None
    keeps: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.layout}"

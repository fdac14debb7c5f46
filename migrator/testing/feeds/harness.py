"""How the promises of feeds look at one: what it gives up to a marker of ours."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from migrator.journal import Feed, Fence, Fenced, Followed, Journal, Touches
from migrator.model.rules import assemble
from migrator.model.value import Value
from migrator.ports import Collection, Json, Store
from migrator.testing.feeds.case import Application, FeedCase

# Of tests on a busy machine: nothing here is bound by time but what never comes.
PATIENCE = 120.0
_numbers = itertools.count(1)


@dataclass
class Seen:
    """What a feed gave: keys with whether they were deleted, in the order of their last touch, and
    of how many writes their touches were."""

    keys: dict[str, bool] = field(default_factory=dict)
    writes: Counter[str] = field(default_factory=Counter)
    marks: list[str] = field(default_factory=list)
    whole: bool = False
    position: Json = None
    most: int = 0

    def add(self, given: Touches) -> None:
        for touch in given.touches:
            key = str(touch.key)
            self.keys[key] = self.keys.pop(key, False) or touch.deleted
            self.writes[key] += touch.writes
        self.marks += given.marks
        self.whole = self.whole or given.whole
        self.position = given.position or self.position
        self.most = max(self.most, len(given.touches))


@dataclass
class Followable:
    """A fresh collection, a program that writes to it, and its journal, prepared."""

    case: FeedCase
    folder: Path
    collection: Collection
    run: str
    app: Application
    journal: Journal
    start: Json
    left: set[str]

    @contextmanager
    def following(self, position: Json = None) -> Iterator[Feed]:
        """The feed behind a position, or from where it begins; closed at the end."""
        feed = self.journal.open(through_json(position or self.start))
        try:
            yield feed
        finally:
            feed.close()

    def another(self) -> Application:
        return self.case.application(self.folder, self.collection)

    def fence(self) -> Fence:
        collection = self.collection
        made = collection.fence(self.run) if isinstance(collection, Fenced) else None
        if made is None:
            pytest.skip("this store has no fence")
        return made

    def numbers(self, keys: Iterable[str]) -> dict[str, int | None]:
        """The field ``v`` of aggregates as Migrator reads them now; None where there is none."""
        asked = list(keys)
        blocks = self.collection.read(cast("list[Value]", asked))
        return {
            key: None if block is None else int(assemble(block.entries)["v"])  # type: ignore[call-overload]
            for key, block in zip(asked, blocks, strict=True)
        }

    def drained(self, feed: Feed, acknowledge: bool = True) -> Seen:
        """What the feed gives up to a marker written now."""
        mark = fresh("mark")
        self.journal.mark(mark)
        return until(feed, mark, acknowledge)


def until(
    feed: Feed, mark: str, acknowledge: bool = True, act: Callable[[Touches], object] | None = None
) -> Seen:
    """What a feed gives up to a marker."""
    seen = Seen()
    end = time.monotonic() + PATIENCE
    while mark not in seen.marks:
        assert time.monotonic() < end, f"no marker within {PATIENCE} s; came {seen.keys}"
        if (given := feed.poll(0.5)) is not None:
            seen.add(given)
            if act is not None:
                act(given)
            if acknowledge and given.position is not None:
                feed.acknowledge(through_json(given.position))
    return seen


def fresh(word: str) -> str:
    """A name that no other test has."""
    return f"{word}_{os.getpid()}_{next(_numbers)}"


def through_json(position: Json) -> Json:
    """A position as it comes back from a checkpoint."""
    return json.loads(json.dumps(position))


class Harness:
    """The fixtures that every promise stands on. A subclass gives the fixture ``case``."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, case: FeedCase, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("feeds")

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, case: FeedCase, folder: Path) -> Iterator[Store]:
        store = case.open(folder)
        yield store
        store.close()

    @pytest.fixture
    def here(self, case: FeedCase, folder: Path, store: Store) -> Iterator[Followable]:
        """A fresh collection that is followed; all of it is removed when the test ends."""
        run = fresh("feed")
        collection = store.collection("Game", case.at(run))
        app = case.application(folder, collection)
        app.make()
        collection.create()
        left = app.left()
        journal = journal_of(collection, run)
        start = journal.prepare()
        try:
            yield Followable(case, folder, collection, run, app, journal, start, left)
        finally:
            app.close()
            journal.drop()
            if isinstance(collection, Fenced) and (fence := collection.fence(run)) is not None:
                fence.lower()
            collection.drop()


def journal_of(collection: Collection, run: str) -> Journal:
    """The collection's journal, which its case says it has."""
    assert isinstance(collection, Followed)
    journal = collection.journal(run)
    assert journal is not None
    return journal

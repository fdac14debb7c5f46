"""The journal that gateways leave in Cassandra keeps the promises of feeds.

On one table for all: making tables anew takes Cassandra seconds. Two runs that read one collection
there are not: a class has one unfinished move, and gateways note for it alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.errors import FeedLost
from migrator.gateway.errors import Conflict
from migrator.gateway.noting import Noting
from migrator.journal import Bracketed, Brackets, Feed
from migrator.model.block import Aggregate, cut
from migrator.ports import Store
from migrator.stores.cassandra import journal
from migrator.testing.feeds import FeedCase
from migrator.testing.feeds.harness import Followable, fresh, journal_of, until
from migrator.testing.feeds.layouts import LayoutPromises
from migrator.testing.feeds.notes import NotePromises
from migrator.testing.feeds.reading import FeedPromises
from tests.contract import servers
from tests.contract.feeds_cassandra import CASE


class TestJournal(FeedPromises, LayoutPromises, NotePromises):
    # There is no fence but that of the gateways, and no session that could be cut.
    test_a_fence_refuses_every_kind_of_write = None  # type: ignore[assignment]
    test_migrator_itself_passes_a_fence_and_reads_go_on = None  # type: ignore[assignment]
    test_a_fence_stays_whoever_raised_it_and_others_lower_it = None  # type: ignore[assignment]
    test_a_feed_whose_session_is_cut_is_transient_and_goes_on = None  # type: ignore[assignment]
    # Thousands of writes, one after another, by three requests each.
    test_very_many_touches_come_in_bounded_batches = None  # type: ignore[assignment]
    test_feeds_of_two_runs_know_nothing_of_each_other = None  # type: ignore[assignment]
    test_dropping_leaves_nothing_and_twice_is_once = None  # type: ignore[assignment]
    test_a_dropped_feed_is_lost = None  # type: ignore[assignment]
    test_preparing_again_loses_nothing = None  # type: ignore[assignment]

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> FeedCase:
        return CASE

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, folder: Path, store: Store) -> Iterator[Followable]:
        run = fresh("feed")
        collection = store.collection("Game", CASE.at(run))
        app = CASE.application(folder, collection)
        left = app.left()
        collection.create()
        followed = journal_of(collection, run)
        yield Followable(CASE, folder, collection, run, app, followed, followed.prepare(), left)
        followed.drop()
        assert app.left() == left
        followed.drop()
        with pytest.raises(FeedLost):
            followed.open(followed_at(run))
        collection.drop()

    @pytest.fixture
    def here(self, shared: Followable) -> Followable:
        """With nothing noted yet; to prepare it again makes what is missing."""
        session, keyspace = servers._cassandra()
        session.execute(f'TRUNCATE {keyspace}."{shared.run}_touch"')
        return replace(shared, start=shared.journal.prepare())

    def test_a_bracket_left_open_is_taken_for_written_once_it_must_be_dead(
        self, here: Followable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "LIFE", 0.1)
        monkeypatch.setattr(journal, "SKEW", 0.1)
        monkeypatch.setattr(type(here.collection._wire), "request_life", 0.3)  # type: ignore[attr-defined]
        brackets = noted(here)
        began = time.monotonic()
        bracket = brackets.open("dies")
        here.collection.write([cut(Aggregate("dies", {"v": 7}), here.collection.at.rules("Game"))])
        here.journal.mark(mark := fresh("mark"))
        feed = here.journal.open(here.start)
        seen = until(feed, mark)  # the marker waits for it
        assert time.monotonic() - began >= 0.4
        assert list(seen.keys) == ["dies"]
        # Its writer was only slow, and closes after all: that is a touch once more (R8).
        brackets.close(bracket)
        assert list(here.drained(feed).keys) == ["dies"]

    def test_a_marker_waits_for_what_was_open_and_for_nothing_later(self, here: Followable) -> None:
        brackets = noted(here)
        first = brackets.open("first")
        here.journal.mark(mark := fresh("mark"))
        feed = here.journal.open(here.start)
        until_quiet(feed)
        brackets.open("later")
        assert feed.poll(1.2) is None
        brackets.close(first)
        assert list(until(feed, mark).keys) == ["first"]

    def test_a_marker_of_who_reads_is_met_by_one_look_and_needs_no_row(
        self, here: Followable
    ) -> None:
        brackets = noted(here)
        with here.following() as feed:
            brackets.close(brackets.open("done"))
            open_ = brackets.open("open")
            here.journal.mark(mark := fresh("mark"))
            given = feed.poll(0.0)
            assert given is not None
            assert ([touch.key for touch in given.touches], given.marks) == (["done"], [])
            brackets.close(open_)  # the marker waits for it
            given = feed.poll(0.0)
            assert given is not None
            assert ([touch.key for touch in given.touches], given.marks) == (["open"], [mark])
            feed.acknowledge(given.position)
        session, keyspace = servers._cassandra()
        rows = session.execute(f'SELECT state FROM {keyspace}."{here.run}_touch"')
        assert "m" not in [row[0] for row in rows]

    def test_a_marker_of_who_reads_comes_again_until_it_is_acted_on(self, here: Followable) -> None:
        with here.following() as feed:
            here.journal.mark(mark := fresh("mark"))
            assert until(feed, mark, acknowledge=False).marks == [mark]
        with here.following() as feed:
            seen = until(feed, mark, acknowledge=False)
            here.journal.mark(later := fresh("mark"))
            assert until(feed, later, acknowledge=False).marks == [later]
            feed.acknowledge(seen.position)  # of the first alone
        with here.following() as feed:
            assert until(feed, later).marks == [later]
        with here.following() as feed:
            here.journal.mark(last := fresh("mark"))
            assert until(feed, last).marks == [last]

    def test_what_did_not_take_place_is_no_delete(self, here: Followable) -> None:
        brackets = noted(here)
        done, undone = Noting(brackets, "gone", True), Noting(brackets, "kept", True)
        with done:
            pass
        with undone:
            undone.undone()
        with pytest.raises(Conflict), Noting(brackets, "expected", True):
            raise Conflict("it is no longer what was read")
        here.journal.mark(mark := fresh("mark"))
        seen = until(here.journal.open(here.start), mark)
        assert seen.keys == {"gone": True, "kept": False, "expected": False}

    def test_what_was_not_read_for_a_day_is_lost(self, here: Followable) -> None:
        assert isinstance(here.start, dict)
        low = here.start["low"]
        assert isinstance(low, int)
        with pytest.raises(FeedLost, match="not read for a day"):
            here.journal.open({**here.start, "low": low - journal.KEPT})


def followed_at(run: str) -> object:
    return {"table": run, "low": 0, "seen": []}


def noted(here: Followable) -> Brackets:
    assert isinstance(here.collection, Bracketed)
    return here.collection.brackets(here.run)


def until_quiet(feed: Feed) -> None:
    while feed.poll(1.2) is not None:
        pass

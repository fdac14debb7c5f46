"""What a feed promises: every write, in order, once it can be read, until it is acknowledged."""

from __future__ import annotations

import time

import pytest

from migrator.errors import FeedLost, Transient
from migrator.journal import Feed
from migrator.model.block import Address
from migrator.testing.feeds.harness import (
    PATIENCE,
    Followable,
    Harness,
    fresh,
    journal_of,
    through_json,
    until,
)
from migrator.testing.feeds.writers import Writers

_SOME = 200
_MANY = 3_000
_AT_ONCE = 5_000


class FeedPromises(Harness):
    def test_a_quiet_feed_gives_nothing(self, here: Followable) -> None:
        with here.following() as feed:
            began = time.monotonic()
            assert feed.poll(0.2) is None
            assert time.monotonic() - began < PATIENCE

    def test_touches_come_in_their_order(self, here: Followable) -> None:
        keys = [f"game-{i}" for i in (3, 1, 2, 9, 4)]
        with here.following() as feed:
            for key in keys:
                here.app.put(key, 1)
            here.app.put(keys[0], 2)
            # A key written twice may stand where it was first, when both come together.
            assert list(here.drained(feed).keys) in ([*keys[1:], keys[0]], keys)

    def test_a_feed_that_counts_writes_counts_each(self, here: Followable) -> None:
        with here.following() as feed:
            here.app.put("game-1", 1)
            (block,) = here.collection.read(["game-1"])
            assert block is not None
            here.app.put("game-1", 2)
            here.collection.write([block])
            here.collection.delete([Address(block.id, block.place)])
            seen = here.drained(feed)
            if not any(seen.writes.values()):
                pytest.skip("this feed does not count")
            assert seen.writes == {"game-1": 4}

    def test_a_mark_comes_behind_all_that_was_acknowledged_before(self, here: Followable) -> None:
        with here.following() as feed, Writers(here, 3, fresh_keys=True) as writers:
            before: set[str] = set()
            for turn in range(1, 6):
                writers.reach(turn * 10)
                due = set(writers.so_far())
                here.journal.mark(mark := fresh("mark"))
                before |= set(until(feed, mark).keys)
                assert due <= before, f"missing before the mark: {sorted(due - before)[:5]}"

    def test_what_was_not_acknowledged_comes_again(self, here: Followable) -> None:
        with here.following() as feed:
            here.app.put("game-1", 1)
            position = here.drained(feed).position
            here.app.put("game-2", 1)
            assert list(here.drained(feed, acknowledge=False).keys) == ["game-2"]
        here.app.put("game-3", 1)
        with here.following(position) as feed:
            assert set(here.drained(feed, acknowledge=False).keys) == {"game-2", "game-3"}
        with here.following(position) as feed:
            last = here.drained(feed)
            assert set(last.keys) == {"game-2", "game-3"}
        with here.following(last.position) as feed:
            assert not here.drained(feed).keys

    def test_a_write_before_the_feed_was_opened_comes(self, here: Followable) -> None:
        here.app.put("game-1", 1)
        with here.following() as feed:
            assert list(here.drained(feed).keys) == ["game-1"]

    def test_preparing_again_loses_nothing(self, here: Followable) -> None:
        here.app.put("game-1", 1)
        here.journal.prepare()
        here.app.put("game-2", 1)
        with here.following() as feed:
            assert list(here.drained(feed).keys) == ["game-1", "game-2"]

    def test_another_process_reads_on(self, here: Followable) -> None:
        here.app.put("game-1", 1)
        store = here.case.open(here.folder)
        try:
            other = journal_of(store.collection("Game", here.collection.at), here.run)
            feed = other.open(through_json(here.start))
            other.mark(mark := fresh("mark"))
            assert list(until(feed, mark).keys) == ["game-1"]
            feed.close()
        finally:
            store.close()

    def test_a_dropped_feed_is_lost(self, here: Followable) -> None:
        if not here.case.keeps:
            pytest.skip("the server keeps nothing for this feed")
        here.journal.drop()
        with pytest.raises(FeedLost):
            here.journal.open(here.start)

    def test_a_position_of_another_server_is_lost(self, here: Followable) -> None:
        with pytest.raises(FeedLost):
            here.journal.open(here.case.elsewhere(through_json(here.start)))
        with here.following() as feed:  # and that the feed itself is sound, this shows
            here.app.put("game-1", 1)
            assert here.drained(feed).keys

    def test_feeds_of_two_runs_know_nothing_of_each_other(self, here: Followable) -> None:
        other = journal_of(here.collection, f"{here.run}_b")
        start = other.prepare()
        try:
            here.app.put("game-1", 1)
            with here.following() as feed:
                here.drained(feed)
            here.journal.drop()
            here.app.put("game-2", 1)
            feed = other.open(start)
            other.mark(mark := fresh("mark"))
            seen = until(feed, mark)
            feed.close()
            assert list(seen.keys) == ["game-1", "game-2"]
            assert seen.marks == [mark]
        finally:
            other.drop()
        assert here.app.left() == here.left

    def test_a_feed_whose_session_is_cut_is_transient_and_goes_on(self, here: Followable) -> None:
        if here.case.cut is None:
            pytest.skip("this feed has no session that could be cut")
        with here.following() as feed:
            here.app.put("game-1", 1)
            seen = here.drained(feed)
            assert here.case.cut(here.run), "nothing was cut"
            here.app.put("game-2", 1)
            with pytest.raises(Transient):
                _ends(feed)
        with here.following(seen.position) as feed:
            assert list(here.drained(feed).keys) == ["game-2"]


def _ends(feed: Feed) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        feed.poll(0.2)

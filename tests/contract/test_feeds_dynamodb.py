"""The streams of DynamoDB keep the promises of feeds.

Without those of fences, for DynamoDB has none. moto takes no write to a table whose stream was
turned off, so what is promised of a feed that was dropped is tried without one.
"""

from __future__ import annotations

import pytest

from migrator.testing.feeds import FeedCase
from migrator.testing.feeds.harness import Followable
from migrator.testing.feeds.layouts import LayoutPromises
from migrator.testing.feeds.notes import NotePromises
from migrator.testing.feeds.reading import FeedPromises
from tests.contract.feeds_dynamodb import GATHERED, ITEM


class _Layouts(LayoutPromises):
    test_a_fence_refuses_every_kind_of_write = None  # type: ignore[assignment]
    test_migrator_itself_passes_a_fence_and_reads_go_on = None  # type: ignore[assignment]
    test_a_fence_stays_whoever_raised_it_and_others_lower_it = None  # type: ignore[assignment]

    def test_dropping_leaves_nothing_and_twice_is_once(self, here: Followable) -> None:
        with here.following() as feed:
            here.app.put("game-1", 1)
            here.drained(feed)
        here.journal.drop()
        assert here.app.left() == here.left
        here.journal.drop()


class TestStreams(_Layouts, FeedPromises, NotePromises):
    # moto takes seconds for so many; tests/stores has them by a script of the service.
    test_very_many_touches_come_in_bounded_batches = None  # type: ignore[assignment]
    # Each request is one of its own: there is no session that could be cut.
    test_a_feed_whose_session_is_cut_is_transient_and_goes_on = None  # type: ignore[assignment]

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> FeedCase:
        return ITEM


class TestGathered(_Layouts):
    # The way of a touch is the layout's; that batches are bounded is not.
    test_very_many_touches_come_in_bounded_batches = None  # type: ignore[assignment]

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> FeedCase:
        return GATHERED

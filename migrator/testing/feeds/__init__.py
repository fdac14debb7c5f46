"""The contract of feeds and fences: every promise of ``migrator.journal`` as a test, to inherit.

An adapter whose collections are ``Followed`` or ``Fenced`` is held to them by one subclass:

    class TestMyFeed(FeedContract):
        @pytest.fixture(scope="class", params=[FeedCase(...)], ids=str)
        @classmethod
        def case(cls, request):
            return request.param

The case brings an ``Application``, which writes by the plain driver as a user's program would.
"""

import pytest

# Before they are imported: pytest then tells what an assertion compared.
pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("reading", "fences", "layouts", "notes", "harness"))
)

from migrator.testing.feeds.case import Application, FeedCase, Write  # noqa: E402
from migrator.testing.feeds.fences import FencePromises  # noqa: E402
from migrator.testing.feeds.layouts import LayoutPromises  # noqa: E402
from migrator.testing.feeds.notes import NotePromises  # noqa: E402
from migrator.testing.feeds.reading import FeedPromises  # noqa: E402


class LayoutContract(LayoutPromises):
    """The promises that depend on the layout, for a layout whose feed has the code of another's.
    A subclass gives the fixture ``case``, of class scope."""


class FeedContract(LayoutContract, FeedPromises, FencePromises, NotePromises):
    """All promises. A subclass gives the fixture ``case``, of class scope."""


__all__ = ["Application", "FeedCase", "FeedContract", "LayoutContract", "Write"]

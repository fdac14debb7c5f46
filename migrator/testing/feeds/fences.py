"""What a fence promises: nothing but Migrator writes behind it, and its marker is behind all."""

from __future__ import annotations

import threading
import time

import pytest

from migrator.errors import Transient
from migrator.journal import Staged
from migrator.testing.feeds.harness import PATIENCE, Followable, Harness, fresh, until
from migrator.testing.feeds.writers import Writers


class FencePromises(Harness):
    def test_the_mark_of_a_fence_is_behind_the_last_acknowledged_write(
        self, here: Followable
    ) -> None:
        fence = here.fence()
        with here.following() as feed, Writers(here, 4, fresh_keys=True) as writers:
            writers.reach(15)
            if isinstance(fence, Staged):
                fence.prepare(PATIENCE)
            writers.reach(30)
            assert not writers.refused
            fence.raise_(mark := fresh("fence"), PATIENCE)
            writers.join()
            assert len(writers.refused) == 4, "a writer passed the fence"
            seen = until(feed, mark)
            missing = set(writers.so_far()) - set(seen.keys)
            assert not missing, f"acknowledged and not before the mark: {sorted(missing)[:5]}"

    def test_a_fence_outwaits_open_write_transactions(self, here: Followable) -> None:
        fence = here.fence()
        if isinstance(fence, Staged):
            fence.prepare(PATIENCE)  # as a swap does: what it makes there waits by itself
        held = here.app.holding("game-1")
        if held is None:
            fence.lower()
            pytest.skip("no transaction stays open here")
        mark = fresh("fence")
        raising = threading.Thread(target=fence.raise_, args=[mark, PATIENCE])
        with here.following() as feed:
            with held:
                raising.start()
                end = time.monotonic() + 0.5
                while time.monotonic() < end:
                    early = feed.poll(0.1)
                    assert early is None or mark not in early.marks, "its mark did not wait"
                assert raising.is_alive(), "the fence did not wait for the open transaction"
            raising.join(timeout=PATIENCE)
            assert fence.is_up()
            assert list(until(feed, mark).keys) == ["game-1"]

    def test_a_fence_that_gives_up_leaves_nothing(self, here: Followable) -> None:
        fence = here.fence()
        held = here.app.holding("game-1")
        if held is None:
            pytest.skip("no transaction stays open here")
        other = here.another()
        with here.following() as feed:
            left = other.left()
            with held:
                began = time.monotonic()
                with pytest.raises(Transient):
                    fence.raise_(mark := fresh("fence"), 0.5)
                assert time.monotonic() - began < PATIENCE
            assert other.left() == left
            assert not fence.is_up()
            here.app.put("game-2", 1)
            seen = here.drained(feed)
            assert mark not in seen.marks
            assert set(seen.keys) == {"game-1", "game-2"}
        other.close()

    def test_a_mark_is_seen_though_the_fence_is_up(self, here: Followable) -> None:
        fence = here.fence()
        fence.raise_(fresh("fence"), PATIENCE)
        with here.following() as feed:
            here.drained(feed)
        if isinstance(fence, Staged):
            fence.open()
            assert not fence.is_up()
            here.app.put("game-1", 1)

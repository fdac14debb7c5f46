"""What a fence promises: nothing but Migrator writes behind it, and its marker is behind all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from migrator.errors import Transient
from migrator.journal import Fence, Fenced
from migrator.model.block import Aggregate, cut
from migrator.model.rules import assemble
from migrator.testing.feeds.harness import Followable, Harness, fresh, until
from migrator.testing.feeds.writers import Writers


class FencePromises(Harness):
    def test_a_fence_refuses_every_kind_of_write(self, here: Followable) -> None:
        fence = here.fence()
        for write in here.app.writes():
            write.before()
            fence.raise_(fresh("fence"), 5)
            assert fence.is_up()
            if not write.fenced:
                fence.lower()
                continue
            assert _refused(write.act), f"passed the fence: {write.name}"
            fence.lower()
            assert not fence.is_up()
            write.act()

    def test_migrator_itself_passes_a_fence_and_reads_go_on(self, here: Followable) -> None:
        fence = here.fence()
        here.app.put("game-1", 1)
        fence.raise_(fresh("fence"), 5)
        (block,) = here.collection.read(["game-1"])
        assert block is not None
        aggregate = assemble(block.entries)
        assert isinstance(aggregate, dict)
        rules = here.collection.at.rules("Game")
        here.collection.write([cut(Aggregate("game-1", {**aggregate, "v": 7}), rules)])
        assert here.numbers(["game-1"]) == {"game-1": 7}

    def test_the_mark_of_a_fence_is_behind_the_last_acknowledged_write(
        self, here: Followable
    ) -> None:
        fence = here.fence()
        with here.following() as feed, Writers(here, 4, fresh_keys=True) as writers:
            writers.reach(30)
            fence.raise_(mark := fresh("fence"), 5)
            writers.join()
            assert len(writers.refused) == 4, "a writer passed the fence"
            seen = until(feed, mark)
            missing = set(writers.so_far()) - set(seen.keys)
            assert not missing, f"acknowledged and not before the mark: {sorted(missing)[:5]}"

    def test_a_fence_outwaits_open_write_transactions(self, here: Followable) -> None:
        fence = here.fence()
        held = here.app.holding("game-1")
        if held is None:
            pytest.skip("no transaction stays open here")
        mark = fresh("fence")
        raising = threading.Thread(target=fence.raise_, args=[mark, 20])
        with here.following() as feed:
            with held:
                raising.start()
                time.sleep(0.5)
                assert raising.is_alive(), "the fence did not wait for the open transaction"
            raising.join(timeout=20)
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
                assert time.monotonic() - began < 5
            assert other.left() == left
            assert not fence.is_up()
            here.app.put("game-2", 1)
            seen = here.drained(feed)
            assert mark not in seen.marks
            assert set(seen.keys) == {"game-1", "game-2"}
        other.close()

    def test_a_fence_stays_whoever_raised_it_and_others_lower_it(self, here: Followable) -> None:
        left = here.app.left()
        here.app.put("game-1", 1)
        here.fence().raise_(fresh("fence"), 5)
        here.fence().raise_(fresh("fence"), 5)
        store = here.case.open(here.folder)
        try:
            other = _fence(store.collection("Game", here.collection.at), here.run)
            assert other.is_up()
            assert _refused(lambda: here.app.put("game-1", 2))
            other.lower()
            other.lower()
        finally:
            store.close()
        assert not here.fence().is_up()
        assert here.app.left() == left
        here.app.put("game-1", 2)

    def test_a_mark_is_seen_though_the_fence_is_up(self, here: Followable) -> None:
        fence = here.fence()
        fence.raise_(fresh("fence"), 5)
        with here.following() as feed:
            here.drained(feed)


def _refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except Exception:  # noqa: BLE001 - whatever the driver raises
        return True
    return False


def _fence(collection: object, run: str) -> Fence:
    assert isinstance(collection, Fenced)
    fence = collection.fence(run)
    assert fence is not None
    return fence

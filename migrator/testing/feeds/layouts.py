"""What a feed and a fence promise of one layout; the other promises know nothing of layouts."""

from __future__ import annotations

import time
from collections.abc import Callable

from migrator.journal import Fence, Fenced, Touches
from migrator.model.block import Aggregate, cut
from migrator.model.rules import assemble
from migrator.testing.feeds.harness import PATIENCE, Followable, Harness, fresh, until
from migrator.testing.feeds.writers import Writers

_SOME = 80
_MANY = 3_000
_AT_ONCE = 5_000


class LayoutPromises(Harness):
    def test_every_kind_of_write_touches_its_keys(self, here: Followable) -> None:
        with here.following() as feed:
            for write in here.app.writes():
                write.before()
                here.drained(feed)
                write.act()
                seen = here.drained(feed)
                assert (write.name, seen.whole, seen.keys if not seen.whole else {}) == (
                    write.name, write.whole, dict(write.touched) if not write.whole else {},
                )  # fmt: skip

    def test_what_is_read_at_each_touch_ends_as_the_primary(self, here: Followable) -> None:
        mirror: dict[str, int | None] = {}

        def reconcile(given: Touches) -> None:
            assert not given.whole
            mirror.update(here.numbers(str(touch.key) for touch in given.touches))

        with here.following() as feed, Writers(here, 4) as writers:
            end = time.monotonic() + PATIENCE
            while len(writers.so_far()) < _SOME:
                assert time.monotonic() < end, f"few writes in {PATIENCE} s: {writers.refused}"
                if (given := feed.poll(0.1)) is not None:
                    reconcile(given)
                    if given.position is not None:
                        feed.acknowledge(given.position)
            acknowledged = writers.stop()
            here.journal.mark(mark := fresh("mark"))
            until(feed, mark, act=reconcile)
        keys = set(acknowledged)
        assert {key: mirror.get(key) for key in keys} == here.numbers(keys)

    def test_very_many_touches_come_in_bounded_batches(self, here: Followable) -> None:
        keys = [f"game-{i:06}" for i in range(_MANY)]
        here.app.fill(keys)
        with here.following() as feed:
            seen = here.drained(feed)
        assert set(seen.keys) == set(keys)
        assert seen.most <= _AT_ONCE

    def test_dropping_leaves_nothing_and_twice_is_once(self, here: Followable) -> None:
        with here.following() as feed:
            here.app.put("game-1", 1)
            here.drained(feed)
        here.journal.drop()
        assert here.app.left() == here.left
        here.journal.drop()
        here.app.put("game-1", 2)

    def test_a_fence_refuses_every_kind_of_write(self, here: Followable) -> None:
        fence = here.fence()
        for write in here.app.writes():
            write.before()
            fence.raise_(fresh("fence"), PATIENCE)
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
        fence.raise_(fresh("fence"), PATIENCE)
        (block,) = here.collection.read(["game-1"])
        assert block is not None
        aggregate = assemble(block.entries)
        assert isinstance(aggregate, dict)
        rules = here.collection.at.rules("Game")
        here.collection.write([cut(Aggregate("game-1", {**aggregate, "v": 7}), rules)])
        assert here.numbers(["game-1"]) == {"game-1": 7}

    def test_a_fence_stays_whoever_raised_it_and_others_lower_it(self, here: Followable) -> None:
        left = here.app.left()
        here.app.put("game-1", 1)
        here.fence().raise_(fresh("fence"), PATIENCE)
        here.fence().raise_(fresh("fence"), PATIENCE)
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

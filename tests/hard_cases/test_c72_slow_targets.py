"""C72: no cursor is relied on while the target is slow; pages go on from the last key."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pymongo.monitoring
import pytest

from migrator.engine import points
from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit

COUNT = 300


class Watched(pymongo.monitoring.CommandListener):
    """What the source is asked: which cursors stay open on the server, and how they were made."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.endless = False
        self.skips = False
        self.finds = 0

    def started(self, event: pymongo.monitoring.CommandStartedEvent) -> None:
        self.finds += event.command_name == "find"
        self.endless |= bool(event.command.get("noCursorTimeout"))
        self.skips |= bool(event.command.get("skip"))

    def succeeded(self, event: pymongo.monitoring.CommandSucceededEvent) -> None:
        if event.command_name in ("find", "getMore"):
            self.open.add(event.reply["cursor"]["id"])
            self.open.discard(0)

    def failed(self, event: pymongo.monitoring.CommandFailedEvent) -> None:
        pass


@pytest.fixture
def watched(bench: Bench) -> Iterator[Watched]:
    bench.docs.client.admin.command("ping")  # the plain client is not watched
    listener = Watched()
    pymongo.monitoring.register(listener)
    yield listener
    pymongo.monitoring._LISTENERS.command_listeners.remove(listener)


def test_a_slow_target_loses_and_doubles_nothing(
    bench: Bench, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While each page is written the server drops all cursors, as after ten minutes without a
    read."""
    one, two = kit.fresh("c72"), kit.fresh("c72")
    documents = bench.docs[one]
    documents.insert_many([{"_id": n * 2} for n in range(COUNT)])
    shop = bench.shop((f"At('docs', {one!r})", f"At('pg', {two!r}, layout='entries')"))
    made = plan(shop, page=50)
    killed: list[int] = []
    pages = 0

    def slow(point: str) -> None:
        nonlocal pages
        if point == "backfill.written":
            time.sleep(0.2)  # the next page is read by now
            pages += 1
            cursors = list(watched.open)
            watched.open.clear()
            if cursors:
                bench.docs.command("killCursors", one, cursors=cursors)
            killed.extend(cursors)

    monkeypatch.setattr(points, "hook", slow)
    (found,) = apply(shop, made)
    assert found.equal == COUNT
    assert pages >= COUNT // 50
    assert killed or watched.finds >= pages, "each page was a question of its own, or a cursor lost"
    assert not watched.endless
    assert not watched.skips
    held = bench.sql("pg", f"SELECT count(*) FROM {two}")
    assert held[0][0] == COUNT

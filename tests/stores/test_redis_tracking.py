"""Redis followed by CLIENT TRACKING, one server and a cluster: what is told, and what is lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from migrator.errors import FeedLost, Refused
from migrator.journal import Feed
from migrator.model.layouts import redis_native
from migrator.model.move import At, Layout
from migrator.ports import StoreSettings
from migrator.stores import redis as store
from migrator.stores.redis.collection import RedisCollection
from migrator.stores.redis.tracking import TrackingFeed, TrackingJournal
from tests.contract import own_redis, servers
from tests.contract.feeds_redis import RedisApplication
from tests.contract.own_redis import Own
from tests.ending import joined

PATIENCE = 60.0
RULES = ("/Game/*",)
_DATABASE = 2  # that of the application


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Own]:
    server = Own(tmp_path)
    yield server
    server.stop()


class Followed:
    """A collection that is followed by tracking, and its journal."""

    def __init__(self, url: str, layout: str = "hash") -> None:
        self.name = f"{servers.namespace()}_tracked_{time.monotonic_ns()}"
        native = redis_native(
            f"{self.name}:{{id}}", "hash", seen=(f"{self.name}:{{id}}:seen", "set")
        )
        at = At("cache", self.name, RULES, native if layout == "native" else Layout(layout))
        self.store = store.open_store(StoreSettings("cache", url, {"feed": "tracking"}))
        collection = self.store.collection("Game", at)
        assert isinstance(collection, RedisCollection)
        self.collection = collection
        self.journal = self.another()

    def another(self) -> TrackingJournal:
        journal = self.collection.journal(self.name)
        assert isinstance(journal, TrackingJournal)
        return journal

    def begin(self) -> TrackingFeed:
        return self.journal.open(json.loads(json.dumps(self.journal.prepare())))

    def drained(self, feed: Feed, mark: str = "now") -> tuple[list[str], bool]:
        """The keys up to a marker that is written now, and whether every key was touched."""
        self.journal.mark(mark)
        return up_to(feed, mark)

    def close(self) -> None:
        self.journal.drop()
        self.store.close()


def up_to(feed: Feed, mark: str) -> tuple[list[str], bool]:
    keys: list[str] = []
    whole = False
    end = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < end, "no marker came"
        given = feed.poll(0.5)
        if given is None:
            continue
        keys += [str(touch.key) for touch in given.touches]
        whole = whole or given.whole
        if mark in given.marks:
            return keys, whole


@pytest.fixture
def follow() -> Iterator[Callable[..., Followed]]:
    made: list[Followed] = []

    def make(url: str, layout: str = "hash") -> Followed:
        made.append(Followed(url, layout))
        return made[-1]

    yield make
    for each in made:
        each.close()


def shared(database: int = _DATABASE) -> str:
    return f"redis://127.0.0.1:{own_redis.shared().port}/{database}"


Follow = Callable[..., Followed]


@pytest.mark.parametrize("layout", ["hash", "keys", "string", "native"])
def test_every_kind_of_write_is_told(follow: Follow, layout: str) -> None:
    here = follow(shared(), layout)
    app = RedisApplication(here.collection)
    try:
        feed = here.begin()
        for number, write in enumerate(app.writes()):
            if write.name == "swap":
                continue
            write.before()
            here.drained(feed, f"before {number}")
            write.act()
            keys, whole = here.drained(feed, f"after {number}")
            assert set(write.touched) <= set(keys), write.name
            assert whole or not write.whole, write.name
            assert set(keys) <= {"a", "b", *write.touched}, write.name
        feed.close()
    finally:
        app.close()


def test_keys_that_begin_with_the_identifier_are_told(follow: Follow, own: Own) -> None:
    """No prefix of theirs tells them from the markers."""
    here = follow(own.url)
    at = At("cache", here.name, RULES, redis_native("{id}:game", "hash"))
    here.collection = here.store.collection("Game", at)  # type: ignore[assignment]
    here.journal = here.another()
    assert [code for _, code, _ in here.journal.findings()] == ["redis-tracking"]
    feed = here.begin()
    with redis.Redis(port=own.port) as plain:
        plain.hset("a:game", "n", 1)
        plain.hset("a:other", "n", 1)
    assert here.drained(feed) == (["a"], False)
    feed.close()


@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_nobody_is_told_of_databases_that_are_swapped_and_the_feed_is_lost(
    hidden: int, follow: Follow, own: Own
) -> None:
    """Nor where a server forgets what it counted, for the first time or once more."""
    here = follow(own.url)
    with redis.Redis(port=own.port) as client:
        for _ in range(hidden - 1):
            client.config_resetstat()
            client.echo("x" * 100_000)  # more than is told and asked for below
        feed = here.begin()
        here.drained(feed)
        client.swapdb(0, 1)
        for _ in range(min(hidden, 1)):
            client.config_resetstat()
    with pytest.raises(FeedLost, match="swapped"):
        here.drained(feed, "later")
    assert here.drained(here.begin(), "anew") == ([], False)


@pytest.fixture(params=["redis", "rediscluster"])
def place(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """A server or a cluster, and the plain driver's client of it."""
    if request.param == "redis":
        return shared(), redis.Redis.from_url(shared())
    url = servers.rediscluster()
    parts = urlsplit(url)
    return url, redis.RedisCluster(parts.hostname or "", parts.port or 0)


def test_a_mark_comes_behind_all_that_was_acknowledged_before(
    follow: Follow, place: tuple[str, Any]
) -> None:
    url, client = place
    here = follow(url)
    feed = here.begin()
    acknowledged: list[str] = []
    end = threading.Event()

    def write(writer: int) -> None:
        n = 0
        while not end.is_set():
            key = f"{writer}-{n}"
            client.hset(f"{here.name}:{key}", "v", n)
            acknowledged.append(key)
            n += 1

    writers = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for each in writers:
        each.start()
    try:
        seen: set[str] = set()
        for turn in range(20):
            due = set(acknowledged)
            here.journal.mark(f"turn {turn}")
            seen |= set(up_to(feed, f"turn {turn}")[0])
            assert due <= seen, sorted(due - seen)[:5]
    finally:
        end.set()
        joined(*writers)
    seen |= set(here.drained(feed, "end")[0])
    assert seen == set(acknowledged)
    feed.close()
    for key in seen:
        client.delete(f"{here.name}:{key}")
    client.close()


def test_a_mark_leaves_nothing(follow: Follow, own: Own) -> None:
    here = follow(own.url)
    feed = here.begin()
    here.drained(feed)
    feed.close()
    with redis.Redis(port=own.port) as client:
        assert client.keys() == []


def test_what_nobody_listened_to_is_lost(follow: Follow, own: Own) -> None:
    here = follow(own.url)
    start = here.journal.prepare()
    assert here.journal.prepare() == start  # once more is the same as once
    for other in (here.another(), follow(own.url).journal):
        with pytest.raises(FeedLost, match="nobody listened"):
            other.open(start)
    feed = here.journal.open(start)
    here.drained(feed)
    with redis.Redis(port=own.port) as client:
        assert client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    with pytest.raises(FeedLost):
        until_lost(feed)
    with pytest.raises(FeedLost):
        here.journal.open(start)
    feed.close()
    again = here.begin()
    with redis.Redis(port=own.port) as client:
        client.hset(f"{here.name}:a", "v", 1)
    assert here.drained(again, "again") == (["a"], False)
    own.stop()
    with pytest.raises(FeedLost):
        until_lost(again)


def until_lost(feed: Feed) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        feed.poll(0.2)


def test_other_masters_lose_the_feed(
    follow: Follow, rediscluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = follow(servers.rediscluster())
    feed = here.begin()
    here.drained(feed)
    ask = here.journal.wire.masters
    monkeypatch.setattr(here.journal.wire, "masters", lambda anew=False: ask(anew=anew)[1:])
    with pytest.raises(FeedLost, match="other masters"):
        until_lost(feed)


def test_too_many_keys_that_wait_lose_the_feed(
    follow: Follow, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.stores.redis.listening.MOST_WAITING", 5)
    here = follow(own.url)
    feed = here.begin()
    with redis.Redis(port=own.port) as client:
        for key in range(10):
            client.hset(f"{here.name}:{key}", "v", 1)
    with pytest.raises(FeedLost, match="over 5 written keys wait"):
        until_lost(feed)


def test_who_may_not_listen_is_told_what_is_missing(follow: Follow, own: Own) -> None:
    with redis.Redis(port=own.port) as client:
        client.execute_command("ACL", "SETUSER", "deaf", "on", ">pass", "~*", "+@all", "-client")
    here = follow(f"redis://deaf:pass@127.0.0.1:{own.port}/0")
    found = [(severity, code) for severity, code, _ in here.journal.findings()]
    assert found == [("error", "redis-feed-right")]
    with pytest.raises(Refused, match="can't be listened to"):
        here.journal.prepare()
    here = follow(own.url)
    assert [code for _, code, _ in here.journal.findings()] == ["redis-tracking"]


def test_an_unknown_feed_is_refused() -> None:
    with pytest.raises(Refused, match="feed is 'notifications'"):
        store.open_store(StoreSettings("cache", shared(), {"feed": "notifications"}))

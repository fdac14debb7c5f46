"""Redis' lines of the contract of feeds: the replication stream, in each layout."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import redis

from migrator.model.layouts import redis_native
from migrator.model.move import At, Layout
from migrator.ports import Collection, Json, Store, StoreSettings
from migrator.stores import redis as store
from migrator.testing.feeds import FeedCase, Write
from migrator.testing.feeds.case import RULES
from tests.contract import own_redis

_OURS, _OTHER = 2, 3


def _open(_: object) -> Store:
    url = f"redis://127.0.0.1:{own_redis.shared().port}/{_OURS}"
    return store.open_store(StoreSettings("cache", url))


def _client(database: int) -> redis.Redis:
    return redis.Redis(port=own_redis.shared().port, db=database)


class RedisApplication:
    """Writes by redis-py, in one of the layouts."""

    def __init__(self, collection: Collection) -> None:
        self.client = _client(_OURS)
        self.other = _client(_OTHER)
        self.name = collection.at.collection
        layout = collection.at.layout
        self.layout = "hash" if layout is None else layout.name

    def make(self) -> None:
        pass

    def key(self, key: str) -> str:
        """The key of a block."""
        return f"{{{self.name}:{key}}}" if self.layout == "keys" else f"{self.name}:{key}"

    def put(self, key: str, number: int) -> None:
        self._put(self.client, key, number)

    def _put(self, to: Any, key: str, number: int) -> None:
        place = self.key(key)
        if self.layout == "string":
            to.set(place, json.dumps({"v": number}))
        elif self.layout == "keys":
            with to.pipeline(transaction=True) as both:
                both.set(f"{place}:v", number)
                both.hset(place, "v", "")
                both.execute()
        else:
            to.hset(place, "v", number)

    def fill(self, keys: Sequence[str]) -> None:
        with self.client.pipeline(transaction=False) as many:
            for key in keys:
                self._put(many if self.layout != "keys" else self.client, key, 1)
            many.execute()

    def delete(self, key: str) -> None:
        place = self.key(key)
        beside = {"keys": [f"{place}:v"], "native": [f"{place}:seen"]}
        self.client.delete(place, *beside.get(self.layout, []))

    def holding(self, key: str) -> None:
        return None

    def left(self) -> set[str]:
        found = {name.decode() for name in self.client.scan_iter()}
        return {name for name in found if not name.lstrip("{").startswith(f"{self.name}:")}

    def close(self) -> None:
        self.client.close()
        self.other.close()

    # ------------------------------------------------------------ kinds of writes

    def writes(self) -> Iterator[Write]:
        do, a, b = self.client, self.key("a"), self.key("b")

        def before() -> None:
            self.other.flushdb()
            self.delete("b")
            self.delete("a")
            self.put("a", 1)

        def write(name: str, act: Callable[[], object], **touched: bool) -> Write:
            return Write(name, before, act, touched)

        yield Write("insert", lambda: self.delete("a"), lambda: self.put("a", 1), {"a": False})
        yield write("update", lambda: self.put("a", 2), a=False)
        yield write("delete", lambda: self.delete("a"), a=True)
        yield write("unlink", lambda: do.unlink(a), a=True)
        yield write("delete and insert again", lambda: (self.delete("a"), self.put("a", 2)), a=True)

        def replace() -> None:
            with do.pipeline(transaction=True) as both:
                both.unlink(a)
                self._put(both, "a", 3)
                both.execute()

        if self.layout != "keys":
            yield write("replace in one step", replace, a=False)
        yield write("a deadline", lambda: do.expire(a, 1000), a=False)
        yield write("a deadline that has passed", lambda: do.pexpireat(a, 1), a=True)

        def expires() -> None:
            do.pexpire(a, 1)
            while do.exists(a):
                time.sleep(0.001)

        yield write("expiry", expires, a=True)
        yield write("rename", lambda: do.rename(a, b), a=True, b=False)
        yield write("copy", lambda: do.copy(a, b), b=False)
        yield write("dump and restore", lambda: do.restore(b, 0, do.dump(a) or b""), b=False)
        script = "redis.call('expire', KEYS[1], 9) redis.call('copy', KEYS[1], KEYS[2]) return 1"
        yield write("a script", lambda: do.eval(script, 2, a, b), a=False, b=False)
        yield write("move away", lambda: do.move(a, _OTHER), a=True)

        def come() -> None:
            self._put(self.other, "b", 1)
            self.other.move(b, _OURS)
            self.other.copy(a, b, destination_db=_OURS, replace=True)

        yield write("copy from elsewhere", come, b=False)
        yield write("elsewhere", lambda: (self._put(self.other, "b", 1), self.other.flushdb()))
        yield write("another key", lambda: do.set(f"x{self.name}:a", 1))
        yield from self._of_layout(write, a)
        yield Write("flush", before, do.flushdb, {}, whole=True)
        yield Write("swap", before, lambda: do.swapdb(_OTHER, _OURS), {}, whole=True)
        yield Write("flush of all", before, self.other.flushall, {}, whole=True)

    def _of_layout(self, write: Callable[..., Write], a: str) -> Iterator[Write]:
        do = self.client
        if self.layout == "hash":
            yield write("a field less", lambda: (do.hset(a, "w", 1), do.hdel(a, "w")), a=False)
            yield write("a key of another type", lambda: do.rpush(self.key("list"), 1), list=False)
        elif self.layout == "keys":
            yield write("an entry", lambda: do.set(f"{a}:v", 2), a=False)
            yield write("an entry less", lambda: do.delete(f"{a}:v"), a=False)
        elif self.layout == "native":
            seen = f"{a}:seen"
            yield write("a part more", lambda: do.sadd(seen, "b"), a=False)
            yield write("a part less", lambda: (do.sadd(seen, "b"), do.delete(seen)), a=False)


def _elsewhere(position: Json) -> Json:
    assert isinstance(position, dict)
    return {**position, "stream": "0" * 40}


def _cut(_: str) -> object:
    return _client(0).execute_command("CLIENT", "KILL", "TYPE", "replica")


def _case(name: str) -> FeedCase:
    def at(collection: str) -> At:
        keys = f"{collection}:{{id}}", "hash"
        native = redis_native(*keys, seen=(f"{collection}:{{id}}:seen", "set"))
        return At("cache", collection, RULES, native if name == "native" else Layout(name))

    def application(_: Path, collection: Collection) -> RedisApplication:
        return RedisApplication(collection)

    return FeedCase(
        "redis", name, _open, at, application, elsewhere=_elsewhere, cut=_cut, keeps=False
    )


HASH = _case("hash")
OTHERS = [_case(name) for name in ("keys", "string", "native")]

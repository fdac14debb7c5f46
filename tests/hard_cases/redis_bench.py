"""A project over a Redis database that is empty, an embedded store, and the plain driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from migrator.model.move import At
from migrator.ports import Collection
from tests.contract import servers
from tests.system import kit
from tests.system.kit import Shop


class RedisBench:
    """Stores ``cache`` (Redis) and ``emb``, and ``plain``, the driver on the same database."""

    def __init__(self, root: Path, url: str, plain: redis.Redis) -> None:
        self.root, self.url = root, url
        self.plain: Any = plain

    def shop(self, *moves: tuple[str, str]) -> Shop:
        shop = Shop(self.root, {"cache": self.url, "emb": "embedded:///emb.db"})
        for move in moves:
            shop.script(f"move = {kit.move('Thing', *move)}")
        return shop

    def contents(self, shop: Shop, at: At) -> kit.Contents:
        with shop.open() as project:
            return kit.contents(project.stores.get(at.store).collection("Thing", at))

    def listed(self) -> Sequence[bytes]:
        return sorted(k for k in self.plain.scan_iter() if not k.startswith(b"_migrator"))


@pytest.fixture
def redis_bench(tmp_path: Path) -> Iterator[RedisBench]:
    url = servers.redis()
    with redis.Redis.from_url(url) as plain:
        plain.flushdb()
        yield RedisBench(tmp_path, url, plain)
        plain.flushdb()


def walk(collection: Collection, limit: int) -> Iterator[list[object]]:
    """The keys of a collection, page by page."""
    position = None
    while True:
        page = collection.page(None, position, limit)
        yield [block.id for block in page.blocks]
        position = page.next
        if position is None:
            return

"""A project over a keyspace of Cassandra and an embedded store, and the plain driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.model.move import At
from migrator.ports import Collection
from tests.contract import servers
from tests.system import kit
from tests.system.kit import Shop


class CassandraBench:
    """Stores ``wide`` (Cassandra) and ``emb``, and ``plain``, the driver on the same keyspace."""

    def __init__(self, root: Path, url: str, plain: Any) -> None:
        self.root, self.url, self.plain = root, url, plain

    def shop(self, *moves: tuple[str, str]) -> Shop:
        shop = Shop(self.root, {"wide": self.url, "emb": "embedded:///emb.db"})
        for move in moves:
            shop.script(f"move = {kit.move('Thing', *move)}")
        return shop

    def contents(self, shop: Shop, at: At) -> kit.Contents:
        with shop.open() as project:
            return kit.contents(self.collection(project, at))

    @staticmethod
    def collection(project: Any, at: At) -> Collection:
        collection: Collection = project.stores.get(at.store).collection("Thing", at)
        return collection


@pytest.fixture
def cassandra_bench(tmp_path: Path) -> Iterator[CassandraBench]:
    with servers.plain_cassandra() as plain:
        yield CassandraBench(tmp_path, servers.cassandra(), plain)

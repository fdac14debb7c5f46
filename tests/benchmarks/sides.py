"""The stores that take part in benchmarks, and where they lie."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.conftest import SERVERS

DATABASE = "migrator_bench"
REDIS_DATABASE = 14


@dataclass(frozen=True)
class Side:
    """One end of a pair: the kind of store, and its layout."""

    store: str
    layout: str

    def __str__(self) -> str:
        return f"{self.store}({self.layout})"

    @property
    def server(self) -> str:
        """The server's URL as the tests have it."""
        return os.environ.get(f"MIGRATOR_TEST_{self.store.upper()}", SERVERS[self.store])

    def url(self, file: str = "") -> str:
        """Where it lies; ``file`` names the file of a store without a server."""
        if self.store == "embedded":
            return f"embedded:///{file}.db"
        if self.store == "dynalite":
            return self.server
        name = REDIS_DATABASE if self.store == "redis" else DATABASE
        return urlsplit(self.server)._replace(path=f"/{name}").geturl()

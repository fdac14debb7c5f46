"""A project for one pair of stores: EAO to ROUNDS, in databases of the benchmark's own."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from migrator import commands
from migrator.model.move import At, Layout
from tests.benchmarks.data import Make, game, load
from tests.conftest import SERVERS
from tests.system.servers import connect_mongodb, create, drop

DATABASE = "migrator_bench"
RULES = ["/Game/*/rounds[*]", "/Game/*"]
REVISION = "0001"
SOURCE, TARGET = "games", "games_by_round"


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
        return urlsplit(self.server)._replace(path=f"/{DATABASE}").geturl()


@dataclass(frozen=True)
class Pair:
    """What is moved from where to where."""

    source: Side
    target: Side

    @property
    def name(self) -> str:
        return f"{self.source} to {self.target}"


_EMBEDDED = Side("embedded", "entries")
PAIRS = {
    "embedded": Pair(_EMBEDDED, _EMBEDDED),
    "postgresql-mongodb": Pair(Side("postgresql", "entries"), Side("mongodb", "flat")),
    "mongodb-embedded": Pair(Side("mongodb", "document"), _EMBEDDED),
}


class Bench:
    """A folder with a filled source. Every measurement begins with an empty target."""

    def __init__(self, pair: Pair, root: Path) -> None:
        self.pair, self.root = pair, root
        (root / "migrations").mkdir(parents=True, exist_ok=True)
        (root / "migrator.toml").write_text(
            f'[env.bench.stores.old]\nurl = "{pair.source.url("old")}"\n'
            f'[env.bench.stores.new]\nurl = "{pair.target.url("new")}"\n'
        )
        (root / "migrations" / "0001_rounds.py").write_text(
            '"""Each round an entry of its own."""\n\nfrom migrator import At, Move\n\n'
            f'revision, down_revision = "{REVISION}", None\n\n'
            f'move = Move("Game", source=At("old", "{SOURCE}", layout="{pair.source.layout}"),\n'
            f'    target=At("new", "{TARGET}", {RULES}, "{pair.target.layout}"))\n'
        )

    def open(self) -> commands.Project:
        return commands.Project(self.root / "migrator.toml", "bench")

    def fill(self, blocks: int, make: Make = game) -> None:
        """Put so many aggregates into the source."""
        self.remove()
        for side in self._on_servers():
            create(side.store, side.server, DATABASE)
        with self.open() as project:
            at = At("old", SOURCE, layout=Layout(self.pair.source.layout))
            load(project.stores.get("old").collection("Game", at), blocks, make)

    def reset(self) -> None:
        """Forget the target and all runs."""
        for file in (*self.root.glob("new.db*"), *self.root.glob("hand.db*")):
            file.unlink()
        shutil.rmtree(self.root / ".migrator", ignore_errors=True)
        if self.pair.target.store == "mongodb":
            with connect_mongodb(self.pair.target.url()) as client:
                client.get_default_database()[TARGET].drop()

    def remove(self) -> None:
        """Remove what was made on servers."""
        for side in self._on_servers():
            drop(side.store, side.server, DATABASE)

    def _on_servers(self) -> list[Side]:
        return [s for s in (self.pair.source, self.pair.target) if s.store != "embedded"]

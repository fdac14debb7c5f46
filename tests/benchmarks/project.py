"""A project for one pair of stores: EAO to ROUNDS, in databases of the benchmark's own."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from migrator import commands
from migrator.model.move import At, Layout
from tests.benchmarks import clients
from tests.benchmarks.data import Make, game, load
from tests.benchmarks.sides import Side

RULES = ["/Game/*/rounds[*]", "/Game/*"]
REVISION = "0001"
SOURCE, TARGET = "games", "games_by_round"


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
    "redis": Pair(Side("redis", "hash"), Side("redis", "hash")),
    "mongodb-cassandra": Pair(Side("mongodb", "document"), Side("cassandra", "partition")),
    "postgresql-dynamodb": Pair(Side("postgresql", "entries"), Side("dynalite", "item")),
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
            clients.create(side)
        with self.open() as project:
            at = At("old", SOURCE, layout=Layout(self.pair.source.layout))
            load(project.stores.get("old").collection("Game", at), blocks, make)

    def reset(self) -> None:
        """Forget the target and all runs."""
        for file in (*self.root.glob("new.db*"), *self.root.glob("hand.db*")):
            file.unlink()
        shutil.rmtree(self.root / ".migrator", ignore_errors=True)
        clients.forget(self.pair.target, TARGET)

    def remove(self) -> None:
        """Remove what was made on servers."""
        for side in self._on_servers():
            clients.drop(side, (SOURCE, TARGET))

    def _on_servers(self) -> list[Side]:
        return [s for s in (self.pair.source, self.pair.target) if s.store != "embedded"]

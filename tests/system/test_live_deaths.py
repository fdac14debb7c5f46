"""kill -9 of owners at named points of a live move's life, and of a gateway: for each store's feed.

One life leads past all points, as each death leaves it to the next owner. Between two deaths what
both sides hold is compared with what was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator import commands
from tests.contract import servers as contract
from tests.gateway.test_live import ends, held, mirroring, more, project
from tests.system.dying import Mortal, own, owner_dies
from tests.system.kit import Urls, end, fresh

_SERVED: dict[str, Callable[[], str]] = {
    "redis": contract.redis, "cassandra": contract.cassandra, "dynamodb": contract.dynamodb,
}  # fmt: skip
_LAYOUTS = {
    "embedded": "", "sqlite": "entries", "postgresql": "entries", "mariadb": "entries",
    "mongodb": "flat", "redis": "hash", "cassandra": "partition", "dynamodb": "item",
}  # fmt: skip
# The feed of the first is followed up to the cut-over, and that of the second from there on.
WAYS = (
    ("postgresql", "mongodb"),
    ("mongodb", "mongodb"),
    ("mariadb", "embedded"),
    ("sqlite", "redis"),
    ("redis", "cassandra"),
    ("cassandra", "dynamodb"),
    ("dynamodb", "postgresql"),
)


@dataclass
class Life:
    """A live move, and its writers."""

    config: Path
    writers: list[Mortal]

    def write(self) -> None:
        """Let all that are there go on for a while."""
        more([writer for writer in self.writers if not writer.waited])

    def dies(self, word: str, *points: str) -> None:
        """Let one owner after the other do what a word says, and die on the way."""
        for point in points:
            owner_dies(self.config, word, point)

    def gateway_dies(self) -> None:
        """Kill a writer wherever it is, and let another one take its place, with other keys: what
        it sent last may still be carried out."""
        self.writers[-1].kill()
        self.writers.append(Mortal(self.config, "c").start())

    def assert_nothing_lost(self) -> None:
        """Both sides hold what was acknowledged, and nothing else, and are equal."""
        there = [writer for writer in self.writers if not writer.waited]
        for writer in there:
            writer.stop()
        with commands.Project(self.config, "test") as project, mirroring(self.config):
            old, new = ends(project)
            (found,) = commands.verify_run(project, "0001")
            assert found.clean, found.told
            games = held(new)
            assert games == held(old)
        told = {key: game for w in self.writers for key, game in w.acknowledged().items()}
        assert {key: games.get(key) for key in told} == told
        assert games.keys() <= {key for writer in self.writers for key in writer.begun()}
        for writer in there:
            writer.start()


@contextmanager
def living(config: Path, kind: type[Mortal] = Mortal) -> Iterator[Life]:
    life = Life(config, [kind(config, name).start() for name in ("a", "b")])
    try:
        life.write()
        yield life
    finally:
        for writer in life.writers:
            if not writer.waited:
                writer.kill()


@pytest.fixture(params=WAYS, ids="-".join)
def config(request: pytest.FixtureRequest, tmp_path: Path, urls: Urls) -> Iterator[Path]:
    """A move of games, in pieces but for the source of the way within MongoDB."""
    old, new = request.param
    name = fresh("deaths")

    def url(store: str, file: str) -> str:
        if store in ("embedded", "sqlite"):
            return f"{store}:///{file}.db"
        return _SERVED[store]() if store in _SERVED else urls(store, "")

    def at(store: str, name: str, *, whole: bool = False) -> str:
        layout = "document" if whole else _LAYOUTS[store]
        rules = ["/Game/*"] if whole else ["/Game/*/rounds[*]", "/Game/*"]
        return f"{name!r}, {rules}" + (f", {layout!r}" if layout else "")

    made = project(
        tmp_path, url(old, "old"), url(new, "new"),
        at(old, f"{name}_s", whole=old == new), at(new, f"{name}_t"),
    )  # fmt: skip
    # An owner dies between two requests: nothing that it sent comes late.
    made.write_text(made.read_text().replace("request_life = 0.5", "request_life = 0.05"))
    with commands.Project(made, "test") as opened:
        ends(opened)[0].create()
        assert not opened.control.runs()  # made before writers open it, all at once
    yield made
    with commands.Project(made, "test") as opened:
        end(opened)


def test_nothing_is_lost_where_owners_and_gateways_are_killed(config: Path) -> None:
    with living(config) as life:
        life.dies("apply", "feed.prepared", "page.written")
        own(config, "apply")
        life.dies("mirror", "mirror.write", "mirror.applied")
        life.dies("cutover", "swap.armed", "swap.raised")
        life.gateway_dies()
        life.dies("cutover", "swap.fenced", "swap.drained", "swap.flipped")
        life.dies("mirror", "swap.crowned", "swap.marked", "mirror.write")
        life.write()
        life.assert_nothing_lost()

        life.dies("rollback", "swap.released")
        life.write()
        life.assert_nothing_lost()

        own(config, "cutover")
        life.write()
        life.assert_nothing_lost()

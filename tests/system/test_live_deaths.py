"""kill -9 of owners at named points of a live move's life, and of gateways: for each store's feed.

One life leads past all points, as each death leaves it to the next owner. Between two deaths what
both sides hold is compared with what was acknowledged. Gateways die at named points of their calls,
on each store and each of its feeds as the primary (on Cassandra: ``test_bracket_kill.py``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy.engine import make_url

from migrator import commands
from tests.contract import feeds_sql
from tests.contract import servers as contract
from tests.gateway.test_live import ends, held, mirroring, more, project
from tests.system import servers
from tests.system.cut_short import SOURCES, TARGETS, Left, Point, cut_short
from tests.system.dying import Mortal, own, owners_die
from tests.system.kit import Urls, end, fresh

_SERVED: dict[str, Callable[[], str]] = {
    "redis": contract.redis, "tracking": contract.redis, "cassandra": contract.cassandra,
    "dynamodb": contract.dynamodb,
}  # fmt: skip
_LAYOUTS = {
    "embedded": "", "sqlite": "entries", "postgresql": "entries", "outbox": "entries",
    "mariadb": "entries", "mongodb": "flat", "redis": "hash", "tracking": "keys",
    "cassandra": "partition", "dynamodb": "item",
}  # fmt: skip
_IN_TABLES = {"postgresql": "text", "mariadb": "varchar(60)"}  # as a source, and a key's type
# The feed of the first is followed up to the cut-over, and that of the second from there on.
WAYS = (
    ("postgresql", "mongodb"),
    ("mongodb", "mongodb"),
    ("mariadb", "outbox"),  # of PostgreSQL, by a role that may not replicate
    ("sqlite", "tracking"),  # of Redis: its feed is lost with each owner
    ("redis", "cassandra"),
    ("cassandra", "dynamodb"),
    ("dynamodb", "postgresql"),
)


@dataclass
class Life:
    """A live move, and its writers."""

    config: Path
    writers: list[Mortal]
    left: Left = field(default_factory=dict)

    def write(self) -> None:
        """Let all that are there go on for a while."""
        more([writer for writer in self.writers if not writer.waited])

    def dies(self, word: str, *points: str) -> None:
        """Let one owner after the other do what a word says, and die on the way."""
        for point in points:
            owners_die(self.config, word, point)

    def stand_by(self, word: str, *points: str) -> None:
        """Let owners do that at once, each of which dies at a point of its own: one works, and the
        others stand by until it is gone."""
        owners_die(self.config, word, *points)

    def gateway_dies(self) -> None:
        """Kill a writer wherever it is, and let another one take its place, with other keys: what
        it sent last may still be carried out."""
        self.writers[-1].kill()
        self.writers.append(Mortal(self.config, "c").start())

    def calls_are_cut_short(self, points: Sequence[Point]) -> None:
        """Kill a gateway at each of some points of its calls."""
        if points:
            self.left |= cut_short(self.config, points)

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
        begun = {key for writer in self.writers for key in writer.begun()}
        assert games.keys() <= begun | self.left.keys()
        assert [key for key, either in self.left.items() if games.get(key) not in either] == []
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
    name, closing = fresh("deaths"), ExitStack()

    def url(store: str, file: str) -> str:
        if store in ("embedded", "sqlite"):
            return f"{store}:///{file}.db"
        if store == "outbox":
            return closing.enter_context(_without_replication(urls("postgresql", "")))
        return _SERVED[store]() if store in _SERVED else urls(store, "")

    def at(store: str, name: str, *, source: bool = False) -> str:
        if source and store in _IN_TABLES:
            return f"tables({name!r}, rounds=tables('{name}_round', order_by='pos'))"
        layout = "document" if source and old == new else _LAYOUTS[store]
        rules = ["/Game/*"] if layout == "document" else ["/Game/*/rounds[*]", "/Game/*"]
        return f"{name!r}, {rules}" + (f", {layout!r}" if layout else "")

    made = project(
        tmp_path, url(old, "old"), url(new, "new"),
        at(old, f"{name}_s", source=True), at(new, f"{name}_t"),
    )  # fmt: skip
    # An owner dies between two requests: nothing that it sent comes late.
    made.write_text(made.read_text().replace("request_life = 0.5", "request_life = 0.05"))
    if new == "tracking":
        with made.open("a") as settings:
            settings.write('[env.test.stores.new.options]\nfeed = "tracking"\n')
    with closing:
        with commands.Project(made, "test") as opened:
            if old in _IN_TABLES:
                _make_tables(old, urls(old, ""), f"{name}_s")
            else:
                ends(opened)[0].create()
            assert not opened.control.runs()  # made before writers open it, all at once
        yield made
        with commands.Project(made, "test") as opened:
            end(opened)


def _make_tables(server: str, url: str, name: str) -> None:
    key = _IN_TABLES[server]
    for statement in (
        f"CREATE TABLE {name} (id {key} PRIMARY KEY, n int NOT NULL)",
        f"CREATE TABLE {name}_round (game {key} NOT NULL, pos int, n int NOT NULL, "
        f"PRIMARY KEY (game, pos), FOREIGN KEY (game) REFERENCES {name} (id))",
    ):
        servers.do(server, url, statement)


@contextmanager
def _without_replication(url: str) -> Iterator[str]:
    """The same database, for a role that may make tables and triggers in it."""
    role, owner = fresh("plain"), make_url(url).username
    with servers.connect_postgresql(url) as admin:
        do: Callable[..., object] = admin.execute
        do(f"CREATE ROLE {role} LOGIN PASSWORD 'plain'")
        do(f"GRANT {owner} TO {role}")
        do(f"GRANT ALL ON SCHEMA public TO {role}")
        try:
            yield make_url(url).set(username=role, password="plain").render_as_string(False)
        finally:
            do(f"REASSIGN OWNED BY {role} TO {owner}")
            do(f"DROP OWNED BY {role}")
            do(f"DROP ROLE {role}")


def made_beside(config: Path) -> dict[str, set[str]]:
    """What Migrator has made beside the data on the relational servers of a move, by server."""
    queries = {"postgresql": feeds_sql.LEFT["postgresql"], "mariadb": feeds_sql.LEFT["mysql"]}
    found: dict[str, set[str]] = {}
    for store in tomllib.loads(config.read_text())["env"]["test"]["stores"].values():
        server = urlsplit(store["url"]).scheme
        for query in queries.get(server, ()):
            names = {row[0] for row in servers.rows(server, store["url"], query)}
            found.setdefault(server, set()).update(n for n in names if "migrator_" in n)
    return found


def test_nothing_is_lost_where_owners_and_gateways_are_killed(
    config: Path, request: pytest.FixtureRequest
) -> None:
    old, new = request.node.callspec.params["config"]
    with living(config) as life:
        life.dies("apply", "feed.prepared", "page.written")
        own(config, "apply")
        life.calls_are_cut_short(SOURCES.get(old, ()))
        life.stand_by("mirror", "mirror.write", "mirror.applied")
        life.dies("cutover", "swap.armed", "swap.raised")
        life.gateway_dies()
        life.dies("cutover", "swap.fenced", "swap.drained", "swap.flipped")
        life.dies("mirror", "swap.crowned", "swap.marked", "mirror.write")
        life.calls_are_cut_short(TARGETS.get(new, ()))
        life.write()
        life.assert_nothing_lost()

        life.dies("rollback", "swap.released")
        life.write()
        life.assert_nothing_lost()

        own(config, "cutover")
        life.write()
        life.assert_nothing_lost()

    assert all(made_beside(config).values())
    with commands.Project(config, "test") as opened:
        commands.finish(opened, "0001", keep_source=True)
    assert not any(made_beside(config).values())

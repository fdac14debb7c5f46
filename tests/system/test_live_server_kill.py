"""kill -9 of the servers of a live move, at named points of its life, under gateways that go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from migrator import commands
from migrator.engine import points
from tests.contract.own_redis import Own as OwnRedis
from tests.gateway.test_live import ends, project
from tests.system import dying, servers
from tests.system.dying import Stubborn
from tests.system.kit import fresh
from tests.system.test_live_deaths import living
from tests.system.test_server_kill import AtEach, Own, own, owned

__all__ = ["own"]
_LAYOUTS = {
    "postgresql": "entries", "mariadb": "entries", "mongodb": "flat", "redis": "hash",
    "cassandra": "partition", "embedded": "",
}  # fmt: skip
_ROUNDS = ["/Game/*/rounds[*]", "/Game/*"]
# The first way, and back: now the source's server dies and now the target's, in turn.
_THERE = (
    "page.written", "mirror.write", "swap.raised", "swap.fenced", "swap.drained", "swap.flipped",
    "swap.marked",
)  # fmt: skip
_BACK = ("swap.fenced", "swap.flipped")


@pytest.fixture
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    folder = tmp_path_factory.mktemp("redis")
    server = OwnRedis(folder, "--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.stop()


def restarts(own: Own, redis: OwnRedis, server: str) -> Callable[[], object]:
    def act() -> None:
        redis.stop()
        redis.start()

    return act if server == "redis" else restart(own, server)


def restart(own: Own, server: str) -> Callable[[], object]:
    def act() -> None:
        own.do("kill", server)
        own.do("up", server)

    return act


@pytest.mark.parametrize(("old", "new"), [("postgresql", "mongodb"), ("mongodb", "redis")], ids=str)
def test_nothing_is_lost_where_servers_are_killed(
    tmp_path: Path, own: Own, redis: OwnRedis, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    urls = {**own.url, "redis": redis.url}
    config = moving(tmp_path, (old, urls[old]), (new, urls[new]))
    turns = restarts(own, redis, old), restarts(own, redis, new)
    lives_through(config, monkeypatch, AtEach(_THERE, turns), AtEach(_BACK, reversed(turns)))


# Of servers that take longer to start, that of the source alone: on the way there, and on the way
# back as the mirror that becomes the primary again.
@pytest.mark.parametrize(
    ("server", "there", "back"),
    [
        pytest.param(
            "mariadb",
            ("page.written", "mirror.write", "swap.fenced", "swap.flipped"),
            ("swap.raised", "swap.flipped"),
            id="mariadb",
        ),
        pytest.param(
            "cassandra",
            ("swap.drained",),
            ("swap.flipped",),
            id="cassandra",
            marks=pytest.mark.timeout(600),  # its server starts three times, for half a minute each
        ),
    ],
)
def test_nothing_is_lost_where_the_server_of_the_source_is_killed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    there: Sequence[str],
    back: Sequence[str],
) -> None:
    with owned(tmp_path / "services", server) as own:
        make_place(own.url[server])
        config = moving(tmp_path, (server, own.url[server]), ("embedded", "embedded:///new.db"))
        turns = [restart(own, server)]
        lives_through(config, monkeypatch, AtEach(there, turns), AtEach(back, turns))


def make_place(url: str) -> None:
    """A database or keyspace, where a server has none at first."""
    parts = urlsplit(url)
    name = parts.path.strip("/")
    if parts.scheme == "mariadb":
        servers.create("mariadb", parts._replace(path="/mysql").geturl(), name)
        return
    from cassandra.cluster import Cluster

    with Cluster([parts.hostname], port=parts.port, protocol_version=5) as cluster:
        cluster.connect().execute(
            f"CREATE KEYSPACE {name} WITH replication ="
            " {'class': 'SimpleStrategy', 'replication_factor': 1}",
            timeout=60,
        )


def moving(root: Path, old: tuple[str, str], new: tuple[str, str]) -> Path:
    """A move of games from one store, by its name and URL, to another; the first is made."""

    def at(name: str, store: str) -> str:
        layout = _LAYOUTS[store]
        return f"{name!r}, {_ROUNDS}" + (f", {layout!r}" if layout else "")

    name = fresh("killed")
    config = project(
        root, old[1], new[1], at(f"{name}_s", old[0]), at(f"{name}_t", new[0])
    )  # fmt: skip
    with commands.Project(config, "test") as opened:
        ends(opened)[0].create()
        assert not opened.control.runs()  # made before writers open it, both at once
    return config


def lives_through(
    config: Path, monkeypatch: pytest.MonkeyPatch, there: AtEach, back: AtEach
) -> None:
    """The whole life of a move under writers, there, back, and there again, while servers die."""
    with living(config, Stubborn) as life:
        with monkeypatch.context() as patch:
            patch.setattr(points, "hook", there)
            dying.own(config, "apply")
            dying.own(config, "cutover")
        assert not there.left, f"{there.left} were not reached"
        life.write()
        life.assert_nothing_lost()

        with monkeypatch.context() as patch:
            patch.setattr(points, "hook", back)
            dying.own(config, "rollback")
        assert not back.left, f"{back.left} were not reached"
        life.write()
        life.assert_nothing_lost()

        dying.own(config, "cutover")
        life.write()
        life.assert_nothing_lost()

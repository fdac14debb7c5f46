"""kill -9 of the servers of a live move, at named points of its life, under gateways that go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine import points
from tests.contract.own_redis import Own as OwnRedis
from tests.gateway.test_live import ends, project
from tests.system import dying
from tests.system.dying import Stubborn
from tests.system.kit import fresh
from tests.system.test_live_deaths import living
from tests.system.test_server_kill import AtEach, Own, own

__all__ = ["own"]
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
        if server == "redis":
            redis.stop()
            redis.start()
        else:
            own.do("kill", server)
            own.do("up", server)

    return act


@pytest.mark.parametrize(("old", "new"), [("postgresql", "mongodb"), ("mongodb", "redis")], ids=str)
def test_nothing_is_lost_where_servers_are_killed(
    tmp_path: Path, own: Own, redis: OwnRedis, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    layouts = {"postgresql": "entries", "mongodb": "flat", "redis": "hash"}
    urls = {**own.url, "redis": redis.url}
    name = fresh("killed")
    config = project(
        tmp_path, urls[old], urls[new],
        f"'{name}_s', {_ROUNDS}, {layouts[old]!r}", f"'{name}_t', {_ROUNDS}, {layouts[new]!r}",
    )  # fmt: skip
    with commands.Project(config, "test") as opened:
        ends(opened)[0].create()
        assert not opened.control.runs()  # made before writers open it, both at once
    turns = restarts(own, redis, old), restarts(own, redis, new)
    with living(config, Stubborn) as life:
        there = AtEach(_THERE, turns)
        monkeypatch.setattr(points, "hook", there)
        dying.own(config, "apply")
        dying.own(config, "cutover")
        assert not there.left, f"{there.left} were not reached"
        monkeypatch.undo()
        life.write()
        life.assert_nothing_lost()

        back = AtEach(_BACK, reversed(turns))
        monkeypatch.setattr(points, "hook", back)
        dying.own(config, "rollback")
        assert not back.left, f"{back.left} were not reached"
        monkeypatch.undo()
        life.write()
        life.assert_nothing_lost()

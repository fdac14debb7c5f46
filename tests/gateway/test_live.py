"""The whole life of a move under gateways: by a real mirror, on real stores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from migrator import commands
from migrator.commands.live import owning
from migrator.engine.mirror import Mirror
from migrator.engine.swap import SwapTerms
from migrator.engine.work import Nobody
from migrator.errors import Interrupted, Transient, Waiting
from migrator.gateway import Behind
from migrator.model.block import Block
from migrator.model.phase import Phase
from migrator.ports import Collection
from tests.contract import own_redis
from tests.contract import servers as contract
from tests.ending import joined
from tests.gateway.kit import LASTING, QUICK, opened, until
from tests.gateway.writers import Writer
from tests.system import servers
from tests.system.kit import contents, end, fresh

SCRIPT = '''"""Games move."""

from migrator import At, Move, cassandra_table, item, redis_native, tables

revision, down_revision = "0001", None

move = Move("Game", source=At("old", {source}), target=At("new", {target}))
'''


@pytest.fixture
def postgresql_to_mongodb(tmp_path: Path, database_url: servers.MakeDatabase) -> Iterator[Path]:
    name, url = fresh("gateway"), database_url("postgresql")
    with servers.connect_postgresql(url) as session:
        session.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, n int NOT NULL)")
        session.execute(
            f"CREATE TABLE {name}_round (game text REFERENCES {name}, pos int, n int NOT NULL, "
            "PRIMARY KEY (game, pos))"
        )
    config = project(
        tmp_path, url, database_url("mongodb"),
        f'tables("{name}", rounds=tables("{name}_round", order_by="pos"))',
        f'{name!r}, representation=["/Game/*/rounds[*]", "/Game/*"], layout="flat"',
    )  # fmt: skip
    yield config
    with commands.Project(config, "test") as opened_:
        end(opened_)


@pytest.fixture
def cassandra_to_embedded(tmp_path: Path) -> Path:
    name = fresh("gateway")
    config = project(
        tmp_path, contract.cassandra(), "embedded:///new.db",
        f'{name!r}, layout="partition"', '"games", representation=["/Game/*/rounds[*]", "/Game/*"]',
    )  # fmt: skip
    with commands.Project(config, "test") as opened_:
        for collection in ends(opened_):
            collection.create()
    return config


@pytest.fixture
def redis_to_embedded(tmp_path: Path) -> Path:
    """Followed by the replication stream, changed by scripts."""
    name = fresh("gateway")
    own = own_redis.shared()
    config = project(
        tmp_path, f"redis://127.0.0.1:{own.port}/5", "embedded:///new.db",
        f'{name!r}, layout=redis_native("{name}:{{id}}", "hash of json", '
        f'rounds=("{name}:{{id}}:rounds", "list of json"))', '"games"',
    )  # fmt: skip
    with commands.Project(config, "test") as opened_:
        ends(opened_)[1].create()
    return config


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    config = project(
        tmp_path, "embedded:///old.db", "embedded:///new.db", '"games"',
        '"games", representation=["/Game/*/rounds[*]", "/Game/*"]',
    )  # fmt: skip
    with commands.Project(config, "test") as opened_:
        for collection in ends(opened_):
            collection.create()
    return config


def project(root: Path, old: str, new: str, source: str, target: str) -> Path:
    (root / "migrations").mkdir()
    (root / "migrations" / "0001_move.py").write_text(SCRIPT.format(source=source, target=target))
    config = root / "migrator.toml"
    config.write_text(
        # Servers on this very host carry out what a dead process sent at once, or never.
        f'[env.test]\nrequest_life = 0.5\n[env.test.stores.old]\nurl = "{old}"\n'
        f'[env.test.stores.new]\nurl = "{new}"\n'
    )
    return config


def ends(project: commands.Project) -> tuple[Collection, Collection]:
    (route,) = project.routes("0001")
    return route.source, route.target


@pytest.fixture(
    params=["embedded", "postgresql_to_mongodb", "cassandra_to_embedded", "redis_to_embedded"]
)
def config(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
def writers(config: Path) -> Iterator[list[Writer]]:
    started = [Writer(config, name).start() for name in ("a", "b")]
    yield started
    for writer in started:
        if not writer.waited:
            writer.kill()


def swapped(swap: Callable[..., object], project: commands.Project) -> None:
    """Swap the sides; again where a busy machine did not let a gateway renew its lease in time, or
    a feed show its marker: then it was undone, and is to be tried again."""
    end = time.monotonic() + 120
    while True:
        try:
            swap(project, "0001", swap=SwapTerms(gateways=True, bound=60.0, lag=20.0))
            return
        except Waiting:
            if time.monotonic() > end:
                raise


def more(writers: list[Writer]) -> None:
    before = [writer.lines() for writer in writers]
    until(lambda: all(w.lines() >= b + 4 for w, b in zip(writers, before, strict=True)))


@contextmanager
def mirroring(config: Path) -> Iterator[None]:
    """A mirror that runs beside; what it raised is raised here."""
    stop, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            with commands.Project(config, "test") as project, suppress(Interrupted):
                commands.mirror(project, "0001", stop=stop)
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        joined(thread)
    assert errors == []


def begin(project: commands.Project) -> None:
    plan = commands.plan(project, "0001", live=True)
    terms = commands.Terms(accept=[finding.code for finding in plan.findings])
    commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)


def test_nothing_acknowledged_is_lost_over_the_life_of_a_move(
    config: Path, writers: list[Writer]
) -> None:
    more(writers)
    with commands.Project(config, "test") as project:
        begin(project)
        more(writers)
        for swap in (commands.cutover, commands.rollback, commands.cutover):
            swapped(swap, project)
            more(writers)
        for writer in writers:
            writer.stop()
        old, new = ends(project)
        with mirroring(config):
            until(lambda: held(old) == held(new))
        assert_held(new, writers)


def test_waiting_for_both_sides(embedded: Path) -> None:
    with opened(embedded) as games, commands.Project(embedded, "test") as project:
        games.put("before", {}, wait=True)  # there is one side only
        begin(project)
        old, new = ends(project)
        until(lambda: games._here.follower.standing.phase is Phase.SHADOW_READ)
        games.put("1", {"n": 1})
        with (
            opened(embedded, replace(LASTING, bound=2.0)) as hasty,
            pytest.raises(Behind, match="it is written"),
        ):
            hasty.update("1", {"n": 2}, wait=True)
        assert held(old)["1"] == {"n": 2}  # the mirror is down, and the write succeeds all the same
        assert "1" not in held(new)
    with opened(embedded) as games, mirroring(embedded):
        games.put("2", {"n": 1}, wait=True)
        assert held(new)["2"] == {"n": 1}
        games.delete("1", wait=True)
        assert "1" not in held(new)
        with commands.Project(embedded, "test") as project:
            swap = SwapTerms(gateways=True, bound=60.0, lag=20.0)
            commands.cutover(project, "0001", swap=swap)
            commands.finish(project, "0001", keep_source=True)
        games.put("3", {"n": 1}, wait=True)  # there is one side again
        assert "3" not in held(old)


def held(collection: Collection) -> dict[object, object]:
    return dict(contents(collection).values())


def assert_held(collection: Collection, writers: list[Writer]) -> None:
    there = held(collection)
    for writer in writers:
        for key, value in writer.acknowledged().items():
            assert there.get(key) == value, key


def test_a_mirror_that_ended_leaves_no_thread_behind(embedded: Path) -> None:
    with commands.Project(embedded, "test") as project:
        begin(project)
        old, new = ends(project)
        run = project.control.run("0001")
        with owning(project, run, Nobody(), threading.Event()) as scene:
            owner = Mirror(scene, 0.1)
            (lane,) = owner.lanes
            lane.reconciler.at_once = True  # as in a process of its own, between servers
            before = set(threading.enumerate())
            old.write([Block("new", {"": {"id": "new"}})])
            owner.work(lambda: lane.reconciler.total.create > 0)
            assert set(threading.enumerate()) <= before
        assert held(new) == held(old) != {}


def test_what_no_replica_has_is_not_told_as_done_at_a_second_look(
    redis_to_embedded: Path,
) -> None:
    config, options = redis_to_embedded, "options = {replicas = 1, replicasTimeoutMS = 1}\n"
    with opened(config, QUICK) as games:
        held = games.put("1", {"id": "1", "n": 1, "rounds": []})
    wary = config.read_text().replace("[env.test.stores.new]", f"{options}[env.test.stores.new]")
    config.write_text(wary)
    with opened(config, QUICK) as games:
        with pytest.raises(Transient, match="0 of 1 replicas"):
            games.update("1", {"n": 2}, expected=held.version)
        found = games.get("1")
    assert found is not None
    assert found.value["n"] == 2

"""The whole life of a move that changes keys under gateways, with a side that has no feed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from migrator import commands
from migrator.engine import points
from migrator.gateway import Gateway, Rekeyed
from migrator.model.value import Record
from migrator.ports import Collection
from tests.contract import servers as contract
from tests.ending import waited
from tests.gateway.kit import QUICK, until
from tests.gateway.test_live import begin, ends, held, mirroring, more, swapped
from tests.gateway.writers import Writer
from tests.system import servers
from tests.system.kit import fresh

SCRIPT = '''"""Games lie by their places."""

from migrator import At, ChangeId, Move

revision, down_revision = "0001", None

move = Move("Game", source=At("old", {source}), target=At("new", {target}),
            evolve=[ChangeId("place", stays="id")])
'''


def make(root: Path, old: str, new: str, source: str, target: str) -> Path:
    (root / "migrations").mkdir()
    (root / "migrations" / "0001_keys.py").write_text(SCRIPT.format(source=source, target=target))
    config = root / "migrator.toml"
    config.write_text(
        f'[env.test]\nrequest_life = 0.5\n[env.test.stores.old]\nurl = "{old}"\n'
        f'[env.test.stores.new]\nurl = "{new}"\n'
    )
    with commands.Project(config, "test") as project:
        ends(project)[0].create()
    return config


@dataclass
class Mover(Writer):
    """A writer of games that lie elsewhere on the new side whenever they change: it calls by the
    keys of the one side, and where they are not those by the other's."""

    _sides: ExitStack = field(default_factory=ExitStack)

    def _run(self) -> None:
        with self._sides:
            super()._run()

    def _write(self, games: Gateway, key: str, n: int) -> Record | None:
        if not hasattr(self, "_other"):
            self._other = self._sides.enter_context(by("target")(self.config))
        old, new = games, self._other
        place = f"{key}/{n % 3}"
        value: Record = {"id": key, "place": place, "n": n, "rounds": []}

        def put() -> None:
            for other in {f"{key}/{m}" for m in range(3)} - {place}:
                new.delete(other)  # an application of the new shape moves it itself
            new.put(place, value)

        either(lambda: old.put(key, value), put)
        either(
            lambda: old.append(key, "rounds", {"n": n}),
            lambda: new.append(place, "rounds", {"n": n}),
        )
        either(lambda: old.update(key, {"n": -n}), lambda: new.update(place, {"n": -n}))
        if n % 5 == 0:
            either(lambda: old.delete(key), lambda: new.delete(place))
            return None
        return {**value, "n": -n, "rounds": [{"n": n}]}


def either(*calls: Callable[[], object]) -> None:
    """Do the one that is called by the keys of the primary."""
    while True:
        for call in calls:
            try:
                call()
            except Rekeyed:
                continue
            return


def by(shape: Any) -> Callable[[Path], Gateway]:
    return lambda config: Gateway.open(
        "Game", config, "test", revision="0001", shape=shape, terms=QUICK
    )


@pytest.fixture
def cassandra_to_mongodb(tmp_path: Path, database_url: servers.MakeDatabase) -> Path:
    name = fresh("moved")
    return make(tmp_path, contract.cassandra(), database_url("mongodb"),
                f'{name!r}, layout="partition"', repr(name))  # fmt: skip


@pytest.fixture
def embedded_to_cassandra(tmp_path: Path) -> Path:
    name = fresh("moved")
    return make(tmp_path, "embedded:///old.db", contract.cassandra(),
                '"games"', f'{name!r}, layout="row"')  # fmt: skip


@contextmanager
def writing(config: Path, *names: str) -> Iterator[list[Writer]]:
    started: list[Writer] = [Mover(config, name, by("source")).start() for name in names]
    try:
        yield started
    finally:
        for writer in started:
            if not writer.waited:
                writer.kill()


def killed_owner(config: Path) -> None:
    """An owner that copies all, and is killed once the locator is written and the mirror is not.

    Nothing may be open here: what another thread holds at the fork is never let go in the child.
    """
    pid = os.fork()
    if pid == 0:
        signal.alarm(300)
        try:
            with commands.Project(config, "test") as project:
                begin(project)
                points.hook = kill
                commands.mirror(project, "0001")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(waited(pid)) == -signal.SIGKILL


def kill(point: str) -> None:
    if point == "mirror.write":
        os.kill(os.getpid(), signal.SIGKILL)


def test_nothing_is_lost_or_left_over_where_keys_change_under_gateways(
    cassandra_to_mongodb: Path,
) -> None:
    config = cassandra_to_mongodb
    with writing(config, "a", "b") as writers:
        more(writers)
        killed_owner(config)
        more(writers)
        with commands.Project(config, "test") as project:
            swapped(commands.cutover, project)
            more(writers)
            writers[1].kill()
            swapped(commands.rollback, project)
            more(writers[:1])
            swapped(commands.cutover, project)
            more(writers[:1])
            assert_held(project, config, writers)


def test_the_locator_lies_on_cassandra_as_well(embedded_to_cassandra: Path) -> None:
    config = embedded_to_cassandra
    with writing(config, "a") as writers:
        more(writers)
        with commands.Project(config, "test") as project:
            begin(project)
            swapped(commands.cutover, project)
            more(writers)
            assert_held(project, config, writers)


def assert_held(project: commands.Project, config: Path, writers: list[Writer]) -> None:
    """Both sides hold each game once, under its key, as its writer was told, and no other."""
    for writer in writers:
        if not writer.waited:
            writer.stop()
    old, new = ends(project)
    with mirroring(config):
        until(lambda: told(old) == told(new))
    (found,) = commands.verify_run(project, "0001")
    assert found.clean, found.told
    games = held(new)
    assert all(key == value["place"] for key, value in games.items())
    there = {value["id"]: value for value in games.values()}
    assert len(there) == len(games)
    for writer in writers:
        acknowledged = writer.acknowledged()
        assert {key: there.get(key) for key in acknowledged} == acknowledged
    assert there.keys() <= {key for writer in writers for key in writer.begun()}


def told(side: Collection) -> list[str]:
    return sorted(json.dumps(value, sort_keys=True) for value in held(side).values())

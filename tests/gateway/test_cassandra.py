"""A gateway on a real Cassandra, where all its writes are lightweight transactions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import DamagedBlock
from migrator.gateway import Conflict
from migrator.stores.cassandra.table_exchange import version_of
from tests.contract import servers
from tests.gateway.kit import opened
from tests.gateway.test_live import cassandra_to_embedded, ends, project
from tests.system.kit import fresh

__all__ = ["cassandra_to_embedded"]

TABLE = """layout=cassandra_table(key="id", columns={"id": "text", "n": "int", "rounds": "json"},
rest="others")"""


@pytest.fixture
def table_to_embedded(tmp_path: Path) -> Path:
    config = project(
        tmp_path, servers.cassandra(), "embedded:///new.db", f"{fresh('gateway')!r}, {TABLE}",
        '"games"',
    )  # fmt: skip
    with commands.Project(config, "test") as opened_:
        for collection in ends(opened_):
            collection.create()
    return config


@pytest.fixture(params=["cassandra_to_embedded", "table_to_embedded"])
def config(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def versions(config: Path) -> dict[str, int | None]:
    """The versions that lie there, by block key."""
    session, keyspace = servers._cassandra()
    with commands.Project(config, "test") as project:
        at = ends(project)[0].at
    table = f"{keyspace}.{at.collection}"
    if at.layout is not None and at.layout.name == "table":
        sides = session.execute(f'SELECT id, "_migrator" FROM {table}')
        return {id: version_of(side.encode()) for id, side in sides}
    return dict(session.execute(f"SELECT DISTINCT block, version FROM {table}"))


def test_conditions_and_what_several_write_at_once(config: Path) -> None:
    with opened(config) as games, opened(config) as others:
        first = games.put("one", {"n": 0, "rounds": []}, expected=None)
        with pytest.raises(Conflict, match="none was expected"):
            games.put("one", {"n": 1}, expected=None)
        second = games.update("one", {"n": 1}, expected=first.version)
        with pytest.raises(Conflict, match="nothing was written"):
            games.append("one", "rounds", 1, expected=first.version)
        with pytest.raises(Conflict, match="nothing was written"):
            games.delete("one", expected=first.version)
        found = games.get("one")
        assert found is not None
        assert found.version == second.version

        def play(number: int) -> None:
            mine = (games, others)[number % 2]
            for n in range(4):
                mine.append("one", "rounds", [number, n])
                mine.update("one", {f"last{number}": n})
            mine.put(f"of {number}", {"n": number})

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(play, range(3)))
        found = games.get("one")
        assert found is not None
        value = dict(found.value)
        rounds = value.pop("rounds")
        assert isinstance(rounds, list)
        assert sorted(rounds) == [[number, n] for number in range(3) for n in range(4)]
        assert value == {"n": 1, "last0": 3, "last1": 3, "last2": 3}
        # A put without a condition is a transaction, too: a plain write would not take its turn.
        assert versions(config).keys() == {"one", "of 0", "of 1", "of 2"}
        assert all(version is not None and version < 0 for version in versions(config).values())
        games.delete("one", expected=found.version)
        games.delete("of 1")
        assert games.get("one") is None
        assert games.get("of 1") is None


def test_a_block_that_cannot_be_read_is_replaced_and_removed(cassandra_to_embedded: Path) -> None:
    session, keyspace = servers._cassandra()
    with commands.Project(cassandra_to_embedded, "test") as project:
        table = ends(project)[0].at.collection

    def damage() -> None:
        session.execute(
            f"UPDATE {keyspace}.{table} SET value = '{{' WHERE block = 'one' AND entry = ''"
        )

    with opened(cassandra_to_embedded) as games:
        games.put("one", {"n": 0})
        damage()
        for change in (
            lambda: games.get("one"), lambda: games.update("one", {"n": 1}),
            lambda: games.put("one", {"n": 1}, expected=None),
            lambda: games.delete("one", expected="x"),
        ):  # fmt: skip
            with pytest.raises(DamagedBlock, match="can't be read"):
                change()
        assert games.put("one", {"n": 1}).version == games.get("one").version
        damage()
        games.delete("one")
        assert games.get("one") is None

"""A gateway on a real Cassandra, where all its writes are lightweight transactions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from migrator import commands
from migrator.gateway import Conflict
from tests.contract import servers
from tests.gateway.kit import opened
from tests.gateway.test_live import cassandra_to_embedded, ends

__all__ = ["cassandra_to_embedded"]


def versions(config: Path) -> dict[str, int]:
    """The versions that lie there, by block key."""
    session, keyspace = servers._cassandra()
    with commands.Project(config, "test") as project:
        table = ends(project)[0].at.collection
    rows = session.execute(f"SELECT DISTINCT block, version FROM {keyspace}.{table}")
    return dict(rows)


def test_conditions_and_what_several_write_at_once(cassandra_to_embedded: Path) -> None:
    with opened(cassandra_to_embedded) as games:
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
            for n in range(4):
                games.append("one", "rounds", [number, n])
                games.update("one", {f"last{number}": n})
            games.put(f"of {number}", {"n": number})

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
        assert versions(cassandra_to_embedded).keys() == {"one", "of 0", "of 1", "of 2"}
        assert all(version < 0 for version in versions(cassandra_to_embedded).values())
        games.delete("one", expected=found.version)
        games.delete("of 1")
        assert games.get("one") is None
        assert games.get("of 1") is None

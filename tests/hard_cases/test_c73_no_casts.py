"""C73: the verifier never casts; numbers that only a float holds to be equal differ."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from migrator import commands
from migrator.model.phase import Phase
from migrator.model.value import Int64, Value
from migrator.stores.sqlite import codec
from tests.engine.games import fill, make_project, source


@pytest.mark.parametrize(
    ("held", "instead"),
    [
        (18446744073709551615, 18446744073709551616.0),
        (18446744073709551615, 18446744073709551616),
        (9223372036854775807, 9223372036854775806),
        (9007199254740993, 9007199254740992),
        (Int64(5), 5),
        (0.1, 0.1 + 2**-56),
        (0.0, -0.0),
        (True, 1),
    ],
)
def test_off_by_one_is_caught(tmp_path: Path, held: Value, instead: Value) -> None:
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        fill(source(project), [("1", {"n": held}), ("2", {"n": held})])
        commands.apply(project, commands.plan(project, "0001"), until=Phase.SHADOW_READ)
        with sqlite3.connect(tmp_path / "new.db") as plain:
            row = (codec.encode({"n": instead}), "1")
            assert plain.execute("UPDATE entries_1 SET value = ? WHERE block = ?", row).rowcount
        (found,) = commands.verify_run(project, "0001")
        assert (found.equal, found.differ) == (1, 1)
        assert found.told[0].paths[0].startswith("n: ")

"""C70: the verifier, the way back and the copy apply one and the same mapping."""

from __future__ import annotations

from pathlib import Path

from migrator import commands
from migrator.model.block import Aggregate, cut
from migrator.model.canonical import equal
from tests.engine.games import SETTINGS, contents, fill, game, source, target

SCRIPT = '''"""Another identifier, other names, other kinds."""

from migrator import At, ChangeId, Convert, Kind, Move, Rename

revision, down_revision = "0001", None

move = Move(
    "Game",
    source=At("old", "games"),
    target=At("new", "games_by_round", representation=["/Game/*/rounds[*]", "/Game/*"]),
    evolve=[
        Rename("firstPlayer", "opener"),
        Convert("score", Kind.TEXT),
        ChangeId("name", keep="formerly"),
    ],
)
'''


def test_keys_and_values_that_the_copy_changes_are_no_mismatch(tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrator.toml").write_text(SETTINGS)
    (tmp_path / "migrations" / "0001_other.py").write_text(SCRIPT)
    with commands.Project(tmp_path / "migrator.toml", "test") as project:
        fill(source(project), [(str(n), {**game(n), "name": f"user:{n}"}) for n in range(40)])
        before = contents(source(project))
        (found,) = commands.apply(project, commands.plan(project, "0001")).verified
        assert (found.equal, found.clean) == (40, True)
        held = contents(target(project))
        assert held["user:7"]["score"] == "7"
        assert "opener" in held["user:7"]
        changed = {**held["user:7"], "score": "8"}
        rules = target(project).at.rules("Game")
        target(project).write([cut(Aggregate("user:7", changed), rules)])
        (found,) = commands.verify_run(project, "0001")
        assert (found.differ, found.missing, found.extra) == (1, 0, 0)
        assert found.told[0].paths == ["score: 7 (text) / 8 (text)"]
        commands.rollback(project, "0001", carry_back=True)
        after = contents(source(project))
        assert after.keys() == before.keys()
        assert [key for key in before if not equal(before[key], after[key])] == ["7"]
        assert after["7"]["score"] == 8

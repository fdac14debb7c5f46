"""References out of columns and into columns: never silently a bare identifier."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Refused
from migrator.model.move import At
from migrator.model.value import Ref
from tests.engine.games import contents

SETTINGS = """
[env.test.stores.shop]
url = "sqlite:///shop.db"
[env.test.stores.docs]
url = "embedded:///docs.db"
[env.test.stores.back]
url = "sqlite:///back.db"
"""
OUT = '''"""Out."""
from migrator import At, Move, tables
revision, down_revision = "0001", None
move = Move(
    "Game",
    source=At("shop", tables("game", rounds=tables("round", order_by="number"))),
    target=At("docs", "games"),
    references={"player": "Player", "rounds[*].winner": "Player"},
)
'''
BACK = '''"""Back."""
from migrator import At, Move, tables
revision, down_revision = "0002", "0001"
move = Move(
    "Game",
    target=At(
        "back",
        tables("game", like="shop", rounds=tables("round", order_by="number")),
        references=REFERENCES,
    ),
)
'''
DECLARED = '{"player": "Player", "rounds[*].winner": "Player"}'
SCHEMA = """
CREATE TABLE game (id INTEGER PRIMARY KEY, player TEXT);
CREATE TABLE round (
    game INTEGER REFERENCES game, number INTEGER, winner TEXT, PRIMARY KEY (game, number)
);
INSERT INTO game VALUES (1, 'ann'), (2, NULL);
INSERT INTO round VALUES (1, 1, 'ann'), (1, 2, NULL), (2, 1, 'bob');
"""


def project_with(root: Path, references: str) -> commands.Project:
    (root / "migrations").mkdir()
    (root / "migrator.toml").write_text(SETTINGS)
    (root / "migrations" / "0001_out.py").write_text(OUT)
    (root / "migrations" / "0002_back.py").write_text(BACK.replace("REFERENCES", references))
    with sqlite3.connect(root / "shop.db") as shop:
        shop.executescript(SCHEMA)
    project = commands.Project(root / "migrator.toml", "test")
    commands.apply(project, commands.plan(project, "0001"))
    commands.finish(project, "0001", keep_source=True)
    return project


def test_declared_references_stay_references_through_columns(tmp_path: Path) -> None:
    with project_with(tmp_path, DECLARED) as project:
        docs = contents(project.stores.get("docs").collection("Game", At("docs", "games")))
        assert docs[1]["player"] == Ref("Player", "ann")
        plan = commands.plan(project, "0002")
        assert plan.errors == []
        applied = commands.apply(project, plan)
        assert applied.verified[0].equal == 2
        with sqlite3.connect(tmp_path / "back.db") as back:
            rows = back.execute("SELECT game, number, winner FROM round ORDER BY 1, 2").fetchall()
        assert rows == [(1, 1, "ann"), (1, 2, None), (2, 1, "bob")]
        assert commands.plan(project, "0002").moves[0].leave == 2


def test_a_reference_that_nobody_declared_is_refused_by_the_plan(tmp_path: Path) -> None:
    with project_with(tmp_path, "None") as project:
        plan = commands.plan(project, "0002")
        found = {(f.path, f.severity) for f in plan.errors}
        assert found == {("player", "error"), ("rounds[*].winner", "error")}
        with pytest.raises(Refused, match="bare identifier"):
            commands.apply(project, plan)
        assert (
            not (tmp_path / "back.db").exists()
            or not sqlite3.connect(tmp_path / "back.db")
            .execute("SELECT count(*) FROM sqlite_master")
            .fetchone()[0]
        )

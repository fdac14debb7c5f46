"""A control database of the past, on real servers and under writers: nothing is lost by it, nor by
its repair (R15)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from migrator import commands
from migrator.commands import repairing
from migrator.errors import Refused
from migrator.model.phase import Phase
from tests.system.application import mirroring
from tests.system.test_live import Game, game

__all__ = ["game"]


def copied(old: Path, new: Path) -> None:
    with closing(sqlite3.connect(old)) as here, closing(sqlite3.connect(new)) as there:
        here.backup(there)


def test_nothing_is_lost_where_a_control_database_comes_back_old(
    game: Game, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "LEASE", 0.1)  # no gateway takes part
    game.apply(Phase.SHADOW_READ)
    with game.shop.open() as project:
        file = Path(project.control.engine.url.database or "")
    copied(file, backup := tmp_path / "backup.db")
    game.cutover()
    with mirroring(game.shop):
        game.application.go_on_for(0.3)
    copied(backup, file)
    with pytest.raises(Refused, match="epoch 2, primary target") as e:
        game.cutover()
    assert "migrator repair 0001" in e.value.hint
    # The applications write the target, as they were told; the source's fence is still up.
    game.application.go_on_for(0.3)
    with game.shop.open() as project:
        found = commands.inspect(project, "0001")
        assert (found.state, [side.fenced for side in found.sides]) == ("divided", [True, None])
        after = commands.repair(project, "0001", "rebuild", hook=game.hooked.command)
    assert (after.state, after.choices) == ("agreed", [])
    assert after.control is not None
    assert (after.control.phase, after.control.epoch) == ("cut_over", 3)
    with mirroring(game.shop):
        game.application.go_on_for(0.3)
        game.rollback()
        game.application.go_on_for(0.3)
    game.assert_nothing_lost()
    with game.shop.open() as project:
        commands.abort(project, "0001", drop_target=True)
        assert commands.inspect(project, "0001").state == "agreed"
    assert game.left() == []

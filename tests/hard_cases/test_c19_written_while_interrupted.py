"""C19: what was written while a copy was interrupted is judged once the mirror holds it."""

from __future__ import annotations

from pathlib import Path

from migrator import commands
from migrator.model.block import Aggregate, Block, cut, join
from migrator.model.phase import Phase
from tests.system import kit
from tests.system.kit import Shop


def _game(key: str, number: int) -> Block:
    return cut(Aggregate(key, {"id": key, "n": number}), kit.At("old", "games").rules("Game"))


def test_c19_a_copy_that_goes_on_over_a_later_write_is_equal(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"old": "embedded:///old.db", "new": "embedded:///new.db"})
    shop.script("move = " + kit.move("Game", "At('old', 'games')", "At('new', 'games')"))
    with shop.open() as project:
        (route,) = project.routes("0001")
        kit.fill(route.source, [(str(n), {"id": str(n), "n": 1}) for n in range(5)])
        plan = commands.plan(project, "0001", live=True)
        commands.apply(project, plan, until=Phase.BACKFILLED)
        route.source.write([_game("3", 2)])  # nobody mirrors
        done = commands.apply(project, plan, until=Phase.SHADOW_READ)
        (found,) = done.verified
        assert (found.equal, found.clean) == (5, True), found.told
        (held,) = route.target.read(["3"])
        assert held is not None
        assert join(held).value["n"] == 2

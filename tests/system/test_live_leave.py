"""A move is left whose target is down for good."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from migrator import commands
from migrator.commands import SwapTerms, Terms
from migrator.engine import points
from migrator.engine.epochs import NOTED
from migrator.errors import Interrupted, Transient, Waiting
from migrator.gateway import Gateway
from migrator.model.phase import Phase
from migrator.state import Lease, LiveState
from tests.engine.games import SOURCE, fill, game
from tests.gateway.kit import until
from tests.gateway.test_live import mirroring
from tests.system import servers
from tests.system.between import between
from tests.system.kit import ENV, Shop


def test_a_move_is_left_though_its_target_is_down_for_good_in_the_middle_of_a_rollback(
    tmp_path: Path, database_url: servers.MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.retry.GIVE_UP_SECONDS", 0.1)
    with between(database_url("mariadb", "left")) as (_, there):
        shop = Shop(tmp_path, {"old": "embedded:///old.db", "new": there})
        ends = "source=At('old', 'games'), target=At('new', 'games', ['/Game/*'], layout='entries')"
        shop.script(f"move = Move('Game', {ends})")
        with shop.open() as project:
            fill(project.stores.get("old").collection("Game", SOURCE), [("1", game(1))])
            plan = commands.plan(project, "0001", live=True)
            terms = Terms(accept=tuple(f.code for f in plan.to_accept))
            commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
            _roll_half_back(project, monkeypatch)
    with shop.open() as project:
        with pytest.raises(Transient, match="abort 0001 --leave-target"):
            commands.abort(project, "0001", drop_target=False)
        with (
            Lease(project.control, "test/0001/mirror"),
            pytest.raises(Waiting, match="the mirror is running"),
        ):
            commands.abort(project, "0001", drop_target=False, leave_target=True)
        assert LiveState(project.control, project.control.run("0001").id).asked() is None
        # As where an owner was killed before it noted that the stores hold the epoch.
        project.control.record(project.control.run("0001").id, NOTED, kept=False)

        run = commands.abort(project, "0001", drop_target=False, leave_target=True)

        assert run.phase is Phase.ABORTED
        assert commands.left_on_servers(run).startswith("migrator_")
    with closing(sqlite3.connect(tmp_path / "old.db")) as c:
        made = "SELECT name FROM sqlite_master WHERE name LIKE '%migrator%'"
        assert c.execute(made).fetchall() == []
    with shop.open() as project, Gateway.open("Game", shop.config, ENV) as games:
        games.put("2", game(2))
        (route,) = project.routes("0001")
        assert None not in route.source.read(["2"])


def _roll_half_back(project: commands.Project, patch: pytest.MonkeyPatch) -> None:
    """A cut-over, and a rollback that is killed behind its flip."""
    swap = SwapTerms(bound=60, lag=60, gateways=True)
    commands.cutover(project, "0001", swap=swap)

    def killed(point: str) -> None:
        if point == "swap.flipped":
            raise Interrupted("killed")

    patch.setattr(points, "hook", killed)
    with pytest.raises(Interrupted):
        commands.rollback(project, "0001", swap=swap)
    patch.setattr(points, "hook", None)


def test_an_abort_waits_no_longer_for_a_mirror_that_waits_for_its_target(
    tmp_path: Path, database_url: servers.MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.retry.GIVE_UP_SECONDS", 0.1)
    monkeypatch.setattr("migrator.engine.settled.GONE", 0.5)
    with between(database_url("mariadb", "left")) as (line, there):
        shop = Shop(tmp_path, {"old": "embedded:///old.db", "new": there})
        ends = "source=At('old', 'games'), target=At('new', 'more', ['/Game/*'], layout='entries')"
        shop.script(f"move = Move('Game', {ends})")
        with shop.open() as project:
            source = project.stores.get("old").collection("Game", SOURCE)
            fill(source, [("1", game(1))])
            plan = commands.plan(project, "0001", live=True)
            terms = Terms(accept=tuple(f.code for f in plan.to_accept))
            commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
            live = LiveState(project.control, project.control.run("0001").id)
            at, _ = live.told()
            with mirroring(shop.config):
                until(lambda: live.told()[0] > at)
                line.close()
                fill(source, [("1", game(2))])
                until(lambda: bool(live.told()[1].get("waits")))
                with pytest.raises(Waiting, match="abort 0001 --leave-target"):
                    commands.abort(project, "0001", drop_target=False)
            assert live.asked() is None
            commands.abort(project, "0001", drop_target=False, leave_target=True)

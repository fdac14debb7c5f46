"""``verify --mend``: what a comparison of a live move finds, its mirror reconciles at once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator import commands
from migrator.commands.live import owning
from migrator.engine import mending, pairs
from migrator.engine.mirror import Mirror
from migrator.engine.positions import scan_from_start
from migrator.engine.swap import SwapTerms
from migrator.engine.work import Nobody
from migrator.errors import Refused, Transient, Waiting
from migrator.model.block import Address, Aggregate, cut
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.route import Route
from migrator.state import LiveState
from migrator.stores.sqlite.collection import EntriesReader
from tests.gateway.kit import make_project, unseen, until
from tests.gateway.test_live import held, mirroring

Patch = pytest.MonkeyPatch
# Keys of several kinds: each has to come through the control database as it is.
KEYS: list[Value] = ["3", "#4", 5, b"six", "e\0ight"]
REHEARSED = SwapTerms(gateways=True, bound=60, lag=60, dry_run=True)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return make_project(tmp_path)


@pytest.fixture
def live(config: Path, monkeypatch: Patch) -> Iterator[commands.Project]:
    """A move of embedded stores that was compared, and whose mirror does not run."""
    monkeypatch.setattr(pairs, "RECHECKS", 3)  # nobody writes what is looked at
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        route.source.write([cut(Aggregate(k, {"n": 0}), route.translation.source) for k in KEYS])
        plan = commands.plan(project, "0001", live=True)
        terms = commands.Terms(accept=[finding.code for finding in plan.findings])
        commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        yield project


def _spoil(config: Path, route: Route) -> None:
    """One differs, one is missing, and one is extra."""
    with unseen(config.parent / "new.db"):
        route.target.write([cut(Aggregate(b"six", {"n": 66}), route.representation)])
        route.target.delete([Address("#4")])
        route.target.write([cut(Aggregate("other", {"n": 9}), route.representation)])


def _events(project: commands.Project, event: str) -> list[str]:
    found = commands.events(project, "0001")
    return [str(each["detail"]) for each in found if each["event"] == event]


def test_the_mirror_reconciles_what_differs_and_the_swap_is_free(
    config: Path, live: commands.Project
) -> None:
    (route,) = live.routes("0001")
    _spoil(config, route)
    with mirroring(config):
        (found,) = commands.verify_run(live, "0001")
        assert (found.differ, found.missing, found.extra, found.mended) == (1, 1, 1, 0)
        with pytest.raises(Waiting, match="3 blocks are different on both sides") as raised:
            commands.cutover(live, "0001", swap=REHEARSED)
        assert "migrator verify 0001 --mend" in raised.value.hint
        (found,) = commands.verify_run(live, "0001", mend=True)
    assert (found.clean, found.mended, found.equal, found.told) == (True, 3, len(KEYS), [])
    assert held(route.target) == held(route.source)
    (handed,) = _events(live, "to be reconciled")
    assert "'count': 3" in handed
    assert len(_events(live, "reconciled")) == 3
    assert any("n: 66" in told for told in _events(live, "reconciled"))
    assert commands.cutover(live, "0001", swap=REHEARSED).swap is not None


def test_the_mirror_waits_for_a_store_also_while_it_compares(
    config: Path, live: commands.Project, monkeypatch: Patch
) -> None:
    state = LiveState(live.control, live.control.run("0001").id)
    position = state.position(0, "source")
    assert position is not None
    state.keep(0, "source", replace(position, scan=scan_from_start()))
    monkeypatch.setattr("migrator.retry.GIVE_UP_SECONDS", 0.01)
    keys, down = EntriesReader.keys, iter(range(5))

    def fails(self: EntriesReader, *args: Any) -> object:
        for _ in down:
            raise Transient("gone away", where=self.where)
        return keys(self, *args)

    monkeypatch.setattr(EntriesReader, "keys", fails)
    with mirroring(config):
        until(lambda: _events(live, "scanned anew"))
    assert next(down, None) is None


def test_too_many_to_name_mean_that_all_is_compared(
    config: Path, live: commands.Project, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(mending, "MOST", 2)
    (route,) = live.routes("0001")
    _spoil(config, route)
    with mirroring(config):
        (found,) = commands.verify_run(live, "0001", mend=True)
    assert (found.clean, found.mended) == (True, 3)
    assert "scanned anew" in {each["event"] for each in commands.events(live, "0001")}


def test_what_differs_again_stays_named_and_keeps_the_swap_waiting(
    config: Path, live: commands.Project
) -> None:
    (route,) = live.routes("0001")
    _spoil(config, route)
    _ignored(config)
    with mirroring(config):
        (found,) = commands.verify_run(live, "0001", mend=True)
    assert (found.differ, found.missing, found.extra, found.mended) == (1, 0, 0, 2)
    (told,) = found.told
    (status,) = commands.status(live)
    assert status.live is not None
    assert status.live.differed == [told.key]
    assert status.live.mending == ""
    with pytest.raises(Waiting, match="1 blocks are different on both sides"):
        commands.cutover(live, "0001", swap=REHEARSED)


def _ignored(config: Path) -> None:
    """What is written to the target's one block with bytes as key is taken, and not done."""
    with closing(sqlite3.connect(config.parent / "new.db", isolation_level=None)) as there:
        of_blocks = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%block%entry%'"
        )
        ((table,),) = there.execute(of_blocks).fetchall()
        for change, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
            there.execute(
                f"CREATE TRIGGER ignores_{change} BEFORE {change} ON {table} "
                f"WHEN typeof({row}.block) = 'blob' BEGIN SELECT RAISE(IGNORE); END"
            )


def test_what_a_comparison_found_for_who_asks_no_more_is_not_told_to_the_next(
    config: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(pairs, "RECHECKS", 1)
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        right = cut(Aggregate("3", {"n": 0}), route.representation)
        route.source.create()
        route.source.write([cut(Aggregate("3", {"n": 0}), route.translation.source)])
        plan = commands.plan(project, "0001", live=True)
        terms = commands.Terms(accept=[finding.code for finding in plan.findings])
        commands.apply(project, plan, until=Phase.BACKFILLED, terms=terms)
        # Nobody reads the target's feed yet.
        route.target.write([cut(Aggregate("3", {"n": 66}), route.representation)])
        run = project.control.run("0001")
        live = LiveState(project.control, run.id)
        with owning(project, run, Nobody(), threading.Event()) as scene:
            owner = Mirror(scene, 0.1)

            def turns() -> Iterator[bool]:
                first = live.ask(Phase.SHADOW_READ.value, {})
                while (begun := owner.comparing._under_way) is None:
                    yield False
                live.withdraw(first)
                while owner.comparing._under_way is not None and begun.thread.is_alive():
                    yield False
                route.target.write([right])
                second = live.ask(Phase.SHADOW_READ.value, {})
                while (answer := live.answered(second)) is None:
                    yield False
                assert answer["problem"] is None
                yield True

            steps = turns()
            owner.work(lambda: next(steps))
        assert project.control.run("0001").phase is Phase.SHADOW_READ


def test_a_move_at_rest_has_no_mirror_to_ask(config: Path) -> None:
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        commands.apply(project, commands.plan(project, "0001"), until=Phase.SHADOW_READ)
        with pytest.raises(Refused, match="there is no mirror that could reconcile"):
            commands.verify_run(project, "0001", mend=True)


def test_what_is_in_quarantine_is_left_to_the_mirror_alone(live: commands.Project) -> None:
    with pytest.raises(Refused, match="the mirror of a live move writes alone"):
        commands.retry_quarantined(live, "0001")

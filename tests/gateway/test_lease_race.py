"""A lease that is granted while the fence is raised (R13): each comes in the middle of the other.

What comes in between is done at a statement of the control database's, so that it is always there:
before it, or before it is committed, which only PostgreSQL lets others write beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from migrator import commands
from migrator.gateway import follower
from migrator.gateway.follower import Follower
from migrator.state import gateways
from migrator.state.gateways import has_acknowledged, wait_for
from tests.engine.games import source, target
from tests.gateway.kit import Owner, control_on, make_project, opened
from tests.gateway.test_lease import carry, side
from tests.system.servers import MakeDatabase

_ENTERS, _SAYS = "INSERT INTO migrator_gateway", "UPDATE migrator_gateway SET run"
_FENCES = "UPDATE migrator_run SET"


@pytest.fixture
def on(tmp_path: Path, database_url: MakeDatabase) -> Callable[[str], Path]:
    """Makes the project, with its control database on a system."""

    def make(system: str) -> Path:
        config = make_project(tmp_path)
        if system == "postgresql":
            control_on(config, database_url)
        with commands.Project(config, "test") as project:
            source(project).create()
            target(project).create()
        return config

    return make


@contextmanager
def amid(moment: str, statement: str, act: Callable[[], object]) -> Iterator[None]:
    """Do something once ``before`` the first statement of a kind, as long as it is ``uncommitted``,
    or ``after`` it, before the next."""
    state = {"begun": False, "done": False}

    def acts() -> None:
        state["done"] = True
        act()

    def about(_c: object, _cursor: object, told: str, *_: object) -> None:
        if state["done"]:
            return
        if state["begun"]:
            acts()
        elif told.startswith(statement):
            state["begun"] = True
            if moment == "before":
                acts()

    def commits(_c: object) -> None:
        if state["begun"] and not state["done"] and moment == "uncommitted":
            acts()

    engine = sa.engine.Engine
    sa.event.listen(engine, "before_cursor_execute", about)
    sa.event.listen(engine, "commit", commits)
    try:
        yield
        assert state["done"], f"{statement} was not reached"
    finally:
        sa.event.remove(engine, "before_cursor_execute", about)
        sa.event.remove(engine, "commit", commits)


def raced(config: Path, moment: str, statement: str) -> list[str]:
    """Swap the sides while a gateway is on its way to its lease, then let it write; which leases
    the fence saw, and outwaited."""
    seen: list[str] = []

    def swaps() -> None:
        owner.run = owner.live.arm(owner.run)
        seen.extend(owner.fence())
        owner.gateways.leave(seen)
        carry(config, "target")
        owner.flip("target")
        owner.release()

    with commands.Project(config, "test") as project:
        owner = Owner(project)
        with amid(moment, statement, swaps), opened(config) as games:
            games.put("1", {"by": "late"})
    return seen


@pytest.mark.parametrize(
    ("system", "moment", "statement", "seen"),
    [
        ("postgresql", "uncommitted", _ENTERS, 0),
        ("postgresql", "after", _ENTERS, 1),
        ("postgresql", "before", _SAYS, 1),
        ("sqlite", "after", _ENTERS, 1),
        ("sqlite", "before", _SAYS, 1),
    ],
)
def test_a_lease_that_is_granted_while_the_fence_is_raised_names_the_new_primary(
    on: Callable[[str], Path], system: str, moment: str, statement: str, seen: int
) -> None:
    """Either the fence sees the lease, and outwaits it, or whoever takes it sees the fence."""
    config = on(system)
    assert len(raced(config, moment, statement)) == seen
    assert side(config, "source") == {}
    assert side(config, "target") == {"1": {"by": "late"}}


def test_where_a_gateway_looks_before_its_lease_is_there_its_write_is_lost(
    on: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the order is good for: neither the fence nor the gateway sees the other."""
    config = on("postgresql")
    enters, looks = Follower._enter, Follower._look

    def looks_first(follower: Follower) -> None:
        looks(follower)
        monkeypatch.setattr(Follower, "_look", lambda _: None)  # its next one comes after the write
        enters(follower)

    monkeypatch.setattr(Follower, "_enter", looks_first)
    assert raced(config, "uncommitted", _ENTERS) == []
    assert side(config, "source") == {"1": {"by": "late"}}
    assert side(config, "target") == {}


def test_a_fence_that_is_committed_after_a_lease_was_granted_waits_for_its_writes(
    on: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (follower, gateways):
        monkeypatch.setattr(module, "SHORT", 60.0)  # it does not run out on a busy machine
    config = on("postgresql")
    with commands.Project(config, "test") as project, ExitStack() as closing:
        owner = Owner(project)
        owner.run = owner.live.arm(owner.run)
        writes = ExitStack()

        def begins() -> None:
            """A gateway that can't see the fence yet is about to write."""
            games = closing.enter_context(opened(config))
            standing = writes.enter_context(games._here.follower.writing(time.monotonic() + 60))
            assert (standing.fence, standing.primary) == ("armed", "source")

        with amid("uncommitted", _FENCES, begins):
            owner.run = owner.live.raise_fence(owner.run)
        assert _waiting(owner, 0.0) == 1
        writes.close()
        assert _waiting(owner, 60.0) == 0


def _waiting(owner: Owner, seconds: float) -> int:
    """How many gateways a fence still waits for after so long."""
    done = has_acknowledged(owner.run)
    waiting, lapsed = wait_for(owner.gateways, ["Game"], done, until=time.monotonic() + seconds)
    assert not lapsed
    return len(waiting)

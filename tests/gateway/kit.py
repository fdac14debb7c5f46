"""What tests of the gateway share: a project of two embedded stores, and an owner in small."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from migrator import commands
from migrator.gateway import Gateway, Terms
from migrator.model.phase import Phase
from migrator.planning.file import encode_plan
from migrator.state import LiveState, Run
from migrator.state.gateways import Gateways, has_acknowledged, is_armed, wait_for
from tests.ending import PATIENCE
from tests.engine.games import make_project
from tests.system.kit import fresh
from tests.system.servers import MakeDatabase

# Short leases, so that a swap need not wait long for one, and patience: on a busy machine one may
# run out before it is renewed, and a write waits until it is.
QUICK = Terms(lease=1.0, look=0.005, bound=60.0, request_life=1.0)
HASTY = replace(QUICK, bound=0.2)
"""For a write that is to be refused."""
LASTING = replace(QUICK, lease=3_600.0)
"""For what is to be done as if no lease ever ran out."""


def opened(config: Path, terms: Terms = QUICK) -> Gateway:
    return Gateway.open("Game", config, "test", terms=terms)


def control_on(config: Path, database_url: MakeDatabase) -> None:
    """Put a project's control database on PostgreSQL, in a database of its own."""
    url = database_url("postgresql", fresh("control"))
    config.write_text(f'[env.test]\ncontrol = "{url}"\n' + config.read_text())


@contextmanager
def unseen(file: Path) -> Iterator[None]:
    """What is written to an embedded store within shows in no feed."""
    with closing(sqlite3.connect(file, isolation_level=None)) as there:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = there.execute(query).fetchall()
        assert triggers
        for name, _ in triggers:
            there.execute(f'DROP TRIGGER "{name}"')
        yield
        for _, trigger in triggers:
            there.execute(trigger)


class Owner:
    """The owner of a run as far as gateways see it: it moves nothing but the control row."""

    def __init__(
        self, project: commands.Project, phase: Phase = Phase.SHADOW_READ, live: bool = True
    ) -> None:
        self.control = control = project.control
        self.gateways = Gateways(control)
        plan = encode_plan(commands.plan(project, "0001")).decode()
        self.run = control.start("0001", "f", plan, [("Game", "old:games", "new:games")], live)
        self.live = LiveState(control, self.run.id)
        for step in list(Phase)[1 : phase.rank + 1]:
            self.run = control.advance(self.run, step)

    def arm(self) -> None:
        self.run = self.live.arm(self.run)
        waiting, _ = wait_for(
            self.gateways, ["Game"], is_armed(self.run), until=time.monotonic() + 60
        )
        assert not waiting

    def fence(self) -> list[str]:
        """Stop the gateways; the names of those whose lease ran out instead."""
        self.run = self.live.raise_fence(self.run)
        waiting, lapsed = wait_for(
            self.gateways, ["Game"], has_acknowledged(self.run), until=time.monotonic() + 60
        )
        assert not waiting
        return [lease.instance for lease in lapsed]

    def hold(self) -> None:
        """Stop the gateways, all of them by their word: again where a busy machine did not let
        one renew its lease in time, as an attempt is undone then."""
        self.arm()
        while lapsed := self.fence():
            self.release()
            self.gateways.leave(lapsed)
            self.arm()

    def flip(self, to: str) -> None:
        phase = Phase.CUT_OVER if to == "target" else Phase.SHADOW_READ
        self.run = self.control.advance(self.run, phase, primary=to, fence="flipped")

    def release(self) -> None:
        self.run = self.live.release(self.run)


def until(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.005)


__all__ = [
    "HASTY", "LASTING", "QUICK", "Owner", "Run", "control_on", "make_project", "opened", "until",
]  # fmt: skip


@contextmanager
def owned(config: Path) -> Iterator[Owner]:
    """The owner of a run of a project's first script, whose two sides are made."""
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        owner = Owner(project)
        route.target.create()
        owner.route, owner.config = route, config
        yield owner

"""What a gateway has open in one process: settings, scripts, stores, the control database."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from migrator import revisions
from migrator.bootstrap import Stores
from migrator.errors import Refused
from migrator.gateway.follower import Follower, Terms
from migrator.model.phase import Phase
from migrator.planning.file import decode_plan
from migrator.planning.inference import as_planned
from migrator.ports import Collection, LayoutFacts
from migrator.route import Route, open_route
from migrator.settings import load_settings
from migrator.state import open_control
from migrator.state.gateways import Gateways, Standing

_OTHER = {"source": "target", "target": "source"}


@dataclass
class Sides:
    """The open route of a class, and which of its ends decides."""

    route: Route
    primary_side: str
    mirrored: bool

    @cached_property
    def primary(self) -> Collection:
        return self.side(self.primary_side)

    @cached_property
    def mirror(self) -> Collection:
        return self.side(_OTHER[self.primary_side])

    def side(self, side: str) -> Collection:
        return self.route.source if side == "source" else self.route.target

    @cached_property
    def _facts(self) -> LayoutFacts:
        route = self.route
        store = route.source_store if self.primary_side == "source" else route.target_store
        layout = self.primary.at.layout
        name = store.capabilities.default_layout if layout is None else layout.name
        return store.capabilities.layouts[name]

    @property
    def apart(self) -> bool:
        """Whether entries of the primary can be written one by one."""
        return self._facts.entries

    @property
    def by_key(self) -> bool:
        """Whether a block of the primary is found by its key alone."""
        return self._facts.by_key


class Opened:
    """One class of one environment, for the process that opened it."""

    def __init__(
        self,
        cls: str,
        config: str | Path | None,
        env: str | None,
        revision: str | None,
        terms: Terms,
    ) -> None:
        self.cls = cls
        self.pid = os.getpid()
        self._pinned = revision
        self.settings = load_settings(config, env)
        self.graph = revisions.load(self.settings.migrations)
        self.stores = Stores(self.settings)
        self.control = open_control(self.settings.control_store(), self.settings.env)
        self._routes: dict[tuple[str, str], Route] = {}
        self._sides: tuple[Standing, Sides] | None = None
        try:
            self._at_first()
            self.follower = Follower(Gateways(self.control), cls, terms)
        except BaseException:
            self._close()
            raise

    def _at_first(self) -> None:
        """Open what the first call needs, so that a script that does not fit is told at once."""
        self._make(Gateways(self.control).standing(self.cls))

    def close(self) -> None:
        self.follower.close()
        self._close()

    def _close(self) -> None:
        self.control.close()
        self.stores.close()

    def sides(self, standing: Standing) -> Sides:
        """Both ends of the class, as the run stands."""
        found = self._sides
        if found is None or found[0] is not standing:
            found = self._sides = standing, self._make(standing)
        return found[1]

    def _make(self, standing: Standing) -> Sides:
        revision, side = self._where(standing)
        key = (revision, standing.run)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = self._route(revision)
        mirrored = bool(standing.run) and standing.live and not standing.phase.ended
        begun = standing.phase.rank >= Phase.DUAL_WRITE.rank
        return Sides(route, side, mirrored and begun)

    def _where(self, standing: Standing) -> tuple[str, str]:
        """The revision whose ends matter, and the side that decides."""
        if standing.run and not standing.phase.ended:
            if self._pinned not in (None, standing.revision):
                raise Refused(
                    f"revision {standing.revision} moves it now, and this gateway was opened for "
                    f"{self._pinned}",
                    where=self.cls, hint="open it without a revision, and it follows each",
                )  # fmt: skip
            return self._known(standing.revision), standing.primary
        moving = [r.id for r in self.graph.revisions if any(m.cls == self.cls for m in r.moves)]
        if self._pinned is not None:
            moving = [name for name in moving if name == self._pinned]
        if not moving:
            which = "no revision" if self._pinned is None else f"revision {self._pinned} does not"
            raise Refused(
                f"{which} moves {self.cls}", hint=f"known: {', '.join(self.graph.classes())}"
            )
        done = self._done()
        arrived = [name for name in moving if name in done]
        return (arrived[-1], "target") if arrived else (moving[0], "source")

    def _done(self) -> set[str]:
        runs = self.control.runs()
        return {r.revision for r in runs if r.phase is Phase.FINISHED} | self.control.stamps()

    def _known(self, revision: str) -> str:
        """A revision that began after this process did may be in a script that came later."""
        if revision not in {r.id for r in self.graph.revisions}:
            self.graph = revisions.load(self.settings.migrations)
        return self.graph.get(revision).id

    def _route(self, revision: str) -> Route:
        moves = self.graph.moves(revision, self.settings.stores.keys())
        number, move = next((i, m) for i, m in enumerate(moves) if m.cls == self.cls)
        assert move.source is not None  # the graph fills it in
        route = open_route(number, move, move.source, self.stores.get)
        if route.changes_key or route.gathers or route.spreads:
            raise Refused(
                f"revision {revision} changes the keys of {self.cls}: it is moved at rest, and no "
                "gateway follows it",
                where=self.cls,
            )
        runs = [r for r in self.control.runs(revision) if r.phase is not Phase.ABORTED]
        if not runs:
            return route
        made = decode_plan(runs[-1].plan.encode(), f"run {runs[-1].id}")
        return as_planned(route, made.moves[number].tables)

"""One environment of one project, opened as it is needed."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from migrator import revisions
from migrator.bootstrap import Stores
from migrator.model.move import Move
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.planning.inference import as_planned
from migrator.route import Route, open_route
from migrator.settings import Settings, load_settings
from migrator.state import Control, open_control


class Project:
    """One environment of one project. Use it as a context: it closes what it opened."""

    def __init__(self, config: str | Path | None = None, env: str | None = None) -> None:
        self.settings: Settings = load_settings(config, env)
        self.stores = Stores(self.settings)

    @cached_property
    def graph(self) -> revisions.Graph:
        """The scripts, checked."""
        return revisions.load(self.settings.migrations)

    @cached_property
    def control(self) -> Control:
        """The control database."""
        return open_control(self.settings.control_store(), self.settings.env)

    def moves(self, revision: str) -> tuple[Move, ...]:
        return self.graph.moves(revision, self.settings.stores.keys())

    def routes(self, revision: str, made: Plan | None = None) -> list[Route]:
        """The moves of a revision with both ends open; ``made`` may tell the targets' tables."""
        routes = [
            open_route(number, move, move.source, self.stores.get)
            for number, move in enumerate(self.moves(revision))
            if move.source is not None
        ]
        if made is None or len(made.moves) != len(routes):
            return routes  # a plan of another script is refused by its fingerprint
        return [as_planned(r, move.tables) for r, move in zip(routes, made.moves, strict=True)]

    def done(self) -> set[str]:
        """The revisions whose data has arrived: finished, or stamped."""
        finished = {r.revision for r in self.control.runs() if r.phase is Phase.FINISHED}
        return finished | self.control.stamps()

    def revision_id(self, name: str) -> str:
        return self.graph.get(name).id

    def plan_path(self, revision: str) -> Path:
        """Where the plan of a revision lies: the environment is part of the name."""
        return self.settings.plans / f"{revision}.{self.settings.env}.json"

    def close(self) -> None:
        if "control" in self.__dict__:
            self.control.close()
        self.stores.close()

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

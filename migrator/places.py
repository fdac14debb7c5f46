"""Where locations lie physically: one place under two names is still one place.

A drop takes a whole table or collection, so what a move reads and what it writes must not meet,
and ``finish`` leaves alone what another revision stands on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from migrator.errors import Refused
from migrator.model.move import At, Move
from migrator.model.url import scheme
from migrator.ports import StoreSettings
from migrator.revisions import Graph
from migrator.revisions.order import touched
from migrator.route import Route
from migrator.settings import LAYOUT_OPTIONS, Settings

_HERE = {"localhost", "127.0.0.1", "::1", "[::1]", None}
_PORTS = {"postgresql": 5432, "mysql": 3306, "mongodb": 27017}

Place = tuple[object, ...]


def places(settings: Settings, at: At | None) -> dict[Place, str]:
    """The tables and collections of a location, with how they are named to people."""
    if at is None:
        return {}
    return {
        (*_server(settings.store(store)), name.casefold()): f"{store}:{name}"
        for store, name in touched(at)
        if store in settings.stores
    }


def _server(store: StoreSettings) -> tuple[object, ...]:
    """What of a store's settings tells its database apart, as far as settings can tell."""
    kind = scheme(store.url).partition("+")[0].replace("mariadb", "mysql")
    url = urlsplit(store.url)
    options = tuple(sorted((k, str(store.options[k])) for k in LAYOUT_OPTIONS & set(store.options)))
    if kind in ("sqlite", "embedded"):
        return kind, str(Path(store.root, url.path.removeprefix("/")).resolve()), options
    hosts = []
    for netloc in url.netloc.rpartition("@")[2].split(","):
        part = urlsplit(f"//{netloc}")
        host = "localhost" if part.hostname in _HERE else part.hostname
        hosts.append((host, part.port or _PORTS.get(kind)))
    return kind, tuple(sorted(map(str, hosts))), url.path, options


def refuse_overlap(settings: Settings, revision: str, moves: Sequence[Move]) -> None:
    """Raise Refused where a move of a revision writes what one of them reads."""
    sources = {
        place: cls
        for move in moves
        for cls, at in move.reads().items()
        for place in places(settings, at)
    }
    for move in moves:
        for at in move.writes():
            for place, told in places(settings, at).items():
                if place in sources:
                    raise Refused(
                        f"revision {revision} moves {move.cls} to {told}, which is the same place "
                        f"that {sources[place]} is moved from",
                        hint="give the target a name of its own, or move in two revisions",
                    )
    _refuse_shared_archives(settings, revision, moves)


def _refuse_shared_archives(settings: Settings, revision: str, moves: Sequence[Move]) -> None:
    """Raise Refused where an archive lies where something else of the revision is written."""
    taken = {place for move in moves for place in places(settings, move.target)}
    for move in moves:
        archive = places(settings, move.archive)
        for place, told in archive.items():
            if place in taken:
                raise Refused(
                    f"the archive of {move.cls} is {told}, where revision {revision} also writes "
                    "something else",
                    hint="give each archive a name of its own",
                )
        taken |= archive.keys()


def refuse_crowded(settings: Settings, routes: Sequence[Route]) -> None:
    """Raise Refused where two moves of a revision write one place that holds one class only."""
    taken: dict[Place, Route] = {}
    for route in routes:
        layout = route.move.target.layout
        capabilities = route.target_store.capabilities
        name = capabilities.default_layout if layout is None else layout.name
        for place, told in places(settings, route.move.target).items():
            other = taken.setdefault(place, route)
            if other is not route and not capabilities.layouts[name].shared:
                raise Refused(
                    f"{other.cls} and {route.cls} are both moved to {told}, and the layout {name} "
                    "can't tell two classes apart",
                    hint="give each a name of its own",
                )


def refuse_needed(settings: Settings, graph: Graph, revision: str, done: set[str]) -> None:
    """Raise Refused where a drop of a revision's sources would take what another one needs."""
    dropped: dict[Place, str] = {}
    for move in graph.moves(revision):
        for at in move.reads().values():
            dropped |= places(settings, at)
    for other, cls, at in _standing(graph, revision, done):
        for place in places(settings, at):
            if place in dropped:
                raise Refused(
                    f"revision {other} needs {dropped[place]} for {cls}",
                    hint=f"keep it:  migrator finish {revision} --keep-source",
                )


def _standing(graph: Graph, revision: str, done: set[str]) -> Iterator[tuple[str, str, At]]:
    """What must stay: the sources of revisions to come, and where classes have arrived."""
    arrived: dict[str, tuple[str, str, At]] = {}
    for each in graph.revisions:
        if each.id == revision or each.id in done:
            for move in each.moves:
                arrived.pop(move.dissolves or "", None)
        for move in each.moves:
            if move.archive is not None:
                yield each.id, f"the archive of {move.cls}", move.archive
            if each.id == revision or each.id in done:
                arrived[move.cls] = (each.id, move.cls, move.target)
            else:
                yield from ((each.id, cls, at) for cls, at in move.reads().items())
    yield from arrived.values()

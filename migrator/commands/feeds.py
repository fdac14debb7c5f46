"""What servers keep for the feeds of a live run: as the mirror told it, or in their own words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from migrator.commands.project import Project
from migrator.commands.started import frozen_plan
from migrator.engine.guard import share
from migrator.engine.reading import journal_of
from migrator.journal import OTHER, Keeping, Kept
from migrator.state import LiveState, Run

# Who looks at a run at night must not wait for a server that does not answer.
_PATIENCE = 3.0


class FeedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a server keeps for a feed of one side. ``size``: bytes on its disk; ``bound``: at how
    many the mirror gives the feed up; ``room``: after how many more the server does, null for
    never. ``window``: seconds for which the server keeps what was written, read or not, and
    ``left``: those until it is lost what the mirror has not read, null where there is no such
    time. ``share``: of what it may keep; it is given up at 1."""

    cls: str
    side: str
    size: int
    bound: int
    room: int | None
    window: float | None
    left: float | None
    share: float


def feed_bound(project: Project) -> int:
    """How many bytes a feed may keep on a server's disk."""
    return int(project.settings.feed_gb * 1e9)


def feeds(
    project: Project, run: Run, told: dict[str, object], silent: float | None, behind: float
) -> list[FeedStatus]:
    """What is kept for each feed: told by the mirror where one is running, ``silent`` is null."""
    found = cast("list[dict[str, Any]]", told.get("feeds", []))
    if silent is not None:
        found = _asked(project, run)
    bound = feed_bound(project)
    return [
        FeedStatus(
            **each, bound=bound, share=round(share(_kept(each), bound), 3),
            left=None if each["window"] is None else each["window"] - behind - (silent or 0.0),
        )
        for each in found
    ]  # fmt: skip


def _kept(each: dict[str, Any]) -> Kept:
    return Kept(each["size"], each["room"], each["window"])


def _asked(project: Project, run: Run) -> list[dict[str, Any]]:
    """The servers' own words; nothing of those that do not answer in time."""
    found: list[dict[str, Any]] = []

    def ask() -> None:
        try:
            found.extend(_look(project, run))
        except Exception:  # noqa: BLE001 - nothing depends on it, and nobody may be waiting any more
            return

    thread = threading.Thread(target=ask, name="feeds", daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return list(found)


def _look(project: Project, run: Run) -> Iterator[dict[str, Any]]:
    live = LiveState(project.control, run.id)
    for route in project.routes(run.revision, frozen_plan(run)):
        for side in OTHER:
            if live.position(route.number, side) is None:
                continue
            journal = journal_of(route, side, run.id)
            kept = journal.kept() if isinstance(journal, Keeping) else None
            if kept is not None:
                told = msgspec.to_builtins(kept)
                yield {"cls": route.cls, "side": side, **told}

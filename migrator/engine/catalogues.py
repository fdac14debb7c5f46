"""What the catalogues of the stores say of a live move's sides, which may change meanwhile.

Blocks of tables are made of the columns that there are. Where an application adds one, whoever
read the catalogue before mirrors all but what is written there. So the owner looks again, now and
then and in each swap of the sides: what has changed is read anew, and followed by a re-scan.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING

import structlog

from migrator.errors import Interrupted, MigratorError, Terminal, Waiting
from migrator.journal import OTHER
from migrator.ports import Json, Marked, Shaped

if TYPE_CHECKING:
    from migrator.engine.lane import Lane
    from migrator.engine.work import Scene

log = structlog.get_logger("migrator.mirror")

# Seconds between two looks.
_EVERY = 5.0
# The events of a run's log that tell what its sides were made of when they were read anew.
_NOTED, _CHANGED = "catalogue", "catalogue changed"
_TOLD = 10


class Catalogues:
    """What the sides of a run's moves were made of when the owner last read their catalogues.
    ``changed`` is called where that is no longer so, before anything is read anew."""

    def __init__(self, scene: Scene, lanes: Sequence[Lane], changed: Callable[[], None]) -> None:
        self._scene = scene
        self._lanes = lanes
        self._changed = changed
        self._known: dict[tuple[int, str], Json] = {}
        # What is another once that has changed, as it was right before.
        self._marks: dict[tuple[int, str], Json] = {}
        self._looked = 0.0
        self._begun = False

    def begin(self) -> None:
        """Have all that is read from here on made of what the catalogues say now or later. Where
        that is not what a process before has read by, both sides are compared anew."""
        noted, replaced = self._noted()
        for lane, side, shaped in self._sides():
            key = lane.route.number, side
            self._marks[key] = self._mark(shaped)
            now = self._scene.retry(shaped.shape_now)
            if now is None:
                continue  # it is being dropped
            shaped.forget()
            self._known[key] = now
            if noted.get(key, _digest(now)) != _digest(now):
                other = replaced[key] != _digest(_identity(now))
                self._follow(lane, side, shaped, now, [], replaced=other)
            elif key not in noted:
                self._note(_NOTED, lane, side, now, [])
        self._looked, self._begun = time.monotonic(), True

    def look(self, *, now: bool = False) -> None:
        """Look again, where that was not done just now; ``now``: in any case, and a store that
        can't be asked is an error. Begins where that was put off."""
        if not self._begun:
            self.begin()
        if not self._known or not (now or time.monotonic() >= self._looked + _EVERY):
            return
        for lane, side, shaped in self._sides():
            known = self._known.get((lane.route.number, side))
            try:
                if now:
                    self._marks[lane.route.number, side] = self._mark(shaped)
                found = self._scene.retry(shaped.shape_now) if now else shaped.shape_now()
            except Interrupted:
                raise
            except MigratorError as error:
                if now:
                    raise
                log.warning("catalogue not read", where=error.where, error=error.what)
                continue
            if None not in (known, found) and found != known:
                other = _identity(known) != _identity(found)
                what = list(_between(known, found))
                self._follow(lane, side, shaped, found, what, replaced=other)
        self._looked = time.monotonic()

    def explains(self) -> bool:
        """Whether one of them is another than was read, so that something asked for what is no
        more: it is followed from here on, and the feed given again from where it was kept. One that
        can't be read explains nothing: the error that was met tells more."""
        before = dict(self._known)
        try:
            self.look(now=True)
        except Interrupted:
            raise
        except MigratorError as error:
            log.warning("catalogue not read", where=error.where, error=error.what)
        return self._known != before

    def _follow(
        self, lane: Lane, side: str, shaped: Shaped, now: Json, what: list[str], *, replaced: bool
    ) -> None:
        """Go by what the catalogue says now. The re-scan is noted first: a crash in between does
        not spare it. ``replaced``: another table has taken the name, or a partition
        came, whose writes no feed shows; only once it does is it noted as known."""
        log.warning("catalogue changed", where=str(lane.side(side).at), what=what[:_TOLD])
        self._changed()
        lane.scan()
        shaped.forget()
        if replaced:
            lane.begin_anew(side, "other tables or partitions lie there than were followed")
        else:
            lane.reopen(side)
        self._note(_CHANGED, lane, side, now, what)
        self._known[lane.route.number, side] = now

    def under_fence(self) -> Callable[[Callable[[], None]], None]:
        """Look once more while writes are stopped, beside what is done there: so late that no
        write comes by columns of which nobody knows. Returns what raises Waiting where they are
        others; it is given what raises where that takes too long."""
        found: list[list[str] | BaseException] = []
        if not self._known:
            return lambda check: None

        def ask() -> None:
            try:
                found.append(self._unlike())
            except BaseException as error:  # noqa: BLE001 - raised again by the owner's thread
                found.append(error)

        asking = threading.Thread(
            target=copy_context().run, args=[ask], name="catalogues", daemon=True
        )
        asking.start()

        def answer(check: Callable[[], None]) -> None:
            while asking.is_alive():
                check()
                asking.join(0.01)
            (answered,) = found
            if isinstance(answered, BaseException):
                raise answered
            if answered:
                self._looked = float("-inf")
                raise Waiting(
                    f"the columns of {', '.join(answered)} have just been changed: undone, and "
                    "both sides are compared anew",
                    hint="try again once that is done:  migrator status "
                    f"{self._scene.plan.revision}",
                )

        return answer

    def _unlike(self) -> list[str]:
        return [
            str(lane.side(side).at)
            for lane, side, shaped in self._sides()
            if not self._is_as_marked(lane, side, shaped)
            and self._known.get((lane.route.number, side)) != self._scene.retry(shaped.shape_now)
        ]

    def _mark(self, shaped: Shaped) -> Json:
        try:
            return self._scene.retry(shaped.shape_mark) if isinstance(shaped, Marked) else None
        except Terminal:  # a table is gone: the catalogue itself tells
            return None

    def _is_as_marked(self, lane: Lane, side: str, shaped: Shaped) -> bool:
        mark = self._marks.get((lane.route.number, side))
        return mark is not None and mark == self._mark(shaped)

    def _sides(self) -> Iterator[tuple[Lane, str, Shaped]]:
        for lane in self._lanes:
            for side in OTHER:
                collection = lane.side(side)
                if isinstance(collection, Shaped):
                    yield lane, side, collection

    def _noted(self) -> tuple[dict[tuple[int, str], str], dict[tuple[int, str], str]]:
        """What was noted last of each side, by this process or one before: of all of it, and of
        which tables they were."""
        if not any(self._sides()):
            return {}, {}
        control, run = self._scene.control, self._scene.run.id
        events = [*control.events(run, _NOTED), *control.events(run, _CHANGED)]
        details = [event["detail"] for event in sorted(events, key=lambda e: int(str(e["id"])))]
        last = {(int(d["move"]), str(d["side"])): d for d in details if isinstance(d, dict)}
        return (
            {key: str(detail["digest"]) for key, detail in last.items()},
            {key: str(detail.get("identity")) for key, detail in last.items()},
        )

    def _note(self, event: str, lane: Lane, side: str, now: Json, what: list[str]) -> None:
        self._scene.control.record(
            self._scene.run.id, event, cls=lane.route.cls, move=lane.route.number, side=side,
            digest=_digest(now), identity=_digest(_identity(now)), what=what[:_TOLD],
        )  # fmt: skip


def _identity(shape: Json) -> Json:
    tables = shape.items() if isinstance(shape, dict) else ()
    return {name: table["identity"] for name, table in tables
            if isinstance(table, dict) and "identity" in table}  # fmt: skip


def _digest(shape: Json) -> str:
    text = json.dumps(shape, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _between(old: Json, new: Json) -> Iterator[str]:
    """Where two of them differ: ``game columns score``."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield ""
        return
    for name in dict.fromkeys([*old, *new]):
        if name in old and name in new:
            yield from (f"{name} {more}".rstrip() for more in _between(old[name], new[name]))
        else:
            yield f"{'-' if name in old else '+'}{name}"


__all__ = ["Catalogues"]

"""What the mirror holds that the owner has not written there (R11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from migrator.engine.access import Access
from migrator.engine.points import reached
from migrator.engine.work import Scene
from migrator.model.block import Block
from migrator.model.diff import block_differences
from migrator.model.path import child, parse_path
from migrator.model.value import Value
from migrator.ports import Collection
from migrator.route import Route

# The events of a run's log that tell what the mirror held: written by somebody else, or by whom
# nobody can tell.
FOREIGN, RECONCILED = "foreign write", "reconciled"
_AGAIN = "it comes again whenever it is undone: a trigger or a default of the mirror writes it"
_TOLD = 20

log = structlog.get_logger("migrator.mirror")


@dataclass(frozen=True)
class Foreign:
    """A key of the mirror, and where it held something else than it must; ``sources`` are the keys
    of the primary whose writes may be why. ``sure``: the owner had left something else there.
    ``fields`` are those of the block that differ, the empty one stands for all of it."""

    key: Value
    paths: list[str]
    fields: frozenset[str]
    sources: Sequence[Value]
    side: str
    held: Block | None
    sure: bool


class Strangers:
    """Notes and tells what the mirror of one move held that is not the owner's.

    ``sound`` says whether a side's feed shows that nothing was lost there; who reads it knows.
    ``hurry`` is called where somebody else's write was met.
    """

    def __init__(self, scene: Scene, route: Route, access: Access) -> None:
        self._scene = scene
        self._route = route
        self._access = access
        self.sound: Callable[[str], bool] = lambda side: False
        self.hurry: Callable[[], None] = lambda: None
        self.looks = False  # nothing is written
        self._scans = False
        self._found: list[Foreign] | None = None
        self._at_once = False

    @contextmanager
    def collected(self, *, tell: bool) -> Iterator[list[Foreign]]:
        """Within, all that differs is put together; ``tell``: and told before anything is written,
        since a crash after that leaves no difference (R11)."""
        found = self._found = []
        self._at_once = tell
        try:
            yield found
        finally:
            self._found, self._at_once = None, False

    @property
    def collects(self) -> bool:
        return self._found is not None

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Within, nothing is written."""
        self.looks = True
        try:
            yield
        finally:
            self.looks = False

    @contextmanager
    def scanning(self) -> Iterator[None]:
        """Within, all keys are looked at, whether or not anything was written."""
        self._scans = True
        try:
            yield
        finally:
            self._scans = False

    def tell(self, found: Foreign, event: str = FOREIGN) -> None:
        """Keep in the run's record what the mirror held that it must not."""
        self._access.written[found.side].told(found.key, found.held)
        name, paths = self._route.name(found.key), found.paths
        self._scene.control.record(self._scene.run.id, event, key=name, paths=paths)
        log.warning(event, key=name, paths=paths)

    def leave(self, found: Foreign, fields: frozenset[str] = frozenset()) -> None:
        """Take what somebody else wrote for what must lie there, until the next write, and say so
        once for each key. ``fields`` are found to come again, of all keys."""
        written = self._access.written[found.side]
        written.found(found.key, found.held)
        if written.leaves(found.key, fields):
            name, why = self._route.name(found.key), _AGAIN
            self._scene.control.record(
                self._scene.run.id, "foreign write left", key=name, paths=found.paths, why=why
            )
            log.warning("foreign write left", key=name, why=why)
            reached("foreign.left")

    def same(self, side: Collection, held: Block | None) -> None:
        """Note that a key of the mirror holds what it must, whoever wrote it."""
        if held is not None:
            self._access.written_to(side).found(held.id, held)

    def differs(
        self,
        side: Collection,
        key: Value,
        new: Block | None,
        held: Block | None,
        sources: Sequence[Value] | None = None,
    ) -> None:
        """Note what a key of the mirror holds that it must not; it stands for itself where no
        others led to it. What is not the owner's is told now, before it is written over."""
        written, at = self._access.written_to(side), self._access.name(side)
        if held is None and new is None:
            written.found(key, None)
            return
        # Also just now its server may have been started anew, without what was written last.
        sure = written.holds(key, held) is False and self.sound(at)
        if not self.looks:
            written.replaces(key, held)
        if self._found is None:
            # What a TRUNCATE took away comes back untold: there is nothing to be kept.
            emptied = self._scans and held is None
            if emptied or not sure or not written.is_news(key, held):
                return
        found = self._foreign(at, key, new, held, [key] if sources is None else sources, sure=sure)
        if self._found is None:
            (self.leave if written.is_usual(key, held) else self.tell)(found)
            self.hurry()
            return
        if self._at_once and all(each.key != found.key for each in self._found):
            self.tell(found)
        self._found.append(found)

    def _foreign(
        self,
        at: str,
        key: Value,
        new: Block | None,
        held: Block | None,
        sources: Sequence[Value],
        *,
        sure: bool,
    ) -> Foreign:
        route, empty = self._route, Block(key, {})
        differ = list(block_differences(held or empty, new or empty))
        paths = [
            d.text(masked=bool(route.move.sensitive) and route.is_sensitive(d.path)) for d in differ
        ]
        fields = frozenset(d.path and child("", str(parse_path(d.path)[0])) for d in differ)
        return Foreign(key, paths[:_TOLD], fields, sources, at, held, sure)


__all__ = ["FOREIGN", "RECONCILED", "Foreign", "Strangers"]

"""What is copied of a live move: pages of the source; of one that gathers, groups with their keys.

A block of the source alone would have its group made anew for each of the others. Which keys belong
together is listed once by each process, after every write leaves a touch: what comes later, or goes
elsewhere, is done by its touch (R4).
"""

from __future__ import annotations

from typing import NamedTuple

from migrator.engine.moving import Careful
from migrator.engine.points import reached
from migrator.engine.reconcile import Done, Reconciler
from migrator.grouping import Groups, Reader, Side, group_of
from migrator.ports import Json
from migrator.retry import Retry
from migrator.route import Route


class Copied(NamedTuple):
    """A page that was copied: how many blocks it made, of how many and how many bytes, and where to
    go on."""

    read: int
    blocks: int
    bytes: int
    next: Json
    done: Done


class Copying:
    """Copies one move."""

    def __init__(self, route: Route, reconciler: Reconciler, retry: Retry) -> None:
        self._route = route
        self._reconciler = reconciler
        self._retry = retry

    def split(self, ranges: int) -> list[Json]:
        """The ranges to copy."""
        return self._retry(self._route.source.split, ranges)

    def copy(self, range_: Json, position: Json, limit: int) -> Copied:
        """Copy the page of a range that comes next."""
        page = self._retry(self._route.source.page, range_, position, limit)
        reached("page.read")
        done = self._reconciler.page(page.blocks, page.damaged)
        read = len(page.blocks) + len(page.damaged)
        return Copied(read, read, page.bytes, page.next, done)


class CopyingGroups(Copying):
    """Copies one that gathers."""

    _reader: Reader | None = None

    def split(self, ranges: int) -> list[Json]:
        # Nothing may be listed yet, and one page is copied at a time.
        return [[None, None]]

    def copy(self, range_: Json, position: Json, limit: int) -> Copied:
        if self._reader is None:
            source, cls = self._route.source, self._route.move.source_cls
            listing = Careful(source, self._retry, self._reconciler.scene.check)
            known = Groups(Side(cls, source, listing), group_of(self._route.translation, cls))
            self._reader = Reader(self._route.translation, known)
        groups, keys, following = self._reader.members(range_, position, limit)
        reached("page.read")
        done = self._reconciler.keys("source", keys, "source")
        return Copied(groups, len(keys), 0, following, done)


def copying(route: Route, reconciler: Reconciler, retry: Retry) -> Copying:
    """What copies a move."""
    return (CopyingGroups if route.gathers else Copying)(route, reconciler, retry)


__all__ = ["Copied", "Copying", "copying"]

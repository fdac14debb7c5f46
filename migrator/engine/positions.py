"""How far one move has come, as the control database holds it: only the owner writes it there.

Where each side's feed is read on, and beside the primary's place the re-scan that is not done yet.
A re-scan is noted there before anything else is done, so that a crash does not spare it (R5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from migrator.engine.work import Scene
from migrator.journal import OTHER
from migrator.ports import Json
from migrator.state import LiveState, Position


class Positions:
    """The positions of one move, by its number."""

    def __init__(self, scene: Scene, live: LiveState, move: int) -> None:
        self.scene = scene
        self._live = live
        self._move = move
        self._held: dict[str, Position] = {}
        # Whether this process has noted the re-scan that is under way.
        self.began_scan = False

    def get(self, side: str) -> Position | None:
        """Where a side's feed is read on; None where it was never prepared."""
        if side not in self._held:
            found = self._live.position(self._move, side)
            if found is None:
                return None
            self._held[side] = found
        return self._held[side]

    def of(self, side: str) -> Position:
        """As ``get``, of a side whose feed was prepared."""
        found = self.get(side)
        assert found is not None
        return found

    def keep(self, side: str, position: Position) -> None:
        """Have the control database hold it."""
        self.scene.retry(self._live.keep, self._move, side, position)
        self._held[side] = position

    # ------------------------------------------------------------------ the re-scan

    def scan(self, *, tells: bool | None = None, theirs: bool = False) -> None:
        """Note that both sides are to be compared key by key, from the start.

        ``tells``: what differs, and no touch explains, is told; None for as it was. ``theirs``: it
        may be what applications have written to the primary.
        """
        primary = self.scene.run.primary
        if (found := self.get(primary)) is not None:
            tells = does_tell(found.scan) if tells is None else tells
            theirs = theirs or may_be_theirs(found.scan)
            self.keep(primary, replace(found, scan=scan_from_start(tells=tells, theirs=theirs)))
            self.began_scan = True

    @property
    def scanning(self) -> bool:
        """Whether a re-scan is not done: until then the sides may differ."""
        return any(scan is not None for scan in self._scans())

    @property
    def is_blind(self) -> bool:
        """Whether touches may have been lost of which a re-scan has still to tell."""
        return any(scan is not None and not does_tell(scan) for scan in self._scans())

    @property
    def may_be_theirs(self) -> bool:
        """Whether what a re-scan finds may be what applications have written."""
        return any(may_be_theirs(scan) for scan in self._scans())

    def _scans(self) -> Iterator[Json]:
        for side in OTHER:
            if (found := self.get(side)) is not None:
                yield found.scan


def scan_from_start(
    side: str = "primary", *, tells: bool = False, theirs: bool = False
) -> dict[str, Json]:
    """A re-scan that has not listed anything of a side yet."""
    return {"side": side, "range": None, "position": None, "tells": tells, "theirs": theirs}


def does_tell(scan: Json) -> bool:
    """Whether a re-scan tells what differs; those of older versions do not."""
    return _is(scan, "tells")


def may_be_theirs(scan: Json) -> bool:
    """Whether what a re-scan finds may be what applications have written."""
    return _is(scan, "theirs")


def _is(scan: Json, what: str) -> bool:
    return isinstance(scan, dict) and bool(scan.get(what))


__all__ = ["Positions", "does_tell", "may_be_theirs", "scan_from_start"]

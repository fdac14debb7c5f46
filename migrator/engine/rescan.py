"""A re-scan: both sides are compared key by key, page by page, and the mirror made equal (R5).

It lists the primary's keys, then the mirror's, between two batches of touches. Where touches were
not lost, what differs and no touch explains is somebody else's, and told before it is undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from migrator.engine.overhearing import Overhearing
from migrator.engine.positions import Positions, does_tell, may_be_theirs, scan_from_start
from migrator.engine.reconcile import Reconciler
from migrator.engine.throttle import Throttle
from migrator.engine.work import Scene
from migrator.journal import OTHER, Touch
from migrator.model.value import Value
from migrator.ports import Json
from migrator.route import Route
from migrator.state import quarantine_key


@dataclass(frozen=True)
class _Page:
    """Keys of a side, where the re-scan stood before them, and how far it is behind them."""

    stands: Json
    scan: Mapping[str, Json]
    side: str
    keys: Sequence[Value]
    position: Json


class Rescan:
    """The re-scans of one move."""

    def __init__(
        self,
        scene: Scene,
        route: Route,
        reconciler: Reconciler,
        positions: Positions,
        overhearing: Overhearing,
        throttle: Throttle,
    ) -> None:
        self._scene = scene
        self._route = route
        self._reconciler = reconciler
        self._positions = positions
        self._overhearing = overhearing
        self._throttle = throttle
        # The page whose differences are told first. It is not listed again: what is undone
        # meanwhile would make room there for keys that nobody has looked at.
        self._looked: _Page | None = None

    @property
    def waits(self) -> bool:
        """Whether it has to wait for a marker, since what differs is to be told first."""
        positions = self._positions
        return self._overhearing.suspected and positions.scanning and not positions.is_blind

    def turn(self, primary: str) -> bool:
        """One page of it, where one is under way and it may be; whether there was one."""
        found = self._positions.of(primary)
        scan = found.scan
        if not isinstance(scan, dict) or self.waits or not self._throttle.ready():
            return False
        page = self._looked
        if page is None or page.stands is not scan:
            page = self._list(primary, scan)
            if does_tell(scan) and self._finds(primary, page):
                return False
        self._looked = None
        self._reconciler.keys(primary, page.keys, page.side)
        self._throttle.copied(len(page.keys))
        following: Json = {**page.scan, "position": page.position}
        if page.position is None:
            if page.side == "source":
                self._reconciler.aside.listed_source()
            onward = scan["side"] == "primary"
            begins = scan_from_start("mirror", tells=does_tell(scan), theirs=may_be_theirs(scan))
            following = begins if onward else None
        if following is None and primary == "target":
            self._reconciler.aside.listed_target()
        elif following is None:
            self._reconciler.aside.made_as_source()
        self._positions.keep(primary, replace(found, scan=following))
        if following is None:
            self._ends(primary)
        return True

    def _list(self, primary: str, stands: Mapping[str, Json]) -> _Page:
        """The page that comes next."""
        side = primary if stands["side"] == "primary" else OTHER[primary]
        collection, scan, retry = self._route.side(side), stands, self._scene.retry
        if scan["range"] is None:
            scan = {**scan, "range": retry(collection.split, 1)[0]}
            if side == "source":
                self._reconciler.aside.list_source()
            elif side == primary:
                self._reconciler.aside.list_target()
        limit = self._throttle.limit(self._scene.planned(self._route).page)
        keys, position = retry(collection.keys, scan["range"], scan["position"], limit)
        return _Page(stands, scan, side, keys, position)

    def _finds(self, primary: str, page: _Page) -> bool:
        """Whether a page has to wait for what differs there to be told.

        It is looked at once: under steady writes something always differs.
        """
        known = self._reconciler.aside.quarantine_keys()
        found = [
            each
            for each in self._reconciler.look(primary, [Touch(k) for k in page.keys], page.side)
            if known.isdisjoint(map(quarantine_key, [each.key, *each.sources]))
        ]
        if found:
            self._overhearing.suspect(primary, found)
            self._looked = page  # not where its marker was refused: it would be undone untold
        return bool(found)

    def _ends(self, primary: str) -> None:
        if not self._positions.began_scan and not self._reconciler.aside.is_empty:
            # Of what is set aside some may have been listed before this process began.
            self._positions.scan()
        self._reconciler.written[OTHER[primary]].regained()
        self._scene.control.record(self._scene.run.id, "scanned anew", cls=self._route.cls)


__all__ = ["Rescan"]

"""What of one move does not go over: to the target it is in quarantine, on the way back in the
reverse ledger.

Both are in the control database, each key once. What is there is asked once: nobody but the owner
of a live run changes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import structlog

from migrator.engine.backfill import quarantined
from migrator.engine.work import Scene
from migrator.journal import Touch
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.route import Route
from migrator.state import LiveState, Quarantined, quarantine_key

_REFUSED = 1_000

log = structlog.get_logger("migrator.mirror")


class Aside:
    """The quarantine and the ledger of one move, and what was refused last."""

    def __init__(self, scene: Scene, route: Route, live: LiveState) -> None:
        self._scene = scene
        self._route = route
        self._live = live
        # By key, what stands for why it is there; None as long as nobody asked.
        self._quarantine: dict[str, int] | None = None
        self._ledger: dict[str, int] | None = None
        # Of those in quarantine, what a listing of the source has not met; of those in the ledger,
        # what a re-scan has not refused again.
        self._unmet: set[str] | None = None
        self._unrefused: set[str] | None = None
        self._refused: dict[str, dict[bytes, Value]] = defaultdict(dict)

    def __contains__(self, key: Value) -> bool:
        """Whether a key is in quarantine."""
        return quarantine_key(key) in self._known_quarantine()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in quarantine, nor in the ledger."""
        return not (self._known_quarantine() or self._known_ledger())

    def quarantine_keys(self) -> set[str]:
        """All that are there, of which the sides differ with good reason."""
        number = self._route.number
        there = {item.key for item in self._live.ledger() if item.move == number}
        return self._known_quarantine().keys() | there

    # ------------------------------------------------------------------ to the target

    def set_aside(self, key: Value, reason: str, path: str) -> None:
        """A block of the source does not go over."""
        item = quarantined(self._route, key, reason, path)
        if self._unmet is not None:
            self._unmet.discard(item.key)
        known = self._known_quarantine()
        if known.get(item.key) == _why(item):
            return  # tried again, and refused as before
        self._scene.retry(self._scene.control.set_aside, self._scene.run.id, item)
        known[item.key] = _why(item)
        log.warning("quarantined", key=item.shown, path=path, reason=reason)

    def take_up(self, keys: Iterable[Value]) -> None:
        """A later write of a key takes it out of quarantine."""
        if known := self._known_quarantine():
            for key in known.keys() & set(map(quarantine_key, keys)):
                self._leave(key)

    def _leave(self, key: str) -> None:
        self._scene.retry(self._scene.control.take_up, self._scene.run.id, self._route.number, key)
        self._known_quarantine().pop(key, None)

    # ------------------------------------------------------------------ back to the source

    def enter(self, key: Value, reason: str, path: str) -> None:
        """A block of the target does not go back."""
        item = quarantined(self._route, key, reason, path, self._route.name(key))
        if self._unrefused is not None:
            self._unrefused.discard(item.key)
        known = self._known_ledger()
        if known.get(item.key) == _why(item):
            return
        self._scene.retry(self._live.enter, item)
        known[item.key] = _why(item)
        log.warning("can't be written back", key=item.shown, path=path, reason=reason)

    def strike(self, keys: Sequence[Value], refused: Sequence[Value]) -> None:
        """What of these was not refused is on both sides now, and in the ledger no longer."""
        self.remember("target", keys, set(map(encode, refused)))
        if not (known := self._known_ledger()):
            return
        done = known.keys() & set(map(quarantine_key, keys)) - set(map(quarantine_key, refused))
        if done:
            self._live.strike(self._route.number, done)
            for key in done:
                del known[key]

    # ------------------------------------------------------------------ what was refused last

    def refused(self, primary: str) -> list[Touch]:
        """Keys of the primary whose last write the mirror refused: another write may have made
        way."""
        return [Touch(key) for key in self._refused[primary].values()]

    def remember(self, primary: str, keys: Sequence[Value], refused: set[bytes]) -> None:
        """Of these keys of the primary the mirror refused some, by their canonical forms."""
        known = self._refused[primary]
        for key in keys:
            form = encode(key)
            if form not in refused:
                known.pop(form, None)
            elif len(known) < _REFUSED:
                known[form] = key

    # ------------------------------------------------------------------ re-scans

    def list_source(self) -> None:
        """A re-scan lists the source, from its start."""
        self._unmet = set(self._known_quarantine())

    def meets(self, keys: Iterable[Value]) -> None:
        """It has met these."""
        if self._unmet is not None:
            self._unmet.difference_update(map(quarantine_key, keys))

    def listed_source(self) -> None:
        """It has listed the source to its end: what is in quarantine and was not there is gone.

        Where another process began to list it, nobody knows what that has met.
        """
        gone, self._unmet = self._unmet, None
        for key in gone or ():
            self._leave(key)
        if gone:
            log.info("gone from the source, and from quarantine", keys=len(gone))

    def list_target(self) -> None:
        """A re-scan begins while the target is the primary."""
        number = self._route.number
        self._unrefused = {item.key for item in self._live.ledger() if item.move == number}

    def listed_target(self) -> None:
        """It has come to its end: what it did not refuse again is gone, from the ledger, too."""
        gone, self._unrefused = self._unrefused, None
        if gone:
            self._live.strike(self._route.number, gone)
            for key in gone:
                self._known_ledger().pop(key, None)
            log.info("gone from the target, and from the ledger", keys=len(gone))

    def made_as_source(self) -> None:
        """A re-scan has made all of the target as the source is: nothing is to be written back."""
        if known := self._known_ledger():
            self._live.strike(self._route.number, set(known))
            known.clear()

    # ------------------------------------------------------------------ what is there

    def _known_quarantine(self) -> dict[str, int]:
        if self._quarantine is None:
            control, run = self._scene.control, self._scene.run
            self._quarantine = self._reasons(control.quarantined(run.id))
        return self._quarantine

    def _known_ledger(self) -> dict[str, int]:
        if self._ledger is None:
            self._ledger = self._reasons(self._live.ledger())
        return self._ledger

    def _reasons(self, items: Iterable[Quarantined]) -> dict[str, int]:
        return {item.key: _why(item) for item in items if item.move == self._route.number}


def _why(item: Quarantined) -> int:
    """What stands for where and why a block does not go over."""
    return hash((item.path, item.reason))


__all__ = ["Aside"]

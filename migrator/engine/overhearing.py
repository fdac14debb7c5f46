"""The mirror's own feed: what somebody else writes there is told, and only then undone (R11).

It shows writes of the owner's own and those of somebody else. What differs there may
still be a write to the primary that was not acted on yet: then its touch comes before a marker that
is written once the difference was seen. Until that was met it is only suspected.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from migrator.engine.points import reached
from migrator.engine.positions import Positions
from migrator.engine.reading import MOST, Reading
from migrator.engine.reconcile import Reconciler
from migrator.engine.strangers import FOREIGN, RECONCILED, Foreign
from migrator.errors import Waiting
from migrator.journal import OTHER, Touch, Touches
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.ports import Json

# Seconds between two looks into the mirror's feed.
_OVERHEAR = 0.25
# How often what somebody else wrote is undone at once, where it comes again just then.
_ROUNDS = 3


class Overhearing:
    """Tells what somebody else has written to the mirror of one move, and undoes it."""

    def __init__(
        self, reconciler: Reconciler, positions: Positions, readings: Mapping[str, Reading]
    ) -> None:
        self._reconciler = reconciler
        self._positions = positions
        self._readings = readings
        # Touches of the mirror's feed that are not of the owner's own writes.
        self._strange: dict[bytes, Touch] = {}
        # What differs, and is told once the marker was met, where no touch before it explains it.
        self._suspects: dict[bytes, Foreign] = {}
        self._marker = ""
        # What of the mirror's feed is acknowledged once all of that was told.
        self._overheard: Json = None
        self._overheard_at = 0.0

    @property
    def suspected(self) -> bool:
        """Whether anything waits for a marker to be told, or to be explained."""
        return bool(self._suspects)

    def lost(self) -> None:
        """A feed was lost: a marker in it will not be met, and a re-scan finds what differs."""
        self._suspects.clear()
        self._overheard = None

    # ------------------------------------------------------------------ the mirror's own feed

    def hurry(self) -> None:
        """Look into the mirror's feed as soon as can be: perhaps more is to be told from there."""
        self._overheard_at = float("-inf")

    def overhear(self, primary: str) -> None:
        """Read the mirror's feed on, now and then, and deal with what it shows.

        It is acknowledged once that was told: after a crash before that it shows it again.
        """
        side = OTHER[primary]
        if side not in self._readings or time.monotonic() < self._overheard_at + _OVERHEAR:
            return
        reading, written = self._readings[side], self._reconciler.written[side]
        while len(self._strange) < MOST and (given := reading.poll(0.0)) is not None:
            reading.marks.extend(given.marks)
            self._overheard = given.position or self._overheard
            if given.whole:
                self._positions.scan()
            for touch in given.touches:
                if not written.expects(touch):
                    self._strange[encode(touch.key)] = touch
        self._overheard_at = time.monotonic()
        if self._suspects:
            return  # those first: with ever new ones no marker would be the last
        found = self._look(primary)
        self._tell(primary, [each for each in found if each.sure])
        found = [each for each in found if not each.sure]
        if found and not reading.is_surely_sound():
            return  # what it has lost may explain them: once more when it is read again, or lost
        if found and self._positions.is_blind:
            self._undo(primary, found)  # what a lost feed did not show explains it as well
        elif found:
            self.suspect(primary, found)
        self._strange.clear()
        self._acknowledge(reading)

    def _look(self, primary: str) -> list[Foreign]:
        """What differs of all that may have been written to the mirror by somebody else."""
        side = OTHER[primary]
        strange = self._reconciler.unlike(side, list(self._strange.values()))
        return self._reconciler.look(primary, strange, side) if strange else []

    def _acknowledge(self, reading: Reading) -> None:
        if self._overheard is not None and not self._suspects:
            reading.acted_on(Touches(position=self._overheard))
            self._overheard = None

    # ------------------------------------------------------------------ suspects

    def suspect(self, primary: str, found: list[Foreign]) -> None:
        """What differs may still be a write to the primary that was not acted on: its touch then
        comes before a marker that is written now."""
        self._marker = f"foreign {secrets.token_hex(8)}"
        self._readings[primary].journal.mark(self._marker)
        self._suspects = {encode(each.key): each for each in found}

    def explained(self, primary: str, given: Touches) -> None:
        """Touches of the primary were acted on: tell of the suspects that none before the marker
        explains, and undo them."""
        touched = {encode(touch.key) for touch in given.touches}
        for form, each in list(self._suspects.items()):
            if not touched.isdisjoint(map(encode, each.sources)):
                del self._suspects[form]
        if self._suspects and self._marker in given.marks:
            self._tell(primary, list(self._suspects.values()))
            self._suspects.clear()

    def drained(self, primary: str, check: Callable[[], None]) -> None:
        """All that was written to the primary has been acted on, and nobody writes: no touch will
        explain what is suspected still. ``check`` raises where somebody may write again, Waiting
        where the mirror may have lost what was written to it: it would become the truth."""
        reading = self._readings[OTHER[primary]]
        forgets = reading.forgets
        if (self._suspects or self._strange or forgets) and not reading.is_surely_sound():
            reading.end_lost()
            if forgets and not self._positions.scanning:
                raise Waiting(
                    "the mirror's feed is not read just now, so its server may have lost writes",
                    where=reading.where,
                    hint="try again once it is",
                )
        if self._positions.scanning:
            return
        check()
        self._tell(primary, list(self._suspects.values()))
        self._suspects.clear()
        found = self._look(primary)
        check()
        self._tell(primary, found)
        self._strange.clear()
        self._acknowledge(reading)

    # ------------------------------------------------------------------ telling

    def mend(self, primary: str, keys: Sequence[Value], side: str) -> None:
        """Reconcile keys of a side that a comparison has named. What differs is told before it is
        written over: nobody knows whose it is, but where the owner had left something else."""
        for each in self._reconciler.look(primary, [Touch(key) for key in keys], side):
            self._reconciler.strangers.tell(each, FOREIGN if each.sure else RECONCILED)
        reached("mend.told")
        self._reconciler.untouched(primary, keys, side)

    def _tell(self, primary: str, found: list[Foreign]) -> None:
        """Tell what somebody else wrote, and only then undo it: after a crash in between it is
        told twice, and never not at all.

        What comes again as often as it is undone is left, as found: a trigger may write there.
        """
        side = OTHER[primary]
        written, said = self._reconciler.written[side], set[tuple[bytes, tuple[str, ...]]]()
        fields: dict[bytes, frozenset[str]] = {}
        for left in range(_ROUNDS, -1, -1):
            undone = []
            for each in found:
                of = (form := encode(each.key)), tuple(each.paths)
                usual = written.is_usual(each.key, each.held)
                # What applications write meanwhile is no part of what comes again.
                fields[form] = each.fields & fields.get(form, each.fields)
                if of in said:
                    written.told(each.key, each.held)
                elif not usual:
                    self._reconciler.strangers.tell(each, self._event(each))
                said.add(of)
                if usual or not left:
                    self._reconciler.strangers.leave(each, frozenset() if usual else fields[form])
                else:
                    undone.append(each)
            if not undone:
                return
            reached("foreign.told")
            self._undo(primary, undone)
            again = self._reconciler.unlike(side, [Touch(e.key) for e in undone], surely=True)
            found = self._reconciler.look(primary, again, side) if again else []

    def _event(self, found: Foreign) -> str:
        """What a difference is called in the record: only what is somebody else's a foreign one."""
        doubtful = not found.sure and self._positions.may_be_theirs
        return RECONCILED if doubtful else FOREIGN

    def _undo(self, primary: str, found: list[Foreign]) -> None:
        self._reconciler.untouched(primary, [each.key for each in found], OTHER[primary])


__all__ = ["Overhearing"]

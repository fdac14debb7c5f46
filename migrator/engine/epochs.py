"""The epoch of a live run in both of its stores, and what an owner does by it (R15).

It is written when the writes begin to be followed, again before each fence, and when the sides have
been swapped, before anybody writes the new primary. Each time it is changed only from what this
owner wrote or read: so of two that were started over two control databases one finds that out.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from migrator.engine.points import reached
from migrator.errors import Refused, Transient
from migrator.journal import OTHER, Note, note_of
from migrator.model.epoch import Epoch, differs, from_text, to_text
from migrator.model.phase import Phase

if TYPE_CHECKING:
    from migrator.engine.work import Scene
    from migrator.route import Route
    from migrator.state import Control, Run

log = structlog.get_logger("migrator.mirror")

# The event of a run's log that tells whether its stores have to hold its epoch.
NOTED = "epoch"
_LOOK_EVERY = 1.0


@dataclass
class Kept:
    """The note of one side of a move. ``text`` is what it says, as far as is known."""

    side: str
    where: str
    note: Note
    text: str | None = None

    @property
    def epoch(self) -> Epoch | None:
        return None if self.text is None else from_text(self.text)


def kept(routes: Sequence[Route]) -> list[Kept]:
    """The notes beside some moves, of those of their stores that keep any."""
    found = []
    for route in routes:
        for side, collection in (("source", route.followed.source), ("target", route.target)):
            note = note_of(collection)
            if note is not None:
                found.append(Kept(side, str(collection.at), note))
    return found


def expected(control: Control, run: Run) -> bool:
    """Whether the stores have to hold the epoch of a run."""
    return any(event["detail"] == {"kept": True} for event in control.events(run.id, NOTED, 1))


def divided(where: str, why: str, revision: str) -> Refused:
    """The refusal to act where a store and the control database tell of different reigns."""
    return Refused(why, where=where, hint=f"see both, and mend it:  migrator repair {revision}")


def write(scene: Scene, each: Kept, by: str) -> None:
    """Note the epoch of a run in the place of what was read or written there last. Raises Refused
    where somebody else has changed that."""
    run = scene.run
    text = to_text(
        Epoch(
            run=run.id, env=run.env, revision=run.revision, fingerprint=run.fingerprint,
            number=run.epoch, primary=run.primary, attempt=run.attempt, by=by,
        )
    )  # fmt: skip
    done = scene.retry(each.note.change, each.text, text)
    # Where the answer was lost, the second sending finds what the first has written.
    if not done and scene.retry(each.note.read) != text:
        raise _overtaken(each, run)
    each.text = text


def _overtaken(each: Kept, run: Run) -> Refused:
    why = "another owner, of another control database, wrote its epoch there"
    return divided(each.where, why, run.revision)


class Epochs:
    """The notes of one run, in the hands of its owner."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.notes = kept(scene.routes)
        self._looked = time.monotonic()

    @property
    def _run(self) -> Run:
        return self._scene.run

    def check(self, *, leaving: str = "") -> None:
        """Read what the stores hold, but for that of a side that is left as it is. Raises Refused
        where it isn't what the control row says."""
        if not self.notes or not expected(self._scene.control, self._run):
            return
        for each in self.notes:
            if each.side != leaving:
                self._take(each, self._scene.retry(each.note.read))

    def _take(self, each: Kept, text: str | None) -> None:
        run, held = self._run, None if text is None else from_text(text)
        flipped = run.fence == "flipped"
        why = differs(held, run.id, run.epoch, run.primary, run.attempt, flipped=flipped)
        if why:
            raise divided(each.where, why, run.revision)
        each.text = text

    def begin(self) -> None:
        """Have the stores hold the epoch from here on; once more is the same as once."""
        if not self.notes or expected(self._scene.control, self._run):
            return
        for each in self.notes:
            text = self._scene.retry(each.note.read)
            if text is not None:
                self._take(each, text)
            else:
                write(self._scene, each, secrets.token_hex(8))
        self._scene.control.record(self._run.id, NOTED, kept=True)

    def look(self) -> None:
        """See, now and then, that nobody else has written there. Raises Refused."""
        if not self.notes or time.monotonic() < self._looked + _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        for each in self.notes:
            if each.text is None:
                continue
            try:
                text = each.note.read()
            except Transient as error:
                log.warning("epoch not read", where=error.where, error=error.what)
                continue
            if text != each.text:
                self._take(each, text)
                raise _overtaken(each, self._run)

    def arm(self) -> None:
        """Claim the swap that was armed in the control row. Raises Refused where another has."""
        self._write(self.notes, secrets.token_hex(8))
        reached("swap.claimed")

    def crowning(self) -> list[Callable[[], None]]:
        """What tells the stores of the new primary, before anybody may write it: a step for each
        side, in whatever order, also side by side."""
        by = secrets.token_hex(8)
        sides = [[each for each in self.notes if each.side == side] for side in OTHER]
        return [partial(self._write, notes, by) for notes in sides if notes]

    def _write(self, notes: Sequence[Kept], by: str) -> None:
        for each in notes:
            held = each.epoch
            if held is None or held.rank < (self._run.epoch, self._run.attempt):
                write(self._scene, each, by)
            reached("epoch.written")

    def drop(self, *, leaving: str = "") -> None:
        """Remove what is noted, where it is this run's and on no side that is left as it is."""
        if self._run.phase is Phase.PLANNED:
            return  # nothing was made yet, perhaps not even the target's file
        # Noted first: a crash in between leaves a run that no longer looks for them.
        self._scene.control.record(self._run.id, NOTED, kept=False)
        for each in self.notes:
            if each.side == leaving:
                continue
            text = self._scene.retry(each.note.read)
            held = None if text is None else from_text(text)
            if held is not None and held.run == self._run.id:
                self._scene.retry(each.note.change, text, None)
            each.text = None

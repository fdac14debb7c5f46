"""What the epochs of a control database and of both stores say together, and what may be done.

The later reign decides, and everything goes forward: that is the only continuation which no
coordinator of before can still overtake (R15).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from migrator.model.epoch import Epoch, differs


class State(StrEnum):
    """How things stand."""

    AGREED = "agreed"
    SWAP = "swap in hand"
    DIVIDED = "divided"
    UNCLEAR = "unclear"
    STRANGER = "another run"
    LEFT = "left behind"


@dataclass(frozen=True)
class Known:
    """What a control database says of a run."""

    run: str
    number: int
    primary: str
    attempt: int
    fence: str


@dataclass(frozen=True)
class Noted:
    """What one of the stores says: ``side`` is that of the run which is asked about."""

    side: str
    where: str
    epoch: Epoch | None


@dataclass(frozen=True)
class Verdict:
    """A state and why; with it the reign that is to begin, should it be rebuilt. ``primary`` is
    empty where a person has to say it."""

    state: State
    why: str = ""
    primary: str = ""
    number: int = 0
    attempt: int = 0


def judge(
    known: Known | None, notes: Sequence[Noted], *, expected: bool, ended: Collection[str]
) -> Verdict:
    """``known`` is the unfinished run, ``expected`` whether the stores have to hold its epoch,
    ``ended`` are the runs that this control database knows to be over."""
    held = [note.epoch for note in notes if note.epoch is not None]
    others = [epoch for epoch in held if known is None or epoch.run != known.run]
    if others:
        return _others(known, notes, others, ended)
    if known is None:
        return Verdict(State.AGREED)
    for note in notes:
        why = differs(
            note.epoch, known.run, known.number, known.primary, known.attempt,
            flipped=known.fence == "flipped",
        )  # fmt: skip
        if why and (expected or note.epoch is not None):
            return _next(known, notes, f"{note.where}: {why}")
    if known.fence:
        return Verdict(State.SWAP, f"swap {known.attempt} of the sides is {known.fence}")
    return Verdict(State.AGREED)


def _others(
    known: Known | None, notes: Sequence[Noted], others: Sequence[Epoch], ended: Collection[str]
) -> Verdict:
    first = others[0]
    named = f"run {first.run} of revision {first.revision}"
    if all(epoch.run in ended for epoch in others):
        return Verdict(State.LEFT, f"{named} is over, and its epoch is still noted")
    if known is not None or len({epoch.run for epoch in others}) > 1:
        return Verdict(State.STRANGER, f"{named} is under way there ({first.words})")
    return _next(None, notes, f"this control database knows nothing of {named}")


def _next(known: Known | None, notes: Sequence[Noted], why: str) -> Verdict:
    """The reign after the latest; of whom, where that is sure."""
    number, attempt = _after(known, notes)
    if known is not None and known.fence == "flipped":
        later = [n for n in notes if n.epoch is not None and n.epoch.attempt > known.attempt]
        if later:
            # It was overtaken before its release, so nobody has written by it; who overtook it may
            # be written by.
            known, notes = None, later
    reigns = {(n.epoch.number, n.epoch.primary) for n in notes if n.epoch is not None}
    if known is not None:
        reigns.add((known.number, known.primary))
    top = max(of for of, _ in reigns)
    primaries = [primary for of, primary in reigns if of == top]
    if len(primaries) > 1:
        return Verdict(State.UNCLEAR, f"{why}; each names another primary", "", number, attempt)
    (primary,) = primaries
    own = next((n.epoch for n in notes if n.side == primary and n.epoch is not None), None)
    # Of a flip, and of a reign that a repair was stopped in making, the stores may not know yet.
    new = known is not None and known.number == top and known.fence in ("flipped", "marked")
    untold = new and all(n.epoch is None or n.epoch.number < top for n in notes)
    if own is None or own.number < top - untold:
        # Its store may come from an older copy: then the mirror holds what it lacks.
        why += f"; the {primary} is the primary, and its own store says less"
        return Verdict(State.UNCLEAR, why, "", number, attempt)
    return Verdict(State.DIVIDED, why, primary, number, attempt)


def _after(known: Known | None, notes: Sequence[Noted]) -> tuple[int, int]:
    """The number of the next reign and of its attempt: one more may have been begun that no store
    was told of."""
    numbers = [note.epoch.number for note in notes if note.epoch is not None]
    attempts = [note.epoch.attempt for note in notes if note.epoch is not None]
    if known is not None:
        numbers.append(known.number)
        attempts.append(known.attempt)
    return max(numbers) + 1, max(attempts) + 2

"""The epoch of a live move, as both of its stores hold it beside the data (R15).

A control database may be lost, restored from an old copy, or have a twin. What the stores hold
tells: who reads there of a later reign than its control database knows of must not write.
"""

from __future__ import annotations

import msgspec


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One reign: its ``number``, and which side of the run is the ``primary``.

    ``attempt`` is that of the last swap that was begun, and ``by`` a word that is drawn anew with
    each change, so that no two are alike. With ``fingerprint``, that of the plan, a lost control
    database can be rebuilt.
    """

    run: str
    env: str
    revision: str
    fingerprint: str
    number: int
    primary: str
    attempt: int
    by: str

    @property
    def words(self) -> str:
        """For people."""
        return f"epoch {self.number}, primary {self.primary}"

    @property
    def rank(self) -> tuple[int, int]:
        """What is later has more of it."""
        return self.number, self.attempt


# Made here: two threads that decode a type for the first time, both at once, can crash msgspec.
_DECODER = msgspec.json.Decoder(Epoch)


def to_text(epoch: Epoch) -> str:
    """As a store holds it."""
    return msgspec.json.encode(epoch).decode()


def from_text(text: str) -> Epoch | None:
    """What a store holds; None for what is none."""
    try:
        return _DECODER.decode(text.encode())
    except msgspec.DecodeError:
        return None


def overtakes(held: Epoch, run: str, number: int, primary: str) -> str:
    """Why nobody may write by what a control database says, where a store holds this; empty where
    it may. A store may be behind: between flip and release nobody writes."""
    if held.run != run:
        return f"run {held.run} of revision {held.revision} is under way there ({held.words})"
    if held.number > number or (held.number == number and held.primary != primary):
        return f"it says {held.words}, and the control database epoch {number}, primary {primary}"
    return ""


def differs(
    held: Epoch | None, run: str, number: int, primary: str, attempt: int, *, flipped: bool
) -> str:
    """Why an owner may not go by what its control database says, where a store holds this; empty
    where it may. ``flipped``: the sides were swapped, and not yet so in the stores."""
    if held is None:
        return "the epoch that was noted there is gone"
    if why := overtakes(held, run, number, primary):
        return why
    if held.attempt > attempt:
        return (
            f"swap {held.attempt} was begun there, and the control database knows of {attempt} only"
        )
    if held.number < number - flipped:
        return f"it says {held.words}, which the control database left behind (epoch {number})"
    return ""

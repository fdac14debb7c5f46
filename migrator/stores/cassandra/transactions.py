"""Lightweight transactions whose condition is the version of a block.

The server stamps what they write, by its own clock, and only orders them among each other. So
what a plain write has stamped may be later, and would stay: before the first transaction on it the
version alone is changed, which harms nothing where it comes to nothing. Once that is there to be
read, all later transactions are later than it (ADR 0031).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from migrator.errors import Transient
from migrator.exchange import Change, is_still, made_of
from migrator.model.block import Block, Patch
from migrator.model.value import Value, show
from migrator.stores.cassandra.seen import lasts

_TRIES = 20
_LOOKS = 5
_PUTS_AGAIN = 8
_PAUSE = 0.005
AHEAD = (
    "what lies there was stamped by a clock that is ahead of the cluster's: nothing was written",
    "try again when that time has come, and set the clocks of the hosts that write there",
)


class Versioned(Protocol):
    """One block under its version, as a layout holds it."""

    def version(self) -> int | None:
        """The version that is there, after every transaction that has ended."""

    def turn(self, old: int | None, new: int) -> bool:
        """Change the version alone, on condition of the old one."""


class Becoming(Protocol):
    """What a change makes of a block."""

    @property
    def gone(self) -> bool:
        """Whether nothing is left of it."""

    @property
    def expires(self) -> int | None:
        """The deadline that it leaves."""

    def send(self, new: int) -> bool:
        """Carry it out, leaving a version, where the version that was read is there."""

    def shows(self, new: int) -> bool:
        """Whether all that was put is there, or what somebody else wrote since."""

    def again(self, new: int) -> None:
        """Put once more, and so later, what ``shows`` missed."""


class Lying(Versioned, Protocol):
    """What lies under a key, as it was read."""

    block: Block | None
    known: int | None

    @property
    def there(self) -> bool:
        """Whether something lies there that has not ended."""

    @property
    def drawn(self) -> bool:
        """Whether a transaction wrote its version, and nobody anything later."""

    def becomes(self, change: Change) -> Becoming:
        """What a change makes of it. Raises DoesNotFit."""


def exchange(
    look: Callable[[], Lying], id: Value, held: Block | None, change: Change, where: str
) -> bool:
    """Change a block that still is ``held``; all changes of a block collide on its version."""
    for _ in range(_TRIES):
        lying = look()
        if not is_still(lying.block, held):
            if held is not None or lying.there:
                return False
            # It has ended, though the layout table reads it until the server sweeps it.
            if isinstance(change, Patch):
                change = made_of(Block(id, {}), change)
        becoming = lying.becomes(change)
        if (lying.block is None and becoming.gone) or _take(lying, becoming, where):
            return True
    raise Transient(f"{show(id)}: others keep writing it", where=where, hint="try again")


def replace(look: Callable[[], Lying], id: Value, change: Block | None, where: str) -> None:
    """Put a whole block, or remove it, whatever lies there: also what can't be read."""
    for _ in range(_TRIES):
        becoming = (lying := look()).becomes(change)
        if (not lying.there and becoming.gone) or _take(lying, becoming, where):
            return
    raise Transient(f"{show(id)}: others keep writing it", where=where, hint="try again")


def _take(lying: Lying, becoming: Becoming, where: str) -> bool:
    """Carry a change out; False where the block is to be looked at anew."""
    there = lying.there
    if there and not lying.drawn:
        lying.known = _claim(lying, lying.known, where)
        if lying.known is None:
            return False
    new = drawn()
    if not _settled(lying, lambda: becoming.send(new), lying.known, new):
        return False
    if not there and not becoming.gone and lasts(becoming.expires):
        _see(becoming, new, where)
    return True


def drawn() -> int:
    """A version that nobody else has: below zero, where no stamp is."""
    return -secrets.randbits(62) - 1


def _claim(block: Versioned, old: int | None, where: str) -> int | None:
    """Put a version in the place of a stamp, so that transactions go on from it; None where
    somebody was faster. Raises Transient where the stamp is later than what the server gives."""
    new = drawn()
    try:
        if not block.turn(old, new):
            return None
    except Transient as error:
        error.unknown = False  # the block is what it was, however that ends
        raise
    if block.version() == old:
        raise ahead(where)
    return new


def ahead(where: str) -> Transient:
    """What to raise where transactions are stamped earlier than what lies there."""
    return Transient(AHEAD[0], where=where, hint=AHEAD[1])


def _settled(block: Versioned, send: Callable[[], bool], old: int | None, new: int) -> bool:
    """Send a transaction from one version to another, once; whether it took place.

    Where no answer comes its version is looked for. Where it is not there the version is turned to
    a third one, after which that transaction never takes place. Raises Transient ``unknown`` where
    neither can be told: somebody has written since.
    """
    try:
        return send()
    except Transient as error:
        if not error.unknown:
            raise
        with suppress(Exception):  # whatever keeps from looking, its fate is unknown
            ended = _ended(block, old, new)
            if ended is not None:
                return ended
        raise


def _ended(block: Versioned, old: int | None, new: int) -> bool | None:
    turned: set[int | None] = set()
    for _ in range(_LOOKS):
        there = block.version()
        if there == new:
            return True
        if there in turned:
            return False
        if there != old or old is None:
            return None
        third = drawn()
        turned.add(third)
        with suppress(Transient):
            if block.turn(old, third):
                return False
    return None


def _see(becoming: Becoming, new: int, where: str) -> None:
    """Look for what was put where nothing lay, as a delete by a clock that is ahead may hide it;
    and put it again, later (ADR 0030). Raises Transient where it is not there after all."""
    try:
        seen = _seen(becoming, new)
    except Transient as error:
        error.unknown = True  # it was carried out: only whether it shows is not known
        raise
    if not seen:
        raise ahead(where)


def _seen(becoming: Becoming, new: int) -> bool:
    pause = _PAUSE
    for left in reversed(range(_PUTS_AGAIN + 1)):
        if becoming.shows(new):
            return True
        if left:
            time.sleep(pause)
            pause *= 2
            becoming.again(new)
    return False

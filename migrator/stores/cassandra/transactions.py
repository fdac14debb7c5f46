"""Lightweight transactions whose condition is the version of a block.

The server stamps what they write, by its own clock, and only orders them among each other. So
what a plain write has stamped may be later, and would stay: before the first transaction on it the
version alone is changed, which harms nothing where it comes to nothing. Once that is there to be
read, all later transactions are later than it (ADR 0031).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from migrator.errors import Transient

_TRIES = 5
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


def drawn() -> int:
    """A version that nobody else has: below zero, where no stamp is."""
    return -secrets.randbits(62) - 1


def claim(block: Versioned, old: int | None, where: str) -> int | None:
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
        raise Transient(AHEAD[0], where=where, hint=AHEAD[1])
    return new


def settled(block: Versioned, send: Callable[[], bool], old: int | None, new: int) -> bool:
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
    for _ in range(_TRIES):
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

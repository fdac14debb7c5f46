"""What is told of blocks that could not be written, and the keys under which it is kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from migrator.model.canonical import encode
from migrator.model.value import Value

KEY_LENGTH = 700


def quarantine_key(id: Value) -> str:
    """The key under which a block lies in quarantine: its canonical form, or a digest of it.

    Keys have no bound of length, columns of a primary key do.
    """
    form = encode(id)
    if 2 * len(form) <= KEY_LENGTH:
        return form.hex()
    return "digest:" + hashlib.blake2b(form, digest_size=32).hexdigest()


@dataclass(frozen=True)
class Quarantined:
    """A block that could not be written, and why; ``key`` is from ``quarantine_key``."""

    move: int
    key: str
    shown: str
    path: str
    reason: str
    at: float


_NUMBER = re.compile(rb"[ilI]([0-9a-f]+);")


def highest_number(items: Iterable[Quarantined], move: int) -> int:
    """The highest of the keys of a move that are whole numbers; 0 where none is above."""
    forms = (bytes.fromhex(x.key) for x in items if x.move == move and ":" not in x.key)
    found = map(_NUMBER.fullmatch, forms)
    return max((int(each[1], 16) for each in found if each), default=0)

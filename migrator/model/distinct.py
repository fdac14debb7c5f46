"""How many different things were seen, by many who see the same ones, in little memory.

Of the hashes of all that was seen the smallest 1,024 are kept: exact up to so many, and off by a
few per cent beyond, since the largest of them tells how densely the hashes lie.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable

_KEPT = 1024
_WIDTH = 8
_ALL = 1 << (8 * _WIDTH)


class Distinct:
    """Counts different byte strings. Two of them are one by ``add_all(other.hashes)``."""

    def __init__(self, hashes: Iterable[int] = ()) -> None:
        self._hashes: set[int] = set()
        self._largest: list[int] = []  # negative, so that the heap's first is the largest
        self.add_all(hashes)

    @property
    def hashes(self) -> frozenset[int]:
        return frozenset(self._hashes)

    def add(self, form: bytes) -> None:
        self.add_all([int.from_bytes(hashlib.blake2b(form, digest_size=_WIDTH).digest())])

    def add_all(self, hashes: Iterable[int]) -> None:
        for hash_ in hashes:
            if hash_ in self._hashes:
                continue
            if len(self._hashes) < _KEPT:
                heapq.heappush(self._largest, -hash_)
            elif hash_ < -self._largest[0]:
                self._hashes.discard(-heapq.heapreplace(self._largest, -hash_))
            else:
                continue
            self._hashes.add(hash_)

    @property
    def count(self) -> int:
        """How many different ones there were, exactly or about."""
        if len(self._hashes) < _KEPT:
            return len(self._hashes)
        return (_KEPT - 1) * _ALL // -self._largest[0]

    def text(self) -> str:
        """What ``Distinct.read`` reads."""
        return b"".join(h.to_bytes(_WIDTH) for h in sorted(self._hashes)).hex()

    @classmethod
    def read(cls, text: str) -> Distinct:
        """What ``text`` wrote."""
        raw = bytes.fromhex(text)
        parts = (raw[i : i + _WIDTH] for i in range(0, len(raw), _WIDTH))
        return cls(int.from_bytes(part) for part in parts)

"""What the holder of a lease says of itself: which moves it can follow, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

BRACKETS = "brackets"
"""Leaves a bracket around each write where nothing else shows it."""
SHAPE = "shape"
"""Goes on in one shape on either side, where a move changes it."""
KEYS = "keys"
"""The same for one side's keys, where a move changes those."""
SPREAD = "spread"
"""Knows that what a move spreads over others is not put together by a gateway."""
KNOWN = frozenset({BRACKETS, SHAPE, KEYS, SPREAD})
"""What a gateway of this version knows to do."""


@dataclass(frozen=True)
class Follows:
    """``revision`` and ``shape`` are what it was opened for, empty for none; ``knows`` what its
    version does, None where it does not say. One of ``its_own`` means follows by a driver of its
    own, and knows best what it can."""

    revision: str = ""
    shape: str = ""
    knows: frozenset[str] | None = KNOWN
    its_own: bool = False

    def told(self) -> dict[str, object]:
        """As it is written beside its lease."""
        return {
            "revision": self.revision, "shape": self.shape, "knows": sorted(self.knows or ()),
            "its_own": self.its_own,
        }  # fmt: skip

    @staticmethod
    def heard(told: object) -> Follows:
        """What ``told`` says, of this version or another; nothing where it can't be read."""
        if not isinstance(told, Mapping):
            return Follows(knows=None)
        knows = told.get("knows")
        return Follows(
            str(told.get("revision", "")),
            str(told.get("shape", "")),
            frozenset(map(str, cast("list[object]", knows))) if isinstance(knows, list) else None,
            told.get("its_own") is True,
        )


PLAIN = Follows()
"""A gateway of this version that was opened for no revision."""

__all__ = ["BRACKETS", "KEYS", "KNOWN", "PLAIN", "SHAPE", "SPREAD", "Follows"]

"""What the locator is for, taken out step by step: something must go wrong then."""

from __future__ import annotations

import pytest

from migrator.engine.locator import Locator
from migrator.engine.relocate import Relocator

Patch = pytest.MonkeyPatch


def unknown(patch: Patch) -> None:
    """Where keys led to before is not known."""
    patch.setattr(Locator, "of", lambda self, side, keys: [[] for _ in keys])


def noted_late(patch: Patch) -> None:
    """The locator is written behind the mirror."""
    intend, clear = Relocator._intend, Relocator._clear
    patch.setattr(Relocator, "_intend", lambda self, primary, batch: {})
    patch.setattr(
        Relocator,
        "_clear",
        lambda self, primary, batch, _: clear(self, primary, batch, intend(self, primary, batch)),
    )


def alone(patch: Patch) -> None:
    """What else leads to a key of the mirror is not looked for, while the source is the primary."""
    of = Locator.of
    patch.setattr(
        Locator,
        "of",
        lambda self, side, keys: of(self, side, keys) if side == "source" else [[] for _ in keys],
    )

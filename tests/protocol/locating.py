"""What the locator is for, taken out step by step: something must go wrong then."""

from __future__ import annotations

import pytest

from migrator.engine.intent import Intent
from migrator.engine.locator import Locator

Patch = pytest.MonkeyPatch


def unknown(patch: Patch) -> None:
    """Where keys led to before is not known."""
    patch.setattr(Locator, "of", lambda self, side, keys: [[] for _ in keys])


def noted_late(patch: Patch) -> None:
    """The locator is written behind the mirror."""
    note, clear = Intent.note, Intent.clear

    def late(self: Intent) -> None:
        note(self)
        clear(self)

    patch.setattr(Intent, "note", lambda self: None)
    patch.setattr(Intent, "clear", late)


def alone(patch: Patch) -> None:
    """What else leads to a key of the mirror is not looked for, while the source is the primary."""
    of = Locator.of
    patch.setattr(
        Locator,
        "of",
        lambda self, side, keys: of(self, side, keys) if side == "source" else [[] for _ in keys],
    )

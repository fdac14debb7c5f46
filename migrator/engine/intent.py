"""The intent of a batch whose keys change: where they lead, noted before the mirror is written.

So the locator names a key too many after a crash, never one too few (R3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from migrator.engine.led import Batch, Keys, Led
from migrator.engine.locator import Locator
from migrator.journal import OTHER

# By side, and by the canonical form of its keys.
_Leads: TypeAlias = Mapping[str, Mapping[bytes, Keys]]


class Intent:
    """What the locator holds of the keys of one batch."""

    def __init__(self, locator: Locator, batch: Batch) -> None:
        self._locator = locator
        self._batch = batch
        self._there: dict[str, dict[bytes, Keys]] = {}

    def note(self) -> None:
        """Note where keys lead, and led before."""
        batch, other = self._batch, OTHER[self._batch.primary]
        self._there = {
            batch.primary: {form: each.before for form, each in batch.led.items()},
            other: {form: from_ for form, (_, from_) in batch.mirror.items()},
        }
        wider = {
            batch.primary: {form: Keys(each.ever) for form, each in batch.led.items()},
            other: {
                form: Keys.of(from_.values, batch.sources(form), batch.waiting[form])
                for form, (_, from_) in batch.mirror.items()
            },
        }
        self._put(wider)
        self._there = wider

    def clear(self) -> None:
        """Forget where keys led that lead there no longer. One that is refused is not forgotten:
        it may be made once another has gone. What it made before stays until then, too, where
        the target is the primary."""
        batch, other = self._batch, OTHER[self._batch.primary]
        if batch.primary == "target":
            for each in batch.led.values():
                if each.refused is not None:
                    self._keep(each)
        for form, (_, from_) in batch.mirror.items():
            self._there[other].setdefault(form, from_)
        self._put(
            {
                batch.primary: {form: each.now for form, each in batch.led.items()},
                other: {
                    form: Keys.of((each.key for each in batch.now[form]), batch.waiting[form])
                    for form in batch.mirror
                },
            }
        )

    def _keep(self, each: Led) -> None:
        """Go on noting where a key led before."""
        for form, key in each.before.forms.items():
            if form not in each.now.forms:
                each.now.forms[form] = key
                self._batch.now[form].append(each)

    def _put(self, new: _Leads) -> None:
        batch = self._batch
        keys = {
            batch.primary: {form: each.key for form, each in batch.led.items()},
            OTHER[batch.primary]: {form: key for form, (key, _) in batch.mirror.items()},
        }
        changed = {
            side: {
                form: (keys[side][form], wanted.values)
                for form, wanted in by_form.items()
                if wanted.forms.keys() != self._there[side][form].forms.keys()
            }
            for side, by_form in new.items()
        }
        if any(changed.values()):
            self._locator.put(changed)


__all__ = ["Intent"]

"""The evolution of the identifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from migrator.errors import Refused
from migrator.model.block import Aggregate
from migrator.model.canonical import equal
from migrator.model.evolution.base import Evolution, Laws, misfit, named
from migrator.model.evolution.places import ABSENT, Names, find, pattern
from migrator.model.value import Set, Value, kind_of


@dataclass(frozen=True)
class ChangeId(Evolution):
    """Take the identifier from a path of the aggregate; the value there stays.

    The old identifier is what leads back. Either it ``stays`` where it is: the path at which
    the old shape repeats its identifier; or ``keep`` names a new top-level field for it.
    Exactly one of the two must be given. Raises DoesNotFit where the path holds no
    identifier, or the old one is not found or disagrees.
    """

    path: str
    keep: str | None = None
    stays: str | None = None

    changes_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.keep is None) == (self.stays is None):
            raise Refused(
                f"identifier from {self.path}: the old identifier must be found again",
                hint='say keep="oldId" for a new field, or stays="id" where it stands already',
            )
        if self.keep is not None and self._at[0] == self.keep:
            raise Refused(f"identifier from {self.path}: {self.keep} would be overwritten")
        _ = self._stays

    @cached_property
    def _at(self) -> Names:
        return _plain(self.path)

    @cached_property
    def _stays(self) -> Names:
        return _plain(self.stays) if self.stays is not None else (str(self.keep),)

    @property
    def laws(self) -> Laws:
        return Laws(
            remark=f"a key that is born after the cut-over goes back only if "
            f"{self.stays or self.keep} holds its old identifier"
        )

    def describe(self) -> str:
        kept = f"stays in {self.stays}" if self.stays is not None else f"is kept in {self.keep}"
        return f"identify by {self.path}; the old identifier {kept}"

    def forward(self, old: Aggregate) -> Aggregate:
        """As declared by Evolution; the result has another identifier."""
        with named(old.id):
            new_id = _identifier(find(old.value, self._at, ""), self.path)
            if self.keep is None:
                self._agree(find(old.value, self._stays, ""), old.id, str(self.stays))
                return Aggregate(new_id, old.value, old.expires)
            if self.keep in old.value:
                raise misfit(self.keep, "is there already")
            return Aggregate(new_id, {**old.value, self.keep: old.id}, old.expires)

    def backward(self, new: Aggregate, old: Aggregate | None = None) -> Aggregate:
        """As declared by Evolution; the result has the old identifier."""
        with named(new.id):
            self._agree(find(new.value, self._at, ""), new.id, self.path)
            place = str(self.stays or self.keep)
            old_id = _identifier(find(new.value, self._stays, ""), place)
            value = new.value
            if self.keep is not None:
                value = {name: item for name, item in value.items() if name != self.keep}
            return Aggregate(old_id, value, new.expires)

    def _agree(self, found: Value, id: Value, path: str) -> None:
        if found is ABSENT or not equal(found, id):
            raise misfit(path, "is not the identifier")


def _plain(path: str) -> Names:
    steps = pattern(path)
    if not all(isinstance(step, str) for step in steps):
        raise Refused(f"{path!r} can't hold an identifier: it must name one field")
    return tuple(str(step) for step in steps)


def _identifier(value: Value, path: str) -> Value:
    if value is ABSENT or value is None or type(value) in (list, dict, Set):
        what = "absent" if value is ABSENT else f"of the kind {kind_of(value)}"
        raise misfit(path, f"is {what}, which can't identify an aggregate")
    return value

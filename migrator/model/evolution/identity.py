"""The evolutions of the identifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from migrator.errors import Refused
from migrator.model.block import Aggregate
from migrator.model.canonical import equal
from migrator.model.evolution.base import Evolution, Laws, misfit, named
from migrator.model.evolution.keys import Key, KeyPart, agree, frozen, identifying, key, plain
from migrator.model.evolution.places import ABSENT, Names, find
from migrator.model.value import Record, Value


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
        return plain(self.path)

    @cached_property
    def _stays(self) -> Names:
        return plain(self.stays) if self.stays is not None else (str(self.keep),)

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
            new_id = identifying(find(old.value, self._at, ""), self.path)
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
            old_id = identifying(find(new.value, self._stays, ""), place)
            value = new.value
            if self.keep is not None:
                value = {name: item for name, item in value.items() if name != self.keep}
            return Aggregate(old_id, value, new.expires)

    def _agree(self, found: Value, id: Value, path: str) -> None:
        if found is ABSENT or not equal(found, id):
            raise misfit(path, "is not the identifier")


@dataclass(frozen=True)
class ReKey(Evolution):
    """Make the identifier anew out of fields, the old identifier, or both; see ``Key``.

    The way back is one of three: ``was`` makes the old identifier of the fields that are there
    (``was="id"``, ``was=["year", "title"]``); ``keep`` names a new top-level field for it; or the
    new identifier holds it (``Id()``, or ``{}`` in a text). Raises DoesNotFit where
    a part is absent or of a kind that makes no key, or where the old identifier is not ``was``.
    """

    key: Key
    was: Key | None = None
    keep: str | None = None

    changes_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", frozen(self.key))
        _ = self._key
        if self.was is not None:
            object.__setattr__(self, "was", frozen(self.was))
            if self._was.holds_id:
                raise Refused(f"{self.describe()}: was can't be made of what it is to find")
        if self.was is not None and self.keep is not None:
            raise Refused(f"{self.describe()}: say was or keep, not both")
        if self.was is None and self.keep is None and not self._key.holds_id:
            raise Refused(
                f"{self.describe()}: the old identifier must be found again",
                hint='say was="id" where it stands, keep="oldId" for a new field, or make it a '
                "part of the new one",
            )

    @cached_property
    def _key(self) -> KeyPart:
        return key(self.key)

    @cached_property
    def _was(self) -> KeyPart:
        return key(self.was or "")

    @property
    def laws(self) -> Laws:
        if self.was is None and self.keep is None:
            return Laws()
        return Laws(
            remark="a key that is born after the cut-over goes back only if "
            f"{self.keep or self._was.describe()} holds its old identifier"
        )

    def describe(self) -> str:
        way = ""
        if self.keep is not None:
            way = f"; the old identifier is kept in {self.keep}"
        elif self.was is not None:
            way = f"; the old identifier was {self._was.describe()}"
        return f"identify by {self._key.describe()}{way}"

    @property
    def key_alone(self) -> bool:
        """As declared by Evolution."""
        return self._key.by_id and self._key.holds_id

    def onward(self, id: Value) -> Value:
        """As declared by Evolution."""
        with named(id):
            return identifying(self._key.of(id, {}), "(key)")

    def back(self, id: Value) -> Value:
        """As declared by Evolution."""
        with named(id):
            was = identifying(self._key.identifier(id), "(key)")
            agree(self._key.of(was, {}), id, self._key.describe())
            return was

    def forward(self, old: Aggregate) -> Aggregate:
        """As declared by Evolution; the result has another identifier."""
        with named(old.id):
            made = identifying(self._key.of(old.id, old.value), "(key)")
            if self.was is not None:
                agree(self._was.of(None, old.value), old.id, self._was.describe())
            if self.keep is None:
                return Aggregate(made, old.value, old.expires)
            if self.keep in old.value:
                raise misfit(self.keep, "is there already")
            return Aggregate(made, {**old.value, self.keep: old.id}, old.expires)

    def backward(self, new: Aggregate, old: Aggregate | None = None) -> Aggregate:
        """As declared by Evolution; the result has the old identifier."""
        with named(new.id):
            value: Record = new.value
            if self.keep is not None:
                was = identifying(value.get(self.keep, ABSENT), self.keep)
                value = {name: item for name, item in value.items() if name != self.keep}
            elif self.was is not None:
                was = self._was.of(None, value)
            else:
                was = identifying(self._key.identifier(new.id), "(key)")
            agree(self._key.of(was, value), new.id, self._key.describe())
            return Aggregate(was, value, new.expires)

"""What every evolution answers: forward, backward, which laws it keeps, what it would lose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from migrator.errors import DoesNotFit
from migrator.model.block import Aggregate
from migrator.model.value import Record, Value, show


@dataclass(frozen=True)
class Law:
    """Whether a law is kept; ``broken`` says in plain words what is lost, empty where kept."""

    broken: str = ""

    @property
    def kept(self) -> bool:
        return not self.broken


KEPT = Law()


@dataclass(frozen=True)
class Laws:
    """Which of the two laws of an evolution hold (design, section 4).

    ``returns``: ``backward(forward(a), a) == a``, nothing is lost on the way. ``survives``:
    ``forward(backward(b, a)) == b`` for every ``b`` of the new shape and every ``a``, or None:
    a rollback keeps what was written since. ``remark`` is what a plan tells although both hold.
    """

    returns: Law = KEPT
    survives: Law = KEPT
    remark: str = ""

    @property
    def kept(self) -> bool:
        return self.returns.kept and self.survives.kept


class Evolution(ABC):
    """A change of shape with its way back, as data.

    Both ways raise DoesNotFit, with key and path, for a value that would not come back. Neither
    changes what it was given; what did not change may be shared with the result. A field that is
    absent stays absent unless the evolution says otherwise, and null holds no fields.
    """

    changes_key: ClassVar[bool] = False

    @property
    @abstractmethod
    def laws(self) -> Laws:
        """Which laws hold."""

    @abstractmethod
    def describe(self) -> str:
        """One line for a plan."""

    def forward(self, old: Aggregate) -> Aggregate:
        """The new shape of an aggregate. Raises DoesNotFit."""
        with named(old.id):
            value = self._forward(old.value)
        return old if value is old.value else Aggregate(old.id, value, old.expires)

    def backward(self, new: Aggregate, old: Aggregate | None = None) -> Aggregate:
        """The old shape; ``old`` is what the old side held so far. Raises DoesNotFit."""
        with named(new.id):
            value = self._backward(new.value, old.value if old is not None else None)
        return new if value is new.value else Aggregate(new.id, value, new.expires)

    @property
    def key_alone(self) -> bool:
        """Whether each identifier follows from the other, whatever the aggregate holds."""
        return not self.changes_key

    def onward(self, id: Value) -> Value:
        """The new identifier of an old one, where ``key_alone``. Raises DoesNotFit."""
        return id

    def back(self, id: Value) -> Value:
        """The old identifier of a new one, where ``key_alone``. Raises DoesNotFit."""
        return id

    @property
    def archives(self) -> bool:
        """Whether ``residue`` may give something, for which the move then needs a place."""
        return False

    def residue(self, old: Aggregate) -> Record | None:
        """What the new shape has no place for and is to be kept aside, by access path; or None."""
        return None

    def restored(self, old: Aggregate, kept: Record) -> Aggregate:
        """The old shape with what was kept aside of it, where the old side has it no more."""
        return old

    def _forward(self, old: Record) -> Record:
        raise NotImplementedError

    def _backward(self, new: Record, old: Record | None) -> Record:
        raise NotImplementedError


@contextmanager
def named(key: Value) -> Iterator[None]:
    """Put the key into a DoesNotFit that comes from inside an aggregate."""
    try:
        yield
    except DoesNotFit as error:
        error.key = key
        error.where = error.where or show(key)
        raise


def misfit(path: str, why: str, hint: str = "") -> DoesNotFit:
    """The error for a value at a path. Never names the value: it may be a sensitive one."""
    return DoesNotFit(f"{path or 'the aggregate'} {why}", path=path, hint=hint)

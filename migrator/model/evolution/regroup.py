"""Regrouping evolutions as a script declares them: split out, merge in, bucket.

One whole (a game, a day of readings) stands against many parts (its rounds, the readings). What
they do lies in ``lens.py``, and is the same lens for all three, in one direction or the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from migrator.errors import Refused
from migrator.model.evolution.base import Evolution, Laws
from migrator.model.evolution.keys import Key, KeyPart, field_of, frozen, key, plain
from migrator.model.evolution.places import Names
from migrator.model.path import escape

if TYPE_CHECKING:
    from migrator.model.move import At


@dataclass(frozen=True)
class Regrouping(ABC):
    """Wholes with a list at ``path`` on one side, parts as aggregates of their own on the other.

    ``back`` is the field of a part that refers to its whole (with ``bare``, as an identifier
    alone); or ``by`` says what puts parts together: fields of the whole, by what they are made
    of in a part. ``place`` is the field of a part for its position in the list, counted from 0;
    or ``order_by`` is the field by which the list is sorted (else it is sorted by identifier).
    ``key`` makes the identifier of a part out of its fields, or ``keep`` is the field of an
    element that holds it.
    """

    path: str
    _: KW_ONLY
    back: str | None = None
    by: Mapping[str, Key] | None = None
    place: str | None = None
    order_by: str | None = None
    key: Key | None = None
    keep: str | None = None
    bare: bool = False

    gathers: ClassVar[bool]

    def __post_init__(self) -> None:
        self._one_of("back", "by")
        self._one_of("key", "keep")
        if self.place is not None and self.order_by is not None:
            raise Refused(f"{self._name}: say place or order_by, not both")
        if self.by is not None:
            if not self.by:
                raise Refused(f"{self._name}: by names no field")
            object.__setattr__(self, "by", {name: frozen(made) for name, made in self.by.items()})
        if self.key is not None:
            object.__setattr__(self, "key", frozen(self.key))
            if self.part_key.holds_id:
                raise Refused(f"{self._name}: an element has no identifier yet to make one of")
        _ = self.names, self.grouped, self.order

    def _one_of(self, *names: str) -> None:
        if sum(getattr(self, name) is not None for name in names) != 1:
            raise Refused(f"{self._name}: say either {' or '.join(names)}")

    @property
    def _name(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    @cached_property
    def names(self) -> Names:
        """Where the list stands in a whole."""
        return plain(self.path)

    @cached_property
    def order(self) -> Names | None:
        return None if self.order_by is None else plain(self.order_by)

    @cached_property
    def part_key(self) -> KeyPart:
        """What the identifier of a part is made of, where ``key`` says so."""
        assert self.key is not None
        return key(self.key)

    @cached_property
    def grouped(self) -> dict[str, KeyPart]:
        """Fields of the whole by what they are made of in a part."""
        return {name: key(made) for name, made in (self.by or {}).items()}

    @cached_property
    def shared(self) -> dict[str, str]:
        """Those fields of the whole that every part repeats, by their name in a part."""
        found = {name: field_of(made) for name, made in (self.by or {}).items()}
        return {name: there for name, there in found.items() if there is not None}

    @property
    @abstractmethod
    def laws(self) -> Laws:
        """Which laws hold; a whole and the list of its parts stand for the two shapes."""

    @abstractmethod
    def describe(self) -> str:
        """One line for a plan."""

    def _how(self) -> str:
        """What ties the parts to the whole, in words."""
        tied = f"tied by {escape(self.back)}" if self.back is not None else self._by()
        if self.place is not None:
            tied += f", position in {escape(self.place)}"
        elif self.order_by is not None:
            tied += f", in the order of {self.order_by}"
        if self.key is not None:
            return f"{tied}; identified by {self.part_key.describe()}"
        return f"{tied}; identifier in {escape(str(self.keep))}"

    def _by(self) -> str:
        return "by " + ", ".join(
            name if made.describe() == name else f"{name} ({made.describe()})"
            for name, made in self.grouped.items()
        )


@dataclass(frozen=True)
class SplitOut(Regrouping):
    """Make each element of a list an aggregate of its own, a record with its own identifier.

    The rest of the whole does not come along: beside it a move of the whole takes that, with
    ``Drop`` of the list. See ``Regrouping`` for the arguments.
    """

    gathers: ClassVar[bool] = False

    @property
    def laws(self) -> Laws:
        if self.back is None:
            return Laws()
        return Laws(remark="a part that is born after the cut-over needs its whole to go back into")

    def describe(self) -> str:
        return f"split out each element of {self.path}, {self._how()}"


@dataclass(frozen=True)
class Bucket(Regrouping):
    """Put aggregates together into one for each value of ``by``: readings by sensor and day.

    The new aggregate is identified by these values (a list where there are several, or what
    ``id`` makes of them), and holds them and the list. A field that ``by`` simply repeats is
    taken out of the elements. See ``Regrouping`` for the arguments.
    """

    _: KW_ONLY
    id: Key | None = None

    gathers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by is None or self.place is not None:
            raise Refused(f"{self._name}: it needs by, and has no place")
        if self.id is not None:
            object.__setattr__(self, "id", frozen(self.id))
            _ = key(self.id)

    @property
    def laws(self) -> Laws:
        return Laws(
            remark="a bucket goes back only with elements in their order, and with no other fields"
        )

    def describe(self) -> str:
        return f"put together in {self.path}, {self._how()}"


@dataclass(frozen=True)
class MergeIn(Regrouping):
    """Merge aggregates of another class, ``of``, into a list of those that they refer to.

    They lie where the chain of revisions left them, or ``at`` a location of their own. An
    aggregate without any gets an empty list. See ``Regrouping`` for the arguments.
    """

    _: KW_ONLY
    of: str = ""
    at: At | None = None

    gathers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.back is None or not self.of:
            raise Refused(f"{self._name}: it needs of, a class, and back, a field of it")

    @property
    def laws(self) -> Laws:
        return Laws(remark="the order of what is merged is told by its place or order_by alone")

    def describe(self) -> str:
        return f"merge {self.of} into {self.path}, {self._how()}"


def divide(
    chain: Sequence[Evolution | Regrouping],
) -> tuple[tuple[Evolution, ...], Regrouping | None, tuple[Evolution, ...]]:
    """A chain as what comes before its regrouping, the regrouping, and what comes after.

    Raises Refused for two regroupings, and where the identifier of a whole changes: parts are
    found by it.
    """
    found = [(i, step) for i, step in enumerate(chain) if isinstance(step, Regrouping)]
    local = tuple(step for step in chain if isinstance(step, Evolution))
    if not found:
        return local, None, ()
    if len(found) > 1:
        raise Refused(
            "two evolutions that regroup in one move", hint="do the second in a revision after it"
        )
    at, regrouping = found[0]
    before, after = local[:at], local[at:]
    fixed = after if isinstance(regrouping, Bucket) else before
    if isinstance(regrouping, MergeIn):
        fixed = local
    for step in fixed:
        if step.changes_key:
            raise Refused(
                f"{step.describe()}: beside {regrouping.describe()} it would change what the "
                "parts are found by",
                hint="do one of the two in a revision after the other",
            )
    return before, regrouping, after

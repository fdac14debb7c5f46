"""What regrouping does: a whole comes apart into its parts, parts come together into a whole.

``apart(together(parts)) == parts`` and ``together(apart(whole)) == whole``, exactly; what would
not come back raises DoesNotFit, and is told by the plan before anything moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from migrator.model.block import Aggregate
from migrator.model.canonical import encode, equal
from migrator.model.evolution.base import misfit, named
from migrator.model.evolution.keys import KeyPart, agree, identifying, key, told, unfit
from migrator.model.evolution.places import ABSENT, as_record, find, put, take
from migrator.model.evolution.regroup import Bucket, Regrouping
from migrator.model.path import child
from migrator.model.value import Int64, Record, Ref, Value, kind_of, nanos_of

Rank: TypeAlias = tuple[str, Any, bytes]


@dataclass(frozen=True)
class Lens:
    """A declared regrouping between wholes of one class and their parts.

    ``cls`` is the class of the wholes, which references of the parts name.
    """

    spec: Regrouping
    cls: str

    def whole_of(self, part: Aggregate) -> Value:
        """The identifier of the whole that a part belongs to. Raises DoesNotFit for none."""
        with named(part.id):
            if self.spec.back is not None:
                return self._referred(part.value)
            return self._identifier(self._made(part))

    def part_of(self, element: Value, whole: Aggregate, i: int) -> Aggregate:
        """The part that an element of a whole's list becomes. Raises DoesNotFit."""
        spec, here = self.spec, f"{self.spec.path}[{i}]"
        value = dict(as_record(element, here))
        id: Value = ABSENT
        if spec.keep is not None:
            id = identifying(value.pop(spec.keep, ABSENT), child(here, spec.keep))
        for name, held in self._added(whole, i).items():
            if name in value:
                raise misfit(child(here, name), "is there already")
            value[name] = held
        if spec.key is not None:
            id = spec.part_key.of(None, value)
        part = Aggregate(id, value, whole.expires)
        self._expect_at_home(part, whole, here)
        return part

    def apart(self, whole: Aggregate) -> list[Aggregate]:
        """The parts of a whole, in the order of its list. Raises DoesNotFit."""
        with named(whole.id):
            held = find(whole.value, self.spec.names, "")
            if held is ABSENT or held is None:
                return []
            if type(held) is not list:
                raise misfit(self.spec.path, f"is of the kind {kind_of(held)}, not a list")
            if self.spec.back is None:
                self._expect_nothing_else(whole)
            parts = [self.part_of(element, whole, i) for i, element in enumerate(held)]
            self._expect_different(parts)
            if self.spec.place is None and not _ascends(map(self._rank, parts)):
                order = self.spec.order_by or "the identifier of its elements"
                hint = 'keep the order of the list in a field:  place="position"'
                if isinstance(self.spec, Bucket):
                    hint = 'sort it so, or name a field that it is sorted by:  order_by="at"'
                raise misfit(self.spec.path, f"is not in the order of {order}", hint)
            return parts

    def together(
        self, id: Value, parts: Sequence[Aggregate], rest: Aggregate | None = None
    ) -> Aggregate:
        """The whole that has exactly these parts; ``rest`` is what else it holds, if anything.

        ``rest`` may hold an older list, which is replaced. Raises DoesNotFit.
        """
        with named(id):
            ranked = sorted(((self._rank(part), part) for part in parts), key=itemgetter(0))
            if self.spec.place is not None:
                self._expect_places([at for (_, at, _), _ in ranked])
            self._expect_different([part for _, part in ranked])
            elements: list[Value] = [self._element(part) for _, part in ranked]
            value = rest.value if rest is not None else self._fields(parts)
            expires = self._deadline([*parts, rest] if rest is not None else parts)
            return Aggregate(id, put(value, self.spec.names, elements, ""), expires)

    def rest(self, whole: Aggregate) -> Aggregate:
        """A whole without its list, which must be there. Raises DoesNotFit."""
        with named(whole.id):
            value, held = take(whole.value, self.spec.names, "", lambda names: False)
            if type(held) is not list:
                raise misfit(self.spec.path, "is no list, yet the new shape always has one")
            return Aggregate(whole.id, value, whole.expires)

    def expect_whole(self, whole: Aggregate) -> None:
        """Raise DoesNotFit where a bucket holds what its parts can't: it would not come back."""
        with named(whole.id):
            if not self.rest(whole).value.keys() >= self.spec.grouped.keys():
                raise misfit(self.spec.path, "stands without what groups it")
            if not find(whole.value, self.spec.names, ""):
                raise misfit(self.spec.path, "is empty: the old side would hold nothing of it")

    def _expect_nothing_else(self, whole: Aggregate) -> None:
        """Raise DoesNotFit where a whole that lives by its parts holds what they don't tell."""
        left, _ = take(whole.value, self.spec.names, "", lambda names: False)
        for name in left.keys() - self.spec.grouped.keys():
            hint = f"leave it out on purpose before:  Drop({name!r})"
            raise misfit(child("", name), "has no place in the parts", hint)

    # ------------------------------------------------------------------ between whole and part

    def _added(self, whole: Aggregate, i: int) -> Record:
        """The fields that a part has beyond its element."""
        spec, added = self.spec, {}
        if spec.back is not None:
            added[spec.back] = whole.id if spec.bare else Ref(self.cls, whole.id)
        for name, there in spec.shared.items():
            if name not in whole.value:
                raise misfit(child("", name), "is absent, and every part is to repeat it")
            added[there] = whole.value[name]
        if spec.place is not None:
            added[spec.place] = i
        return added

    def _expect_at_home(self, part: Aggregate, whole: Aggregate, here: str) -> None:
        """Raise DoesNotFit where a part, by its own fields, would belong to another whole."""
        if self.spec.back is not None:
            return
        made = self._made(part)
        for name, held in made.items():
            if name in whole.value and not equal(whole.value[name], held):
                raise misfit(here, f"does not belong here by {name}")
        if not equal(self._identifier(made), whole.id):
            raise misfit(here, "does not belong here: its fields make another identifier")

    def _made(self, part: Aggregate) -> Record:
        """The fields of a whole as one of its parts tells them."""
        spec = self.spec
        return {
            name: identifying(part.value.get(spec.shared[name], ABSENT), spec.shared[name])
            if name in spec.shared
            else made.of(part.id, part.value)
            for name, made in spec.grouped.items()
        }

    @cached_property
    def _id(self) -> KeyPart | None:
        given = self.spec.id if isinstance(self.spec, Bucket) else None
        return None if given is None else key(given)

    def _identifier(self, made: Mapping[str, Value]) -> Value:
        if self._id is not None:
            return identifying(self._id.of(None, dict(made)), "(key)")
        values = list(made.values())
        return values[0] if len(values) == 1 else values

    def _fields(self, parts: Sequence[Aggregate]) -> Record:
        """The fields of a whole that lives by its parts alone, which all tell the same."""
        if self.spec.back is not None or not parts:
            return {}
        made = self._made(parts[0])
        if self._id is not None and not all(equal(self._made(part), made) for part in parts):
            raise misfit(
                "(whole)", "would be put together of parts that differ in what groups them"
            )
        return made

    def _referred(self, value: Record) -> Value:
        back = str(self.spec.back)
        held = value.get(back, ABSENT)
        if self.spec.bare:
            return identifying(held, child("", back))
        if type(held) is not Ref or held.cls != self.cls:
            hint = "say bare=True where it is the identifier alone"
            raise misfit(child("", back), f"is no reference to {self.cls}", hint)
        return held.id

    def _element(self, part: Aggregate) -> Record:
        """What a part is in the list of its whole."""
        spec, value = self.spec, dict(part.value)
        with named(part.id):
            if spec.key is not None:
                agree(spec.part_key.of(None, value), part.id, spec.part_key.describe())
            gone = {spec.back, spec.place, *spec.shared.values()} - {None}
            element = {name: held for name, held in value.items() if name not in gone}
            if spec.keep is None:
                return element
            if spec.keep in element:
                raise misfit(child("", spec.keep), "is there already")
            return {spec.keep: part.id, **element}

    # ------------------------------------------------------------------ order

    def _rank(self, part: Aggregate) -> Rank:
        """What the parts of a whole are sorted by."""
        if self.spec.place is not None:
            at = part.value.get(self.spec.place, ABSENT)
            if type(at) is not int:
                raise misfit(
                    child("", self.spec.place),
                    f"is {told(at)}, yet it is a position: 0, 1 ... of 32 bits",
                    "where it is a number of its own, keep it in the list:  order_by=...",
                )
            return "", at, b""
        if self.spec.order is None:
            return "", 0, encode(part.id)
        held = find(part.value, self.spec.order, "")
        return *_comparable(held, str(self.spec.order_by)), encode(part.id)

    def _expect_places(self, places: Sequence[int]) -> None:
        for i, at in enumerate(places):
            if at != i:
                what = "stands twice" if at < i else f"is there, but not {i}"
                raise misfit(
                    child("", str(self.spec.place)),
                    f"must count up from 0: {at} {what}",
                    "number the parts anew without gaps",
                )

    def _expect_different(self, parts: Sequence[Aggregate]) -> None:
        seen: set[bytes] = set()
        for i, part in enumerate(parts):
            form = encode(part.id)
            if form in seen:
                raise misfit(f"{self.spec.path}[{i}]", "has the identifier of another element")
            seen.add(form)

    def _deadline(self, of: Sequence[Aggregate]) -> int | None:
        deadlines = {each.expires for each in of}
        if len(deadlines) > 1:
            raise unfit("it would be put together of what expires at different times")
        return deadlines.pop() if deadlines else None


def _comparable(value: Value, path: str) -> tuple[str, Any]:
    """A value to sort by: whole numbers, texts, dates and times, each among their own."""
    if type(value) in (int, Int64):
        return "number", value
    if type(value) is str:
        return "text", value
    try:
        return str(kind_of(value)), nanos_of(value)
    except TypeError:
        raise misfit(path, f"is {told(value)}, which gives no order") from None


def _ascends(ranks: Iterable[Rank]) -> bool:
    return all(a < b for a, b in pairwise(ranks))


__all__ = ["Lens"]

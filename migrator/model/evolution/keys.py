"""What an identifier is made of: fields, the old identifier, a day, a shard, text around them.

In a script a key is a path (``"year"``), a text with paths in braces (``"ROUND#{number:05}"``,
``{}`` for the identifier so far), a list of these (a composite key: partition key, sort key),
or one of the parts below. Each gives the same value whenever it is asked for the same aggregate.
"""

from __future__ import annotations

import datetime as dt
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from string import Formatter
from typing import TypeAlias

from migrator.errors import DoesNotFit, Refused
from migrator.model import value as v
from migrator.model.canonical import equal
from migrator.model.evolution.base import misfit
from migrator.model.evolution.places import ABSENT, Names, find, pattern
from migrator.model.value import Record, Ref, Set, Value, kind_of


class KeyPart(ABC):
    """One part of an identifier, computed from an aggregate."""

    @abstractmethod
    def of(self, id: Value, value: Record) -> Value:
        """The part for an aggregate; ``id`` is its identifier so far. Raises DoesNotFit."""

    @abstractmethod
    def describe(self) -> str:
        """A few words for a plan."""

    @property
    def holds_id(self) -> bool:
        """Whether the identifier so far can be read back from what is made."""
        return False

    @property
    def by_id(self) -> bool:
        """Whether it is made of the identifier so far alone, whatever the aggregate holds."""
        return False

    def identifier(self, made: Value) -> Value:
        """The identifier so far, found again in what was made of it; ABSENT where it is not."""
        return ABSENT


Key: TypeAlias = "str | KeyPart | Sequence[str | KeyPart]"


@dataclass(frozen=True)
class _Field(KeyPart):
    """The value at a path; of a reference the identifier it leads to."""

    path: str

    def __post_init__(self) -> None:
        _ = self._names

    @cached_property
    def _names(self) -> Names:
        return plain(self.path)

    def of(self, id: Value, value: Record) -> Value:
        found = find(value, self._names, "")
        return identifying(found.id if type(found) is Ref else found, self.path)

    def describe(self) -> str:
        return self.path


@dataclass(frozen=True)
class Id(KeyPart):
    """The identifier so far, unchanged."""

    def of(self, id: Value, value: Record) -> Value:
        return id

    def describe(self) -> str:
        return "the old identifier"

    @property
    def holds_id(self) -> bool:
        return True

    @property
    def by_id(self) -> bool:
        return True

    def identifier(self, made: Value) -> Value:
        return made


@dataclass(frozen=True)
class Day(KeyPart):
    """The day of a date or timestamp; for an instant that of UTC."""

    path: str

    def __post_init__(self) -> None:
        _ = plain(self.path)

    def of(self, id: Value, value: Record) -> Value:
        found = find(value, plain(self.path), "")
        if type(found) in (dt.date, v.LongDate):
            return found
        if type(found) in (dt.datetime, v.Instant, v.LocalTimestamp):
            return v.day(v.nanos_of(found) // v.DAY_NANOS)
        raise misfit(self.path, f"is {told(found)}, which has no day")

    def describe(self) -> str:
        return f"the day of {self.path}"


@dataclass(frozen=True)
class Month(KeyPart):
    """The month of a date or timestamp as text, ``2026-03``; for an instant that of UTC."""

    path: str

    def __post_init__(self) -> None:
        _ = plain(self.path)

    def of(self, id: Value, value: Record) -> Value:
        found = Day(self.path).of(id, value)
        if type(found) is not dt.date:
            raise misfit(self.path, "lies outside the years 1 to 9999")
        return f"{found:%Y-%m}" if found.year > 999 else f"{found.year:04}-{found.month:02}"

    def describe(self) -> str:
        return f"the month of {self.path}"


@dataclass(frozen=True)
class Shard(KeyPart):
    """A number from 0 to ``count`` - 1 that spreads keys evenly: write sharding.

    It is the CRC-32 (as of zlib) of the identifier, or of the value at ``path``, as UTF-8 text,
    modulo ``count``: an application in any language finds it the same way. Only texts and whole
    numbers can be spread.
    """

    count: int
    path: str | None = None

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            raise Refused(f"Shard: {self.count!r} is no number of shards")
        if self.path is not None:
            _ = plain(self.path)

    def of(self, id: Value, value: Record) -> Value:
        found = id if self.path is None else find(value, plain(self.path), "")
        if type(found) not in (str, int, v.Int64):
            raise misfit(
                self.path or "(key)", f"is {told(found)}, which can't be spread over shards"
            )
        return zlib.crc32(str(found).encode("utf-8", "surrogatepass")) % self.count

    @property
    def by_id(self) -> bool:
        return self.path is None

    def describe(self) -> str:
        return f"a shard of {self.count} by {self.path or 'the old identifier'}"


@dataclass(frozen=True)
class Template(KeyPart):
    """Text with parts in braces: ``Template("{}#{shard:02}", {"shard": Shard(16)})``.

    A name in braces is a part given here, or else a path; ``{}`` is the identifier so far, which
    must be text. ``:05`` pads a number with zeros. Braces themselves are doubled.
    """

    text: str
    parts: Mapping[str, KeyPart] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self._pieces

    @cached_property
    def _pieces(self) -> list[tuple[str, KeyPart | None, int]]:
        """Literal text, the part that follows it, and the width to pad it to."""
        try:
            parsed = list(Formatter().parse(self.text))
        except ValueError as error:
            raise Refused(f"{self.text!r} is no key: {error}") from None
        pieces: list[tuple[str, KeyPart | None, int]] = []
        for literal, name, spec, conversion in parsed:
            if conversion or not re.fullmatch(r"(0\d+)?", spec or ""):
                raise Refused(f"{self.text!r} is no key: after a colon stands a width such as 05")
            part = None if name is None else self.parts.get(name) or _part(name)
            pieces.append((literal, part, int(spec or 0)))
        if not any(part for _, part, _ in pieces):
            raise Refused(f"{self.text!r} would be the same key for all")
        return pieces

    def of(self, id: Value, value: Record) -> Value:
        made = "".join(
            literal + ("" if part is None else _written(part, id, value, width))
            for literal, part, width in self._pieces
        )
        if self.holds_id:
            found = self.identifier(made)
            if type(id) is not str or found is ABSENT or found != id:
                raise unfit("its identifier could not be read back from the new one")
        return made

    @property
    def holds_id(self) -> bool:
        return any(isinstance(part, Id) for _, part, _ in self._pieces)

    @property
    def by_id(self) -> bool:
        return all(part is None or part.by_id for _, part, _ in self._pieces)

    @cached_property
    def _shape(self) -> re.Pattern[str]:
        """What finds the identifier in a text; each part but the identifier as short as it goes."""
        text = ""
        for literal, part, _ in self._pieces:
            text += re.escape(literal)
            if part is not None:
                text += "(?P<id>.*)" if isinstance(part, Id) and "(?P<id>" not in text else ".*?"
        return re.compile(text, re.DOTALL)

    def identifier(self, made: Value) -> Value:
        found = self._shape.fullmatch(made) if type(made) is str else None
        return ABSENT if found is None or "id" not in found.groupdict() else found["id"]

    def describe(self) -> str:
        given = [f"{name} is {part.describe()}" for name, part in self.parts.items()]
        return repr(self.text) + (f" where {', '.join(given)}" if given else "")


@dataclass(frozen=True)
class _Composite(KeyPart):
    """Several parts: a composite key, a list."""

    parts: tuple[KeyPart, ...]

    def of(self, id: Value, value: Record) -> Value:
        return [part.of(id, value) for part in self.parts]

    @property
    def holds_id(self) -> bool:
        return any(part.holds_id for part in self.parts)

    @property
    def by_id(self) -> bool:
        return all(part.by_id for part in self.parts)

    def identifier(self, made: Value) -> Value:
        if type(made) is list and len(made) == len(self.parts):
            for part, held in zip(self.parts, made, strict=True):
                found = part.identifier(held)
                if found is not ABSENT:
                    return found
        return ABSENT

    def describe(self) -> str:
        return "(" + ", ".join(part.describe() for part in self.parts) + ")"


def key(given: Key) -> KeyPart:
    """The parts behind what a script says. Raises Refused for what is no key."""
    if isinstance(given, KeyPart):
        return given
    if isinstance(given, str):
        return Template(given) if "{" in given else _Field(given)
    if not isinstance(given, Sequence) or len(given) < 2:
        raise Refused(f"{given!r} is no key: a composite one has two or more parts")
    return _Composite(tuple(key(part) for part in given))


def frozen(given: Key) -> Key:
    """What a script gave, so that it can't be changed afterwards."""
    return given if isinstance(given, str | KeyPart) else tuple(given)


def field_of(given: Key) -> str | None:
    """The name of the top-level field that a key simply repeats, None where it is computed."""
    part = key(given)
    if not isinstance(part, _Field):
        return None
    names = plain(part.path)
    return names[0] if len(names) == 1 else None


def agree(found: Value, id: Value, what: str) -> None:
    """Raise DoesNotFit where an identifier is not what its parts make, in value and kind."""
    if found is ABSENT or not equal(found, id):
        raise unfit(f"its identifier is not {what}")


def unfit(what: str, path: str = "(key)", hint: str = "") -> DoesNotFit:
    """The error for what no access path names: the identifier, or the aggregate as a whole."""
    return DoesNotFit(what, path=path, hint=hint)


@lru_cache(maxsize=4096)
def plain(path: str) -> Names:
    """The names of a path of fields alone. Raises Refused."""
    steps = pattern(path)
    if not steps or not all(isinstance(step, str) for step in steps):
        raise Refused(f"{path!r} can't hold an identifier: it must name one field")
    return tuple(str(step) for step in steps)


def identifying(value: Value, path: str) -> Value:
    """A value, which must be able to identify an aggregate: a basic value, or a list of two or
    more. Raises DoesNotFit."""
    parts = value if type(value) is list and len(value) > 1 else [value]
    if any(part is ABSENT or part is None or type(part) in (list, dict, Set) for part in parts):
        raise misfit(path, f"is {told(value)}, which can't identify an aggregate")
    return value


def _part(name: str) -> KeyPart:
    return _Field(name) if name else Id()


def _written(part: KeyPart, id: Value, value: Record, width: int) -> str:
    made = part.of(id, value)
    where = part.path if isinstance(part, _Field) else "(key)"
    if type(made) is Ref:
        made = made.id
    if type(made) in (int, v.Int64):
        return f"{made:0{width}}" if width else str(made)
    if width:
        raise misfit(where, f"is of the kind {kind_of(made)}, which is not padded")
    if type(made) is str:
        return made
    if type(made) is dt.date:
        return made.isoformat()
    raise misfit(where, f"is of the kind {kind_of(made)}, which is no part of a text")


def told(value: Value) -> str:
    """What a value is, for an error; never the value itself."""
    return "absent" if value is ABSENT else f"of the kind {kind_of(value)}"

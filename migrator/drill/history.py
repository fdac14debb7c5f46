"""What writers noted of their own calls, and what follows from it. Pure: lines in, faults out.

Each key has one writer, which makes one call after another. So a key must hold what the last
acknowledged write left; of a write whose answer never came either outcome will do, and its key is
left alone from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

import msgspec


class Act(StrEnum):
    """What a writer does."""

    PUT = "put"
    UPDATE = "update"
    APPEND = "append"
    DELETE = "delete"
    GET = "get"
    ENTRIES = "get_entries"


READS = frozenset((Act.GET, Act.ENTRIES))


class State(msgspec.Struct, frozen=True):
    """What an aggregate is: its version, the mark of its last write, and those of its elements."""

    version: str
    mark: str = ""
    items: tuple[str, ...] = ()


class Tried(msgspec.Struct, frozen=True, tag="try"):
    """A call that is about to be made; ``then`` is what the key holds once it is carried out, or
    what a read of entries has to find.

    ``line`` is the line that is replayed by it, counted on from turn to turn of a recording; 0 for
    a put of what a recording has from before it began; None for a call that is made up.
    """

    number: int
    at: float
    act: Act
    cls: str
    key: str
    then: State | None
    line: int | None = None


class Told(msgspec.Struct, frozen=True, tag="ok"):
    """A call that was acknowledged; ``saw`` is what a read found."""

    number: int
    at: float
    saw: State | None = None


class Denied(msgspec.Struct, frozen=True, tag="no"):
    """A call that certainly was not carried out."""

    number: int
    at: float
    why: str


class Unsure(msgspec.Struct, frozen=True, tag="unknown"):
    """A call of which nobody can tell whether it was carried out."""

    number: int
    at: float
    why: str


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A line of a recording for which no call is made."""

    line: int
    why: str


Entry = Tried | Told | Denied | Unsure | Left
Key = tuple[str, str]
"""A class, and the name of a key."""

_decoder = msgspec.json.Decoder(Entry)


def read_lines(text: bytes) -> list[Entry]:
    """The entries of a history; a last line that a kill cut off is as if it were not there.

    Raises ValueError for any other that is none.
    """
    lines = text.split(b"\n")
    return [_decoder.decode(line) for line in lines[:-1]]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A key that does not hold what was acknowledged, or a read that did not show it.

    ``what``: missing, twice, invented, differs, misread.
    """

    cls: str
    key: str
    side: str
    what: str
    text: str


@dataclass
class Tally:
    """How the calls of one kind ended."""

    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0


@dataclass
class Known:
    """What the histories say.

    ``certain`` holds what each key must hold, ``doubtful`` what else it may. ``calls`` and
    ``denials`` are the moments of each answer; ``acknowledged`` are those at which each writing
    process was told that a write is done. Of a recording so many lines were ``replayed``, the last
    of a writer is ``line``; ``made`` aggregates were put first; ``left_out`` says why lines were.
    """

    certain: dict[Key, State | None] = field(default_factory=dict)
    doubtful: dict[Key, set[State | None]] = field(default_factory=dict)
    done: dict[Act, Tally] = field(default_factory=lambda: {act: Tally() for act in Act})
    calls: list[tuple[float, Act]] = field(default_factory=list)
    denials: list[tuple[float, Act]] = field(default_factory=list)
    acknowledged: list[list[float]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    replayed: int = 0
    line: int = 0
    made: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def take(self, process: Iterable[Entry]) -> None:
        """Take the history of one more process in; those of one writer in the order they ran."""
        moments: list[float] = []
        open_: dict[int, Tried] = {}
        for entry in process:
            if isinstance(entry, Tried):
                open_[entry.number] = entry
                self._replay(entry.line)
                continue
            if isinstance(entry, Left):
                self.left_out[entry.why] += 1
                self.line = max(self.line, entry.line)
                continue
            tried = open_.pop(entry.number)
            if isinstance(entry, Told):
                self._acknowledge(tried, entry)
                if tried.act not in READS:
                    moments.append(entry.at)
            else:
                self.reasons[entry.why] += 1
                if isinstance(entry, Denied):
                    self.done[tried.act].refused += 1
                    self.denials.append((entry.at, tried.act))
                else:
                    self._doubt(tried)
        for tried in open_.values():
            self._doubt(tried)
        self.acknowledged.append(moments)

    def _replay(self, line: int | None) -> None:
        if line is not None:
            self.replayed += line > 0
            self.made += line == 0
            self.line = max(self.line, line)

    def _acknowledge(self, tried: Tried, told: Told) -> None:
        self.done[tried.act].acknowledged += 1
        self.calls.append((told.at, tried.act))
        key = tried.cls, tried.key
        if tried.act not in READS:
            self.certain[key] = tried.then
            return
        must = tried.then if tried.act is Act.ENTRIES else self.certain.get(key)
        found = judge(must, (), told.saw)
        if found is not None:
            text = f"a read did not show what was acknowledged before: {found[1]}"
            self.faults.append(
                Fault(cls=key[0], key=key[1], side="primary", what="misread", text=text)
            )

    def _doubt(self, tried: Tried) -> None:
        self.done[tried.act].unknown += 1
        if tried.act not in READS:
            key = tried.cls, tried.key
            self.certain.setdefault(key, None)
            self.doubtful.setdefault(key, set()).add(tried.then)

    def check(self, side: str, held: Mapping[Key, State | None]) -> list[Fault]:
        """What is wrong with a side of the move; ``held`` lacks the keys that it lacks."""
        wrong = []
        for key, certain in self.certain.items():
            found = judge(certain, self.doubtful.get(key, ()), held.get(key))
            if found is not None:
                what, text = found
                wrong.append(Fault(cls=key[0], key=key[1], side=side, what=what, text=text))
        for key in held.keys() - self.certain.keys():
            text = "no call of this drill wrote it"
            wrong.append(Fault(cls=key[0], key=key[1], side=side, what="invented", text=text))
        return wrong

    def longest(self, began: float, ended: float) -> tuple[float, float]:
        """The longest time between two acknowledged writes of one process that met a span, and
        when it began; 0 where there is none."""
        gaps = (
            (after - before, before)
            for moments in self.acknowledged
            for before, after in pairwise(moments)
            if after >= began and before <= ended
        )
        return max(gaps, default=(0.0, began))


def judge(
    certain: State | None, doubtful: Iterable[State | None], held: State | None
) -> tuple[str, str] | None:
    """What is wrong with what a key holds, None where nothing is."""
    doubts = tuple(doubtful)
    if held == certain or held in doubts:
        return None
    if held is None:
        return "missing", "it is not there"
    if certain is None and not doubts:
        return "invented", "it was never there, or a delete of it was acknowledged"
    allowed = [state for state in (certain, *doubts) if state is not None]
    most: Counter[str] = Counter()
    for state in allowed:
        most |= Counter(state.items)
    there = Counter(held.items)
    if more := there - most:
        known = [mark for mark in more if mark in most]
        if known:
            return "twice", f"the element {known[0]!r} is there {there[known[0]]} times"
        return "invented", f"the element {min(more)!r} is none of these"
    if certain is not None and (less := Counter(certain.items) - there):
        return "missing", f"the element {min(less)!r} is not there"
    if held.mark not in {state.mark for state in allowed}:
        return "missing", f"it holds the write {held.mark!r}, which is not the last"
    return "differs", "it holds other content than was written"

"""What the engine needs of a store whose writes are followed while they go on.

A journal is the ordered log of touches of one collection. A touch names a key that was written,
never what became of it: what the primary holds is read when the touch is acted on (R1, R3).
Positions are JSON values that only the store understands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from migrator.model.move import At
from migrator.model.value import Value
from migrator.ports import Collection, Json

# The other side of a move.
OTHER = {"source": "target", "target": "source"}


def journal_name(run: str, move: int, side: str) -> str:
    """A name on a server for what a run makes there at a side: short, and nobody else's."""
    digest = hashlib.sha256(run.encode()).hexdigest()[:12]
    return f"migrator_{digest}_{move}_{side[0]}"


@dataclass(frozen=True, slots=True)
class Touch:
    """A key that was written; ``deleted`` where a delete was among the writes.

    ``writes``: of how many changes it is, 0 where the feed does not count them. A feed counts only
    where whatever changes a block, by a request that writes it whole or removes it, is one change.
    """

    key: Value
    deleted: bool = False
    writes: int = 0


@dataclass(slots=True)
class Touches:
    """Some touches in their order, which may be acted on at once: a read that begins now sees
    the writes behind them.

    ``position`` is behind the last of them. ``whole`` tells that something without keys was
    written (a TRUNCATE), so that every key counts as touched. ``marks`` are the markers of ours
    that were met. ``age`` is for how many seconds the oldest of them had been committed.
    """

    touches: Sequence[Touch] = ()
    position: Json = None
    whole: bool = False
    marks: Sequence[str] = field(default_factory=list)
    age: float = 0.0


def note_name(cls: str, at: At) -> str:
    """The name of the note that a store keeps of a class at a location.

    Not the run's: who knows of no run, or of another, has to find it. Nor the store's, which each
    project may call as it likes.
    """
    digest = hashlib.sha256(f"{cls} {at.collection}".encode()).hexdigest()[:12]
    return f"migrator_{digest}_epoch"


class Feed(Protocol):
    """A journal being read, by one process and one thread at a time."""

    def poll(self, seconds: float) -> Touches | None:
        """The next touches, None where none came within so many seconds.

        Raises Transient where the connection broke: open the feed again at the last position.
        Raises FeedLost where what lies behind that position is gone.
        """

    def acknowledge(self, position: Json) -> None:
        """All up to this position is durable in the mirror; the server may forget it (R5)."""

    def close(self) -> None:
        """Give the connection back; the journal stays."""


class Journal(Protocol):
    """The change feed of one collection, under a name of this run's own."""

    def prepare(self) -> Json:
        """Make what the feed needs; once more is the same as once. Returns where it begins.

        Raises Refused naming the setting or the right that is missing.
        """

    def open(self, position: Json) -> Feed:
        """Read on behind a position. Raises FeedLost where that is gone, Transient."""

    def mark(self, name: str) -> None:
        """Write a marker, durably: it shows in the feed behind all that was committed before."""

    def drop(self) -> None:
        """Remove what ``prepare`` made and restore what it changed; never what others made."""

    def findings(self) -> Iterable[tuple[str, str, str]]:
        """What a plan should tell of this feed: severity, code and text."""

    def describe(self) -> str:
        """What the feed is, for people."""


@runtime_checkable
class Bracketing(Protocol):
    """A feed of what gateways leave; beside ``Feed``."""

    @property
    def brackets(self) -> int:
        """How many brackets are open."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a server keeps because of a feed, and for how long.

    ``size``: bytes on its disk that would go with the feed. ``room``: after how many more the
    server itself gives the feed up; None for never. ``window``: for how many seconds it keeps what
    was written, read or not; None for as long as the feed needs it, and where it does not tell.
    """

    size: int = 0
    room: int | None = None
    window: float | None = None


@runtime_checkable
class Keeping(Protocol):
    """A journal whose server tells what it keeps for it; beside ``Journal``.

    ``rounds``: in how many of the guard's rounds it may be asked once, by what it costs the server.
    """

    rounds: int

    def kept(self) -> Kept | None:
        """What is kept now; None where there is no such feed. Threads may share it."""


@runtime_checkable
class Forgetful(Protocol):
    """A journal whose server may come back from a crash, or as another, without writes that it had
    acknowledged; beside ``Journal``. Its feed is lost then.

    To ask its feed for that takes no request that a writer would have to wait for.
    """

    forgets: bool


class Fence(Protocol):
    """A store's own denial of writes to one collection, for all but Migrator (R16)."""

    def raise_(self, mark: str, seconds: float) -> None:
        """Deny writes, durably, after all open write transactions have ended, and write a marker
        behind the last of them. Raises Transient where they did not end within the time; then
        nothing is denied."""

    def is_up(self) -> bool:
        """Whether writes are denied, asked of the server."""

    def lower(self) -> None:
        """Allow writes again; does nothing where they are allowed."""


@runtime_checkable
class Staged(Protocol):
    """A fence whose making and removing take longer than to deny and allow; beside ``Fence``.

    They are done where nobody waits for them: ``raise_`` and ``lower`` still do all of it.
    """

    def prepare(self, seconds: float) -> None:
        """Make what will deny, and let all pass so far. Raises Transient where that takes longer;
        ``lower`` removes it."""

    def open(self) -> None:
        """Allow writes again, and leave the rest to ``lower``."""


@runtime_checkable
class Steady(Protocol):
    """A fence of tables that can keep them in their places; beside ``Fence``."""

    def steady(self, seconds: float) -> AbstractContextManager[bool]:
        """Within it nobody can rename, drop or replace the tables; whether the fence is up on what
        their names stand for. Raises Transient where they can't be had within the time. The server
        ends it by itself where this process is cut off."""


@runtime_checkable
class Numbering(Protocol):
    """A collection whose store may give out identifiers; beside ``Collection``."""

    def numbers(self) -> bool | None:
        """Whether it counts on for blocks that are inserted without one; None where it gives them
        the number after its highest."""

    def number_on(self, past: int = 0) -> None:
        """Move what gives them out past all that are there, and past this one; quick, for it is
        done under a fence."""


class Brackets(Protocol):
    """Touches that gateways leave around their writes, where nothing else shows them (R8).

    The primary write is sent only within ``life`` seconds from before its bracket was opened; who
    does not know how it ended leaves the bracket open.
    """

    life: float

    def open(self, key: Value, *, deleted: bool = False) -> Json:
        """Say, durably, that a key is about to be written."""

    def close(self, bracket: Json, *, undone: bool = False) -> None:
        """Say that the write behind a bracket is done; ``undone`` where nothing was written."""


@runtime_checkable
class Bracketed(Protocol):
    """A collection whose journal is what gateways leave; beside ``Collection``."""

    def brackets(self, name: str) -> Brackets:
        """What to leave for a run of this name, once its journal is prepared."""


@runtime_checkable
class Followed(Protocol):
    """A collection whose writes can be followed; beside ``Collection``."""

    def journal(self, name: str) -> Journal | None:
        """Its change feed, for a run of this name (small letters, digits and ``_``); None where
        this server or this layout has none."""


@runtime_checkable
class Fenced(Protocol):
    """A collection whose store can deny writes to it; beside ``Collection``."""

    def fence(self, name: str) -> Fence | None:
        """Its fence, for a run of this name (small letters, digits and ``_``); None for none."""


class Note(Protocol):
    """A short text that a store keeps beside a collection, for all who reach that store (R15)."""

    def read(self) -> str | None:
        """What it says now: no older than the last change that was answered; None for no note."""

    def change(self, old: str | None, new: str | None) -> bool:
        """Put ``new`` in the place of ``old`` in one step, durably; None stands for no note.

        False where it says something else. After an unknown outcome read it: no two are alike.
        """


@runtime_checkable
class Noted(Protocol):
    """A collection whose store can keep a note beside it; beside ``Collection``."""

    def note(self, name: str) -> Note:
        """The note of this name (small letters, digits and ``_``)."""


def note_of(collection: Collection) -> Note | None:
    """The note beside a collection, None where its store keeps none."""
    if not isinstance(collection, Noted):
        return None
    return collection.note(note_name(collection.cls, collection.at))

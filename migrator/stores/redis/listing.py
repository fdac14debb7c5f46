"""The keys of a collection in an order of our own, so that pages give each key once.

SCAN repeats keys when a table shrinks, a cursor means nothing to another server, and its
batches shift while others write. So a walk begins with one scan of the keys alone, kept in a
temporary file by slot and key. A position is a place in that order: it holds for any server,
any process and any later listing.

A key that is there from the start of a walk to its end is given once; one that comes later is
found by the next listing.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from migrator.errors import Refused
from migrator.ports import Json
from migrator.stores.redis.wire import SLOTS, slot_of

# A walk over many ranges shares one listing while that is worth more than it costs to be fresh.
_FRESH_SECONDS = 60.0
_WORTH = 20

Place = tuple[int, bytes]
Keys = Callable[[], Iterable[list[bytes]]]


@dataclass(frozen=True)
class Range:
    """Slots from one, included, to another, excluded."""

    start: int = 0
    stop: int = SLOTS

    def json(self) -> Json:
        return [self.start, self.stop]

    @classmethod
    def of(cls, json: Json) -> Range:
        """Raises Refused for what is no range of this store."""
        match json:
            case None:
                return cls()
            case [int(start), int(stop)] if 0 <= start <= stop <= SLOTS:
                return cls(start, stop)
        raise Refused(f"{json!r} is no range of a Redis collection")

    def meets(self, other: Range) -> bool:
        return self.start < other.stop and other.start < self.stop


def split(parts: int) -> list[Json]:
    """Ranges of about the same number of slots, and so of keys."""
    parts = max(1, min(parts, SLOTS))
    bounds = [SLOTS * i // parts for i in range(parts + 1)]
    return [Range(a, b).json() for a, b in pairwise(bounds)]


def place_of(key: bytes) -> Place:
    return slot_of(key), key


def position(key: bytes) -> Json:
    """A key in a checkpoint: what follows comes after it."""
    return key.hex()


def place_at(json: Json) -> Place | None:
    """The place behind a position. Raises Refused for what is none."""
    if json is None:
        return None
    try:
        return place_of(bytes.fromhex(str(json)))
    except ValueError:
        raise Refused(f"{json!r} is no position in a Redis collection") from None


class Listing:
    """All keys of one scan, each once, in a temporary file."""

    def __init__(self, batches: Iterable[list[bytes]]) -> None:
        began = time.monotonic()
        self.begun: list[Range] = []
        self._lock = threading.Lock()
        self._file = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._file.execute(
            "CREATE TABLE keys (slot INTEGER, key BLOB, PRIMARY KEY (slot, key)) WITHOUT ROWID"
        )
        self._file.execute("BEGIN")
        for batch in batches:
            self._file.executemany(
                "INSERT OR IGNORE INTO keys VALUES (?, ?)", [place_of(key) for key in batch]
            )
        self._file.execute("COMMIT")
        self.seconds = time.monotonic() - began
        self.made = time.monotonic()

    def count(self) -> int:
        with self._lock:
            return int(self._file.execute("SELECT count(*) FROM keys").fetchone()[0])

    def after(self, place: Place, stop: int, limit: int) -> list[bytes]:
        """Up to ``limit`` keys behind a place, of slots before ``stop``."""
        with self._lock:
            rows = self._file.execute(
                "SELECT key FROM keys WHERE (slot, key) > (?, ?) AND slot < ? "
                "ORDER BY slot, key LIMIT ?",
                (*place, stop, limit),
            ).fetchall()
        return [key for (key,) in rows]

    @property
    def is_worth_keeping(self) -> bool:
        age = time.monotonic() - self.made
        return age < max(_FRESH_SECONDS, _WORTH * self.seconds)


@dataclass
class Walker:
    """Gives the keys of ranges page by page; safe for several threads."""

    scan: Keys
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listing: Listing | None = None

    def page(self, range_: Json, at: Json, limit: int) -> tuple[list[bytes], Json]:
        """Up to ``limit`` keys of a range behind a position, and where the next page begins."""
        within = Range.of(range_)
        place = place_at(at)
        listing = self._for(within, begins=place is None)
        keys = listing.after(place or (within.start, b""), within.stop, limit + 1)
        found = keys[:limit]
        return found, position(found[-1]) if len(keys) > limit else None

    def _for(self, within: Range, begins: bool) -> Listing:
        """The listing of this walk. A range that begins again, even in part, is another walk."""
        with self._lock:
            listing = self._listing
            again = begins and listing is not None and any(map(within.meets, listing.begun))
            if listing is None or again or not listing.is_worth_keeping:
                listing = self._listing = Listing(self.scan())
                listing.begun.append(within)
            elif begins:
                listing.begun.append(within)
            return listing

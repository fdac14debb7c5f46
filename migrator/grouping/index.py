"""Which keys belong together: an index in a temporary file, so that memory stays bounded.

It holds keys alone, by the canonical form of the key that groups them; what lies behind a key is
read when it is asked for. The file belongs to this process and goes with it: after a crash it is
made anew, in the same order, and positions in it still hold.
"""

from __future__ import annotations

import pickle
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from migrator.model.canonical import encode
from migrator.model.value import Value

_CACHE_KB = 16_384


@dataclass
class Keys:
    """The keys of one group: its own, those of its parts, and whether its main one is there.

    ``what`` and ``path`` tell of a stray, a single aggregate that belongs to no group: why.
    """

    form: bytes
    id: Value
    parts: list[Value] = field(default_factory=list)
    main: bool = False
    what: str = ""
    path: str = ""
    damaged: bool = False


class Index:
    """Groups of keys, in the order of the canonical form of what groups them."""

    def __init__(self) -> None:
        # Several threads read; the lock keeps them apart, since one connection is one file.
        self._file = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._lock = threading.RLock()
        self._file.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            f"PRAGMA cache_size = -{_CACHE_KB};"
            "CREATE TABLE groups (form BLOB PRIMARY KEY, id BLOB NOT NULL, main INTEGER NOT NULL, "
            "what TEXT, path TEXT, damaged INTEGER) WITHOUT ROWID;"
            "CREATE TABLE parts (form BLOB NOT NULL, part BLOB NOT NULL, id BLOB NOT NULL, "
            "PRIMARY KEY (form, part)) WITHOUT ROWID;"
        )

    def add(self, rows: Iterable[tuple[Value, Value]]) -> None:
        """Note parts, each as the key of its group and its own; once more is the same as once."""
        groups, parts = {}, []
        for id, part in rows:
            form = encode(id)
            groups[form] = id
            parts.append((form, encode(part), _pickled(part)))
        with self._lock, self._transaction():
            self._add_groups(groups, main=False)
            self._file.executemany("INSERT OR IGNORE INTO parts VALUES (?, ?, ?)", parts)

    def add_mains(self, ids: Iterable[Value]) -> None:
        """Note aggregates that others are merged into: each is a group by its own key."""
        with self._lock, self._transaction():
            self._add_groups({encode(id): id for id in ids}, main=True)

    def add_stray(self, id: Value, what: str, path: str = "", *, damaged: bool = False) -> None:
        """Note an aggregate that belongs to no group."""
        with self._lock:
            self._file.execute(
                "INSERT OR REPLACE INTO groups VALUES (?, ?, 0, ?, ?, ?)",
                (encode(id), _pickled(id), _text(what), _text(path), damaged),
            )

    def put(self, id: Value, parts: Iterable[Value], *, main: bool) -> None:
        """Make a group what it is now; without parts and main it goes."""
        form = encode(id)
        with self._lock, self._transaction():
            self._file.execute("DELETE FROM groups WHERE form = ?", (form,))
            self._file.execute("DELETE FROM parts WHERE form = ?", (form,))
            rows = [(form, encode(part), _pickled(part)) for part in parts]
            if rows or main:
                self._add_groups({form: id}, main=main)
            self._file.executemany("INSERT OR IGNORE INTO parts VALUES (?, ?, ?)", rows)

    def _add_groups(self, groups: dict[bytes, Value], *, main: bool) -> None:
        self._file.executemany(
            "INSERT INTO groups VALUES (?, ?, ?, NULL, NULL, 0) "
            "ON CONFLICT (form) DO UPDATE SET main = max(main, excluded.main)",
            [(form, _pickled(id), main) for form, id in groups.items()],
        )

    def _transaction(self) -> sqlite3.Connection:
        self._file.execute("BEGIN")
        return self._file  # as a context it commits

    def count(self) -> int:
        """The number of groups, strays included."""
        with self._lock:
            return int(self._file.execute("SELECT count(*) FROM groups").fetchone()[0])

    def has_more(self, low: bytes, high: bytes | None) -> bool:
        """Whether there is a group after one form and up to another."""
        sql = "SELECT 1 FROM groups WHERE form > ? AND (? IS NULL OR form <= ?) LIMIT 1"
        with self._lock:
            return self._file.execute(sql, (low, high, high)).fetchone() is not None

    def bounds(self, ranges: int) -> list[bytes]:
        """Forms that cut the groups into about so many ranges of equal size."""
        step = max(1, -(-self.count() // max(1, ranges)))
        with self._lock:
            rows = self._file.execute(
                "SELECT form FROM "
                "(SELECT form, row_number() OVER (ORDER BY form) AS n FROM groups) "
                "WHERE n % ? = 0 AND n < (SELECT count(*) FROM groups)",
                (step,),
            )
            return [form for (form,) in rows]

    def after(self, low: bytes | None, high: bytes | None, limit: int, parts: int) -> list[Keys]:
        """Up to ``limit`` groups after one form and up to another, with about ``parts`` parts.

        One group is given at least, where there is one, however many parts it has.
        """
        sql = "SELECT * FROM groups WHERE form > ? AND (? IS NULL OR form <= ?) ORDER BY form"
        found: list[Keys] = []
        with self._lock:
            cursor = self._file.execute(sql + " LIMIT ?", (low or b"", high, high, limit))
            for row in cursor:
                found.append(self._keys(row))
                parts -= len(found[-1].parts)
                if parts <= 0:
                    break
        return found

    def sample(self, limit: int, parts: int) -> list[Keys]:
        """As ``after``, groups from all over."""
        with self._lock:
            rows = self._file.execute(
                "SELECT * FROM groups ORDER BY random() LIMIT ?", (limit,)
            ).fetchall()
            found: list[Keys] = []
            for row in rows:
                found.append(self._keys(row))
                parts -= len(found[-1].parts)
                if parts <= 0:
                    break
        return found

    def get(self, ids: Sequence[Value]) -> list[Keys | None]:
        """The groups of these keys, in their order."""
        sql = "SELECT * FROM groups WHERE form = ?"
        with self._lock:
            rows = [self._file.execute(sql, (encode(id),)).fetchone() for id in ids]
            return [None if row is None else self._keys(row) for row in rows]

    def _keys(self, row: tuple[bytes, bytes, int, str | None, str | None, int]) -> Keys:
        form, id, main, what, path, damaged = row
        rows = self._file.execute("SELECT id FROM parts WHERE form = ? ORDER BY part", (form,))
        parts = [_unpickled(part) for (part,) in rows]
        return Keys(form, _unpickled(id), parts, bool(main), what or "", path or "", bool(damaged))


def _pickled(value: Value) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _unpickled(held: bytes) -> Value:
    # From a nameless file that nobody but this process ever had open.
    found: Value = pickle.loads(held)  # noqa: S301
    return found


def _text(text: str) -> str:
    """Text that SQLite takes: an unpaired surrogate is shown as it is escaped."""
    return text.encode("utf-8", "backslashreplace").decode()

"""The replication stream, read ahead by a thread of its own.

What is written again before it was taken stands in the queue once, so that a busy key costs no
memory; each stands where its first write begins, which is as far as a position may go (R5).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from migrator.errors import FeedLost, Transient
from migrator.stores.redis.commands import Command, Untold, Vocabulary
from migrator.stores.redis.replica import Replica

# Keys that wait; the rest waits on the server.
MOST_WAITING = 100_000
_IN_ONE = 5_000
_ACKNOWLEDGE_EVERY = 1.0
# The server pings its replicas, every ten seconds if it was left as it is.
_SILENCE = 60.0
_ADVANCE_EVERY = 5.0
_ADVANCE_AT_LEAST = 0.2
_NOTHING = frozenset((b"PING", b"REPLCONF"))
# The key of a block; or the name of a marker, the empty one for "any key may have been written".
Item: TypeAlias = bytes | str
ANY = ""
# For a key of the server: the blocks' own keys, and whether it is that of a block itself.
Touched = Callable[[bytes], Iterable[tuple[bytes, bool]]]


class Place(NamedTuple):
    """Behind so many bytes of the stream, where the database ``selected`` is written to (None:
    not known), and since when that was there at the latest, by this process's clock."""

    offset: int
    selected: int | None
    at: float


@dataclass(slots=True)
class Given:
    """What is taken at once; ``position`` is behind it."""

    items: list[Item]
    gone: set[bytes]
    position: Place
    oldest: float


@dataclass
class _Transaction:
    """What commands between MULTI and EXEC, or a single one, have written."""

    begins: Place
    keys: dict[bytes, bool] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


class Stream:
    """The stream behind a place. ``marker`` is the key that names of markers are written to."""

    def __init__(
        self, replica: Replica, place: Place, ours: int, vocabulary: Vocabulary, touched: Touched,
        marker: bytes, backlog: int, end: Callable[[], int],
    ) -> None:  # fmt: skip
        self._replica = replica
        self._ours = ours
        self._vocabulary = vocabulary
        self._touched = touched
        self._marker = marker
        # How far the server was, and when, while nothing was read: what came before is as old.
        self._asked_end = end
        self._ends: deque[tuple[int, float]] = deque()
        self._place = self._end = self._handed = place
        # So much may pass before a position is due: where it stays behind, it gets lost.
        self._stride = max(1, backlog // 8)
        self._transaction: _Transaction | None = None
        self._waiting: dict[Item, Place] = {}
        self._gone: set[bytes] = set()
        self._done: list[_Transaction] = []
        self._error: Exception | None = None
        self._closed = False
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="replication", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._replica.hang_up()
        self._thread.join(timeout=10)
        self._replica.close()

    # ------------------------------------------------------------ taken by the feed

    def take(self, seconds: float, most: int) -> Given | None:
        """What waits, in the order of its first write. Raises what the reading ended with."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._error, seconds)
            items = [item for item, _ in zip(self._waiting, range(most), strict=False)]
            if not items and self._error is not None:
                raise self._error
            if not items and not self._is_due():
                return None
            oldest = self._waiting[items[0]].at if items else time.monotonic()
            for item in items:
                del self._waiting[item]
            gone = self._gone.intersection(item for item in items if isinstance(item, bytes))
            self._gone -= gone
            self._handed = next(iter(self._waiting.values()), self._end)
            self._condition.notify_all()
            return Given(items, gone, self._handed, oldest)

    def _is_due(self) -> bool:
        """Whether a position is worth telling where nothing of ours was written."""
        passed = self._end.offset - self._handed.offset
        age = self._end.at - self._handed.at
        return passed > 0 and (
            age >= _ADVANCE_EVERY or (age >= _ADVANCE_AT_LEAST and passed >= self._stride)
        )

    # ------------------------------------------------------------ the reading thread

    def _run(self) -> None:
        try:
            self._read()
        except (Transient, FeedLost) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - handed to the feed's thread, whatever it is
            self._fail(Transient(str(error), where=self._replica.where))

    def _fail(self, error: Exception) -> None:
        with self._condition:
            self._error = error
            self._condition.notify_all()

    def _read(self) -> None:
        heard = said = time.monotonic()
        self._replica.acknowledge()
        while not self._closed:
            now = time.monotonic()
            if now - said >= _ACKNOWLEDGE_EVERY:
                self._replica.acknowledge()
                said = now
            if not self._has_room(_ACKNOWLEDGE_EVERY / 2):
                heard = now  # nobody listened
                self._note_end(now)
                continue
            if found := self._replica.receive(_ACKNOWLEDGE_EVERY / 2):
                heard = now = time.monotonic()
                for command, size in found:
                    self._take_in(command, size, now)
                self._hand_over()
            elif now - heard > _SILENCE:
                raise Transient("the server has fallen silent", where=self._replica.where)

    def _note_end(self, now: float) -> None:
        """Note where the stream ends, the less often the longer nothing is read."""
        since = self._ends[0][1] if self._ends else now
        if not self._ends or now - self._ends[-1][1] >= max(1.0, (now - since) / 100):
            self._ends.append((self._asked_end(), now))

    def _written_at(self, now: float) -> float:
        """When what is read next was there already, as far as that is known."""
        while self._ends and self._ends[0][0] <= self._place.offset:
            self._ends.popleft()
        return self._ends[0][1] if self._ends else now

    def _has_room(self, seconds: float) -> bool:
        with self._condition:
            return self._condition.wait_for(
                lambda: self._closed or len(self._waiting) < MOST_WAITING, seconds
            )

    def _take_in(self, command: Command, size: int, now: float) -> None:
        begins = self._place._replace(at=self._written_at(now))
        name = command[0].upper()
        selected = int(command[1]) if name == b"SELECT" else begins.selected
        self._place = Place(begins.offset + size, selected, now)
        if name == b"MULTI":
            self._transaction = _Transaction(begins)
        elif name == b"EXEC":
            self._end_transaction()
        elif name == b"SELECT" or name in _NOTHING:
            pass
        elif self._transaction is None:
            self._transaction = _Transaction(begins)
            self._note(self._transaction, name, command)
            self._end_transaction()
        else:
            self._note(self._transaction, name, command)
            if len(self._transaction.keys) >= _IN_ONE:
                self._done.append(self._transaction)
                self._transaction = _Transaction(self._transaction.begins)

    def _end_transaction(self) -> None:
        if self._transaction is not None:
            self._done.append(self._transaction)
        self._transaction = None

    def _note(self, transaction: _Transaction, name: bytes, command: Command) -> None:
        selected = self._place.selected
        try:
            written = self._vocabulary.written(command, selected)
        except Untold:
            transaction.others.append(ANY)
            return
        for key, gone in written:
            if key == self._marker:
                # Nobody else has this key, so here it is known which database is written to.
                self._place = self._place._replace(selected=self._ours)
                if name == b"SET" and command[2]:
                    transaction.others.append(command[2].decode())
                continue
            for block, itself in self._touched(key):
                if itself:
                    # Gone and there again within one step: nobody has seen it gone.
                    transaction.keys[block] = gone
                else:
                    transaction.keys.setdefault(block, False)

    def _hand_over(self) -> None:
        """Put what was read where the feed takes it from."""
        done, self._done = self._done, []
        with self._condition:
            for transaction in done:
                items: list[Item] = [*transaction.keys, *transaction.others]
                for item in items:
                    self._waiting.setdefault(item, transaction.begins)
                self._gone.update(key for key, gone in transaction.keys.items() if gone)
            open_ = self._transaction
            end = self._place if open_ is None else open_.begins
            self._end = end._replace(at=self._place.at)
            self._condition.notify_all()

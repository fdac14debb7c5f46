"""A logical replication connection to PostgreSQL, read by a thread of its own.

The thread keeps the connection alive while nobody asks, and stops reading while too much waits
to be taken: the server holds the rest (R5). Replication needs libpq's COPY BOTH, which psycopg
offers in its ``pq`` alone. None of libpq's calls that wait is used: as long as a server does not
answer, ``PQconnectdb`` stops the whole process, lease and signals included.
"""

from __future__ import annotations

import select
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from psycopg import pq

from migrator.errors import FeedLost, Transient
from migrator.stores.sql import pgoutput
from migrator.stores.sql.parts import PART, Part, Parts

_ANSWER_EVERY = 5.0
_PATIENCE = 60.0  # seconds for a server to begin a stream
_EPOCH_2000 = 946_684_800
_GONE = (
    "does not exist", "has been removed", "cannot read from", "no longer available", "is lost",
    "can no longer",  # since PostgreSQL 16 of a slot that was let go as it kept too much
)  # fmt: skip


Row: TypeAlias = tuple[str, pgoutput.Relation, pgoutput.Tuple]


@dataclass(slots=True)
class Changes(Part[Row, int]):
    """Rows of the transaction of a number, the low 32 bits of it."""

    xid: int = 0


class Stream:
    """An open stream of a slot. Raises FeedLost where the slot or its WAL is gone.

    Rows are (kind, relation, texts of its columns): ``D`` a deleted row, ``O`` what a row was
    before an update, ``N`` what a row is now. ``check`` raises where a table is told of so that its
    rows can't be followed.
    """

    def __init__(
        self, conninfo: str, slot: str, publication: str, start: int, where: str,
        check: Callable[[pgoutput.Relation], None] = lambda relation: None,
    ) -> None:  # fmt: skip
        self.where = where
        self._check = check
        self._marks = marks_of(slot)
        self.parts: Parts[Changes] = Parts()
        self._lock = threading.Lock()
        self._confirmed = start
        self._seen = start
        self._relations: dict[int, pgoutput.Relation] = {}
        self._part: Changes | None = None
        self._session = _connected(conninfo, where)
        self._connection = self._session.pgconn
        try:
            self.system, self.timeline = self._identify()
            self._start(slot, publication, start)
        except BaseException:
            self._session.close()
            raise
        self._thread = threading.Thread(target=self._run, name="replication", daemon=True)
        self._thread.start()

    def _identify(self) -> tuple[str, str]:
        found = self._ask(b"IDENTIFY_SYSTEM")
        if found.status != pq.ExecStatus.TUPLES_OK:
            raise Transient(_line(found.error_message), where=self.where)
        system, timeline = found.get_value(0, 0), found.get_value(0, 1)
        return (system or b"").decode(), (timeline or b"").decode()

    def _start(self, slot: str, publication: str, start: int) -> None:
        command = (
            f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(start)} '
            f"(proto_version '1', publication_names '\"{publication}\"', messages 'true')"
        )
        answer = self._ask(command.encode())
        if answer.status == pq.ExecStatus.COPY_BOTH:
            return
        text = _line(answer.error_message)
        if any(word in text for word in _GONE):
            raise FeedLost(text, where=self.where)
        raise Transient(text, where=self.where)

    def _ask(self, command: bytes) -> pq.abc.PGresult:
        """The answer to one command. Raises Transient where none comes in time."""
        until = time.monotonic() + _PATIENCE
        try:
            self._connection.send_query(command)
            found = answer = self._next(until)
            while answer is not None and answer.status != pq.ExecStatus.COPY_BOTH:
                answer = self._next(until)
        except psycopg.Error as error:
            raise Transient(_line(str(error)), where=self.where) from None
        if found is None:
            raise Transient("the server did not answer", where=self.where)
        return found

    def _next(self, until: float) -> pq.abc.PGresult | None:
        connection = self._connection
        while connection.flush() or connection.is_busy():
            if time.monotonic() > until:
                raise Transient("the server does not answer", where=self.where)
            self._wait()
        return connection.get_result()

    # ------------------------------------------------------------ for the owner's thread

    def confirm(self, position: int) -> None:
        """The server may forget what lies before; it is told with the next status."""
        with self._lock:
            self._confirmed = max(self._confirmed, position)

    def close(self) -> None:
        self.parts.close()
        self._thread.join(timeout=10)
        self._session.close()

    # ------------------------------------------------------------ the reading thread

    def _run(self) -> None:
        answered = 0.0
        try:
            while not self.parts.closed:
                now = time.monotonic()
                if now - answered >= _ANSWER_EVERY:
                    self._answer()
                    answered = now
                if self.parts.room(1.0) and not self._read():
                    self._wait()
            self._answer()
        except Exception as error:  # noqa: BLE001 - handed to the owner's thread, whatever it is
            ours = isinstance(error, (Transient, FeedLost))
            self.parts.fail(error if ours else Transient(_line(str(error)), where=self.where))

    def _wait(self) -> None:
        select.select([self._connection.socket], [], [], 0.2)
        self._connection.consume_input()

    def _read(self) -> bool:
        """Take in one message that has arrived; False where there is none."""
        size, data = self._connection.get_copy_data(1)
        if size == 0:
            return False
        if size < 0:
            end = self._connection.get_result()
            text = end.error_message if end is not None else self._connection.error_message
            raise Transient(_line(text) or "the server ended the stream", where=self.where)
        message = bytes(data)
        if message[:1] == b"w":
            parsed = pgoutput.parse(message[25:])
            if parsed is not None:
                self._take_in(parsed)
        elif message[:1] == b"k":
            (at,) = struct.unpack_from(">Q", message, 1)
            self._idle(at)
            if message[17]:
                self._answer()
        return True

    def _idle(self, at: int) -> None:
        """Nothing of ours lies before this position: with nothing in work it may be forgotten,
        so that a busy server with a quiet collection does not keep its WAL for us."""
        with self._lock:
            if self._part is None and self.parts.empty and self._confirmed >= self._seen:
                self._confirmed = self._seen = max(at, self._seen)

    def _take_in(self, parsed: pgoutput.Parsed) -> None:
        if isinstance(parsed, pgoutput.Relation):
            self._check(parsed)
            self._relations[parsed.id] = parsed
        elif isinstance(parsed, pgoutput.Begin):
            self._part = Changes(parsed.committed / 1e6 + _EPOCH_2000, xid=parsed.xid)
        elif isinstance(parsed, pgoutput.Commit):
            self._hand_over(parsed.end)
        elif (part := self._part) is not None:
            if isinstance(parsed, pgoutput.Change):
                self._add(part, parsed)
            elif isinstance(parsed, pgoutput.Truncate):
                part.whole = True
            elif parsed.prefix == self._marks:
                part.marks.append(parsed.content.decode())

    def _add(self, part: Changes, change: pgoutput.Change) -> None:
        relation = self._relations[change.relation]
        old, new = change.old, change.new
        if old is not None:
            part.rows.append(("D" if new is None else "O", relation, old))
        if new is not None:
            if old is not None:
                pairs = zip(new, old, strict=True)
                new = [b if a is pgoutput.UNCHANGED else a for a, b in pairs]
            part.rows.append(("N", relation, new))
        if len(part.rows) >= PART:
            self._hand_over(None)
            self._part = Changes(part.committed, xid=part.xid)

    def _hand_over(self, end: int | None) -> None:
        part, self._part = self._part, None
        if part is None:
            return
        part.end = end
        self._seen = end or self._seen
        self.parts.put(part)

    def _answer(self) -> None:
        at = self._confirmed
        now = int((time.time() - _EPOCH_2000) * 1e6)
        self._connection.put_copy_data(b"r" + struct.pack(">QQQqB", at, at, at, now, 0))
        self._connection.flush()


def _connected(conninfo: str, where: str) -> psycopg.Connection[tuple[object, ...]]:
    try:
        return psycopg.connect(conninfo, autocommit=True)
    except psycopg.Error as error:
        raise Transient(_line(str(error)), where=where) from None


def marks_of(run: str) -> str:
    """The prefix of a run's markers: every slot of a database shows the messages of all."""
    return f"migrator {run}"


def lsn_text(position: int) -> str:
    """A position as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """A position behind its text."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def _line(text: object) -> str:
    words = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    return " ".join(words.split())

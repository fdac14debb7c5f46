"""The binary log of MariaDB and MySQL, read by a thread of its own as a replica would.

Row events give what rows were and are. Statements in the log are looked at only for whether they
name a table of ours: TRUNCATE, ALTER TABLE, or changes that a session chose to log as statements.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import pymysql
from pymysqlreplication import BinLogStreamReader, event, row_event

from migrator.errors import FeedLost, Transient
from migrator.stores.sql.parts import PART, Part, Parts

_HEARTBEAT = 0.5
_PATIENCE = 30
_ADVANCE_EVERY = 5.0
_STANDALONE = 1  # https://mariadb.com/kb/en/gtid_event/: no COMMIT follows
_GONE = {1236}
# They write no rows, whatever tables they name.
_HARMLESS = re.compile(
    r"(CREATE|DROP|ALTER)\s+(OR\s+REPLACE\s+)?(DEFINER\s*=\s*\S+\s+)?"
    r"(TRIGGER|VIEW|PROCEDURE|FUNCTION|EVENT|USER|ROLE)\b"
    r"|(GRANT|REVOKE|FLUSH|SAVEPOINT|RELEASE|ROLLBACK\s+TO)\b|SET\s+(?!STATEMENT\b)[\w@]"
    r"|ANALYZE\s+((NO_WRITE_TO_BINLOG|LOCAL)\s+)?TABLES?\b",
    re.IGNORECASE,
)
# A session chose to log these as they are: views, triggers and functions may have written others.
# What stands in front is taken once and not looked at in another way.
_WRITES = re.compile(
    r"(?>/\*M?!\d*|/\*.*?\*/|--[^\n]*|\#[^\n]*|[(\s])*+"
    r"(INSERT|UPDATE|DELETE|REPLACE|LOAD|CALL|WITH|SELECT|DO|EXECUTE|ANALYZE|SET)\b",
    re.IGNORECASE | re.DOTALL,
)
_DROPS_ALL = re.compile(r"DROP\s+(DATABASE|SCHEMA)\b", re.IGNORECASE)
_EVENTS = [
    event.FormatDescriptionEvent, event.RotateEvent, event.HeartbeatLogEvent, event.QueryEvent,
    event.XidEvent, event.XAPrepareEvent, event.GtidEvent, event.MariadbGtidEvent,
    row_event.WriteRowsEvent, row_event.UpdateRowsEvent, row_event.DeleteRowsEvent,
]  # fmt: skip

# Where a stream ends, the package warns that it connects anew, which it may not here.
logging.getLogger("pymysqlreplication").addHandler(logging.NullHandler())

# https://mariadb.com/kb/en/2-binlog-event-header/, behind the packet's own first byte.
_KIND, _BODY = 5, 20
_ROTATES, _DESCRIBES = b"\x04", b"\x13"
_ROWS = {bytes([kind]) for kind in (*range(0x17, 0x1A), *range(0x1E, 0x21), *range(0xA6, 0xAC))}


Row: TypeAlias = tuple[str, str, dict[str, Any]]


class _Lean(pymysql.connections.Connection):
    """A connection that passes over what the package would only decode in vain: rows of other
    tables, and the description of a table that came before. A number stands for one definition
    of one table until the server begins a new file."""

    ours: Callable[[str, str], bool] | None = None

    def __init__(self, **settings: Any) -> None:
        self._tables: dict[bytes, bool] = {}
        super().__init__(**settings)

    def _read_packet(self, *args: Any) -> Any:
        while True:
            packet = super()._read_packet(*args)  # type: ignore[no-untyped-call]
            if self.ours is None or not self._passed_over(packet.get_all_data()):
                return packet

    def _passed_over(self, data: bytes) -> bool:
        kind, number = data[_KIND : _KIND + 1], data[_BODY : _BODY + 6]
        if kind == _ROTATES:
            self._tables.clear()
        elif kind == _DESCRIBES:
            if number in self._tables:
                return True
            schema, at = _name(data, _BODY + 8)
            table, _ = _name(data, at)
            self._tables[number] = self.ours is None or self.ours(schema, table)
            return not self._tables[number]
        return kind in _ROWS and self._tables.get(number) is False


def _name(data: bytes, at: int) -> tuple[str, int]:
    size = data[at]
    return data[at + 1 : at + 1 + size].decode(), at + size + 2


@dataclass(frozen=True)
class At:
    """A place in the log. ``born`` is when the file was begun: RESET MASTER gives names anew."""

    file: str
    place: int
    born: int


class Binlog:
    """The log from a place on. Rows are (kind, table, columns): ``D`` a deleted row, ``O`` what a
    row was before an update, ``N`` what a row is now. Raises FeedLost, Transient."""

    def __init__(
        self, settings: dict[str, Any], run: str, tables: Sequence[str], marks: str,
        file: str, place: int, where: str, *, folds: bool,
    ) -> None:  # fmt: skip
        self.where = where
        self.database: str = settings["database"]
        self.parts: Parts[Part[Row, At]] = Parts()
        # Whether the server takes names of tables for equal in any case.
        self._fold: Callable[[str], str] = str.lower if folds else str
        self._here = {(self._fold(self.database), self._fold(n)) for n in (*tables, marks)}
        self._marks = self._fold(marks)
        self._names = re.compile(
            "|".join(rf"(?<![\w$]){re.escape(name)}(?![\w$])" for name in tables), re.IGNORECASE
        )
        self._schema = re.compile(rf"(?<![\w$]){re.escape(self.database)}(?![\w$])", re.IGNORECASE)
        self._part: Part[Row, At] | None = None
        self._ends_itself = True
        self._handed = time.monotonic()
        self._sealed = False
        self._reader = BinLogStreamReader(
            connection_settings={**settings, "read_timeout": _PATIENCE},
            # The same for each feed of a run: the server then ends one that was left behind.
            server_id=zlib.crc32(f"{self.database} {run}".encode()) | 1 << 31,
            blocking=True, resume_stream=True, log_file=file, log_pos=place,
            slave_heartbeat=_HEARTBEAT, enable_logging=False, only_events=_EVENTS,
            pymysql_wrapper=self._connect,
        )  # fmt: skip
        try:
            # Of the file that was asked for; the thread goes on to the next ones.
            self.born = self._born = self._begin()
        except BaseException:
            self._reader.close()
            raise
        # The package would connect again by itself, in the midst of a transaction.
        self._sealed = True
        self._reader._stream_connection.ours = self._is_ours
        self._thread = threading.Thread(target=self._run, name="binlog", daemon=True)
        self._thread.start()

    def _is_ours(self, schema: str, table: str) -> bool:
        return (self._fold(schema), self._fold(table)) in self._here

    def _connect(self, **settings: Any) -> Any:
        if self._sealed:
            raise Transient("the server ended the stream", where=self.where)
        return _Lean(**settings)

    def _begin(self) -> int:
        """Read up to the file's own description; when it was begun."""
        try:
            while True:
                found = self._reader.fetchone()
                if found is None:
                    raise Transient("the server ended the stream", where=self.where)
                if isinstance(found, event.FormatDescriptionEvent):
                    return int(found.timestamp)
        except pymysql.MySQLError as error:
            raise self._translated(error) from error

    def _translated(self, error: pymysql.MySQLError) -> Exception:
        code, *text = error.args or (0,)
        message = " ".join(str(part) for part in text) or type(error).__name__
        if code in _GONE:
            return FeedLost(message, where=self.where)
        return Transient(message, where=self.where)

    def close(self) -> None:
        self.parts.close()
        with suppress(OSError, AttributeError):
            self._reader._stream_connection._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=10)
        self._reader.close()

    # ------------------------------------------------------------ the reading thread

    def _run(self) -> None:
        try:
            while not self.parts.closed:
                if not self.parts.room(1.0):
                    continue
                found = self._reader.fetchone()
                if found is None:
                    raise Transient("the server ended the stream", where=self.where)
                self._take_in(found)
        except pymysql.MySQLError as error:
            self.parts.fail(self._translated(error))
        except Exception as error:  # noqa: BLE001 - handed to the owner's thread, whatever it is
            ours = isinstance(error, (Transient, FeedLost))
            self.parts.fail(error if ours else Transient(str(error), where=self.where))

    def _take_in(self, found: Any) -> None:
        if isinstance(found, event.FormatDescriptionEvent):
            self._born = int(found.timestamp) or self._born
        elif isinstance(found, (event.MariadbGtidEvent, event.GtidEvent)):
            self._part = Part(float(found.timestamp))
            standalone = int(getattr(found, "flags", _STANDALONE)) & _STANDALONE
            self._ends_itself = bool(standalone)
        elif isinstance(found, row_event.RowsEvent):
            self._add(found)
        elif isinstance(found, (event.XidEvent, event.XAPrepareEvent)):
            self._hand_over(end=True)
        elif isinstance(found, event.QueryEvent):
            self._statement(found)

    def _statement(self, found: Any) -> None:
        text = found.query.strip()
        word = text.upper()
        if word == "BEGIN":
            self._ends_itself = False
            return
        part = self._part = self._part or Part(float(found.timestamp))
        part.whole = part.whole or self._concerns(text, bytes(found.schema).decode())
        ends = word in ("COMMIT", "ROLLBACK") or word.startswith(("XA COMMIT", "XA ROLLBACK"))
        # Its rows were logged when it was prepared, long before they could be read.
        part.whole = part.whole or word.startswith("XA COMMIT")
        if ends or self._ends_itself:
            self._hand_over(end=True)

    def _concerns(self, text: str, schema: str) -> bool:
        """Whether a statement may have written rows of ours."""
        if _HARMLESS.match(text):
            return False
        here = schema.lower() == self.database.lower() or bool(self._schema.search(text))
        told = self._names.search(text) or _DROPS_ALL.match(text) or _WRITES.match(text)
        return here and told is not None

    def _add(self, found: Any) -> None:
        part = self._part = self._part or Part(float(found.timestamp))
        table = self._fold(found.table)
        for row in found.rows:
            if table == self._marks:
                written = isinstance(found, row_event.WriteRowsEvent)
                if written and row["values"]["mark"] is not None:
                    part.marks.append(row["values"]["mark"])
                continue
            if isinstance(found, row_event.UpdateRowsEvent):
                part.rows.append(("O", table, row["before_values"]))
                part.rows.append(("N", table, row["after_values"]))
            else:
                kind = "D" if isinstance(found, row_event.DeleteRowsEvent) else "N"
                part.rows.append((kind, table, row["values"]))
            if len(part.rows) >= PART:
                self._hand_over(end=False)
                part = self._part = Part(float(found.timestamp))

    def _hand_over(self, *, end: bool) -> None:
        part, self._part = self._part, None
        if part is None:
            return
        if end:
            part.end = At(self._reader.log_file, self._reader.log_pos, self._born)
        told = bool(part.rows or part.marks or part.whole)
        # Now and then also where nothing of ours was written: the server forgets old files.
        if told or time.monotonic() - self._handed >= _ADVANCE_EVERY:
            self._handed = time.monotonic()
            self.parts.put(part)

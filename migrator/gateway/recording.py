"""Recording the calls of one gateway, for drills to replay: off their path, bounded, never felt.

A call that was carried out is offered. A thread takes it from a bounded queue, and writes a line.
Where it can't keep up, what is offered is dropped; where the file is full or can't be written, it
ends. Keys are told by a keyed digest alone, and values only where the settings say so.
"""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import re
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from migrator.model import recorded
from migrator.model.canonical import encode
from migrator.model.json_text import UNFIT, dump_bytes
from migrator.model.path import format_path, parse_path
from migrator.model.recorded import Line, line_bytes
from migrator.model.value import Record, Value
from migrator.settings import Recording

log = structlog.get_logger("migrator.gateway")

WAITING = 1_000
"""Calls that wait to be written at most; more are dropped."""
_IDLE = 0.5
_GOODBYE = 5.0
_NAMES = 100
_SALT = "salt"


@dataclass(frozen=True, slots=True)
class _Offered:
    """A call as it was made; of its values nothing is copied, so they may have changed since."""

    at: float
    call: str
    id: Value
    found: bool = True
    value: Record | None = None
    set: Mapping[str, Value] | None = None
    paths: tuple[str, ...] = ()
    item: Value = None


class Recorder:
    """The recorder of one gateway in one process; without settings it does nothing."""

    def __init__(self, cls: str, wanted: Recording | None) -> None:
        self._cls = cls
        self._wanted = wanted
        self.on = wanted is not None and wanted.share > 0
        self._calls: queue.Queue[_Offered] = queue.Queue(WAITING)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # A clock that is set back would tell calls in another order.
        self._zero = time.time() - time.monotonic()
        self.dropped = 0

    # ------------------------------------------------------------------ on a call's path

    def put(self, id: Value, value: Record) -> None:
        """An aggregate was put."""
        if self.on:
            self._offer(_Offered(time.monotonic(), "put", id, value=value))

    def update(self, id: Value, set: Mapping[str, Value], remove: Sequence[str]) -> None:
        """Some of an aggregate was set, and some of it removed."""
        if self.on and (set or remove):
            offered = _Offered(time.monotonic(), "update", id, set=set, paths=tuple(remove))
            self._offer(offered)

    def append(self, id: Value, path: str, item: Value) -> None:
        """An element was added to a list."""
        if self.on:
            self._offer(_Offered(time.monotonic(), "append", id, paths=(path,), item=item))

    def delete(self, id: Value) -> None:
        """An aggregate was removed."""
        if self.on:
            self._offer(_Offered(time.monotonic(), "delete", id))

    def get(self, id: Value, found: bool) -> None:
        """An aggregate was read."""
        if self.on:
            self._offer(_Offered(time.monotonic(), "get", id, found))

    def get_entries(self, id: Value, paths: Iterable[str], found: bool) -> None:
        """Entries of an aggregate were read."""
        if self.on:
            offered = _Offered(time.monotonic(), "get_entries", id, found, paths=tuple(paths))
            self._offer(offered)

    def _offer(self, call: _Offered) -> None:
        if self._thread is None:
            self._start()
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            self.dropped += 1

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._work, name="record", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write what waits, for a few seconds at most, and nothing more."""
        self.on = False
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_GOODBYE)

    # ------------------------------------------------------------------ on a thread of its own

    def _work(self) -> None:
        assert self._wanted is not None
        try:
            file = _File(self._cls, self._wanted)
            try:
                self._write(file)
            finally:
                file.close()
        except OSError as error:
            log.warning("recording ended: it can't be written", cls=self._cls,
                        file=error.filename, why=error.strerror)  # fmt: skip
        self.on = False
        with suppress(queue.Empty):
            while True:  # nothing that was offered is held any longer
                self._calls.get_nowait()
        if self.dropped:
            log.warning("recording lacks calls", cls=self._cls, dropped=self.dropped)

    def _write(self, file: _File) -> None:
        while calls := self._waiting():
            lines = [line for call in calls if (line := self._line(file, call))]
            if not file.write(b"".join(lines)):
                log.warning("recording ended: the file is full", cls=self._cls, file=file.path.name)
                return

    def _waiting(self) -> list[_Offered]:
        """Calls that wait, at least one; none once all was written after the end."""
        while True:
            try:
                calls = [self._calls.get(timeout=_IDLE if not self._stop.is_set() else 0.001)]
            except queue.Empty:
                if self._stop.is_set():
                    return []
                continue
            while len(calls) < WAITING:
                try:
                    calls.append(self._calls.get_nowait())
                except queue.Empty:
                    break
            return calls

    def _line(self, file: _File, call: _Offered) -> bytes:
        """The line of a call; nothing where its key is not of the share."""
        try:
            key = file.chosen(self._cls, call.id)
            if not key:
                return b""
            return line_bytes(self._told(call, file.keeps, round(self._zero + call.at, 6), key))
        except (*UNFIT, RuntimeError):  # also where the application changes the value meanwhile
            self.dropped += 1
            return b""

    def _told(self, call: _Offered, keeps: bool, at: float, key: str) -> Line:
        cls = self._cls
        match call.call:
            case "put" if keeps:
                return recorded.Put(at=at, cls=cls, key=key, value=call.value)
            case "put":
                lists = {
                    name: len(item)
                    for name, item in list((call.value or {}).items())[:_NAMES]
                    if isinstance(item, list)
                }
                return recorded.Put(at=at, cls=cls, key=key, size=_size(call.value), lists=lists)
            case "update" if keeps:
                set_ = dict(call.set or {})
                return recorded.Update(at=at, cls=cls, key=key, set=set_, remove=call.paths)
            case "update":
                fields = _fields((*(call.set or {}), *call.paths))
                return recorded.Update(at=at, cls=cls, key=key, paths=fields)
            case "append":
                path = call.paths[0] if keeps else _fields(call.paths)[0]
                item = call.item if keeps else msgspec.UNSET
                return recorded.Append(at=at, cls=cls, key=key, path=path, item=item)
            case "delete":
                return recorded.Delete(at=at, cls=cls, key=key)
            case "get":
                return recorded.Get(at=at, cls=cls, key=key, found=call.found)
        paths = call.paths if keeps else _fields(call.paths)
        return recorded.GetEntries(at=at, cls=cls, key=key, paths=paths, found=call.found)


def _size(value: Value) -> int:
    """The bytes of a value as JSON; the short way where JSON has all that is in it."""
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, UnicodeEncodeError):
        return len(dump_bytes(value)[0])


def _fields(paths: Iterable[str]) -> tuple[str, ...]:
    """The fields that access paths lead through: names further down may be data."""
    return tuple(dict.fromkeys(format_path(parse_path(path)[:1]) for path in paths))


class _File:
    """The file that a recorder writes, and the salt beside it. Raises OSError."""

    def __init__(self, cls: str, wanted: Recording) -> None:
        wanted.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._salt = _salt(wanted.folder)
        self._share = wanted.share
        # A process that is started again and again fills no disk.
        held = sum(file.stat().st_size for file in wanted.folder.glob("*.jsonl"))
        self._room = int(wanted.megabytes * 1_000_000) - held
        if self._room <= 0:
            why = f"the folder holds {wanted.megabytes:g} MB already"
            raise OSError(errno.ENOSPC, why, str(wanted.folder))
        self.keeps = wanted.values == "keep"
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        name = f"{re.sub('[^A-Za-z0-9_-]', '_', cls)[:50]}-{when}-{os.getpid()}"
        self.path = wanted.folder / f"{name}-{secrets.token_hex(4)}.jsonl"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def close(self) -> None:
        os.close(self._file)

    def chosen(self, cls: str, id: Value) -> str:
        """What stands for a key; empty where it is not of the share. All of a key's calls are."""
        digest = hashlib.blake2b(encode([cls, id]), key=self._salt, digest_size=16).digest()
        if int.from_bytes(digest[8:]) >= self._share * 2**64:
            return ""
        return digest[:8].hex()

    def write(self, data: bytes) -> bool:
        """Write whole lines; false, with the file cut after the last that fits, once it is full."""
        if fits := len(data) <= self._room:
            self._room -= len(data)
        else:
            data = data[: data.rfind(b"\n", 0, self._room) + 1]
        while data:
            data = data[os.write(self._file, data) :]
        return fits


def _salt(folder: Path) -> bytes:
    """The salt of a folder, which one of all processes makes: a key has one digest in all files.

    Raises OSError, also for one that is empty.
    """
    path = folder / _SALT
    if not path.exists():
        made = folder / f".{_SALT}-{secrets.token_hex(8)}"
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, secrets.token_hex(16).encode())
        finally:
            os.close(file)
        try:
            with suppress(FileExistsError):  # another was faster
                os.link(made, path)
        finally:
            made.unlink()
    if not (salt := path.read_bytes().strip()[:64]):
        raise OSError(errno.EINVAL, "it is empty, so keys could be guessed: remove it", str(path))
    return salt

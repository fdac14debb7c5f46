"""What servers tell of keys that were written, to connections that listen (CLIENT TRACKING).

Every master that holds keys is listened to, each by a thread of its own. What was written while
nobody listened is never told, so the end of one connection is the end of all.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from typing import NamedTuple

import hiredis
from redis import exceptions as e

from migrator.errors import FeedLost, MigratorError, Transient
from migrator.stores.redis import edge
from migrator.stores.redis.line import Line
from migrator.stores.redis.settings import Address
from migrator.stores.redis.stream import ANY, Item, Touched
from migrator.stores.redis.wire import Wire

# Keys that wait: beyond, comparing both sides costs less than what the servers would hold for us.
MOST_WAITING = 500_000
_ASK_EVERY = 1.0
_SILENCE = 60.0


class Taken(NamedTuple):
    """What is taken at once, and when the oldest of it came, by this process's clock."""

    items: list[Item]
    oldest: float


def lost(why: str, where: str) -> FeedLost:
    """The error for what nobody listened to."""
    return FeedLost(
        f"{why}: what was written meanwhile is told by nobody", where=where,
        hint="both sides are scanned anew",
    )  # fmt: skip


def _apart(prefixes: Sequence[bytes]) -> list[bytes]:
    """The prefixes without those that begin with another one, which a server does not take."""
    found: list[bytes] = []
    for prefix in sorted(prefixes):
        if not (found and prefix.startswith(found[-1])):
            found.append(prefix)
    return found


class Listener(Line):
    """One connection that is told of the keys under some prefixes."""

    def __init__(self, wire: Wire, address: Address, prefixes: Sequence[bytes]) -> None:
        super().__init__(wire.servers, address, wire.where)
        self.address = address
        self._reader = hiredis.Reader()
        try:
            self.ask("HELLO", "3")
            named = [each for prefix in _apart(prefixes) for each in ("PREFIX", prefix)]
            # What comes from here on is read by a reader of ours: pushes stand between answers.
            self.tell("CLIENT", "TRACKING", "ON", "BCAST", *named)
            until = time.monotonic() + self._patience
            while not (answers := self.receive(0.5)):
                if time.monotonic() > until:
                    raise Transient("no answer in time to CLIENT TRACKING", where=self.where)
            if isinstance(answers[0], hiredis.ReplyError):
                raise edge.refused(e.ResponseError(str(answers[0])), self.where)
        except BaseException:
            self.close()
            raise

    def receive(self, seconds: float) -> list[object]:
        """The pushes and answers that have come, in their order."""
        if data := self.take(seconds):
            self._reader.feed(data)
        found: list[object] = []
        while (item := self._reader.gets()) is not False:
            found.append(item)
        return found


class Listening:
    """Listeners to all masters of now, from when it is made. Raises what a ``Line`` does.

    ``touched`` gives for a key of the server the blocks' own keys; keys below ``marker`` are
    markers, named by what is behind the first brace.
    """

    def __init__(
        self,
        wire: Wire,
        prefixes: Sequence[bytes],
        touched: Touched,
        marker: bytes,
    ) -> None:
        self.name = uuid.uuid4().hex
        self._where = wire.where
        self._touched = touched
        self._marker = marker
        self._waiting: dict[Item, float] = {}
        self._met: dict[str, set[Address]] = {}
        self._error: Exception | None = None
        self._closed = False
        self._condition = threading.Condition()
        self._listeners: list[Listener] = []
        self.masters = wire.masters(anew=True)
        try:
            for address in self.masters:
                self._listeners.append(Listener(wire, address, [*prefixes, marker]))
        except BaseException:
            for listener in self._listeners:
                listener.close()
            raise
        self._threads = [
            threading.Thread(target=self._run, args=(listener,), name="tracking", daemon=True)
            for listener in self._listeners
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        return self._error is None and not self._closed

    def close(self) -> None:
        with self._condition:
            self._closed = True
        for listener in self._listeners:
            listener.hang_up()
        for thread in self._threads:
            thread.join(timeout=10)
        for listener in self._listeners:
            listener.close()

    def take(self, seconds: float, most: int) -> Taken | None:
        """What waits, in the order of its first write. Raises FeedLost where a connection ended."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or not self.alive, seconds)
            if self._error is not None:
                raise self._error
            items = [item for item, _ in zip(self._waiting, range(most), strict=False)]
            if not items:
                return None
            oldest = min(map(self._waiting.pop, items))
            return Taken(items, oldest)

    # ------------------------------------------------------------ the threads

    def _run(self, listener: Listener) -> None:
        try:
            self._listen(listener)
        except MigratorError as error:
            self._fail(error.what)
        except Exception as error:  # noqa: BLE001 - handed to the feed's thread, whatever it is
            self._fail(str(error))

    def _fail(self, why: str) -> None:
        with self._condition:
            if self.alive:
                self._error = lost(why, self._where)
            self._condition.notify_all()

    def _listen(self, listener: Listener) -> None:
        heard = asked = time.monotonic()
        while self.alive:
            now = time.monotonic()
            if now - asked >= _ASK_EVERY:
                listener.tell("PING", "")
                asked = now
            if found := listener.receive(_ASK_EVERY / 2):
                heard = now
                for item in found:
                    self._take_in(listener, item, now)
            elif now - heard > _SILENCE:
                raise Transient("the server has fallen silent", where=self._where)

    def _take_in(self, listener: Listener, item: object, now: float) -> None:
        if isinstance(item, hiredis.PushNotification):
            if item[0] == b"invalidate":
                self._written(listener, item[1], now)
        elif isinstance(item, hiredis.ReplyError):
            raise edge.refused(e.ResponseError(str(item)), self._where)
        elif isinstance(item, bytes) and item:
            self._meet(item.decode(), listener.address, now)

    def _written(self, listener: Listener, keys: list[bytes] | None, now: float) -> None:
        """Keys were written; None for all of them (FLUSHDB)."""
        with self._condition:
            if keys is None:
                self._waiting.setdefault(ANY, now)
            for key in keys or ():
                if key.startswith(self._marker):
                    # Keys that were written together are told by prefix, in no order: what was
                    # written before the marker has come once this is answered.
                    listener.tell("PING", key.partition(b"}")[2])
                else:
                    for block, _ in self._touched(key):
                        self._waiting.setdefault(block, now)
            if len(self._waiting) > MOST_WAITING:
                raise Transient(f"over {MOST_WAITING:,} written keys wait", where=self._where)
            self._condition.notify_all()

    def _meet(self, mark: str, address: Address, now: float) -> None:
        """A marker counts once every master's has come."""
        with self._condition:
            met = self._met.setdefault(mark, set())
            met.add(address)
            if len(met) == len(self._listeners):
                del self._met[mark]
                self._waiting.setdefault(mark, now)
                self._condition.notify_all()

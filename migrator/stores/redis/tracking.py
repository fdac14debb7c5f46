"""The journal of Redis where its replication can't be had: what servers tell to who listens.

It serves a cluster as well as one server. A position is one life of one ``Listening`` in this
process: each end of a connection, each restart and each change of the cluster's masters loses the
feed, and both sides are compared anew (R5). A marker is a key on every master that is set and
removed in one step, so that nothing of it stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from migrator.errors import Refused, Terminal
from migrator.journal import Touch, Touches
from migrator.model.value import Value
from migrator.ports import Json
from migrator.stores.redis import findings
from migrator.stores.redis.journal import Lies
from migrator.stores.redis.listening import Listener, Listening, lost
from migrator.stores.redis.stream import ANY
from migrator.stores.redis.wire import SLOTS, Command, Unit, Wire

_AT_ONCE = 2_000
_LOOK_EVERY = 1.0


class _Counted(NamedTuple):
    """What a server counts: swaps of databases, resets of what it counts, and bytes that came in,
    which fall by nothing but a reset."""

    swaps: str = ""
    resets: str = ""
    bytes_in: int = 0

    def hides_nothing(self, since: _Counted) -> bool:
        """Whether no swap has been counted since, nor can one have been forgotten."""
        return self[:2] == since[:2] and self.bytes_in >= since.bytes_in


class TrackingJournal:
    """What servers tell of written keys, listened to for one run."""

    forgets = True

    def __init__(self, wire: Wire, form: Lies, id_of: Callable[[bytes], Value], name: str) -> None:
        self.wire = wire
        self.form = form
        self.id_of = id_of
        self._marker = f"_migrator:mark:{name}:".encode()
        self._listening: Listening | None = None
        self._counted = _Counted()

    def describe(self) -> str:
        return f"CLIENT TRACKING of {self.wire.where}, which misses what happens while it is away"

    def findings(self) -> Iterable[tuple[str, str, str]]:
        try:
            for address in self.wire.masters():
                Listener(self.wire, address, [*self.form.prefixes, self._marker]).close()
        except Terminal as error:
            yield "error", "redis-feed-right", f"it can't be listened to: {error.what}"
            return
        yield (
            "warning", "redis-tracking",
            "writes are told to who listens, and to nobody later: each lost connection, each "
            "restart of the mirror and each change of masters has both sides compared anew",
        )  # fmt: skip

    def prepare(self) -> Json:
        if self._listening is None or not self._listening.alive:
            try:
                self._listening = Listening(
                    self.wire, self.form.prefixes, self.form.touched, self._marker
                )
                self._counted = self._count()
            except Terminal as error:
                raise Refused(
                    f"its writes can't be listened to: {error.what}", where=self.wire.where,
                    hint="Redis 6 or newer, and for this user:  "
                    "ACL SETUSER ... +hello +client|tracking +info",
                ) from error  # fmt: skip
        return {"listening": self._listening.name}

    def open(self, position: Json) -> TrackingFeed:
        listening = self._listening
        if listening is None or position != {"listening": listening.name} or not listening.alive:
            raise lost("nobody listened for a while", self.wire.where)
        return TrackingFeed(self, listening)

    def mark(self, name: str) -> None:
        """Set the marker on every master, and remove it again."""
        units = []
        for key in self._markers(name):
            commands: list[Command] = [("SET", key, ""), ("UNLINK", key)]
            units.append(Unit(key, commands))
        self.wire.obeyed(units)

    def _markers(self, name: str) -> Iterable[bytes]:
        """A key on each master, which tells the marker's name."""
        left = set(self.wire.masters(anew=True))
        for i in range(SLOTS):
            key = b"%b{%d}%b" % (self._marker, i, name.encode())
            master = self.wire.master_of(key)
            if master in left:
                left.remove(master)
                yield key
            if not left:
                return

    def still(self) -> bool:
        """Whether the same masters hold the keys, in the same database, as when listening began.

        Nobody is told of SWAPDB; the server counts it, and by CONFIG RESETSTAT forgets.
        """
        listening = self._listening
        assert listening is not None
        before, self._counted = self._counted, self._count()
        return set(self.wire.masters(anew=True)) == set(
            listening.masters
        ) and self._counted.hides_nothing(before)

    def _count(self) -> _Counted:
        """What the server counts now; a cluster has but one database, so nothing to swap."""
        if self.wire.servers.cluster:
            return _Counted()
        server = self.wire.servers.seeds[0]
        calls = findings.lines(self.wire.ask(server, ("INFO", "commandstats")))
        stats = findings.lines(self.wire.ask(server, ("INFO", "stats")))
        return _Counted(
            calls.get("cmdstat_swapdb", "").partition(",")[0],
            calls.get("cmdstat_config|resetstat", ""),
            int(stats.get("total_net_input_bytes", "0")),
        )

    def drop(self) -> None:
        """The servers keep nothing but the connections."""
        if self._listening is not None:
            self._listening.close()


class TrackingFeed:
    """The keys that are told."""

    def __init__(self, journal: TrackingJournal, listening: Listening) -> None:
        self._journal = journal
        self._listening = listening
        self._looked_at = time.monotonic()

    def poll(self, seconds: float) -> Touches | None:
        given = self._listening.take(seconds, _AT_ONCE)
        marks = [item for item in given.items if isinstance(item, str)] if given else []
        self._look(at_once=bool(marks))
        if given is None:
            return None
        form, id_of = self._journal.form, self._journal.id_of
        keys = [item for item in given.items if isinstance(item, bytes)]
        return Touches(
            [Touch(id_of(form.suffix(key) or b"")) for key in keys],
            {"listening": self._listening.name},
            ANY in marks,
            [mark for mark in marks if mark != ANY],
            time.monotonic() - given.oldest,
        )

    def _look(self, *, at_once: bool) -> None:
        """Raise FeedLost where what is listened to is no longer what holds the keys."""
        now = time.monotonic()
        if at_once or now >= self._looked_at + _LOOK_EVERY:
            self._looked_at = now
            if not self._journal.still():
                self._listening.close()
                why = (
                    "the keys lie on other masters, or databases were swapped (or its counts reset)"
                )
                raise lost(why, self._journal.wire.where)

    def acknowledge(self, position: Json) -> None:
        """Nothing is kept, and nothing to be forgotten."""

    def close(self) -> None:
        self._listening.close()

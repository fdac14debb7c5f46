"""The journal of Redis: the replication stream of the server that holds the keys.

A position is a place in the stream of one life of one server. After a restart, or on a server
that took over, writes that were acknowledged may be missing which the mirror has: such a feed is
lost, whatever that server could still give (R5). A marker is a key that is set and removed in one
step, so that nothing of it stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from migrator.errors import FeedLost, Refused, Terminal, Transient
from migrator.journal import Touch, Touches
from migrator.model.value import Value
from migrator.ports import Json
from migrator.stores.redis import findings
from migrator.stores.redis.commands import Spec, Vocabulary
from migrator.stores.redis.replica import Replica
from migrator.stores.redis.settings import Address
from migrator.stores.redis.stream import ANY, Place, Stream
from migrator.stores.redis.wire import Command, Unit, Wire

INFO = ("INFO", "server", "replication")
_AT_ONCE = 2_000
_ROOMY = 16 * 1024 * 1024
_PATIENCE = 30.0


class Lies(Protocol):
    """How blocks lie under keys."""

    @property
    def prefixes(self) -> Sequence[bytes]:
        """What all keys of blocks begin with: one of these."""

    def suffix(self, key: bytes) -> bytes | None:
        """The identifier's bytes in a key; None where the key is no block's."""

    def touched(self, key: bytes) -> Iterable[tuple[bytes, bool]]:
        """The keys of the blocks that a key is part of, and whether it is that of one itself."""


class RedisJournal:
    """The stream, read for one run."""

    forgets = True

    def __init__(self, wire: Wire, form: Lies, id_of: Callable[[bytes], Value], name: str) -> None:
        self.wire = wire
        self.form = form
        self.id_of = id_of
        self.database = int(wire.servers.options["db"])
        self.marker = f"_migrator:mark:{name}".encode()

    def describe(self) -> str:
        return f"replication stream of {self.wire.where}, database {self.database}"

    @property
    def _server(self) -> Address:
        return self.wire.servers.seeds[0]

    def _info(self) -> dict[str, str]:
        return findings.lines(self.wire.ask(self._server, INFO))

    def end(self) -> int:
        """How many bytes of its stream the server has written."""
        return int(self._info()["master_repl_offset"])

    # ------------------------------------------------------------ made and removed

    def findings(self) -> Iterable[tuple[str, str, str]]:
        return ((grade, code, f"{text}; {hint}") for grade, code, text, hint in self._lacking())

    def _lacking(self) -> Iterator[tuple[str, str, str, str]]:
        """What stands in the way of the stream, and what to do about it."""
        if self.wire.servers.cluster:
            yield (
                "error", "redis-feed-cluster",
                "the writes of a cluster can't be followed: each master has a stream of its own",
                'set feed = "tracking" in the store\'s options (each lost connection then has both '
                "sides compared anew), or move it at rest",
            )  # fmt: skip
            return
        info = self._info()
        if info.get("role") != "master":
            yield (
                "error", "redis-feed-replica", "its stream is that of its master",
                "name the master in the url",
            )  # fmt: skip
            return
        if "min_slaves_good_slaves" in info:
            yield (
                "error", "redis-feed-counted",
                "it takes writes only while replicas are there (min-replicas-to-write), and would "
                "count Migrator as one",
                "CONFIG SET min-replicas-to-write 0, for as long as the move goes on",
            )  # fmt: skip
        if why := self._refused():
            yield (
                "error", "redis-feed-right", f"its stream can't be had: {why}",
                "ACL SETUSER this user +psync +replconf +info; where a service gives no "
                'replication at all, set feed = "tracking" in the store\'s options',
            )  # fmt: skip
        size = int(info.get("repl_backlog_size", 0))
        if size < _ROOMY:
            yield (
                "warning", "redis-backlog",
                f"it keeps {size:,} bytes of its stream (repl-backlog-size): when Migrator was "
                "away for more than that, both sides are scanned anew",
                "CONFIG SET repl-backlog-size 64mb",
            )  # fmt: skip

    def _refused(self) -> str:
        replica = self._connect()
        try:
            return replica.refused()
        finally:
            replica.close()

    def _connect(self) -> Replica:
        return Replica(self.wire.servers, self._server, self.wire.where)

    def prepare(self) -> Json:
        for severity, _, text, hint in self._lacking():
            if severity == "error":
                raise Refused(text, where=self.wire.where, hint=hint)
        self._have_a_backlog()
        # All in one step: the stream goes on with what it has written, and nothing in between.
        _, told, _ = self._marked("", INFO)
        info = findings.lines(told)
        return self.position(info, Place(int(info["master_repl_offset"]), None, 0.0))

    def _have_a_backlog(self) -> None:
        """Make the server keep what it sends, if no replica has made it yet."""
        if self._info().get("repl_backlog_active") != "0":
            return
        replica = self._connect()
        try:
            replica.ask_for_all()
            until = time.monotonic() + _PATIENCE
            while self._info().get("repl_backlog_active") == "0":
                replica.check()
                if time.monotonic() > until:
                    raise Transient("it does not begin its stream", where=self.wire.where)
        finally:
            replica.close()

    def position(self, info: dict[str, str], place: Place) -> dict[str, Json]:
        """A place in the stream of the server that says this of itself, for a checkpoint."""
        return {
            "run": info.get("run_id"), "stream": info.get("master_replid"),
            "offset": place.offset, "selected": place.selected,
        }  # fmt: skip

    def drop(self) -> None:
        """The server keeps nothing for a stream; a marker is removed as it is set."""

    def mark(self, name: str) -> None:
        self._marked(name)

    def _marked(self, name: str, *between: Command) -> list[Any]:
        """Set the marker, and remove it again; the answers."""
        commands: list[Command] = [("SET", self.marker, name), *between, ("UNLINK", self.marker)]
        (replies,) = self.wire.obeyed([Unit(self.marker, commands)])
        return list(replies)

    # ------------------------------------------------------------ reading

    def open(self, position: Json) -> RedisFeed:
        at = position if isinstance(position, dict) else {}
        replica = self._connect()
        try:
            # Asked on this very connection: behind one name there may be another server by now.
            info = findings.lines(replica.ask(*INFO))
            self._check(info, at)
            selected = at["selected"]
            place = Place(
                int(at["offset"]), None if selected is None else int(selected), time.monotonic()
            )
            replica.follow(str(at["stream"]), place.offset)
        except BaseException:
            replica.close()
            raise
        return RedisFeed(self, replica, info, place)

    def _check(self, info: dict[str, str], at: dict[str, Any]) -> None:
        """Raises FeedLost where the server does not hold the stream from a position on."""
        where = self.wire.where
        if info.get("role") != "master":
            raise Transient(
                "the server is a replica now", where=where, hint="name the master in the url"
            )
        if (info.get("run_id"), info.get("master_replid")) != (at.get("run"), at.get("stream")):
            raise FeedLost(
                "the server was started anew, or it is another one", where=where,
                hint="what it has lost by that is looked for: both sides are scanned anew",
            )  # fmt: skip
        first = int(info.get("repl_backlog_first_byte_offset", 0))
        held = info.get("repl_backlog_active") == "1"
        if not held or not first - 1 <= int(at["offset"]) <= int(info["master_repl_offset"]):
            raise FeedLost(
                f"the server no longer holds its stream from byte {int(at['offset']):,} on",
                where=where,
                hint="raise repl-backlog-size; both sides are scanned anew",
            )

    def where_keys_stand(self, name: bytes) -> Spec | None:
        """Where the keys of a command stand, by the server; None where it does not tell."""
        try:
            (told,) = self.wire.ask(self._server, ("COMMAND", "INFO", name))
        except Terminal:
            return None
        if not told or b"movablekeys" in told[2] or int(told[3]) < 1:
            return None
        return int(told[3]), int(told[4]), int(told[5])


class RedisFeed:
    """The stream being read."""

    def __init__(
        self, journal: RedisJournal, replica: Replica, info: dict[str, str], place: Place
    ) -> None:
        self._journal = journal
        self._info = info
        self._stream = Stream(
            replica, place, journal.database,
            Vocabulary(journal.database, journal.where_keys_stand), journal.form.touched,
            journal.marker, int(info.get("repl_backlog_size", 0)), journal.end,
        )  # fmt: skip

    def poll(self, seconds: float) -> Touches | None:
        given = self._stream.take(seconds, _AT_ONCE)
        if given is None:
            return None
        touches, marks = [], []
        for item in given.items:
            if isinstance(item, bytes):
                key = self._journal.id_of(self._journal.form.suffix(item) or b"")
                touches.append(Touch(key, item in given.gone))
            else:
                marks.append(item)
        return Touches(
            touches,
            self._journal.position(self._info, given.position),
            ANY in marks,
            [mark for mark in marks if mark != ANY],
            time.monotonic() - given.oldest,
        )

    def acknowledge(self, position: Json) -> None:
        """The server forgets by size alone: the control database's position is the one."""

    def close(self) -> None:
        self._stream.close()

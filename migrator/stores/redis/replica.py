"""A connection that the server takes for a replica: one that wants the stream and no data.

The server keeps what it has sent in a backlog from the moment its first replica asks for
everything. We ask for that, and turn away before it is sent: from then on the stream can be had
from any byte that the backlog holds. All the while ``ACK 0`` is said, so that the application's
WAIT never counts us among those that have its writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import hiredis
from redis import exceptions as e

from migrator.errors import FeedLost, MigratorError, Transient
from migrator.stores.redis import edge
from migrator.stores.redis.line import Line
from migrator.stores.redis.settings import Address, Servers

# A command of the stream, and how many bytes of it.
Taken: TypeAlias = tuple[list[bytes], int]

# Nothing of the data, should the server begin to send it all the same.
_WANTS = (
    ("REPLCONF", "capa", "eof", "capa", "psync2"),
    ("REPLCONF", "rdb-filter-only", ""),
)


class Replica(Line):
    """One connection to one server, by one thread at a time. Raises Transient, Terminal."""

    def __init__(self, servers: Servers, address: Address, where: str) -> None:
        super().__init__(servers, address, where)
        self._split = Splitter(where)

    def refused(self) -> str:
        """What the server says against a replica of this user's; empty where nothing."""
        try:
            for command in _WANTS:
                self.ask(*command)
            # No number: refused for that alone where the command is allowed, so nothing begins.
            self.ask("PSYNC", "?", "x")
        except Transient:
            raise
        except MigratorError as error:
            return "" if "not an integer" in error.what else error.what
        return ""

    def ask_for_all(self) -> None:
        """Ask for the whole data, which makes the server keep a backlog; it is never read."""
        for command in _WANTS:
            self.ask(*command)
        self.tell("PSYNC", "?", "-1")

    def check(self) -> None:
        """Raises Terminal where the server has refused to send its data."""
        begun = self.take(0.01).lstrip(b"\n")
        if begun.startswith(b"-"):
            self._refuse(begun)

    def follow(self, replid: str, offset: int) -> None:
        """Take the stream behind so many bytes of it. Raises FeedLost where that is gone."""
        for command in _WANTS:
            self.ask(*command)
        self.tell("PSYNC", replid, str(offset + 1))
        begun = b""
        while b"\r\n" not in (begun := begun.lstrip(b"\n")):
            if not (more := self.take(self._patience)):
                raise Transient("no answer in time to PSYNC", where=self.where)
            begun += more
        answer, _, stream = begun.partition(b"\r\n")
        if answer[:1] == b"-":
            self._refuse(answer)
        if not answer.startswith(b"+CONTINUE"):
            raise FeedLost("the server no longer holds its stream from there on", where=self.where)
        self._split.feed(stream)

    def _refuse(self, answer: bytes) -> None:
        text = answer.partition(b"\r\n")[0].decode("utf-8", "replace")[1:]
        raise edge.refused(e.ResponseError(text), self.where)

    def receive(self, seconds: float) -> list[Taken]:
        """The commands that have come, none where none came in time."""
        if not (found := self._split.commands()):
            self._split.feed(self.take(seconds))
            found = self._split.commands()
        return found

    def acknowledge(self) -> None:
        """Say that we are there, and have nothing."""
        self.tell("REPLCONF", "ACK", "0")


class Splitter:
    """Cuts the stream into commands, however its bytes come."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._reader = hiredis.Reader()
        self._fed = 0

    def feed(self, data: bytes) -> None:
        self._reader.feed(data)
        self._fed += len(data)

    def commands(self) -> list[Taken]:
        """Those that are complete. Raises FeedLost for what is no stream of commands."""
        found: list[Taken] = []
        try:
            while (command := self._reader.gets()) is not False:
                size = size_of(command)
                found.append((command, size))
                self._fed -= size
        except (hiredis.HiredisError, TypeError) as error:
            raise FeedLost(f"the stream can't be read: {error}", where=self._where) from error
        # Places in the stream are counted by what commands take: it has to be what came.
        if self._fed < 0:
            raise FeedLost("the stream can't be read: it is shorter", where=self._where)
        return found


def size_of(command: Sequence[bytes]) -> int:
    """The bytes of a command in the stream."""
    lengths = [len(arg) for arg in command]
    return 3 + len(str(len(lengths))) + sum(5 + len(str(n)) + n for n in lengths)

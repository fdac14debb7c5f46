"""Which keys a command of the replication stream has written.

A master sends its replicas effects: a script as its writes, an expired or evicted key as DEL, a
blocking pop as a pop. So the commands below are all that Redis has; of one that a module brought
the server is asked where its keys stand. What still does not tell its keys may have written any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

Command: TypeAlias = Sequence[bytes]
# A key, and whether it is gone: it may be there again at once.
Written: TypeAlias = tuple[bytes, bool]
# First key, last key (from the end, where negative) and step, as the server tells them.
Spec: TypeAlias = tuple[int, int, int]
_Reading = Callable[[Command, bool, int], Iterator[Written]]


class Untold(Exception):
    """A command does not tell which keys it has written."""


def _one(args: Command, here: bool, ours: int) -> Iterator[Written]:
    yield args[1], False


def _second(args: Command, here: bool, ours: int) -> Iterator[Written]:
    if len(args) > 2:
        yield args[2], False


def _two(args: Command, here: bool, ours: int) -> Iterator[Written]:
    yield args[1], False
    yield args[2], False


def _every(args: Command, here: bool, ours: int) -> Iterator[Written]:
    for key in args[1:]:
        yield key, False


def _gone(args: Command, here: bool, ours: int) -> Iterator[Written]:
    for key in args[1:]:
        yield key, True


def _pairs(args: Command, here: bool, ours: int) -> Iterator[Written]:
    for key in args[1::2]:
        yield key, False


def _counted(args: Command, here: bool, ours: int) -> Iterator[Written]:
    """MSETEX, which says how many keys and values come before its options."""
    for key in args[2 : 2 + 2 * int(args[1]) : 2]:
        yield key, False


def _renamed(args: Command, here: bool, ours: int) -> Iterator[Written]:
    yield args[1], True
    yield args[2], False


def _stored(args: Command, here: bool, ours: int) -> Iterator[Written]:
    """SORT and GEORADIUS, which write where an option says."""
    for option, key in pairwise(args[2:]):
        if option.upper() in (b"STORE", b"STOREDIST"):
            yield key, False


def _moved(args: Command, here: bool, ours: int) -> Iterator[Written]:
    if here:
        yield args[1], True
    if int(args[2]) == ours:
        yield args[1], False


def _copied(args: Command, here: bool, ours: int) -> Iterator[Written]:
    options = [option.upper() for option in args[3:]]
    if b"DB" in options:
        here = int(args[4 + options.index(b"DB")]) == ours
    if here:
        yield args[2], False


def _flushed(args: Command, here: bool, ours: int) -> Iterator[Written]:
    raise Untold
    yield


def _swapped(args: Command, here: bool, ours: int) -> Iterator[Written]:
    if ours in (int(args[1]), int(args[2])):
        raise Untold
    yield from ()


def _nothing(args: Command, here: bool, ours: int) -> Iterator[Written]:
    yield from ()


_WORDS: dict[_Reading, str] = {
    _one: """
        SET SETEX PSETEX SETNX GETSET GETDEL GETEX APPEND SETRANGE SETBIT BITFIELD INCR INCRBY
        INCRBYFLOAT DECR DECRBY DELEX DELIFEQ
        HSET HMSET HSETNX HDEL HINCRBY HINCRBYFLOAT HSETEX HGETEX HGETDEL HEXPIRE HPEXPIRE
        HEXPIREAT HPEXPIREAT HPERSIST
        LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LINSERT LSET LREM LTRIM
        SADD SREM SPOP SINTERSTORE SUNIONSTORE SDIFFSTORE
        ZADD ZINCRBY ZREM ZREMRANGEBYSCORE ZREMRANGEBYRANK ZREMRANGEBYLEX ZPOPMIN ZPOPMAX
        ZUNIONSTORE ZINTERSTORE ZDIFFSTORE ZRANGESTORE GEOADD GEOSEARCHSTORE
        XADD XDEL XDELEX XTRIM XSETID XCLAIM XAUTOCLAIM XACK XACKDEL
        EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST RESTORE RESTORE-ASKING PFADD PFMERGE
    """,
    _second: "BITOP XGROUP",
    _two: "RPOPLPUSH LMOVE SMOVE BRPOPLPUSH BLMOVE",
    _every: "PFCOUNT",
    _gone: "DEL UNLINK",
    _pairs: "MSET MSETNX",
    _counted: "MSETEX",
    _renamed: "RENAME RENAMENX",
    _stored: "SORT GEORADIUS GEORADIUSBYMEMBER",
    _moved: "MOVE",
    _copied: "COPY",
    _flushed: "FLUSHDB FLUSHALL",
    _swapped: "SWAPDB",
    _nothing: "PING REPLCONF PUBLISH SPUBLISH SCRIPT FUNCTION SELECT MULTI EXEC",
}
_READINGS = {word.encode(): of for of, words in _WORDS.items() for word in words.split()}
# What a database that is not ours may do to it.
_ACROSS = {b"MOVE", b"COPY", b"SWAPDB", b"FLUSHALL"}


class Vocabulary:
    """Reads commands for one database. ``ask`` tells where the keys of others stand."""

    def __init__(self, ours: int, ask: Callable[[bytes], Spec | None]) -> None:
        self._ours = ours
        self._ask = ask
        self._others: dict[bytes, Spec | None] = {}

    def written(self, args: Command, database: int | None) -> list[Written]:
        """The keys of our database that a command has written, in the order that it tells them.

        ``database`` is where it ran, None where that is not known: then it may be ours. Raises
        Untold where it may have written any.
        """
        name = args[0].upper()
        here = database is None or database == self._ours
        if not here and name not in _ACROSS:
            return []
        reading = _READINGS.get(name)
        try:
            if reading is not None:
                return list(reading(args, here, self._ours))
        except (IndexError, ValueError):
            raise Untold from None
        return self._asked(name, args)

    def _asked(self, name: bytes, args: Command) -> list[Written]:
        if name not in self._others:
            self._others[name] = self._ask(name)
        spec = self._others[name]
        if spec is None:
            raise Untold
        first, last, step = spec
        stop = last + 1 if last >= 0 else len(args) + last + 1
        return [(key, False) for key in args[first:stop:step]]

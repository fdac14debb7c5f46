"""Talking to Redis: which server holds a key, pipelines of units, and scans of every master.

A *unit* is what must happen in one step on one key (or one hash tag): a single command, or
several in MULTI. The same code serves one server and a cluster: units are grouped by server,
sent in one go, and answered in their order. No redirection is followed: the topology is forgotten,
and what was not done is sent again, by ``retry.request``, to where it belongs then.
"""

from __future__ import annotations

import os
import threading
from binascii import crc_hqx
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from redis import exceptions as e
from redis.connection import Connection, ConnectionPool

from migrator.errors import MigratorError, Transient
from migrator.retry import check, elsewhere, request
from migrator.stores.redis import edge, names
from migrator.stores.redis.scripts import Script
from migrator.stores.redis.settings import Address, Servers
from migrator.stores.redis.sockets import Arg, Command, Reply, is_quiet
from migrator.stores.redis.sockets import exchange as _exchange

SLOTS = 16_384
_TOGETHER = 16
_MULTI: Command = ("MULTI",)
_EXEC: Command = ("EXEC",)


@dataclass(slots=True)
class Unit:
    """What happens to one key in one step: its commands, in MULTI where they are several."""

    key: bytes
    commands: Sequence[Command]


def slot_of(key: bytes) -> int:
    """The slot of a key: CRC16 of its hash tag, or of the whole."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


class Wire:
    """The connections of one store; safe for several threads."""

    def __init__(self, servers: Servers, where: str) -> None:
        self.servers = servers
        self.where = where
        self._pools: dict[Address, ConnectionPool] = {}
        self._idle: dict[Address, list[Connection]] = {}
        self._ranges: list[tuple[int, int, Address]] | None = None
        self._lock = threading.RLock()

    def close(self) -> None:
        with self._lock:
            for pool in self._pools.values():
                pool.disconnect()
            self._pools.clear()
            self._idle.clear()

    # ------------------------------------------------------------ topology

    def masters(self, *, anew: bool = False) -> list[Address]:
        """Every master that holds keys, in the order of their first slot; asked ``anew``."""
        if anew:
            self._forget_topology()
        if not self.servers.cluster:
            return [self.servers.seeds[0]]
        return list(dict.fromkeys(address for _, _, address in self._topology()))

    def _topology(self) -> list[tuple[int, int, Address]]:
        with self._lock:
            if self._ranges is None:
                self._ranges = self._ask_topology()
            return self._ranges

    def _ask_topology(self) -> list[tuple[int, int, Address]]:
        known = list(dict.fromkeys((*self.servers.seeds, *self._pools)))
        for address in known:
            try:
                answer = self._ask(address, ("CLUSTER", "SLOTS"))
            except Transient as error:
                if address == known[-1]:
                    raise
                elsewhere(error)
                continue
            found = [
                (int(first), int(last), Address((host or b"").decode() or address.host, int(port)))
                for first, last, (host, port, *_), *_ in answer
            ]
            if sum(last - first + 1 for first, last, _ in found) != SLOTS:
                raise Transient(
                    "some slots of the cluster have no master",
                    where=self.where,
                    hint="look at CLUSTER INFO; it is tried again",
                )
            return sorted(found, key=lambda each: each[0])
        raise AssertionError("a url names a server")

    def _forget_topology(self) -> None:
        with self._lock:
            self._ranges = None

    def master_of(self, key: bytes) -> Address:
        """The server that a key lies on."""
        if not self.servers.cluster:
            return self.servers.seeds[0]
        slot = slot_of(key)
        return next(a for first, last, a in self._topology() if first <= slot <= last)

    # ------------------------------------------------------------ requests

    def _connection(self, address: Address, writing: bool) -> _Lending:
        """A connection, given back afterwards; one that broke is closed first."""
        return _Lending(self, address, writing)

    def _lend(self, address: Address) -> Connection:
        """One that is open and that nothing comes from. Raises where none can be had."""
        idle = self._idle.get(address)
        while idle:
            with suppress(IndexError):  # another thread was faster
                connection = idle.pop()
                if connection.pid != os.getpid():
                    continue  # the parent's, before a fork
                if is_quiet(connection):
                    return connection
                self._drop(address, connection)
        with self._lock:
            pool = self._pools.get(address)
            if pool is None:
                pool = self._pools[address] = ConnectionPool(
                    connection_class=self.servers.connection,
                    max_connections=self.servers.pool,
                    host=address.host,
                    port=address.port,
                    **self.servers.options,
                )
                self._idle[address] = []
        try:
            return pool.get_connection()
        except (e.RedisError, OSError) as error:
            self._forget_topology()
            raise edge.unreachable(error, self.where) from error

    def _drop(self, address: Address, connection: Connection) -> None:
        """Close one that is lent; the pool opens it anew."""
        connection.disconnect()  # type: ignore[no-untyped-call]
        if (pool := self._pools.get(address)) is not None:
            pool.release(connection)

    def _give_back(self, address: Address, connection: Connection) -> None:
        # Not to the pool, which takes longer to lend it again than a request to a near server.
        if (idle := self._idle.get(address)) is not None:
            idle.append(connection)
        else:
            connection.disconnect()  # type: ignore[no-untyped-call]  # closed meanwhile

    def ask(self, address: Address, *commands: Command) -> Reply:
        """Send commands to one master; the answer to the last. Raises for a refusal."""
        return request(self._ask_master, address, *commands)

    def _ask_master(self, address: Address, *commands: Command) -> Reply:
        if address not in self.masters():
            raise Transient(
                f"{address.host}:{address.port} is no master any more",
                where=self.where,
                hint="it is tried again with the masters of now",
                stale=True,
            )
        return self._ask(address, *commands)

    def _ask(self, address: Address, *commands: Command) -> Reply:
        with self._connection(address, writing=False) as connection:
            replies = _exchange(connection, commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise self.refusal(reply)
        return replies[-1]

    def run(self, units: Sequence[Unit], *, writing: bool = False) -> list[list[Reply]]:
        """Carry out units; for each the answers to its commands, refusals as exceptions.

        What fails for now is sent again by itself. Raises Transient where that was in vain.
        """
        if len(units) == 1:
            return request(self._run_one, units, writing)
        answers: list[list[Reply]] = [[] for _ in units]
        left = set(range(len(units)))

        def send() -> None:
            """Carry out what is left."""
            groups: dict[Address, list[int]] = {}
            for i in sorted(left):
                groups.setdefault(self.master_of(units[i].key), []).append(i)
            for address, members in groups.items():
                done = self._run_at(address, [units[i] for i in members], writing)
                for i, answer in zip(members, done, strict=True):
                    answers[i] = answer
                    if not _asked_to_wait(answer):
                        left.discard(i)
                for i in (i for i in members if i in left):
                    raise self._later(units[i], answers[i])

        request(send)
        return answers

    def _run_one(self, units: Sequence[Unit], writing: bool) -> list[list[Reply]]:
        """As ``run``, of a single unit."""
        done = self._run_at(self.master_of(units[0].key), units, writing)
        if _asked_to_wait(done[0]):
            raise self._later(units[0], done[0])
        return done

    def _later(self, unit: Unit, answer: list[Reply]) -> MigratorError:
        """The error for a unit that was not carried out, and may be later."""
        self._forget_topology()
        refused = next(reply for reply in answer if isinstance(reply, Exception))
        return self.refusal(refused, name=names.shown(unit.key))

    def obeyed(self, units: Sequence[Unit]) -> list[list[Reply]]:
        """Write units, as ``run`` does. Raises for a refusal, which is told by the unit's key."""
        answers = self.run(units, writing=True)
        for unit, replies in zip(units, answers, strict=True):
            for reply in replies:
                if isinstance(reply, Exception):
                    raise self.refusal(reply, name=names.shown(unit.key))
        return answers

    def _run_at(self, address: Address, units: Sequence[Unit], writing: bool) -> list[list[Reply]]:
        """Carry out units whose keys lie on one server, in one request."""
        batches = self._batches(units)
        commands = [c for batch in batches for c in _wrapped(batch)]
        waiting = self.waiting() if writing else []
        commands += waiting
        with self._connection(address, writing) as connection:
            replies = _exchange(connection, commands)
        if waiting:
            self.check_replicas(replies.pop())
        return _unwrapped(batches, replies)

    def _batches(self, units: Sequence[Unit]) -> list[list[Unit]]:
        """Units that share one MULTI: on one server several, in a cluster each its own."""
        if self.servers.cluster:
            return [[unit] for unit in units]
        batches: list[list[Unit]] = []
        for unit in units:
            single = len(unit.commands) == 1
            if single or not batches or len(batches[-1]) >= _TOGETHER or _is_single(batches[-1]):
                batches.append([unit])
            else:
                batches[-1].append(unit)
        return batches

    def check_replicas(self, reached: Reply) -> None:
        if isinstance(reached, Exception):
            raise self.refusal(reached)
        if reached < self.servers.replicas:
            raise Transient(
                f"only {reached} of {self.servers.replicas} replicas have the write",
                where=self.where,
                unknown=True,
                hint="see INFO replication; it is tried again",
            )

    def evaluate(self, script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> Reply:
        """Run a script that writes, on keys of one slot; its answer, or the server's refusal.

        It is sent once, as what its caller repeats may not be repeated at all (R12). Raises
        Transient for a refusal that may not last: nothing was done then.
        """
        more: list[Command] = self.waiting()
        with self._connection(self.master_of(keys[0]), writing=True) as connection:
            for words in (("EVALSHA", script.digest), ("EVAL", script.text)):
                command = (*words, len(keys), *keys, *args)
                reply, *reached = _exchange(connection, [command, *more])
                if not isinstance(reply, e.NoScriptError):
                    break  # a server that was started since, or a promoted one, has no scripts
                check()
        if isinstance(reply, Exception):
            if edge.later(reply):
                raise self.refusal(reply, name=names.shown(keys[0]))
        elif reply is not None and reached:
            self.check_replicas(*reached)
        return reply

    def waiting(self) -> list[Command]:
        """What waits until replicas have what was written before it on the same connection."""
        servers = self.servers
        return [("WAIT", servers.replicas, servers.replicas_ms)] if servers.replicas else []

    @contextmanager
    def watching(self, *keys: bytes) -> Iterator[Session]:
        """A connection of its own that watches keys of one slot, from its first request on: MULTI
        there fails once one of them has changed."""
        lending = self._connection(self.master_of(keys[0]), writing=False)
        with lending as connection:
            session = Session(self, connection, keys, lending)
            try:
                yield session
            except MigratorError:  # what broke is closed, and asked no more
                session.end()
                raise
            session.end()

    def refusal(self, error: Exception, **named: Any) -> MigratorError:
        """The error for a refusal of the server."""
        if edge.moved(error):
            self._forget_topology()
        return edge.refused(error, self.where, **named)

    # ------------------------------------------------------------ scans

    def scan(self, pattern: bytes, type_: str, count: int = 1000) -> Iterator[list[bytes]]:
        """Keys of a pattern and type on every master, batch by batch; a key may come twice."""
        kind: Command = ("TYPE", type_) if type_ else ()
        for address in self.masters():
            cursor: Arg = b"0"
            while True:
                cursor, keys = self.ask(
                    address, ("SCAN", cursor, "MATCH", pattern, "COUNT", count, *kind)
                )
                yield keys
                if int(cursor) == 0:
                    break


class _Lending:
    """A connection for a ``with``: no generator, as one is made for each request."""

    __slots__ = ("_address", "_connection", "_wire", "writing")

    def __init__(self, wire: Wire, address: Address, writing: bool) -> None:
        self._wire = wire
        self._address = address
        self.writing = writing

    def __enter__(self) -> Connection:
        self._connection = self._wire._lend(self._address)
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        wire = self._wire
        if error is None or isinstance(error, MigratorError):
            wire._give_back(self._address, self._connection)
            return
        wire._drop(self._address, self._connection)
        if isinstance(error, (e.ConnectionError, e.TimeoutError, OSError)):
            wire._forget_topology()
            raise edge.broken(error, wire.where, writing=self.writing) from error


class Session:
    """Commands on one connection, one request after the other. Nothing is written but by
    ``commit``, and nobody is left in doubt before that."""

    def __init__(
        self, wire: Wire, connection: Connection, keys: Sequence[bytes], lending: _Lending
    ) -> None:
        self._wire = wire
        self._connection = connection
        self._lending = lending
        self._watch: list[Command] = [("WATCH", *keys)]
        self._watches = False

    def ask(self, *commands: Command) -> list[Reply]:
        """Their answers. Raises for a refusal."""
        replies = self._told(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise self._wire.refusal(reply)
        return replies

    def run(self, units: Sequence[Unit]) -> list[list[Reply]]:
        """The answers to units that read, refusals as exceptions; no moment of one is held, as
        what changes meanwhile is not written. Raises Transient for a refusal that may not last."""
        replies = iter(self._told([command for unit in units for command in unit.commands]))
        answers = [[next(replies) for _ in unit.commands] for unit in units]
        for unit, answer in zip(units, answers, strict=True):
            if _asked_to_wait(answer):
                raise self._wire._later(unit, answer)
        return answers

    def _told(self, commands: Sequence[Command]) -> list[Reply]:
        """As ``ask``, refusals as exceptions. The first request watches the keys before that."""
        before, self._watch = self._watch, []
        replies = _exchange(self._connection, [*before, *commands])
        for reply in replies[: len(before)]:
            if isinstance(reply, Exception):
                raise self._wire.refusal(reply)
            self._watches = True
        return replies[len(before) :]

    def commit(self, commands: Sequence[Command]) -> list[Reply] | None:
        """Carry commands out in MULTI, behind some that were asked; None where a watched key has
        changed since. It waits for replicas as other writes do."""
        assert self._watches
        check()
        self._watches = False
        self._lending.writing = True
        waiting = self._wire.waiting()
        replies = _exchange(self._connection, [_MULTI, *commands, _EXEC, *waiting])
        reached = [replies.pop() for _ in waiting]
        if replies[-1] is None:
            return None
        (done,) = _unwrapped([[Unit(b"", commands)]], replies)
        for reply in done:
            if isinstance(reply, Exception):
                raise self._wire.refusal(reply)
        for number in reached:
            self._wire.check_replicas(number)
        return done

    def end(self) -> None:
        if self._watches:
            _exchange(self._connection, [("UNWATCH",)])


def _asked_to_wait(answer: list[Reply]) -> bool:
    """Whether a unit was not carried out, and may be later, perhaps elsewhere."""
    return any(isinstance(reply, Exception) and edge.later(reply) for reply in answer)


def _is_single(batch: list[Unit]) -> bool:
    return len(batch[0].commands) == 1


def _wrapped(batch: list[Unit]) -> list[Command]:
    commands = [command for unit in batch for command in unit.commands]
    return commands if len(commands) == 1 else [_MULTI, *commands, _EXEC]


def _unwrapped(batches: Sequence[list[Unit]], replies: list[Reply]) -> list[list[Reply]]:
    """The answers of each unit, out of those of MULTI and EXEC."""
    found: list[list[Reply]] = []
    at = 0
    for batch in batches:
        sizes = [len(unit.commands) for unit in batch]
        total = sum(sizes)
        if total == 1:
            found.append([replies[at]])
            at += 1
            continue
        done = replies[at + total + 1]
        if isinstance(done, Exception):
            # Nothing was done; the reason is what one of the commands was answered.
            queued = replies[at : at + total + 1]
            done = [next((r for r in queued if isinstance(r, Exception)), done)] * total
        at += total + 2
        start = 0
        for size in sizes:
            found.append(done[start : start + size])
            start += size
    return found


__all__ = ["SLOTS", "Arg", "Command", "Reply", "Session", "Unit", "Wire", "slot_of"]

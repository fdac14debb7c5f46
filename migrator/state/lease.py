"""The expiring lease that keeps two processes off one run (R13, R14).

A holder counts its time from before it asked; a waiter takes over only after it saw the
renewal counter stand still for a whole duration on its own clock. No two machines' clocks are
compared. A holder on this very host whose process is gone is succeeded at once.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import sqlalchemy as sa

from migrator.errors import Interrupted, MigratorError, Refused, Transient
from migrator.state import tables as t
from migrator.state.control import Control

SECONDS = 15.0
# What lies between a check and the sending that it allows, at most, in a process that runs.
MARGIN = 1.0


def boot_clock() -> float:
    """Seconds since boot, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str]:
    """What proc(5) tells of a process, from its state on; empty where it tells nothing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _host() -> str:
    """This boot of this host, and whose process ids these are: a container has its own."""
    return f"{_boot_id()} {os.readlink('/proc/self/ns/pid')}"


def _me() -> str:
    pid = os.getpid()
    return json.dumps({"boot": _host(), "pid": pid, "started": _stat(pid)[19]})


def _is_gone(holder: str) -> bool:
    """Whether the holder left, or is a process of this boot of this host that has ended."""
    who = json.loads(holder)
    if who.get("left"):
        return True
    if who["boot"] != _host():
        return False
    stat = _stat(who["pid"])
    if not stat:
        return not _is_there(who["pid"])
    # One that ended is kept until its parent asks for it, which may be never in a container. While
    # it ends its threads may be at work still.
    ended = stat[0] in "ZX" and int(stat[17]) <= 1
    return ended or stat[19] != who["started"]


def _is_there(pid: int) -> bool:
    """Whether there is a process of this number, also one that /proc hides from us."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Lease:
    """A lease held by this process while the ``with`` block runs.

    Raises Refused where another holds it and lives. ``check`` raises Interrupted once the lease
    can no longer be relied on. ``succeeded``: the holder before did not leave it, or left it
    while ``doubtful``, so that a request of its last moments may still be alive.

    Where ``deadly`` is set, for whole processes that are ours alone, the kernel ends this one
    when the lease runs out: after it stood still in between it can send nothing more (R14).
    """

    deadly = False
    # Holders of this process that could not give theirs back, or don't know whether they have one:
    # the control database did not answer.
    _kept: ClassVar[set[str]] = set()

    def __init__(
        self,
        control: Control,
        name: str,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = boot_clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._control = control
        self._name = name
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        # A number of its own: once a holder has left, generations are counted anew.
        self._holder = json.dumps({**json.loads(_me()), "number": secrets.token_hex(8)})
        self._pid = os.getpid()
        self._generation = 0
        self._until = 0.0
        self.succeeded = False
        self.doubtful = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Lease:
        try:
            self._acquire()
        except Transient:
            self._kept.add(self._holder)  # perhaps it was granted, and only the answer lost
            raise
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        _Timer.disarm(self)
        try:
            with self._control.transaction() as c:
                if self.doubtful:
                    left = json.dumps({**json.loads(self._holder), "left": True})
                    c.execute(t.lease.update().where(*self._mine()).values(holder=left))
                else:
                    c.execute(t.lease.delete().where(*self._mine()))
        except MigratorError:
            # It runs out by itself, or this process takes it again.
            self._kept.add(self._holder)

    @classmethod
    def is_held(cls, control: Control, name: str) -> bool:
        """Whether somebody holds it, as far as this host can tell: who ended elsewhere without a
        word may seem to."""
        query = sa.select(t.lease.c.holder).where(t.lease.c.name == name)
        with control.transaction() as c:
            holder = c.execute(query).scalar()
        return holder is not None and not _is_gone(holder)

    def check(self) -> None:
        """Raise Interrupted where this process may no longer act for the run."""
        margin = min(MARGIN, self._seconds / 5)
        if os.getpid() != self._pid or self._clock() >= self._until - margin:
            raise Interrupted(
                f"the lease on {self._name} ran out before it could be renewed",
                hint="nothing is lost: run the same command again",
            )

    def _hold_until(self, at: float) -> None:
        self._until = at
        if self.deadly:
            _Timer.arm(self, at)

    def _mine(self) -> tuple[sa.ColumnElement[bool], ...]:
        lease = t.lease.c
        generation = lease.generation == self._generation
        return lease.name == self._name, generation, lease.holder == self._holder

    def _acquire(self) -> None:
        watched: tuple[int, int] | None = None
        since = self._clock()
        while True:
            asked = self._clock()
            with self._control.transaction() as c:
                row = c.execute(sa.select(t.lease).where(t.lease.c.name == self._name)).first()
                if row is None:
                    taken = self._insert(c)
                elif (
                    row.holder in self._kept
                    or _is_gone(row.holder)
                    or (watched == (row.generation, row.counter) and asked - since >= row.seconds)
                ):
                    taken = self._succeed(c, row.generation, row.counter)
                else:
                    taken = False
            if taken:
                self.succeeded = row is not None
                self._hold_until(asked + self._seconds)
                return
            if row is not None:
                self._refuse_if_alive(row, watched)
                if watched != (row.generation, row.counter):
                    watched, since = (row.generation, row.counter), asked
            self._sleep(min(1.0, self._seconds / 5))

    def _refuse_if_alive(self, row: sa.Row[tuple[object, ...]], watched: object) -> None:
        who = json.loads(row.holder)
        here = who["boot"] == _host()
        if here or (watched is not None and watched != (row.generation, row.counter)):
            place = f"process {who['pid']} on this host" if here else "a process on another host"
            raise Refused(
                f"{self._name} is in the hands of {place}",
                hint="wait until it has ended, or stop it; then run the same command again",
            )

    def _insert(self, c: sa.Connection) -> bool:
        self._generation = 1
        row = {"holder": self._holder, "generation": 1, "counter": 0, "seconds": self._seconds}
        return t.make(c, t.lease, {"name": self._name, **row})

    def _succeed(self, c: sa.Connection, generation: int, counter: int) -> bool:
        lease = t.lease
        self._generation = generation + 1
        return bool(
            c.execute(
                lease.update()
                .where(
                    lease.c.name == self._name,
                    lease.c.generation == generation,
                    lease.c.counter == counter,
                )
                .values(
                    holder=self._holder, generation=generation + 1, counter=0,
                    seconds=self._seconds,
                )
            ).rowcount
        )  # fmt: skip

    def _renew(self) -> None:
        while not self._stop.wait(self._seconds / 5):
            asked = self._clock()
            try:
                with self._control.transaction() as c:
                    renewed = c.execute(
                        t.lease.update().where(*self._mine()).values(counter=t.lease.c.counter + 1)
                    ).rowcount
            except MigratorError:
                continue  # the lease runs on until it ends; the next renewal may get through
            if not renewed:
                self._until = 0.0
                return
            self._hold_until(asked + self._seconds)


class _Timer:
    """The process's one timer, set to when the first of its leases runs out."""

    _lock = threading.Lock()
    _ends: ClassVar[dict[int, float]] = {}

    @classmethod
    def arm(cls, lease: Lease, at: float) -> None:
        with cls._lock:
            cls._ends[id(lease)] = at
            cls._set()

    @classmethod
    def disarm(cls, lease: Lease) -> None:
        with cls._lock:
            if cls._ends.pop(id(lease), None) is not None:
                cls._set()

    @classmethod
    def _set(cls) -> None:
        first = min(cls._ends.values(), default=None)
        # Zero would turn it off.
        left = 0.0 if first is None else max(0.001, first - boot_clock())
        signal.setitimer(signal.ITIMER_REAL, left)

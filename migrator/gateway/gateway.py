"""The gateway: reads and writes of one class that follow its move."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from migrator.errors import Refused
from migrator.exchange import TooMuch
from migrator.gateway import changes, level, reading
from migrator.gateway.exchanging import amend, exchange
from migrator.gateway.follower import Terms
from migrator.gateway.found import ANY, Expected, Found
from migrator.gateway.opened import Opened, Sides
from migrator.gateway.writing import Write
from migrator.model.block import Address, Aggregate, Block, name
from migrator.model.value import Record, Value


class Gateway:
    """Aggregates of one class, on whichever side of its move is the primary.

    It may be used from several threads; a forked child takes a lease and connections of its own.
    Writes wait while the sides are swapped, and raise ``Stopped`` where that takes too long.
    """

    def __init__(self, opened: Opened, reopen: Callable[[], Opened]) -> None:
        self._opened = opened
        self._reopen = reopen
        self._opening = threading.Lock()
        self._closed = False
        _gateways.add(self)

    @classmethod
    def open(
        cls,
        of: str,
        config: str | Path | None = None,
        env: str | None = None,
        *,
        revision: str | None = None,
        shape: Literal["source", "target"] | None = None,
        terms: Terms | None = None,
        shadow: float | None = None,
    ) -> Gateway:
        """Follow a class. ``config`` is ``migrator.toml``, by default the nearest one above.

        Where a revision changes the shape, ``shape`` says whether the application speaks that of
        its source or of its target, whichever side is the primary; where it changes keys, that of
        whose keys. ``shadow`` is the share of reads that are made on both sides while they are to
        be compared, by default the settings'. Raises Refused where no revision moves the class, or
        where its move regroups it.
        """

        def open_() -> Opened:
            return Opened(of, config, env, revision, shape, terms or Terms(), shadow)

        return cls(open_(), open_)

    def close(self) -> None:
        """Give the lease and all connections back."""
        self._closed = True
        if self._opened.pid == os.getpid():
            self._opened.close()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _here(self) -> Opened:
        opened = self._opened
        if opened.pid == os.getpid() and not self._closed:
            return opened
        if self._closed:
            raise Refused("the gateway is closed", where=opened.cls, hint="open a new one")
        with self._opening:
            if self._opened.pid != os.getpid():
                self._opened = self._reopen()
            return self._opened

    # ------------------------------------------------------------------ reading

    def get(self, id: Value) -> Found | None:
        """The aggregate of a key, None where there is none.

        As all calls, it raises Rekeyed where a swap of the sides changed the keys.
        """
        here = self._here
        found = reading.get(here, id)
        here.recorder.get(id, found is not None)
        return found

    def get_entries(self, id: Value, paths: Sequence[str]) -> dict[str, Value] | None:
        """What lies at some access paths, as far as it is there; None where there is no aggregate.

        Only the entries that hold it are read, where the representation tells which.
        """
        here = self._here
        changes.refuse_one(paths, name(here.cls, id))
        given = reading.get_entries(here, id, paths)
        if paths:
            here.recorder.get_entries(id, paths, given is not None)
        return given

    # ------------------------------------------------------------------ writing

    def put(
        self,
        id: Value,
        value: Record,
        *,
        expires: int | None = None,
        expected: Expected = ANY,
        wait: bool = False,
    ) -> Found:
        """Put a whole aggregate. ``wait`` returns once both sides hold what the primary does.

        Raises Conflict where what is there is not ``expected``.
        """
        here = self._here
        if not changes.is_sure_record(value):
            changes.refuse_none(value, name(here.cls, id))
        if expires is not None and type(expires) is not int:
            raise Refused(
                f"expires is a whole number of milliseconds since 1970, not {expires!r}",
                where=name(here.cls, id),
            )
        new = Aggregate(id, value, expires)
        before = level.before_write(here, id) if wait else None

        def whole(sides: Sides) -> bool:
            if sides.translates:
                return False
            sides.primary.write([sides.stored(new, None)])
            return True

        write = Write(here, id)
        if not (_plainly(here, expected) and write.send(whole, suits=_takes_plain)):
            try:
                exchange(write, lambda _: new, expected, whole=True)
            except TooMuch:
                if expected is not ANY or not write.send(whole):
                    raise
        here.recorder.put(id, value)
        if before is not None:
            level.until_level(here, id, before)
        return Found(id, value, expires)

    def update(
        self,
        id: Value,
        set: Mapping[str, Value] | None = None,
        *,
        remove: Sequence[str] = (),
        expected: Expected = ANY,
        wait: bool = False,
    ) -> Found:
        """Set what lies at some access paths, and remove what lies at others.

        Raises Refused where there is no such aggregate, Conflict as ``put`` does.
        """
        here = self._here
        where = name(here.cls, id)
        changes.refuse_one(remove, where)
        for path, item in (set or {}).items():
            changes.refuse_odd(item, where, path)

        def change(old: Aggregate | None) -> Aggregate:
            there = _must(old, where)
            value = changes.updated(there.value, set or {}, remove, where)
            return Aggregate(id, value, there.expires)

        before = level.before_write(here, id) if wait else None
        fields = changes.top_fields(set or {}, where)
        done, write = None, Write(here, id)
        if fields and not remove and expected is ANY:
            done = amend(write, fields, {})
        done = done or exchange(write, change, expected)
        here.recorder.update(id, set or {}, remove)
        if before is not None:
            level.until_level(here, id, before)
        return done

    def append(
        self, id: Value, path: str, item: Value, *, expected: Expected = ANY, wait: bool = False
    ) -> Found:
        """Add an element at the end of the list at an access path. Raises as ``update`` does.

        It is never sent twice (R12): where its outcome is unknown, Transient is raised and says so.
        """
        here = self._here
        where = name(here.cls, id)
        changes.refuse_odd(item, where, path)

        def change(old: Aggregate | None) -> Aggregate:
            there = _must(old, where)
            value = changes.appended(there.value, path, item, where)
            return Aggregate(id, value, there.expires)

        before = level.before_write(here, id) if wait else None
        fields = changes.top_fields({path: item}, where)
        done, write = None, Write(here, id, once=True)
        if fields and expected is ANY:
            done = amend(write, {}, fields)
        done = done or exchange(write, change, expected)
        here.recorder.append(id, path, item)
        if before is not None:
            level.until_level(here, id, before)
        return done

    def delete(self, id: Value, *, expected: Expected = ANY, wait: bool = False) -> None:
        """Remove an aggregate; one that is not there is no error, unless it was expected: then
        Conflict is raised, as by ``put``."""
        here = self._here
        before = level.before_write(here, id) if wait else None

        def whole(sides: Sides) -> bool:
            key = sides.key(id)
            (block,) = sides.primary.read([key]) if not sides.by_key else (Block(key, {}),)
            if block is not None:
                sides.primary.delete([Address(key, block.place)])
            return True

        write = Write(here, id, deleted=True)
        if not (_plainly(here, expected) and write.send(whole, suits=_takes_plain)):
            try:
                exchange(write, lambda _: None, expected, whole=True)
            except TooMuch:
                if expected is not ANY:
                    raise
                write.send(whole)
        here.recorder.delete(id)
        if before is not None:
            level.until_level(here, id, before)


_gateways: weakref.WeakSet[Gateway] = weakref.WeakSet()
# Closing what a parent has open would say goodbye on its sockets, and so would forgetting it.
_of_parents: list[Opened] = []


# Seconds that a fork waits for the threads of gateways. What a library's mutex is locked by then,
# such as SQLite's, is locked in the child for ever.
_STILL = 1.0
_resting = threading.local()


def _before_fork() -> None:
    _resting.followers = []  # also where another thread opens a gateway just now
    ours = [each._opened for each in list(_gateways)]
    until = time.monotonic() + _STILL
    for opened in ours:
        left = max(0.0, until - time.monotonic())
        if opened.pid == os.getpid() and opened.follower.rests(left):
            _resting.followers.append(opened.follower)


def _in_parent() -> None:
    for follower in _resting.followers:
        follower.goes_on()


def _in_child() -> None:
    for gateway in list(_gateways):
        _of_parents.append(gateway._opened)
        gateway._opening = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


def _plainly(here: Opened, expected: Expected) -> bool:
    """Whether a write of a whole aggregate is to be tried without a condition."""
    return expected is ANY and not here.sides(here.follower.standing).by_exchange


def _takes_plain(sides: Sides) -> bool:
    return not sides.by_exchange


def _must(old: Aggregate | None, where: str) -> Aggregate:
    if old is None:
        raise Refused("there is no such aggregate", where=where, hint="put it first")
    return old

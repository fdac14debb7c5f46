"""The gateway: reads and writes of one class that follow its move."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, TypeAlias, TypeVar

from migrator.errors import DamagedBlock, Failed, MigratorError, Refused, Terminal, Transient
from migrator.exchange import Change, Replacing, TooMuch, done_unread
from migrator.gateway import changes
from migrator.gateway.errors import Behind, Conflict
from migrator.gateway.follower import Moved, Terms
from migrator.gateway.level import Before, is_level
from migrator.gateway.noting import Noting
from migrator.gateway.opened import Opened, Sides
from migrator.gateway.sending import Sending, in_doubt
from migrator.model.block import Address, Aggregate, Block, has_ended, join, name
from migrator.model.path import lookup, parse_path
from migrator.model.rules import CorruptBlock
from migrator.model.value import Record, Value
from migrator.ports import Collection
from migrator.retry import Retry

T = TypeVar("T")


class _Any(Enum):
    ANY = 0


ANY: Final = _Any.ANY
Expected: TypeAlias = str | _Any | None
"""The version that must be there; None for no aggregate at all, ANY for whatever there is."""

_TRIES = 50


@dataclass(frozen=True)
class Found:
    """An aggregate as it was read or written. ``expires``: milliseconds since 1970, or None."""

    id: Value
    value: Record = field(repr=False)
    expires: int | None = None

    @cached_property
    def version(self) -> str:
        """What ``expected`` takes: a digest of the content, the same on both sides of a move."""
        return changes.version(Aggregate(self.id, self.value, self.expires))


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
        found = self._get(here, id)
        here.recorder.get(id, found is not None)
        return found

    def _get(self, here: Opened, id: Value) -> Found | None:
        standing = here.follower.standing
        sides, shared = here.sides(standing), here.mirrored.take(id)
        found = None
        if shared is not None:
            found = shared.ask(standing, sides, lambda mirror: _held(mirror, id), _version)
        if found is None:
            # What only the old side holds is read there, and that may fail for now as well.
            found = Retry(here.follower.terms.bound)(_read, here, sides, id)
            if shared := shared or here.mirrored.take(id):
                version = None if found is None else partial(_version, found)
                shared.answered(version, there=found is not None)
        here.shadows.offer(sides.key(id))
        return found

    def get_entries(self, id: Value, paths: Sequence[str]) -> dict[str, Value] | None:
        """What lies at some access paths, as far as it is there; None where there is no aggregate.

        Only the entries that hold it are read, where the representation tells which.
        """
        here = self._here
        changes.refuse_one(paths, name(here.cls, id))
        given = self._get_entries(here, id, paths)
        if paths:
            here.recorder.get_entries(id, paths, given is not None)
        return given

    def _get_entries(
        self, here: Opened, id: Value, paths: Sequence[str]
    ) -> dict[str, Value] | None:
        standing = here.follower.standing
        sides, where = here.sides(standing), name(here.cls, id)
        entries = None if sides.translates else _entries(sides.primary, paths, where)
        shared = here.mirrored.take(id)
        if entries is None or (shared is not None and shared.pinned):
            found = self._get(here, id)
            return None if found is None else _at(found.value, paths, where)
        given = None
        if shared is not None:
            given = shared.ask(standing, sides, lambda _: _held_at(sides, id, paths, where))
        if given is None:
            wanted = list(dict.fromkeys(entries.values()))
            read = Retry(here.follower.terms.bound)(sides.primary.read_entries, id, wanted)
            given = None if read is None else _picked(read, entries, where)
            if shared := shared or here.mirrored.take(id):
                shared.answered(None, there=given is not None)
        here.shadows.offer(id)  # not translated: the primary's own key
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
        before = self._before(here, id, wait) if wait else None

        def whole(sides: Sides) -> bool:
            if sides.translates:
                return False
            sides.primary.write([sides.stored(new, None)])
            return True

        sent, plainly = list[Sending](), _plainly(here, expected)
        if not (plainly and self._send(here, id, whole, sent, suits=_takes_plain)):
            try:
                self._change(here, id, lambda _: new, expected, sent, whole=True)
            except TooMuch:
                if expected is not ANY or not self._send(here, id, whole, sent):
                    raise
        here.recorder.put(id, value)
        done = Found(id, value, expires)
        return done if before is None else self._done(here, done, before)

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

        before = self._before(here, id, wait)
        fields = changes.top_fields(set or {}, where)
        found, sent = None, list[Sending]()
        if fields and not remove and expected is ANY:
            found = self._amend(here, id, fields, {}, sent)
        done = found or self._change(here, id, change, expected, sent)
        here.recorder.update(id, set or {}, remove)
        return self._done(here, done, before)

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

        before = self._before(here, id, wait)
        fields = changes.top_fields({path: item}, where)
        found, sent = None, list[Sending]()
        if fields and expected is ANY:
            found = self._amend(here, id, {}, fields, sent, once=True)
        done = found or self._change(here, id, change, expected, sent, once=True)
        here.recorder.append(id, path, item)
        return self._done(here, done, before)

    def delete(self, id: Value, *, expected: Expected = ANY, wait: bool = False) -> None:
        """Remove an aggregate; one that is not there is no error, unless it was expected: then
        Conflict is raised, as by ``put``."""
        here = self._here
        before = self._before(here, id, wait)

        def whole(sides: Sides) -> bool:
            key = sides.key(id)
            (block,) = sides.primary.read([key]) if not sides.by_key else (Block(key, {}),)
            if block is not None:
                sides.primary.delete([Address(key, block.place)])
            return True

        sent, plainly = list[Sending](), _plainly(here, expected)
        if not (plainly and self._send(here, id, whole, sent, suits=_takes_plain, deleted=True)):
            try:
                self._change(here, id, lambda _: None, expected, sent, deleted=True, whole=True)
            except TooMuch:
                if expected is not ANY:
                    raise
                self._send(here, id, whole, sent, deleted=True)
        here.recorder.delete(id)
        if before is not None:
            self._wait(here, id, before)

    # ------------------------------------------------------------------ how a write is sent

    def _send(
        self,
        here: Opened,
        id: Value,
        write: Callable[[Sides], T],
        sendings: list[Sending],
        *,
        suits: Callable[[Sides], bool] = lambda sides: True,
        once: bool = False,
        deleted: bool = False,
    ) -> T | None:
        """Send one write to the primary, under a permit; begun anew where the run was moved. None,
        and nothing done, where what is the primary by then does not suit it.

        ``sendings`` are those of the same call before, to which these are added."""
        if type(id) is not str:
            changes.refuse_odd(id, here.cls, "the identifier")
        late = 0.0
        try:
            return self._sent(here, id, write, suits, sendings, once=once, deleted=deleted)
        except MigratorError as error:
            # What the last sending was told says nothing of those before it.
            doubtful = _doubtful(sendings)
            if isinstance(error, Transient):
                error.unknown = error.unknown or doubtful
                doubtful = error.unknown
            late = here.follower.terms.request_life if doubtful else 0.0
            if doubtful and not isinstance(error, Transient):
                raise in_doubt(name(here.cls, id)) from error
            raise
        finally:
            here.mirrored.wrote(id, late)

    def _sent(
        self,
        here: Opened,
        id: Value,
        write: Callable[[Sides], T],
        suits: Callable[[Sides], bool],
        sendings: list[Sending],
        *,
        once: bool,
        deleted: bool,
    ) -> T | None:
        follower = here.follower
        until = time.monotonic() + follower.terms.bound
        begun = False  # whether something of it may have been carried out
        while True:
            with follower.writing(until) as standing:
                sides = here.sides(standing)
                if begun and sides.elsewhere:
                    raise Transient(
                        "the sides were swapped while it was written, and their keys differ; it is "
                        "not known whether this was carried out",
                        where=name(here.cls, id), unknown=True,
                        hint=f"read it by the keys of the {sides.primary_side}",
                    )  # fmt: skip
                if not suits(sides):
                    return None  # before a bracket is opened, which others would wait for
                brackets = sides.brackets
                noting = None
                if brackets is not None:
                    noting = Noting(brackets, sides.key(id), deleted, standing.run)
                sending = Sending(follower, standing, noting, once, until - time.monotonic())
                sendings.append(sending)
                try:
                    return sending.send(write, sides)
                except Moved:
                    begun = begun or sending.sent
                    if time.monotonic() >= until:
                        raise Transient(
                            f"it was not written within {follower.terms.bound:g} s",
                            where=name(here.cls, id), unknown=True,
                            hint="see whether the store answers, and read before you try again",
                        ) from None  # fmt: skip
                    continue
                except Terminal:
                    # A store's own fence refuses before this gateway has seen that it is up.
                    if not follower.look(standing):
                        raise
                    begun = begun or sending.doubtful

    def _amend(
        self,
        here: Opened,
        id: Value,
        set: Mapping[str, Value],
        append: Mapping[str, Value],
        sendings: list[Sending],
        *,
        once: bool = False,
    ) -> Found | None:
        """Change an aggregate where it lies, in one request; None where that was not done."""

        def write(sides: Sides) -> Found | None:
            amending = sides.amending
            if amending is None:
                return None
            after = amending.amend(id, set, append)
            try:
                return _found(here, sides, after)
            except DamagedBlock as error:
                raise done_unread(error) from None

        if here.sides(here.follower.standing).amending is None:
            return None
        return self._send(here, id, write, sendings, suits=_amends, once=once)

    def _change(
        self,
        here: Opened,
        id: Value,
        change: Callable[[Aggregate | None], Aggregate | None],
        expected: Expected,
        sendings: list[Sending],
        *,
        once: bool = False,
        deleted: bool = False,
        whole: bool = False,
    ) -> Found:
        """Read, change, exchange; again where somebody was faster.

        What was sent before and is there now was carried out, though its answer was lost; not so
        with ``once``, where somebody else may have added the same. ``whole``: whatever is there
        goes, also what can't be read.
        """
        sent: list[Found] = []

        def try_(sides: Sides) -> Found | None:
            key = sides.key(id)
            try:
                (held,) = sides.primary.read([key])
                found = _found(here, sides, held)
            except DamagedBlock:
                blindly = whole and expected is ANY and sides.by_exchange
                if not blindly or not isinstance(sides.primary, Replacing):
                    raise
                new = change(None)
                sides.primary.replace(key, None if new is None else sides.stored(new, None))
                return Found(id, {}) if new is None else Found(id, new.value, new.expires)
            if sent and found is not None and found.version == sent[-1].version and not once:
                return found
            if expected is not ANY and expected != (found and found.version):
                raise _conflict(here, id, found, expected)
            old = None if found is None else Aggregate(id, found.value, found.expires)
            new = change(old)
            made: Change = None
            if new is not None:
                there = held if found is not None else None  # what has ended gives nothing on
                made = changes.change_of(held, sides.stored(new, there), apart=sides.apart)
            after = Found(id, {} if new is None else new.value, new.expires if new else None)
            if changes.is_same(held, made):
                return after
            exchanging = sides.exchanging
            if exchanging is None:
                raise Refused(
                    "this store can't change a block on condition yet",
                    where=str(sides.primary.at),
                    hint="put or delete whole aggregates without expected; docs/gateway.md tells "
                    "which layouts can",
                )
            sent[:] = [after]
            return after if exchanging.exchange(key, held, made) else None

        for attempt in range(_TRIES):
            done = self._send(here, id, try_, sendings, once=once, deleted=deleted)
            if done is not None:
                return done
            time.sleep(min(0.05, 0.0005 * attempt))
        if _doubtful(sendings):
            raise in_doubt(name(here.cls, id))
        raise Failed(
            "others keep writing it",
            where=name(here.cls, id),
            hint="nothing was written; try again",
        )

    # ------------------------------------------------------------------ waiting for both sides

    def _before(self, here: Opened, id: Value, wait: bool) -> Before | None:
        """What ``wait`` has to know before a write: where else the aggregate may lie until then."""
        if not wait:
            return None
        sides = here.sides(here.follower.standing)
        if not sides.mirrored or not sides.route.changes_key or sides.elsewhere:
            return Before(sides.primary_side)
        try:
            (held,) = Retry(here.follower.terms.bound)(sides.primary.read, [sides.key(id)])
        except DamagedBlock:
            held = None  # where it lay nobody can tell; whether it may be replaced, its write says
        return Before(sides.primary_side, sides.led(sides.primary_side, held))

    def _done(self, here: Opened, found: Found, before: Before | None) -> Found:
        if before is not None:
            self._wait(here, found.id, before)
        return found

    def _wait(self, here: Opened, id: Value, before: Before) -> None:
        """Until both sides hold the same under a key."""
        until = time.monotonic() + here.follower.terms.bound
        pause = 0.001
        while True:
            sides = here.sides(here.follower.standing)
            # Before a swap that changed the keys all that was written had come over.
            if not sides.mirrored or sides.elsewhere or is_level(sides, id, before):
                return
            if time.monotonic() > until:
                raise Behind(
                    f"it is written, and the mirror did not hold it within "
                    f"{here.follower.terms.bound:g} s",
                    where=name(here.cls, id),
                    hint="see whether a mirror is running:  migrator status",
                )
            time.sleep(pause)
            pause = min(0.05, pause * 2)


_gateways: weakref.WeakSet[Gateway] = weakref.WeakSet()
# Closing what a parent has open would say goodbye on its sockets, and so would forgetting it.
_of_parents: list[Opened] = []


def _in_child() -> None:
    for gateway in list(_gateways):
        _of_parents.append(gateway._opened)
        gateway._opening = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_in_child)


def _plainly(here: Opened, expected: Expected) -> bool:
    """Whether a write of a whole aggregate is to be tried without a condition."""
    return expected is ANY and not here.sides(here.follower.standing).by_exchange


def _doubtful(sendings: Sequence[Sending]) -> bool:
    """Whether one of them may have been carried out, though nobody was told so."""
    return any(sending.doubtful for sending in sendings)


def _takes_plain(sides: Sides) -> bool:
    return not sides.by_exchange


def _amends(sides: Sides) -> bool:
    return sides.amending is not None


def _read(here: Opened, sides: Sides, id: Value) -> Found | None:
    (block,) = sides.primary.read([sides.key(id)])
    return _found(here, sides, block)


def _found(here: Opened, sides: Sides, block: Block | None) -> Found | None:
    """The aggregate of a block; none of one that has ended, which servers remove late or never."""
    if block is None or has_ended(block.expires, time.time()):
        return None
    try:
        aggregate = sides.seen(block)
    except CorruptBlock as error:
        raise DamagedBlock(f"it can't be read: {error}", where=name(here.cls, block.id)) from None
    return Found(aggregate.id, aggregate.value, aggregate.expires)


def _version(found: Found) -> str:
    return found.version


def _held(mirror: Collection, id: Value) -> Found | None:
    """An aggregate as the mirror holds it, which speaks the application's shape."""
    (block,) = mirror.read([id])
    if block is None or has_ended(block.expires, time.time()):
        return None
    there = join(block)
    return Found(block.id, there.value, there.expires)


def _held_at(sides: Sides, id: Value, paths: Sequence[str], where: str) -> dict[str, Value] | None:
    """What lies at some access paths of an aggregate, as the mirror holds it."""
    mirror = sides.mirror
    entries = None if sides.mirror_expires else _entries(mirror, paths, where)
    if entries is None:
        found = _held(mirror, id)
        return None if found is None else _at(found.value, paths, where)
    read = mirror.read_entries(id, list(dict.fromkeys(entries.values())))
    return None if read is None else _picked(read, entries, where)


def _entries(side: Collection, paths: Sequence[str], where: str) -> dict[str, str] | None:
    """The entry that holds what lies at each path; None where only the aggregate tells."""
    rules = side.at.rules(side.cls)
    entries: dict[str, str] = {}
    for path in paths:
        entry = changes.entry_of(rules, path, where)
        if entry is None:
            return None
        entries[path] = entry
    return entries


def _picked(read: Mapping[str, Value], entries: Mapping[str, str], where: str) -> dict[str, Value]:
    """What lies at the paths, out of the entries that hold it."""
    given: dict[str, Value] = {}
    for path, entry in entries.items():
        if entry in read:
            # Below its entry a place has the rest of its path.
            rest = changes.steps_of(path, where)[len(parse_path(entry)) :]
            try:
                given[path] = lookup(read[entry], rest)
            except KeyError:
                continue
    return given


def _must(old: Aggregate | None, where: str) -> Aggregate:
    if old is None:
        raise Refused("there is no such aggregate", where=where, hint="put it first")
    return old


def _at(value: Record, paths: Sequence[str], where: str) -> dict[str, Value]:
    given: dict[str, Value] = {}
    for path in paths:
        try:
            given[path] = lookup(value, changes.steps_of(path, where))
        except KeyError:
            continue
    return given


def _conflict(here: Opened, id: Value, found: Found | None, expected: Expected) -> Conflict:
    there = "there is none" if found is None else f"it has version {found.version}"
    wanted = "none was expected" if expected is None else f"{expected} was expected"
    return Conflict(
        f"{there}, and {wanted}; nothing was written", where=name(here.cls, id),
        hint="read it again, decide anew, and write with its version",
    )  # fmt: skip

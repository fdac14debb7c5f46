"""Reconcile: read what the primary holds now, make the mirror equal (R3).

One batch of keys at a time, read again from the start whenever a request's outcome is unknown:
then the mirror holds what the last read saw, whatever became of the requests before (R6).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

import structlog

from migrator.engine.alike import is_key, others, own, own_and_others, turns
from migrator.engine.backfill import quarantined
from migrator.engine.points import reached
from migrator.engine.work import Scene
from migrator.engine.written import Written
from migrator.errors import DoesNotFit, Interrupted, Refused, Terminal, Transient
from migrator.journal import Touch
from migrator.model.block import Address, Block, join
from migrator.model.canonical import encode
from migrator.model.diff import block_differences, same_block
from migrator.model.path import child, parse_path
from migrator.model.rules import CorruptBlock
from migrator.model.value import Value, show
from migrator.ports import Collection
from migrator.route import NOT_MADE, Route, Unread, read_each
from migrator.state import LiveState, Quarantined, quarantine_key

LONGEST_WAIT = 10.0
# The events of a run's log that tell what the mirror held: written by somebody else, or by whom
# nobody can tell.
FOREIGN, RECONCILED = "foreign write", "reconciled"
_AGAIN = "it comes again whenever it is undone: a trigger or a default of the mirror writes it"
_REFUSED = 1_000
_TOLD = 20
# Keys of the mirror that are read in one request to see whose they are.
_AT_ONCE = 500
# What lies under keys of the mirror, by their canonical forms, as far as it was read.
Held: TypeAlias = Mapping[bytes, Block | None]
NOTHING: Held = MappingProxyType({})

log = structlog.get_logger("migrator.mirror")


@dataclass
class Done:
    """What a reconcile did to the mirror."""

    create: int = 0
    change: int = 0
    delete: int = 0
    leave: int = 0
    aside: int = 0

    def add(self, other: Done) -> None:
        for name, count in other.__dict__.items():
            setattr(self, name, getattr(self, name) + count)


@dataclass(frozen=True)
class Foreign:
    """A key of the mirror, and where it held something else than it must; ``sources`` are the keys
    of the primary whose writes may be why. ``sure``: the owner had left something else there.
    ``fields`` are those of the block that differ, the empty one stands for all of it."""

    key: Value
    paths: list[str]
    fields: frozenset[str]
    sources: Sequence[Value]
    side: str
    held: Block | None
    sure: bool


@dataclass
class Reconciler:
    """Makes the mirror of one move equal, key by key, in either direction.

    ``request_life`` is for how many seconds a request may live on whose answer never came.
    """

    scene: Scene
    route: Route
    live: LiveState
    request_life: float
    total: Done = field(default_factory=Done)
    waits: str = ""  # for which store, and why
    # Those of other moves that make blocks of the same source out of several of their targets.
    beside: Sequence[Reconciler] = ()
    written: dict[str, Written] = field(
        default_factory=lambda: {"source": Written(), "target": Written()}
    )
    # Whether a side's feed shows that nothing was lost there; who reads it knows.
    sound: Callable[[str], bool] = lambda side: False
    # Whether both sides are asked at the same time, by a thread more.
    at_once: bool = False
    # Called where somebody else's write was met.
    hurry: Callable[[], None] = lambda: None
    _found: list[Foreign] | None = None
    _at_once: bool = False
    _looks: bool = False  # writes nothing
    _scans: bool = False
    # What is in the ledger, and in quarantine, by key, and what stands for why it is.
    _ledger: dict[str, int] | None = None
    _aside: dict[str, int] | None = None
    # Of those, what a listing of the source has not met.
    _unmet: set[str] | None = None
    # Of those in the ledger, what a re-scan has not refused again.
    _unrefused: set[str] | None = None
    _unreadable: set[tuple[str, bytes, str]] = field(default_factory=set)
    _refused: dict[str, dict[bytes, Value]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        for written in self.written.values():
            written.forgets = bool(self.route.ending)  # fields go when their deadlines are reached

    def unlike(self, side: str, touches: Sequence[Touch], *, surely: bool = False) -> list[Touch]:
        """Those touches of a mirror's feed that are not of our own writes alone, by what lies there
        now; without ``surely`` also those of keys of which nobody knows."""
        written, there = self.written[side], self._side(side)
        known = [touch for touch in touches if written.knows(touch.key)]
        ours: list[bool | None] = []

        def do() -> Done:
            some = known[len(ours) : len(ours) + _AT_ONCE]
            keys = [touch.key for touch in some]
            held, _ = own(keys, self._read(there, keys))
            ours.extend(written.holds(t.key, block) for t, block in zip(some, held, strict=True))
            return Done()

        while len(ours) < len(known):
            self._settled(do)
        found = list(zip(known, ours, strict=True))
        if surely:
            return [touch for touch, mine in found if mine is False]
        unknown = [touch for touch in touches if not written.knows(touch.key)]
        return [touch for touch, mine in found if not mine] + unknown

    def _side(self, side: str) -> Collection:
        return self.route.source if side == "source" else self.route.target

    def _written_to(self, side: Collection) -> Written:
        return self.written["source" if side is self.route.source else "target"]

    def foreign(
        self, primary: str, touches: Sequence[Touch], side: str, *, tell: bool = False
    ) -> list[Foreign]:
        """Reconcile keys that somebody else may have written to a side; what differed.

        ``tell``: before anything is written, since a crash after that leaves no difference (R11).
        """
        found = self._found = []
        self._at_once = tell
        try:
            # Deletes by somebody else are none of the application's.
            self.untouched(primary, [touch.key for touch in touches], side)
        finally:
            self._found, self._at_once = None, False
        return found

    def look(self, primary: str, touches: Sequence[Touch], side: str) -> list[Foreign]:
        """As ``foreign``, and leave all as it is."""
        self._looks = True
        try:
            return self.foreign(primary, touches, side)
        finally:
            self._looks = False

    def tell(self, found: Foreign, event: str = FOREIGN) -> None:
        """Keep in the run's record what the mirror held that it must not."""
        self.written[found.side].told(found.key, found.held)
        name, paths = self.route.name(found.key), found.paths
        self.scene.control.record(self.scene.run.id, event, key=name, paths=paths)
        log.warning(event, key=name, paths=paths)

    def leave(self, found: Foreign, fields: frozenset[str] = frozenset()) -> None:
        """Take what somebody else wrote for what must lie there, until the next write, and say so
        once for each key. ``fields`` are found to come again, of all keys."""
        written = self.written[found.side]
        written.found(found.key, found.held)
        if written.leaves(found.key, fields):
            name, why = self.route.name(found.key), _AGAIN
            self.scene.control.record(
                self.scene.run.id, "foreign write left", key=name, paths=found.paths, why=why
            )
            log.warning("foreign write left", key=name, why=why)
            reached("foreign.left")

    def touched(self, primary: str, touches: Sequence[Touch]) -> Done:
        """Reconcile the keys of some touches."""
        if not touches:
            return Done()
        keys = [touch.key for touch in touches]
        deleted = {encode(touch.key) for touch in touches if touch.deleted}
        source, target = self.route.source, self.route.target
        if primary == "source":
            return self._settled(lambda: self._forward(keys, *self._both(source, target, keys)))
        done = self._settled(lambda: self._backward(keys, deleted))
        if not self._looks:
            # A block that went and came again is there without what they put into it. Not only
            # what was written just now: after a crash nobody knows what was written before.
            for each in self.beside:
                each.mirrored(primary, [Touch(key) for key in keys])
        return done

    def mirrored(self, primary: str, touches: Sequence[Touch]) -> Done:
        """Reconcile keys of the mirror, whatever led to them."""
        return self.touched(primary, touches)

    def prepare(self) -> None:
        """Make what it needs beside the data; once more is the same as once."""

    def drop(self) -> None:
        """Remove what ``prepare`` made."""

    def refused(self, primary: str) -> list[Touch]:
        """Keys of the primary whose last write the mirror refused: another write may have made
        way."""
        return [Touch(key) for key in self._refused[primary].values()]

    def _remember(self, primary: str, keys: Sequence[Value], refused: set[bytes]) -> None:
        known = self._refused[primary]
        for key in keys:
            form = encode(key)
            if form not in refused:
                known.pop(form, None)
            elif len(known) < _REFUSED:
                known[form] = key

    def page(self, blocks: Sequence[Block], damaged: Sequence[tuple[Value, str]]) -> Done:
        """Write what a page of the source listed, as long as no later write was acted on (R4)."""
        keys = [block.id for block in blocks]
        first = True

        def do() -> Done:
            nonlocal first
            read = list(blocks) if first else self._read(self.route.source, keys)
            first = False
            return self._forward(keys, read)

        done = self._settled(do)
        for id, reason in damaged:
            self._set_aside(id, self.route.told(reason), "")
            done.aside += 1
        return done

    def keys(self, primary: str, keys: Sequence[Value], listed: str) -> Done:
        """Reconcile keys of a re-scan that listed them on a side."""
        if listed == "source" and self._unmet is not None:
            self._unmet.difference_update(map(quarantine_key, keys))
        self._scans = True
        try:
            return self.untouched(primary, keys, listed)
        finally:
            self._scans = False

    def untouched(self, primary: str, keys: Sequence[Value], side: str) -> Done:
        """Reconcile keys of a side that nobody touched on the primary."""
        touches = [Touch(key) for key in keys]
        if side == primary:
            return self.touched(primary, touches)
        return self.mirrored(primary, touches)

    def known_unlike(self) -> set[str]:
        """The keys of which the sides differ with good reason: in quarantine, or in the ledger."""
        number = self.route.number
        return self._known_aside().keys() | {e.key for e in self.live.ledger() if e.move == number}

    @property
    def sets_aside(self) -> bool:
        """Whether anything is in quarantine, or in the ledger."""
        return bool(self._known_aside() or self._known_ledger())

    def list_source(self) -> None:
        """A re-scan lists the source, from its start."""
        self._unmet = set(self._known_aside())

    def listed_source(self) -> None:
        """It has listed the source to its end: what is in quarantine and was not there is gone.

        Where another process began to list it, nobody knows what that has met.
        """
        gone, self._unmet = self._unmet, None
        for key in gone or ():
            self._leave(key)
        if gone:
            log.info("gone from the source, and from quarantine", keys=len(gone))

    def list_target(self) -> None:
        """A re-scan begins while the target is the primary."""
        number = self.route.number
        self._unrefused = {item.key for item in self.live.ledger() if item.move == number}

    def listed_target(self) -> None:
        """It has come to its end: what it did not refuse again is gone, from the ledger, too."""
        gone, self._unrefused = self._unrefused, None
        if gone:
            self.live.strike(self.route.number, gone)
            for key in gone:
                self._known_ledger().pop(key, None)
            log.info("gone from the target, and from the ledger", keys=len(gone))

    # ------------------------------------------------------------------ one batch

    def _settled(self, do: Callable[[], Done]) -> Done:
        """Do it until its outcome is known; raises Interrupted where the run is to stop."""
        wait = 0.1
        lease = self.scene.lease
        before = lease.doubtful
        while True:
            self.scene.check()
            try:
                done = do()
            except Transient as error:
                # Whoever follows this process meanwhile has to outwait the request, too.
                lease.doubtful = before or error.unknown
                pause = self.request_life if error.unknown else wait
                log.warning("mirror waits", where=error.where, error=error.what, seconds=pause)
                self.waits = error.head
                self._pause(pause)
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                lease.doubtful = before
                self.waits = ""
                self.total.add(done)
                return done

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.scene.check()
            if self.scene.stop.wait(min(left, 0.5)):
                raise Interrupted("stopped, nothing lost", hint="start the mirror again")

    def _read(self, side: Collection, keys: Sequence[Value]) -> list[Block | None]:
        """The blocks of some keys as they are now; ``Unread`` stands for one that is damaged."""
        found = read_each(side, keys, self.scene.retry)
        for block in found:
            if isinstance(block, Unread):
                self._tell_unread(str(side.at), block)
        return found

    def _both(
        self, primary: Collection, mirror: Collection, keys: Sequence[Value]
    ) -> tuple[list[Block | None], Held]:
        """The blocks of some keys on the primary as they are now, and what the mirror holds under
        the same keys, asked for at the same time: nobody but the owner writes there (R2)."""
        if not self.at_once or self.route.changes_key:
            return self._read(primary, keys), {}
        coming = self._pool.submit(copy_context().run, self._read, mirror, keys)
        try:
            found = self._read(primary, keys)
        finally:
            wait([coming])  # however this ends, nothing of it is under way any more
        held = zip(keys, coming.result(), strict=True)
        return found, {encode(key): block for key, block in held}

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="mirror")

    def close(self) -> None:
        """Let go of its thread."""
        if (pool := self.__dict__.pop("_pool", None)) is not None:
            pool.shutdown()

    def _lies(self, side: Collection, keys: Sequence[Value], held: Held) -> list[Block | None]:
        """What lies under some keys of the mirror, of all of which it may be known."""
        forms = list(map(encode, keys)) if held else []
        if forms and held.keys() >= set(forms):
            return [held[form] for form in forms]
        return self._read(side, keys)

    def _tell_unread(self, where: str, block: Unread) -> None:
        """Log it, once as long as it is for the same reason: it is tried again and again."""
        told = where, encode(block.id), block.reason
        if told in self._unreadable:
            return
        if len(self._unreadable) >= _REFUSED:
            self._unreadable.clear()
        self._unreadable.add(told)
        reason = self.route.told(block.reason)
        log.warning("can't be read", where=where, key=show(block.id), reason=reason)

    def _expected(self, block: Block) -> list[Block]:
        """As of the route; CorruptBlock for one that could not be read."""
        if isinstance(block, Unread):
            raise CorruptBlock(block.reason)
        return self.route.expected(block)

    def _forward(
        self, keys: Sequence[Value], blocks: Sequence[Block | None], held: Held = NOTHING
    ) -> Done:
        """From the source to the target; ``held`` is what is known to lie there."""
        done = Done()
        keys, blocks = own_and_others(keys, blocks)
        for turn in turns(self.route.target, keys):
            done.add(self._forward_of([keys[i] for i in turn], [blocks[i] for i in turn], held))
            held = NOTHING  # what was written may lie there now for another key
        return done

    def _forward_of(
        self, keys: Sequence[Value], blocks: Sequence[Block | None], known: Held
    ) -> Done:
        done, route = Done(), self.route
        want: list[Block] = []
        gone: list[Value] = []
        kept: list[Value] = []
        aside: set[bytes] = set()
        for key, block in zip(keys, blocks, strict=True):
            try:
                made = [] if block is None else self._expected(block)
            except CorruptBlock as error:
                # What the mirror holds is the last of it that could be read.
                self._set_aside(key, *route.why(error))
                aside.add(encode(key))
                kept.append(key)
                continue
            except (DoesNotFit, Refused) as error:
                self._set_aside(key, *route.why(error))
                aside.add(encode(key))
                made = []
            want += made
            if not made:
                gone.append(key)
        ids = [*(block.id for block in want), *gone]
        held = self._lies(route.target, ids, known)
        if alike := others(self._read, route.source, ids, held):
            for new in want:
                if (form := encode(new.id)) in alike:
                    self._set_aside(new.id, self._one(route.target, alike[form]), "")
                    aside.add(form)
            held = [b for id, b in zip(ids, held, strict=True) if encode(id) not in alike]
            want = [block for block in want if encode(block.id) not in alike]
            gone = [key for key in gone if encode(key) not in alike]
        writes, left = [], list[Block | None]()
        for new, old in zip(want, held, strict=False):
            if old is not None and same_block(new, old):
                done.leave += 1
                self._same(route.target, old)
                continue
            if old is not None and not is_key(new.id, old.id):
                left.append(old)  # of a key that is gone, and makes way
                writes.append(new)
                done.create += 1
                continue
            writes.append(new)
            done.change += old is not None
            done.create += old is None
            self._differs(route.target, new.id, new, old)
        for key, old in zip(gone, held[len(want) :], strict=True):
            self._differs(route.target, key, None, old)
        if self._found is not None and kept:
            for key, old in zip(kept, self._read(route.target, kept), strict=True):
                self._differs(route.target, key, None, old)
        if self._looks:
            return Done()
        # Deletes first: they make way for unique values.
        self._delete(route.target, [*left, *held[len(want) :]], done)
        there = {encode(old.id) for old in held[: len(want)] if old is not None}
        aside |= self._write(writes, there)
        self._take_up([key for key in keys if encode(key) not in aside])
        self._remember("source", keys, aside)
        done.aside = len(aside)
        return done

    def _write(self, writes: list[Block], there: set[bytes]) -> set[bytes]:
        """Write blocks to the target; those that it refuses are set aside and returned."""
        reached("mirror.write")
        refused = self._write_all(self.route.target, writes)
        for block, error in refused:
            self._set_aside(block.id, *self.route.why(error))
        # An older copy would pass for the block, and a rollback not tell it from a write.
        forms = [(encode(block.id), block) for block, _ in refused]
        old = [Address(block.id) for form, block in forms if form in there and _joins(block)]
        if old:
            self._remove(self.route.target, old)
        return {encode(block.id) for block, _ in refused}

    def _write_all(self, side: Collection, writes: list[Block]) -> list[tuple[Block, Terminal]]:
        """Write all at once, so that rows that depend on one another go together; where that is
        refused, each alone. Those that are refused for good are returned, each with why."""
        if not writes:
            return []
        written = self._written_to(side)
        forms = written.sends(writes)
        try:
            side.write(writes)
        except Terminal:
            if not self.scene.retry(side.exists):
                raise
        else:
            written.answered(forms)
            reached("mirror.written")
            return []
        refused = self._one_by_one(side, writes)
        if len(refused) > 1:
            # Perhaps each holds what another is to have: a unique value that was swapped.
            ids = [block.id for block, _ in refused]
            held, _ = own(ids, self._read(side, ids))
            self._delete(side, held, Done())
            written.sends(block for block, _ in refused)
            refused = self._one_by_one(side, [block for block, _ in refused])
        reached("mirror.written")
        return refused

    def _one_by_one(self, side: Collection, blocks: list[Block]) -> list[tuple[Block, Terminal]]:
        """Write each alone, as long as one that is written makes way for another."""
        written = self._written_to(side)
        left: list[tuple[Block, Terminal]] = []
        while True:
            before, left = len(left), []
            for block in blocks:
                try:
                    side.write([block])
                except Terminal as error:
                    left.append((block, error))
                else:
                    written.answered([encode(block.id)])
            if not left or len(left) in (before, len(blocks)):
                written.refused(encode(block.id) for block, _ in left)
                return left
            blocks = [block for block, _ in left]

    def _delete(self, side: Collection, held: Sequence[Block | None], done: Done) -> None:
        there = [Address(block.id, block.place) for block in held if block is not None]
        if there:
            self._remove(side, there)
            done.delete += len(there)
            reached("mirror.deleted")

    def _remove(self, side: Collection, there: Sequence[Address]) -> None:
        written = self._written_to(side)
        forms = written.sends((), [address.id for address in there])
        side.delete(there)
        written.answered(forms)

    def _backward(self, keys: Sequence[Value], deleted: set[bytes]) -> Done:
        """From the target back to the source; ``old`` is read from there, which R2 makes safe."""
        done = Done()
        news, held = self._both(self.route.target, self.route.source, keys)
        keys, news = own_and_others(keys, news)
        for turn in turns(self.route.source, keys):
            some = [keys[i] for i in turn], [news[i] for i in turn]
            done.add(self._backward_of(*some, held, deleted))
            held = NOTHING  # as on the way there
        return done

    def _backward_of(
        self, keys: Sequence[Value], news: Sequence[Block | None], held: Held, deleted: set[bytes]
    ) -> Done:
        done, route = Done(), self.route
        olds = self._lies(route.source, keys, held)
        writes: list[Block] = []
        gone: list[Block | None] = []
        refused: list[Value] = []
        aside = self._known_aside()
        left: set[bytes] = set()  # what is not known to be of the target
        alike = others(self._read, route.target, keys, olds)
        for key, new, old in zip(keys, news, olds, strict=True):
            if old is not None and not is_key(key, old.id):
                stays = encode(key) in alike or quarantine_key(old.id) in aside
                if not stays:
                    gone.append(old)  # of a key that is gone, and makes way
                elif new is not None:
                    self._enter(key, self._one(route.source, old.id), "")
                    refused.append(key)
                    left.add(encode(key))
                    done.aside += 1
                    continue
                old = None
            if new is None:
                self._differs(route.source, key, None, old)
                if quarantine_key(key) in aside and encode(key) not in deleted:
                    # It never reached the target: nobody deleted it there.
                    left.add(encode(key))
                else:
                    gone.append(old)
                continue
            try:
                if isinstance(new, Unread):
                    raise CorruptBlock(new.reason)
                back = self._back(new, old, fresh=encode(key) in deleted)
            except NOT_MADE as error:
                self._enter(key, *route.why(error))
                refused.append(key)
                if isinstance(error, CorruptBlock):
                    left.add(encode(key))
                done.aside += 1
                continue
            if back is None:
                done.leave += 1
                self._same(route.source, old)
            else:
                writes.append(back)
                self._differs(route.source, key, back, old)
                done.change += old is not None
                done.create += old is None
        if self._looks:
            return Done()
        # Before it is written over: whoever finds it there after a crash, and the target without
        # it, would take it for what was left out, and leave it.
        self._take_up([key for key in keys if encode(key) not in left])
        reached("mirror.write")
        # Deletes first: they make way for unique values.
        self._delete(route.source, gone, done)
        for block, why in self._write_all(route.source, writes):
            self._enter(block.id, *route.why(why))
            refused.append(block.id)
            done.aside += 1
        self._strike(keys, refused)
        return done

    def _strike(self, keys: Sequence[Value], refused: Sequence[Value]) -> None:
        """What is on both sides now is in the ledger no longer."""
        self._remember("target", keys, set(map(encode, refused)))
        known = self._known_ledger()
        done = known.keys() & set(map(quarantine_key, keys)) - set(map(quarantine_key, refused))
        if done:
            self.live.strike(self.route.number, done)
            for key in done:
                del known[key]

    def _back(self, new: Block, old: Block | None, *, fresh: bool) -> Block | None:
        """What the source must hold for a block of the target; None where it does.

        ``fresh``: it was deleted and inserted again, so that nothing of the old one is inherited.
        """
        if old is not None and not fresh:
            try:
                if all(same_block(new, made) for made in self._expected(old)):
                    return None
            except NOT_MADE:
                pass  # it never reached the target, and is replaced
        try:
            before = None if fresh or old is None else join(old)
        except CorruptBlock:
            before = None
        back = self.route.returned(new, before)
        return None if old is not None and same_block(back, old) else back

    # ------------------------------------------------------------------ writes by somebody else

    def _same(self, side: Collection, held: Block | None) -> None:
        """Note that a key of the mirror holds what it must, whoever wrote it."""
        if held is not None:
            self._written_to(side).found(held.id, held)

    def _differs(
        self,
        side: Collection,
        key: Value,
        new: Block | None,
        held: Block | None,
        sources: Sequence[Value] | None = None,
    ) -> None:
        """Note what a key of the mirror holds that it must not; it stands for itself where no
        others led to it. What is not the owner's is told now, before it is written over."""
        written = self._written_to(side)
        if held is None and new is None:
            written.found(key, None)
            return
        route, empty = self.route, Block(key, {})
        at = "source" if side is route.source else "target"
        # Also just now its server may have been started anew, without what was written last.
        sure = written.holds(key, held) is False and self.sound(at)
        if not self._looks:
            written.replaces(key, held)
        if self._found is None:
            # What a TRUNCATE took away comes back untold: there is nothing to be kept.
            emptied = self._scans and held is None
            if emptied or not sure or not written.is_news(key, held):
                return
        differ = list(block_differences(held or empty, new or empty))
        paths = [
            d.text(masked=bool(route.move.sensitive) and route.is_sensitive(d.path)) for d in differ
        ]
        led = [key] if sources is None else sources
        fields = frozenset(d.path and child("", str(parse_path(d.path)[0])) for d in differ)
        found = Foreign(key, paths[:_TOLD], fields, led, at, held, sure)
        if self._found is None:
            (self.leave if written.is_usual(key, held) else self.tell)(found)
            self.hurry()
            return
        if self._at_once and all(each.key != found.key for each in self._found):
            self.tell(found)
        self._found.append(found)

    # ------------------------------------------------------------------ what does not go over

    def _one(self, side: Collection, other: Value) -> str:
        return f"{side.at} can't tell its key from that of {self.route.name(other)}"

    def _set_aside(self, key: Value, reason: str, path: str) -> None:
        if self._looks:
            return
        item = quarantined(self.route, key, reason, path)
        if self._unmet is not None:
            self._unmet.discard(item.key)
        known = self._known_aside()
        if known.get(item.key) == _why(item):
            return  # tried again, and refused as before
        self.scene.retry(self.scene.control.set_aside, self.scene.run.id, item)
        known[item.key] = _why(item)
        log.warning("quarantined", key=item.shown, path=path, reason=reason)

    def _take_up(self, keys: Sequence[Value]) -> None:
        """A later write of a key takes it out of quarantine."""
        for key in self._known_aside().keys() & set(map(quarantine_key, keys)):
            self._leave(key)

    def _leave(self, key: str) -> None:
        self.scene.retry(self.scene.control.take_up, self.scene.run.id, self.route.number, key)
        self._known_aside().pop(key, None)

    def _known_aside(self) -> dict[str, int]:
        """The keys in quarantine; asked once, for nobody but the owner of a live run changes it."""
        if self._aside is None:
            self._aside = self._reasons(self.scene.control.quarantined(self.scene.run.id))
        return self._aside

    def _known_ledger(self) -> dict[str, int]:
        """As ``_known_aside``, of the ledger."""
        if self._ledger is None:
            self._ledger = self._reasons(self.live.ledger())
        return self._ledger

    def _reasons(self, items: Iterable[Quarantined]) -> dict[str, int]:
        return {item.key: _why(item) for item in items if item.move == self.route.number}

    def _enter(self, key: Value, reason: str, path: str) -> None:
        if self._looks:
            return
        item = quarantined(self.route, key, reason, path, self.route.name(key))
        if self._unrefused is not None:
            self._unrefused.discard(item.key)
        known = self._known_ledger()
        if known.get(item.key) == _why(item):
            return
        self.scene.retry(self.live.enter, item)
        known[item.key] = _why(item)
        log.warning("can't be written back", key=item.shown, path=path, reason=reason)


def _why(item: Quarantined) -> int:
    """What stands for where and why a block does not go over."""
    return hash((item.path, item.reason))


def _joins(block: Block) -> bool:
    """Whether a block as it was read is one at all."""
    try:
        join(block)
    except CorruptBlock:
        return False
    return True


__all__ = ["Done", "Reconciler"]

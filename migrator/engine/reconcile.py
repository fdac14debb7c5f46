"""Reconcile: read what the primary holds now, make the mirror equal (R3).

One batch of keys at a time, read again from the start whenever a request's outcome is unknown:
then the mirror holds what the last read saw, whatever became of the requests before (R6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

import structlog

from migrator.engine.access import Access
from migrator.engine.alike import is_key, others, own, own_and_others, turns
from migrator.engine.aside import Aside
from migrator.engine.points import reached
from migrator.engine.strangers import Foreign, Strangers
from migrator.engine.work import Scene
from migrator.errors import DoesNotFit, Interrupted, Refused, Transient
from migrator.journal import Touch
from migrator.model.block import Address, Block, join
from migrator.model.canonical import encode
from migrator.model.diff import same_block
from migrator.model.rules import CorruptBlock
from migrator.model.value import Value
from migrator.ports import Collection
from migrator.route import NOT_MADE, Route, Unread
from migrator.state import LiveState

LONGEST_WAIT = 10.0
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
    # Whether both sides are asked at the same time, by a thread more.
    at_once: bool = False

    def __post_init__(self) -> None:
        self.access = Access(self.route, self.scene.retry)
        self.written = self.access.written
        self.aside = Aside(self.scene, self.route, self.live)
        self.strangers = Strangers(self.scene, self.route, self.access)

    def unlike(self, side: str, touches: Sequence[Touch], *, surely: bool = False) -> list[Touch]:
        """Those touches of a mirror's feed that are not of our own writes alone, by what lies there
        now; without ``surely`` also those of keys of which nobody knows."""
        written, there = self.access.written[side], self.access.side(side)
        known = [touch for touch in touches if written.knows(touch.key)]
        ours: list[bool | None] = []

        def do() -> Done:
            some = known[len(ours) : len(ours) + _AT_ONCE]
            keys = [touch.key for touch in some]
            held, _ = own(keys, self.access.read(there, keys))
            ours.extend(written.holds(t.key, block) for t, block in zip(some, held, strict=True))
            return Done()

        while len(ours) < len(known):
            self._settled(do)
        found = list(zip(known, ours, strict=True))
        if surely:
            return [touch for touch, mine in found if mine is False]
        unknown = [touch for touch in touches if not written.knows(touch.key)]
        return [touch for touch, mine in found if not mine] + unknown

    def foreign(
        self, primary: str, touches: Sequence[Touch], side: str, *, tell: bool = False
    ) -> list[Foreign]:
        """Reconcile keys that somebody else may have written to a side; what differed.

        ``tell``: before anything is written, since a crash after that leaves no difference (R11).
        """
        with self.strangers.collected(tell=tell) as found:
            # Deletes by somebody else are none of the application's.
            self.untouched(primary, [touch.key for touch in touches], side)
        return found

    def look(self, primary: str, touches: Sequence[Touch], side: str) -> list[Foreign]:
        """As ``foreign``, and leave all as it is."""
        with self.strangers.looking():
            return self.foreign(primary, touches, side)

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
        if not self.strangers.looks:
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

    def page(self, blocks: Sequence[Block], damaged: Sequence[tuple[Value, str]]) -> Done:
        """Write what a page of the source listed, as long as no later write was acted on (R4)."""
        keys = [block.id for block in blocks]
        first = True

        def do() -> Done:
            nonlocal first
            read = list(blocks) if first else self.access.read(self.route.source, keys)
            first = False
            return self._forward(keys, read)

        done = self._settled(do)
        for id, reason in damaged:
            self._set_aside(id, self.route.told(reason), "")
            done.aside += 1
        return done

    def keys(self, primary: str, keys: Sequence[Value], listed: str) -> Done:
        """Reconcile keys of a re-scan that listed them on a side."""
        if listed == "source":
            self.aside.meets(keys)
        with self.strangers.scanning():
            return self.untouched(primary, keys, listed)

    def untouched(self, primary: str, keys: Sequence[Value], side: str) -> Done:
        """Reconcile keys of a side that nobody touched on the primary."""
        touches = [Touch(key) for key in keys]
        if side == primary:
            return self.touched(primary, touches)
        return self.mirrored(primary, touches)

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

    def _both(
        self, primary: Collection, mirror: Collection, keys: Sequence[Value]
    ) -> tuple[list[Block | None], Held]:
        """The blocks of some keys on the primary as they are now, and what the mirror holds under
        the same keys, asked for at the same time: nobody but the owner writes there (R2)."""
        if not self.at_once or self.route.changes_key:
            return self.access.read(primary, keys), {}
        coming = self._pool.submit(copy_context().run, self.access.read, mirror, keys)
        try:
            found = self.access.read(primary, keys)
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
        return self.access.read(side, keys)

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
        if alike := others(self.access.read, route.source, ids, held):
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
                self.strangers.same(route.target, old)
                continue
            if old is not None and not is_key(new.id, old.id):
                left.append(old)  # of a key that is gone, and makes way
                writes.append(new)
                done.create += 1
                continue
            writes.append(new)
            done.change += old is not None
            done.create += old is None
            self.strangers.differs(route.target, new.id, new, old)
        for key, old in zip(gone, held[len(want) :], strict=True):
            self.strangers.differs(route.target, key, None, old)
        if self.strangers.collects and kept:
            for key, old in zip(kept, self.access.read(route.target, kept), strict=True):
                self.strangers.differs(route.target, key, None, old)
        if self.strangers.looks:
            return Done()
        # Deletes first: they make way for unique values.
        done.delete += self.access.delete(route.target, [*left, *held[len(want) :]])
        there = {encode(old.id) for old in held[: len(want)] if old is not None}
        aside |= self._write(writes, there)
        self.aside.take_up([key for key in keys if encode(key) not in aside])
        self.aside.remember("source", keys, aside)
        done.aside = len(aside)
        return done

    def _write(self, writes: list[Block], there: set[bytes]) -> set[bytes]:
        """Write blocks to the target; those that it refuses are set aside and returned."""
        reached("mirror.write")
        refused = self.access.write(self.route.target, writes)
        for block, error in refused:
            self._set_aside(block.id, *self.route.why(error))
        # An older copy would pass for the block, and a rollback not tell it from a write.
        forms = [(encode(block.id), block) for block, _ in refused]
        old = [Address(block.id) for form, block in forms if form in there and _joins(block)]
        if old:
            self.access.remove(self.route.target, old)
        return {encode(block.id) for block, _ in refused}

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
        left: set[bytes] = set()  # what is not known to be of the target
        alike = others(self.access.read, route.target, keys, olds)
        for key, new, old in zip(keys, news, olds, strict=True):
            if old is not None and not is_key(key, old.id):
                stays = encode(key) in alike or old.id in self.aside
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
                self.strangers.differs(route.source, key, None, old)
                if key in self.aside and encode(key) not in deleted:
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
                self.strangers.same(route.source, old)
            else:
                writes.append(back)
                self.strangers.differs(route.source, key, back, old)
                done.change += old is not None
                done.create += old is None
        if self.strangers.looks:
            return Done()
        # Before it is written over: whoever finds it there after a crash, and the target without
        # it, would take it for what was left out, and leave it.
        self.aside.take_up([key for key in keys if encode(key) not in left])
        reached("mirror.write")
        # Deletes first: they make way for unique values.
        done.delete += self.access.delete(route.source, gone)
        for block, why in self.access.write(route.source, writes):
            self._enter(block.id, *route.why(why))
            refused.append(block.id)
            done.aside += 1
        self.aside.strike(keys, refused)
        return done

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

    # ------------------------------------------------------------------ what does not go over

    def _one(self, side: Collection, other: Value) -> str:
        return f"{side.at} can't tell its key from that of {self.route.name(other)}"

    def _set_aside(self, key: Value, reason: str, path: str) -> None:
        if not self.strangers.looks:
            self.aside.set_aside(key, reason, path)

    def _enter(self, key: Value, reason: str, path: str) -> None:
        if not self.strangers.looks:
            self.aside.enter(key, reason, path)


def _joins(block: Block) -> bool:
    """Whether a block as it was read is one at all."""
    try:
        join(block)
    except CorruptBlock:
        return False
    return True


__all__ = ["Done", "Reconciler"]

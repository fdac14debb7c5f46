"""Reconcile where keys change on the way (R3).

A key of the primary leads to keys of the mirror by what its block holds. So a batch takes the keys
that were touched, the keys they lead to now, those they led to before, and every key that leads
there as well, until nothing new is found. All of them are read, and each key of the mirror gets
what those that lead to it make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from migrator.engine.alike import is_key, own, turns
from migrator.engine.intent import Intent
from migrator.engine.led import Batch, Keys, Led, Made
from migrator.engine.locator import Locator
from migrator.engine.points import reached
from migrator.engine.reconcile import NOTHING, Done, Held, Reconciler
from migrator.errors import DoesNotFit, Terminal
from migrator.journal import OTHER, Touch
from migrator.model.block import Address, Block, join
from migrator.model.canonical import encode
from migrator.model.diff import same_block
from migrator.model.rules import CorruptBlock
from migrator.model.value import Value
from migrator.ports import Collection
from migrator.route import NOT_MADE, Unread


class Relocator(Reconciler):
    """Makes the mirror of a move equal whose keys change on the way."""

    @cached_property
    def locator(self) -> Locator:
        return Locator(self.route, self.scene.run.id, self.scene.retry)

    def prepare(self) -> None:
        self.locator.create()

    def drop(self) -> None:
        self.locator.drop()

    def mirrored(self, primary: str, touches: Sequence[Touch]) -> Done:
        keys = [touch.key for touch in touches]
        return self._settled(lambda: self._batch(primary, mirror=keys)) if keys else Done()

    def _forward(
        self, keys: Sequence[Value], blocks: Sequence[Block | None], held: Held = NOTHING
    ) -> Done:
        listed = {encode(key): block for key, block in zip(keys, blocks, strict=True)}
        return self._batch("source", keys, list(listed.values()))

    def _backward(self, keys: Sequence[Value], deleted: set[bytes]) -> Done:
        return self._batch("target", keys, deleted=deleted)

    # ------------------------------------------------------------------ one batch

    def _batch(
        self,
        primary: str,
        keys: Sequence[Value] = (),
        blocks: Sequence[Block | None] | None = None,
        mirror: Sequence[Value] = (),
        deleted: Iterable[bytes] = (),
    ) -> Done:
        made: Made = {}
        batch = self._taken(primary, Keys.of(keys), blocks, Keys.of(mirror), made)
        done = Done()
        want = self._want(batch, made, set(deleted))
        self._give_way(batch, want)
        if self.strangers.looks:
            self._compare(batch, want, done)
            return Done()
        intent = Intent(self.locator, batch)
        intent.note()
        self._make(batch, want, done)
        # Told first: of what the locator has forgotten nobody would tell after a crash.
        self._told(batch, done)
        intent.clear()
        return done

    def _taken(
        self,
        primary: str,
        keys: Keys,
        blocks: Sequence[Block | None] | None,
        mirror: Keys,
        made: Made,
    ) -> Batch:
        """All keys that these have to do with, on both sides, and what the sides hold now."""
        batch = Batch(primary)
        while keys.forms or mirror.forms:
            self._close(batch, keys, blocks, mirror, made)
            keys, blocks, mirror = Keys(), None, self._hold(batch)
        return batch

    def _close(
        self,
        batch: Batch,
        keys: Keys,
        blocks: Sequence[Block | None] | None,
        mirror: Keys,
        made: Made,
    ) -> None:
        """Take these keys, and all that led or lead to one another, until nothing new is found."""
        while keys.forms or mirror.forms:
            todo = keys.values
            read = self._all(self.access.side(batch.primary), todo) if blocks is None else blocks
            blocks = None
            read, others = own(todo, read)
            before = self.locator.of(batch.primary, todo)
            for key, block, led in zip(todo, read, before, strict=True):
                each = Led(key, block, Keys.of(led))
                self._lead(batch.primary, each, made)
                batch.add(each)
                mirror.forms.update(each.ever)
            new = {form: key for form, key in mirror.forms.items() if form not in batch.mirror}
            claimed = self.locator.of(OTHER[batch.primary], list(new.values()))
            keys, mirror = Keys.of(block.id for block in others.values()), Keys()
            for (form, key), from_ in zip(new.items(), claimed, strict=True):
                batch.mirror[form] = key, Keys.of(from_)
                keys.forms.update(batch.mirror[form][1].forms)
            for form in batch.led:
                keys.forms.pop(form, None)

    def _hold(self, batch: Batch) -> Keys:
        """Read what the mirror holds under the keys that are taken. Of others' blocks that lie
        there: their keys, which have to be taken, too."""
        side = self.access.side(OTHER[batch.primary])
        new = {form: key for form, (key, _) in batch.mirror.items() if form not in batch.held}
        keys = list(new.values())
        held, others = own(keys, self._all(side, keys))
        batch.held.update(zip(new, held, strict=True))
        batch.alike.update((form, encode(block.id)) for form, block in others.items())
        return Keys.of(b.id for b in others.values() if encode(b.id) not in batch.mirror)

    def _lead(self, primary: str, each: Led, made: Made) -> None:
        """Find out where a block leads to."""
        if each.block is None:
            return
        try:
            if primary == "source":
                blocks = self._expected(each.block)
                made[encode(each.key)] = {encode(block.id): block for block in blocks}
                each.now = Keys.of(block.id for block in blocks)
            elif isinstance(each.block, Unread):
                raise CorruptBlock(each.block.reason)
            else:
                each.now = Keys.of(self.route.sources(each.block))
        except NOT_MADE as error:
            each.refused = self.route.why(error)
            each.damaged = isinstance(error, CorruptBlock)
            if primary == "target" or each.damaged:
                each.now = each.before  # what it made stays as it is

    def _share_out(self, batch: Batch) -> None:
        """Give each key of the mirror to one key of the primary. Which of two gets it is always
        the same; the other makes no block until it has gone."""
        for _, each in sorted(batch.led.items()):
            if each.refused is not None:
                continue
            taken = next((f for f in each.now.forms if f in batch.owners), None)
            if taken is None:
                batch.owners.update(dict.fromkeys(each.now.forms, each))
            else:
                other = batch.owners[taken].key
                source = batch.primary == "source"
                shown = (self.route.source_name if source else self.route.name)(other)
                each.refused = f"its key on the other side is that of {shown}", "(key)"

    def _all(self, side: Collection, keys: Sequence[Value]) -> list[Block | None]:
        return self.access.read(side, keys) if keys else []

    def _returned(self, key: Value, owner: Led, old: Block | None) -> Block:
        """What the source must hold for a block of the target."""
        assert owner.block is not None
        before = None
        if old is not None:
            try:
                for made in self._expected(old):
                    if encode(made.id) == encode(owner.key) and same_block(made, owner.block):
                        return old
                before = join(old)
            except NOT_MADE:
                pass  # it never reached the target, and is replaced
        back = self.route.returned(owner.block, before)
        if encode(back.id) != encode(key):
            raise DoesNotFit("it leads back to one key alone, and to another with it", key=key)
        return back

    def _want(self, batch: Batch, made: Made, fresh: set[bytes]) -> dict[bytes, Block | None]:
        """What the mirror must hold; ``fresh`` was deleted, and inherits nothing."""
        self._share_out(batch)

        def wanted(form: bytes, owner: Led) -> Block | None:
            if batch.primary == "source":
                return made[encode(owner.key)][form]
            key, _ = batch.mirror[form]
            anew = any(encode(each.key) in fresh for each in batch.ever[form])
            return self._returned(key, owner, None if anew else batch.held[form])

        return self._wanted(batch, wanted)

    def _wanted(
        self, batch: Batch, wanted: Callable[[bytes, Led], Block | None]
    ) -> dict[bytes, Block | None]:
        """What the mirror must hold, of keys that somebody makes."""
        want: dict[bytes, Block | None] = {}
        for form, owner in list(batch.owners.items()):
            try:
                want[form] = wanted(form, owner)
            except NOT_MADE as error:
                owner.refused = self.route.why(error)
        return {form: new for form, new in want.items() if batch.owners[form].refused is None}

    # ------------------------------------------------------------------ keys taken for one

    def _give_way(self, batch: Batch, want: dict[bytes, Block | None]) -> None:
        """Leave out of what the mirror must hold what it takes for another key's block that stays
        there, or that is to lie there."""
        while (clash := self._clash(batch, want)) is not None:
            form, other = clash
            error = self._not_told_apart(batch, form, other)
            refused = map(encode, self._unwritten(batch, form, error))
            for each in (form, *refused):
                want.pop(each, None)

    def _clash(
        self, batch: Batch, want: Mapping[bytes, Block | None]
    ) -> tuple[bytes, bytes] | None:
        """A key that has to wait, and for which other one: what lies there stays, else it is always
        the same."""
        if not batch.alike:
            return None
        stay = self._staying(batch)
        there: dict[bytes, bytes] = {}
        for form in sorted(want, key=lambda form: (form in batch.alike, form)):
            place = batch.alike.get(form, form)
            if place in stay:
                there.setdefault(place, place)
            if there.setdefault(place, form) != form:
                return form, there[place]
        return None

    def _not_told_apart(self, batch: Batch, form: bytes, other: bytes) -> DoesNotFit:
        """Why a block of the mirror is not written; what makes it waits for that other key."""
        batch.waiting[other] += batch.sources(form)
        called = self.route.name if batch.primary == "source" else self.route.source_name
        key, there = batch.mirror[form][0], batch.mirror[other][0]
        one, two = called(key), called(there)
        side = self.access.side(OTHER[batch.primary])
        more = "another " if one == two else ""  # they differ in their kind
        what = f"{side.at} can't tell {one} from {more}{two}, which lies there"
        return DoesNotFit(what, key=key, path="(key)")

    def _write_apart(self, batch: Batch, writes: Sequence[Block]) -> list[tuple[Block, Terminal]]:
        """As ``Access.write``; what the mirror may take for one goes by turns, and no later one
        where an earlier one lies then."""
        side = self.access.side(OTHER[batch.primary])
        first, *later = turns(side, [block.id for block in writes])
        refused = self.access.write(side, [writes[i] for i in first])
        for turn in later:
            some = {encode(writes[i].id): writes[i] for i in turn}
            ids = [block.id for block in some.values()]
            for form, there in own(ids, self._all(side, ids))[1].items():
                error = self._not_told_apart(batch, form, encode(there.id))
                refused.append((some.pop(form), error))
            refused += self.access.write(side, list(some.values()))
        return refused

    # ------------------------------------------------------------------ the mirror

    def _make(self, batch: Batch, want: Mapping[bytes, Block | None], done: Done) -> None:
        """Write what differs, and remove the rest."""
        side = self.access.side(OTHER[batch.primary])
        writes, gone = self._compare(batch, want, done)
        if batch.primary == "target":
            # Before it is written over, as without new keys.
            self.aside.take_up([key for f, (key, _) in batch.mirror.items() if f in batch.owners])
        reached("mirror.write")
        # Deletes first: they make way for unique values.
        done.delete += self.access.delete(side, gone)
        refused = self._write_apart(batch, writes)
        lost: dict[bytes, Value] = {}
        for block, error in refused:
            form = encode(block.id)
            self._wait(batch, block, error)
            lost |= {encode(key): key for key in self._unwritten(batch, form, error)}
        # What was refused lies there in an older copy, or not at all: then its key may be taken for
        # another one, whose block stays.
        forms = {encode(block.id) for block, _ in refused}
        there = {form for form in want if form not in forms or batch.held[form] is not None}
        old = [Address(key) for form, key in lost.items() if form in there]
        if old and batch.primary == "source":
            # An older copy would pass for the block, and a rollback not tell it from a write.
            self.access.remove(side, old)

    def _wait(self, batch: Batch, block: Block, error: Terminal) -> None:
        """Have what was refused for another key, which nobody could tell before, look again once
        that has gone."""
        other = getattr(error, "key", None)
        if other is None or is_key(other, block.id):
            return
        if (form := encode(other)) not in batch.mirror:
            led = self.locator.of(OTHER[batch.primary], [other])[0]
            batch.mirror[form] = other, Keys.of(led)
            batch.waiting[form] += led
        batch.waiting[form] += batch.sources(encode(block.id))

    def _unwritten(self, batch: Batch, form: bytes, error: Terminal) -> list[Value]:
        """Note that a write was refused; which keys its block would have had."""
        owner = batch.owners[form]
        owner.refused = self.route.why(error)
        return owner.now.values

    def _compare(
        self, batch: Batch, want: Mapping[bytes, Block | None], done: Done
    ) -> tuple[list[Block], list[Block | None]]:
        """What differs, and the rest."""
        side, stay = self.access.side(OTHER[batch.primary]), self._staying(batch)
        writes: list[Block] = []
        gone: list[Block | None] = []
        for form, old in batch.held.items():
            new, (key, _) = want.get(form), batch.mirror[form]
            if new is None:
                if form not in stay:
                    gone.append(old)
                if form not in stay or batch.primary == "source":
                    self.strangers.differs(side, key, None, old, batch.sources(form))
                continue
            if old is not None and same_block(new, old):
                done.leave += 1
                self.strangers.same(side, old)
                continue
            writes.append(new)
            done.change += old is not None
            done.create += old is None
            self.strangers.differs(side, key, new, old, batch.sources(form))
        return writes, gone

    def _staying(self, batch: Batch) -> set[bytes]:
        """Keys that stay as they are: what can't be read, or can't go back, leaves the other side
        as it was, and what never went to the target stays on the source."""
        if batch.primary == "source":
            return {form for each in batch.led.values() if each.damaged for form in each.ever}
        refused = [each for each in batch.led.values() if each.refused is not None]
        stay = {form for each in refused for form in each.ever}
        return stay | {f for f, (key, _) in batch.mirror.items() if key in self.aside}

    def _told(self, batch: Batch, done: Done) -> None:
        """Say what did not go over, and what does again."""
        refused = {form: each for form, each in batch.led.items() if each.refused is not None}
        for each in refused.values():
            tell = self._set_aside if batch.primary == "source" else self._enter
            tell(each.key, *(each.refused or ("", "")))
            done.aside += 1
        keys = [each.key for each in batch.led.values()]
        if batch.primary == "target":
            self.aside.strike(keys, [each.key for each in refused.values()])
            return
        self.aside.take_up([key for key in keys if encode(key) not in refused])
        self.aside.remember("source", keys, set(refused))


__all__ = ["Relocator"]

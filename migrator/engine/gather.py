"""Reconcile where several blocks of the source make one of the target: readings by day (R3).

Each block of the source tells the key that it belongs under, and each element of the target's
block the key that it came from. To the target a batch takes all that lead, or led, to a key, and
makes its block of those that lead there now. On the way back a block of the target leads to all
that its elements were, and to those that it had before; what has left it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from migrator.engine.led import Batch, Keys, Led, Made
from migrator.engine.reconcile import NOTHING, Done, Held
from migrator.engine.relocate import Relocator
from migrator.errors import DoesNotFit, Terminal
from migrator.journal import Touch
from migrator.model.block import Aggregate, Block, join
from migrator.model.canonical import encode
from migrator.model.diff import same_block
from migrator.model.rules import CorruptBlock
from migrator.model.value import Value
from migrator.route import NOT_MADE, Unread

# Keys of the target in one batch, which holds all that they are made of.
_AT_ONCE = 20


class Gatherer(Relocator):
    """Makes the mirror of a move equal whose source is put together."""

    def mirrored(self, primary: str, touches: Sequence[Touch]) -> Done:
        done = Done()
        for start in range(0, len(touches), _AT_ONCE):
            done.add(super().mirrored(primary, touches[start : start + _AT_ONCE]))
        return done

    def _forward(
        self, keys: Sequence[Value], blocks: Sequence[Block | None], held: Held = NOTHING
    ) -> Done:
        done = Done()
        for some in self._by_target(keys, blocks):
            done.add(self._batch("source", [key for key, _ in some], [block for _, block in some]))
        return done

    def _backward(self, keys: Sequence[Value], deleted: set[bytes]) -> Done:
        done = Done()
        for start in range(0, len(keys), _AT_ONCE):
            done.add(self._batch("target", keys[start : start + _AT_ONCE], deleted=deleted))
        return done

    def _by_target(
        self, keys: Sequence[Value], blocks: Sequence[Block | None]
    ) -> Iterator[list[tuple[Value, Block | None]]]:
        """Keys of the source, each once, with those together that lead to one of the target."""
        groups: dict[bytes, list[tuple[Value, Block | None]]] = {}
        for form, pair in {encode(k): (k, b) for k, b in zip(keys, blocks, strict=True)}.items():
            groups.setdefault(self._leads_to(pair[1]) or form, []).append(pair)
        many = list(groups.values())
        for start in range(0, len(many), _AT_ONCE):
            yield [pair for group in many[start : start + _AT_ONCE] for pair in group]

    def _leads_to(self, block: Block | None) -> bytes | None:
        try:
            there = [] if block is None else self.route.leads_to(block)
        except NOT_MADE:
            return None
        return b"to" + encode(there[0]) if there else None

    # ------------------------------------------------------------------ one batch

    def _lead(self, primary: str, each: Led, made: Made) -> None:
        if each.block is None:
            return
        try:
            if isinstance(each.block, Unread):
                raise CorruptBlock(each.block.reason)
            lead = self.route.leads_to if primary == "source" else self.route.sources
            each.now = Keys.of(lead(each.block))
        except NOT_MADE as error:
            each.refused = self.route.why(error)
            each.damaged = isinstance(error, CorruptBlock)
            if primary == "target" or each.damaged:
                each.now = each.before  # what it made stays as it is

    def _want(
        self,
        batch: Batch,
        made: Made,
        fresh: set[bytes],
    ) -> dict[bytes, Block | None]:
        if batch.primary == "source":
            return self._wholes(batch)
        self._share_out(batch)
        apart: dict[bytes, dict[bytes, Block]] = {}

        def wanted(form: bytes, owner: Led) -> Block | None:
            whole = encode(owner.key)
            if whole not in apart:
                apart[whole] = self._apart(owner, batch, fresh=whole in fresh)
            return apart[whole][form]

        return self._wanted(batch, wanted)

    def _wholes(self, batch: Batch) -> dict[bytes, Block | None]:
        """What the target must hold. Where what leads to a key can't be one block, none of it goes
        over."""
        want: dict[bytes, Block | None] = {}
        copied: set[bytes] = set()
        for form, (key, _) in sorted(batch.mirror.items()):
            led = batch.now[form]
            try:
                parts = [join(each.block) for each in led if each.block and not each.damaged]
                parts += self._last_copies(led, batch.held[form], copied)
                if parts:
                    want[form] = self.route.gathered(key, parts)
            except NOT_MADE as error:
                self._refuse_all(batch, form, error)
        return want

    def _last_copies(
        self, led: Sequence[Led], held: Block | None, copied: set[bytes]
    ) -> list[Aggregate]:
        """What the target holds of blocks that can't be read now: the last of them that could be.
        Each is taken once, though its key may have been written under two."""
        lost = {encode(each.key) for each in led if each.damaged} - copied
        if not lost or held is None:
            return []
        try:
            there = [join(part) for part in self.route.taken_apart(held, ())]
        except NOT_MADE:
            return []
        found = [part for part in there if encode(part.id) in lost]
        copied.update(encode(part.id) for part in found)
        return found

    def _apart(self, owner: Led, batch: Batch, *, fresh: bool) -> dict[bytes, Block]:
        """What the source must hold for a block of the target; ``fresh``, it inherits nothing."""
        assert owner.block is not None
        olds: list[Aggregate] = []
        for form in () if fresh else owner.ever:
            old = batch.held[form]
            try:
                if old is not None and not isinstance(old, Unread):
                    olds.append(join(old))
            except CorruptBlock:
                pass  # it never reached the target, and is replaced
        back = {encode(new.id): new for new in self.route.taken_apart(owner.block, olds)}
        if back.keys() != owner.now.forms.keys():
            raise DoesNotFit(
                "its elements lead back to some keys alone, and to others with what is there",
                key=owner.key,
            )
        if not fresh and self._is_made_of(owner.block, olds, back):
            return {form: batch.held[form] or new for form, new in back.items()}
        return back

    def _is_made_of(
        self, block: Block, olds: Sequence[Aggregate], back: Mapping[bytes, Block]
    ) -> bool:
        """Whether the source holds what a block of the target is made of already. An element does
        not tell where its block lies: that one may be of another group still."""
        own = [old for old in olds if encode(old.id) in back]
        group, affects = encode(block.id), self.route.translation.affects
        try:
            return (
                len(own) == len(back)
                and all(encode(affects(old.id, old.value)[0]) == group for old in own)
                and same_block(self.route.gathered(block.id, own), block)
            )
        except NOT_MADE:
            return False

    # ------------------------------------------------------------------ the mirror

    def _staying(self, batch: Batch) -> set[bytes]:
        # What can't be read of the source is in what was made of its last copy.
        return set() if batch.primary == "source" else super()._staying(batch)

    def _unwritten(self, batch: Batch, form: bytes, error: Terminal) -> list[Value]:
        if batch.primary == "target":
            return super()._unwritten(batch, form, error)
        self._refuse_all(batch, form, error)
        key, _ = batch.mirror[form]
        return [key]

    def _refuse_all(self, batch: Batch, form: bytes, error: Exception) -> None:
        """Note that nothing that leads to a key of the target goes over: each by its own name, so
        that nobody accepts more than is named."""
        key, _ = batch.mirror[form]
        what, path = self.route.why(error)
        for each in batch.now[form]:
            if each.refused is None:
                each.refused = f"{self.route.name(key)}: {what}", path


__all__ = ["Gatherer"]

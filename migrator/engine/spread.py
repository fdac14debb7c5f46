"""Reconcile where a block of the source is spread over several of the target (R3).

To the target each key of the source leads to several of the mirror, which the locator knows and a
batch takes all of. On the way back several keys of the target lead to one of the source: it is
made of all that lead there now, so all that ever did are taken with it and read. Where one of them
can't go back, or the whole that they make, it stays as it is, and one of its parts stands for it
in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from migrator.engine.gather import Gatherer
from migrator.engine.led import Batch, Led, Made
from migrator.engine.reconcile import Reconciler
from migrator.engine.relocate import Relocator
from migrator.engine.work import Scene
from migrator.errors import DoesNotFit, Terminal
from migrator.model.block import Block, join
from migrator.model.canonical import encode
from migrator.model.diff import same_block
from migrator.model.value import Value
from migrator.route import NOT_MADE, Route, beside
from migrator.state import LiveState


def reconciler(scene: Scene, route: Route, live: LiveState, request_life: float) -> Reconciler:
    """What makes the mirror of a move equal."""
    kind: type[Reconciler] = Relocator if route.changes_key else Reconciler
    if route.spreads:
        kind = Spreader
    elif route.gathers:
        kind = Gatherer
    return kind(scene, route, live, request_life)


def acquaint(many: Sequence[Reconciler]) -> None:
    """Let those of one run know one another that write blocks of one source."""
    for each in many:
        others = [o for o in many if o is not each and beside(each.route, o.route)]
        # What one of them wrote there another may have written over.
        each.written["source"].forgets |= bool(others)
        if not each.route.changes_key:
            each.beside = [other for other in others if other.route.spreads]


class Spreader(Relocator):
    """Makes the mirror of a move equal whose source is spread."""

    def _want(
        self,
        batch: Batch,
        made: Made,
        fresh: set[bytes],
    ) -> dict[bytes, Block | None]:
        if batch.primary == "source":
            return super()._want(batch, made, fresh)
        want: dict[bytes, Block | None] = {}
        for form in batch.mirror:
            try:
                whole = self._whole(batch, form, fresh)
            except NOT_MADE as error:
                self._stays(batch, form, error)
                continue
            if whole is not None:
                want[form] = whole
        return want

    def _whole(self, batch: Batch, form: bytes, fresh: set[bytes]) -> Block | None:
        """What the source must hold under a key; None for nothing."""
        (key, _), held = batch.mirror[form], batch.held[form]
        parts = batch.now[form]
        if any(part.refused is not None for part in parts):
            raise DoesNotFit("a part of it can't go back", key=key)
        if key in self.aside:
            if parts:
                # What it holds here was never there: made of these parts alone it would be lost.
                raise DoesNotFit("it was left out, and parts of it were written since", key=key)
            return None
        blocks = [part.block for part in parts if part.block is not None]
        anew = fresh.intersection(encode(part.key) for part in batch.ever[form])
        before = None
        if held is not None:
            try:
                if not anew and _same(self._expected(held), blocks):
                    return held
                before = join(held)
            except NOT_MADE:
                if not self._lives_by_parts:
                    raise
        return self.route.put_together(key, blocks, before, anew)

    @property
    def _lives_by_parts(self) -> bool:
        regrouping = self.route.translation.regrouping
        return regrouping is not None and regrouping.back is None

    def _stays(self, batch: Batch, form: bytes, error: Exception) -> None:
        """Leave a whole as it is. What led there is not forgotten: it is made once it can be."""
        key, _ = batch.mirror[form]
        batch.unmade.add(form)
        free = [each for each in batch.now[form] if each.refused is None]
        free = free or [each for each in batch.ever[form] if each.refused is None]
        for each in batch.ever[form]:
            each.now.forms.setdefault(form, key)
        batch.now[form] = list(batch.ever[form])
        if free:
            what, path = self.route.why(error)
            told = f"{self.route.source_name(key)} stays as it is: {what}"
            _first(free).refused = told, path

    def _staying(self, batch: Batch) -> set[bytes]:
        if batch.primary == "source":
            return super()._staying(batch)
        return batch.unmade | {form for form, (key, _) in batch.mirror.items() if key in self.aside}

    def _unwritten(self, batch: Batch, form: bytes, error: Terminal) -> list[Value]:
        if batch.primary == "source":
            return super()._unwritten(batch, form, error)
        self._stays(batch, form, error)
        return []


def _first(parts: Sequence[Led]) -> Led:
    """Always the same one: nobody has to accept it by another name at the next look."""
    return min(parts, key=lambda each: encode(each.key))


def _same(made: Sequence[Block], held: Sequence[Block]) -> bool:
    """Whether blocks are the same ones, in whatever order."""
    there = {encode(block.id): block for block in held}
    return len(made) == len(there) and all(
        (old := there.get(encode(new.id))) is not None and same_block(new, old) for new in made
    )


__all__ = ["Spreader", "acquaint", "reconciler"]

"""Where a move puts what its target does not get.

For each key of the source an archive holds at most one block: the source's own, whole, where the
target does not take it, or else a record ``{"_dropped": ...}`` of what evolutions leave out and are
told to keep, by their position in the chain and by access path. Plan, copy, verification and the
way back ask here what an archive must hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from migrator.errors import DoesNotFit
from migrator.model.block import Aggregate, Block, cut, join
from migrator.model.move import At
from migrator.model.rules import Representation
from migrator.model.translate import Translation
from migrator.model.value import Record
from migrator.ports import Collection, Store

DROPPED = "_dropped"


@dataclass(frozen=True)
class Archive:
    """The archive of one move, opened."""

    at: At
    collection: Collection
    store: Store
    rules: Representation
    translation: Translation

    @property
    def keeps_parts(self) -> bool:
        """Whether something is kept of blocks that the target takes."""
        return self.translation.archives

    def whole(self, block: Block) -> Block:
        """A block of the source as it is archived. Raises CorruptBlock, or DoesNotFit where it
        would pass for a part."""
        aggregate = join(block)
        if aggregate.value.keys() == {DROPPED}:
            raise DoesNotFit(
                f"it has the field {DROPPED} alone, which the archive takes for a part",
                key=block.id,
                path=DROPPED,
            )
        return cut(aggregate, self.rules)

    def part(self, block: Block) -> Block | None:
        """What is kept of a block that the target takes, or None. Raises as an evolution does."""
        if not self.keeps_parts:
            return None
        aggregate = join(block)
        residue = self.translation.residue(aggregate)
        if residue is None:
            return None
        return cut(Aggregate(aggregate.id, {DROPPED: residue}, aggregate.expires), self.rules)


def residue_in(block: Block) -> Record | None:
    """What a block of an archive keeps of another; None where it is a whole one itself."""
    value = join(block).value
    kept = value.get(DROPPED)
    return kept if value.keys() == {DROPPED} and type(kept) is dict else None

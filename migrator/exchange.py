"""What a gateway needs of a store beyond ``Collection``: to change a block that is as it was read.

``exchange`` compares by content and not by a version of its own, so it also sees writes that went
past the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias, runtime_checkable

from migrator.errors import MigratorError, Refused, Transient
from migrator.model.block import Block, Patch
from migrator.model.diff import same_block
from migrator.model.value import Value

Change: TypeAlias = Block | Patch | None
"""A whole block, single entries, or None for its removal."""


class TooMuch(Refused):
    """A change takes more than the store does in one atomic step; nothing was written."""


def is_still(found: Block | None, held: Block | None) -> bool:
    """Whether what lies there is what was read."""
    if found is None or held is None:
        return found is held
    return same_block(found, held)


def made_of(found: Block, change: Block | Patch) -> Block:
    """The block that a change makes of what lies there."""
    if isinstance(change, Block):
        return change
    entries = {path: x for path, x in found.entries.items() if path not in change.unset}
    return Block(found.id, entries | change.set, found.expires, found.place)


def done_unread(error: MigratorError) -> Transient:
    """What to raise where a block was changed, and only its answer shows that it can't be read:
    as an error of reading alone it would say that nothing was written."""
    told = Transient(
        f"it was changed, and then not read: {error.what}",
        where=error.where,
        hint=error.hint,
        unknown=True,
    )
    told.given_up = True
    return told


@runtime_checkable
class Amending(Protocol):
    """A collection that changes top-level fields where they lie; beside ``Collection``."""

    def amend(
        self, id: Value, set: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        """Set fields of an aggregate, and add to lists of it, in one request; the block after that.

        None where it is not there, or takes more than that; then nothing was done. Raises as
        ``done_unread`` where it can't be read, unless that is found before anything is done.
        """


@runtime_checkable
class Exchanging(Protocol):
    """A collection that changes blocks on condition; beside ``Collection``."""

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change a block if it still is ``held`` (None: there is none), in one atomic step.

        False where it is not, with nothing written. Raises as ``write`` and ``patch`` do.
        """


@runtime_checkable
class ExchangingAlone(Protocol):
    """A collection whose exchanges and plain writes miss each other; beside ``Exchanging``.

    Who exchanges there writes in no other way while others may.
    """

    @property
    def exchanging_alone(self) -> bool:
        """Whether that is so."""


@runtime_checkable
class Replacing(Protocol):
    """A collection that puts blocks by exchange also where what lies there can't be read; beside
    ``ExchangingAlone``, where no plain write does."""

    def replace(self, id: Value, change: Block | None) -> None:
        """Put a whole block, or remove it, in one atomic step, whatever lies there.

        Raises as ``write`` and ``delete`` do.
        """


def exchanges_alone(collection: object) -> bool:
    """Whether an application's writes to a collection all have to be exchanges."""
    return isinstance(collection, ExchangingAlone) and collection.exchanging_alone

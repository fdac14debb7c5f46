"""Changing a block of the layout ``item-split`` on condition, wherever it lies and comes to lie.

What stays an item is changed by one request on that item. All else is one transaction over both
tables, which also asks that the table in which the block does not lie has nothing of its key.
"""

from __future__ import annotations

from typing import Any

from migrator.errors import Transient
from migrator.exchange import Change, is_still, made_of
from migrator.model.block import Address, Block
from migrator.model.value import Value, show
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.collection import ItemCollection
from migrator.stores.dynamodb.gathered import Seen
from migrator.stores.dynamodb.gathered_collection import GatheredCollection
from migrator.stores.dynamodb.places import Place
from migrator.stores.dynamodb.transacting import drawn

_TRIES = 20


class SplitTransactor:
    """Exchanges blocks between a table of items and the one beside."""

    def __init__(self, small: ItemCollection, large: GatheredCollection, where: str) -> None:
        self._small = small
        self._large = large
        self._where = where

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change a block that still is ``held``. Raises TooMuch, DoesNotFit."""
        for _ in range(_TRIES):
            item = self._small.lying(id)
            if item is None:
                done = self._of_large(id, held, change)
            else:
                done = self._of_small(id, item, held, change)
            if done is not None:
                return done
        raise Transient(f"{show(id)}: others keep writing it", where=self._where)

    def replace(self, id: Value, change: Block | None) -> None:
        """Put a whole block, or remove it, whatever lies there: also what can't be read."""
        small = change is not None and not self._small.is_large(change)
        for _ in range(_TRIES):
            item = self._small.lying(id)
            place, seen = self._large.look(id)
            if item is None and seen is None and change is None:
                return
            if item is not None and seen is not None:
                self._clear(id, place, seen)
                continue
            self._large.transactor.wait_for_others(id, place, seen)
            if change is not None and small:
                put = self._small.creation
                of_item = put(change) if item is None else self._small.replacement(item, change)
            else:
                of_item = self._small.absence(id) if item is None else self._small.removal(id, item)
            if self._sent(id, place, seen, of_item, change):
                return
        raise Transient(f"{show(id)}: others keep writing it", where=self._where)

    def _clear(self, id: Value, place: Place, beside: Seen) -> None:
        """Remove what lies beside an item once it has stood there for long: it is of one who is
        making the block large in several steps, or who was stopped in that."""
        self._large.transactor.wait_while(id, place, beside.items)
        self._large.delete([Address(id)])

    def _of_small(self, id: Value, item: Item, held: Block | None, change: Change) -> bool | None:
        """Change a block that is an item; None where it is to be looked at anew."""
        found = self._small.block(id, item)
        if not is_still(found, held):
            return False
        new = None if change is None else made_of(found, change)
        stays = new is not None and not self._small.is_large(new)
        if new is not None and stays and new.expires is None:
            # Whoever makes it large or removes it does that on condition, or is told later.
            return self._small.turned(id, item, new) or None
        # What lies beside would come to light where the server sweeps the item.
        place, beside = self._large.look(id)
        if beside is not None:
            self._clear(id, place, beside)
            return None
        if new is not None and stays:
            return self._small.turned(id, item, new) or None
        return self._sent(id, place, None, self._small.removal(id, item), new)

    def _of_large(self, id: Value, held: Block | None, change: Change) -> bool | None:
        """As ``_of_small``, of a block that lies beside, or of none."""
        place, seen = self._large.look(id)
        self._large.transactor.wait_for_others(id, place, seen)
        found = self._large.transactor.block(id, seen)
        if not is_still(found, held):
            return False
        new = None if change is None else made_of(found or Block(id, {}), change)
        if new is None and found is None:
            return True
        small = new is not None and not self._small.is_large(new)
        of_item = self._small.creation(new) if new and small else self._small.absence(id)
        return self._sent(id, place, seen, of_item, new)

    def _sent(
        self,
        id: Value,
        place: Place,
        seen: Seen | None,
        of_item: dict[str, Any],
        new: Block | None,
    ) -> bool | None:
        """Carry out what becomes of the item, and of what was seen beside, in one transaction."""
        transactor, version = self._large.transactor, drawn()
        large = new if new is not None and self._small.is_large(new) else None
        actions = [of_item, *transactor.actions(id, place, seen, large, version)]
        left = None if large is None else version
        return transactor.send(id, place, actions, left) or None

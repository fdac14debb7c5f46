"""Changing single attributes of an item, each patch in one conditional update.

Where nothing of the change shows in the side attribute, and that says nothing of what changes, one
request does it. Else the side is read first, and the update holds only if nobody has changed it
since. Where attributes of an index are made of others, or more changes than one expression names,
the whole item is read and put back likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from migrator.errors import Terminal, Transient
from migrator.exchange import Change as Asked
from migrator.exchange import is_still, made_of
from migrator.model.block import Block, Patch
from migrator.model.value import Value, show
from migrator.stores.dynamodb.codec import Av, Item, Unreadable
from migrator.stores.dynamodb.expressions import (
    Expressions,
    condition,
    unchanged,
    update,
    versioned,
)
from migrator.stores.dynamodb.item import ItemShape
from migrator.stores.dynamodb.options import REST, SIDE
from migrator.stores.dynamodb.ranges import unreadable
from migrator.stores.dynamodb.side import Side
from migrator.stores.dynamodb.table import Table

_TRIES = 20
# So many changes fit into one expression for certain, and so many conditions.
_MOST, _BESIDE = 250, 100
_encode = msgspec.json.Encoder().encode


class Absent(Terminal):
    """There is no such item to change."""


@dataclass
class Change:
    """What one patch does to attributes."""

    patch: Patch
    key: Av
    set: dict[str, tuple[Av, dict[str, str], bool]] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    shares_key: bool = False
    escapes: bool = False

    @property
    def plain(self) -> bool:
        """Whether nothing of it shows in the side attribute."""
        if self.shares_key or self.escapes:
            return False
        return not any(tags or odd for _, tags, odd in self.set.values())


class Patcher:
    """Carries patches out."""

    def __init__(self, table: Table, shape: ItemShape, where: str) -> None:
        self._table = table
        self._shape = shape
        self._where = where

    def patch(self, patches: Sequence[Patch]) -> None:
        """Each patch atomically. Raises Terminal where there is no such block."""
        for change in [self._change(patch) for patch in patches]:
            if not change.set and not change.unset:
                continue
            if self._shape.computed.any or len(change.set) + len(change.unset) > _MOST:
                self._replace(change)
            elif not (change.plain and self._send_beside(change)):
                self._with_side(change)

    def _change(self, patch: Patch) -> Change:
        """The change to attributes. Raises DoesNotFit."""
        shape = self._shape
        change = Change(patch, shape.key(patch.id)[0])
        for path, value in patch.set.items():
            av, tags = shape.hold(patch.id, path, value)
            name, escaped = shape.attribute(path)
            change.set[name] = av, tags, escaped
        change.unset = [shape.attribute(path)[0] for path in patch.unset]
        # The key attribute may be read as an entry: whether it is changes with these.
        changes = (*patch.set, *patch.unset)
        change.shares_key = shape.key_path in changes or (REST in change.unset)
        change.escapes = any(shape.attribute(path)[1] for path in patch.unset)
        return change

    def _at(self, change: Change) -> Item:
        return {self._table.options.hash.name: change.key}

    def _absent(self, patch: Patch) -> Absent:
        return Absent(
            f"{show(patch.id)}: there is no such block to change",
            where=self._where,
            hint="put the whole block instead",
        )

    def _with_side(self, change: Change) -> None:
        names = {"#k": self._table.options.hash.name, "#s": SIDE, "#r": REST}
        if self._shape.key_path in (*change.patch.set, *change.patch.unset):
            names["#e"] = self._shape.attribute(self._shape.key_path)[0]
        for _ in range(_TRIES):
            found = self._table.get(
                self._at(change),
                ProjectionExpression=",".join(names),
                ExpressionAttributeNames=names,
            )
            if found is None:
                raise self._absent(change.patch)
            if self._send(change, self._new_side(change, found), found.get(SIDE)):
                return
        raise Transient(f"{show(change.patch.id)}: others keep writing it", where=self._where)

    def _new_side(self, change: Change, found: Item) -> Av | None:
        side = Side.of(found)
        for name, (_, tags, escaped) in change.set.items():
            side.note(name, tags, escaped)
        for name in change.unset:
            side.forget(name)
        shape, patch = self._shape, change.patch
        rest = (REST in found or REST in change.set) and REST not in change.unset
        shared = shape.key_is_entry and side.key is not False and REST not in found
        own = shape.attribute(shape.key_path)[0]
        if shape.key_path in patch.set:
            av, tags, _ = change.set[own]
            shared = shape.key_is_entry and av == change.key and not tags
            if shared:
                # The key attribute itself is the entry; nothing else may stand for it.
                del change.set[own]
                side.forget(own)
                if own in found:
                    change.unset.append(own)
        elif shape.key_path in patch.unset:
            shared = False
        side.key = None if shared or rest else False
        return side.wire()

    def _send(self, change: Change, side: Av | None, old: Av | None) -> bool:
        """Update the item if its side attribute is the one that was read."""
        made = Expressions()
        parts = [f"attribute_exists({made.name(self._table.options.hash.name)})"]
        set_ = {name: av for name, (av, _, _) in change.set.items()}
        gone = list(change.unset)
        if side is not None and side != old:
            set_[SIDE] = side
        elif side is None and old is not None:
            gone.append(SIDE)
        parts += made.unchanged({} if old is None else {SIDE: old}, {}, "")
        return self._update(change, made, parts, set_, gone)

    def _send_beside(self, change: Change) -> bool:
        """Update the item if its side attribute says nothing of what changes, whatever else."""
        made = Expressions()
        parts = [f"attribute_exists({made.name(self._table.options.hash.name)})"]
        tags = f"{made.name(SIDE)}.{made.name('tags')}"
        set_ = {name: av for name, (av, _, _) in change.set.items()}
        for name in (*set_, *change.unset):
            parts.append(f"attribute_not_exists({tags}.{made.name(name)})")
        if len(parts) > _BESIDE:
            return False
        return self._update(change, made, parts, set_, change.unset)

    def _update(
        self,
        change: Change,
        made: Expressions,
        parts: list[str],
        set_: dict[str, Av],
        gone: list[str],
    ) -> bool:
        id = change.patch.id
        text = update(
            [f"{made.name(name)}={made.value(av)}" for name, av in set_.items()],
            [made.name(name) for name in gone],
        )
        held = condition(parts, id, self._where)
        request = made.request(UpdateExpression=text, ConditionExpression=held)
        return self._table.update(self._at(change), id, **request)

    def _replace(self, change: Change) -> None:
        """Read the item, change the block, put it back if nobody else has written."""
        patch = change.patch
        for _ in range(_TRIES):
            found = self._table.get(self._at(change))
            if found is None:
                raise self._absent(patch)
            try:
                old = self._shape.decode(found)
            except Unreadable as error:
                raise unreadable(patch.id, error, self._where) from None
            if self.turn(patch.id, found, made_of(old, patch)):
                return
        raise Transient(f"{show(patch.id)}: others keep writing it", where=self._where)

    def turn(self, id: Value, found: Item | None, block: Block) -> bool:
        """Make the item that of a block if it still is what was read; False where it is not."""
        new = versioned(found, self._shape.encode(block)[0])
        key, made = self._table.options.hash.name, Expressions()
        if found is None:
            return self._table.put_if(
                _encode(new), id, **unchanged(None, new, key, id, self._where)
            )
        held = condition(made.unchanged(found, new, key), id, self._where)
        text = made.changed(found, new, key)
        if not text:
            return True
        request = made.request(UpdateExpression=text, ConditionExpression=held)
        return self._table.update(self._table.key(found), id, **request)

    def exchange(self, id: Value, held: Block | None, change: Asked) -> bool:
        """Change an item that holds this block, or make one where there is none."""
        name = self._table.options.hash.name
        at = {name: self._shape.key(id)[0]}
        found = self._table.get(at)
        try:
            old = None if found is None else self._shape.decode(found)
        except Unreadable as error:
            raise unreadable(id, error, self._where) from None
        if not is_still(old, held):
            return False
        if change is not None:
            return self.turn(id, found, made_of(old or Block(id, {}), change))
        if found is None:
            return True
        return self._table.delete_if(at, id, **unchanged(found, {}, name, id, self._where))

"""Changing a block of several items so that its readers see the old or the new one, never half.

A new block: its head first, saying "new", which readers take for no block; then the entries;
then the head as it is to be. A block that changes in one item is changed in that one. Any other
change is *staged*: the new items wait under sort keys of their own (``~stage~...``); one
conditional write of the head puts the change in force, for readers follow the head to the staged
items; then those are written to their own keys, what the block no longer has is removed, the
head says that it is over, and the stage is cleared. Whoever is stopped on the way leaves the old
block or the new one; the next who writes carries on.

Not needed: transactions, which take 100 items and 4 MB at most, cost twice, and do not make the
pages of a query one read.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from migrator.errors import Terminal, Transient
from migrator.model.block import Patch
from migrator.model.value import Value, show
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.gathered import NEW, GatheredShape, Head, Seen, encode_json, stamp_of
from migrator.stores.dynamodb.options import SIDE
from migrator.stores.dynamodb.places import Place
from migrator.stores.dynamodb.side import SUM, Side
from migrator.stores.dynamodb.table import Table, Write, put, remove

_TRIES = 20
Items = Mapping[str, Item]
Look = Callable[[Place], Seen | None]


class Switcher:
    """Writes blocks to their places. ``look`` reads a place as it is."""

    def __init__(self, table: Table, shape: GatheredShape, look: Look, where: str) -> None:
        self._table = table
        self._shape = shape
        self._places = shape.places
        self._look = look
        self._where = where

    # ------------------------------------------------------------ new blocks

    def create(self, blocks: Sequence[tuple[Place, Items, Value]]) -> int:
        """Put blocks at places where nothing lies, many at once; the bytes sent.

        One writer a key, as for all whole blocks: nothing is conditional here.
        """
        begun, entries, heads = [], [], []
        for place, items, id in blocks:
            head_sk = place.prefix + self._places.head
            finals, head = self._stamped(items, head_sk)
            if len(items) > 1:
                bare = self._places.key(place, head_sk) | self._marks(items[head_sk])
                begun.append(self._put(self._shape.headed(bare, Head(state=NEW)), id))
            entries += [self._put(item, id) for sk, item in finals.items() if sk != head_sk]
            heads.append(self._put(head, id))
        for writes in (begun, entries, heads):
            self._table.write_many(writes)
        return sum(write.bytes for write in (*begun, *entries, *heads))

    def _marks(self, item: Item) -> Item:
        """The class and the deadline of a head, which it has from the start."""
        options = self._shape.options
        named = (options.class_attribute, options.expires)
        return {name: item[name] for name in named if name is not None and name in item}

    def _stamped(self, items: Items, head_sk: str) -> tuple[dict[str, Item], Item]:
        """Entries with new stamps, and the head that knows them."""
        check = 0
        finals: dict[str, Item] = {}
        for sk, item in items.items():
            if sk != head_sk:
                stamp = secrets.randbits(48) or 1
                check ^= stamp
                finals[sk] = self._shape.stamped(item, stamp)
        head = items[head_sk]
        said = Head.of(Side.of(head))
        if said is not None:
            said.check = check
            head = self._shape.headed(head, said)
        return finals, head

    def _put(self, item: Item, id: Value) -> Write:
        return put(self._table.key_of(item), encode_json(item), show(id)[:100])

    def _remove(self, place: Place, sk: str, id: Value) -> Write:
        at = self._places.key(place, sk)
        return remove(self._table.key_of(at), at, show(id)[:100])

    # ------------------------------------------------------------ blocks that change

    def replace(self, place: Place, items: Items, id: Value, first: Seen | None) -> int:
        """Make the block at a place exactly these items; the bytes sent. ``first`` is what was
        seen there just now; what has changed since is looked at anew."""
        for _ in range(_TRIES):
            seen = first if first is not None and first.there else self._look(place)
            first = None
            if seen is not None and (seen.head is None or seen.head.state is None):
                sent = self._turn(seen, items, id)
                if sent is not None:
                    return sent
            elif seen is not None and seen.there:
                self._finish(seen, id)
            else:
                # Nothing that a reader sees: what may lie around is removed first.
                if seen is not None:
                    keys = [self._table.key(item)[self._sk]["S"] for item in seen.items]
                    self._table.write_many([self._remove(place, sk, id) for sk in keys])
                return self.create([(place, items, id)])
        raise self._busy(id)

    @property
    def _sk(self) -> str:
        return self._table.options.key_names[1]

    def _busy(self, id: Value) -> Transient:
        return Transient(f"{show(id)}: others keep writing it", where=self._where)

    def _turn(self, seen: Seen, items: Items, id: Value) -> int | None:
        """Turn one state of a block into another; None where somebody was faster."""
        head_sk = seen.place.prefix + self._places.head
        lying = {str(item[self._sk]["S"]): item for item in seen.items}
        gone = [sk for sk in lying if sk not in items and sk not in seen.staged]
        new = {
            sk: self._shape.stamped(item, secrets.randbits(48) or 1)
            for sk, item in items.items()
            if sk != head_sk and not self._same(lying.get(sk), item)
        }
        check = 0
        for sk in items:
            if sk != head_sk:
                check ^= stamp_of(new.get(sk) or lying[sk]) or 0
        head = items[head_sk]
        said = Head.of(Side.of(head))
        if said is not None:
            said.check = check
            head = self._shape.headed(head, said)
        old = lying.get(head_sk)
        if not new and not gone:
            if old is not None and content(old) == content(head):
                return 0
            return self._put_head(head, old, id)
        if len(new) + len(gone) == 1 and (old is None or content(old, SIDE) == content(head, SIDE)):
            # One item is changed at once by itself; its stamp follows in the head.
            one = [self._put(item, id) for item in new.values()]
            self._table.write_many(one + [self._remove(seen.place, sk, id) for sk in gone])
            sent = self._put_head(head, old, id)
            return None if sent is None else sent + sum(write.bytes for write in one)
        return self._staged(seen, new, gone, head, said, old, id)

    def _same(self, lying: Item | None, item: Item) -> bool:
        """Whether an entry lies there as it is to be, and with a stamp."""
        stamp = None if lying is None else stamp_of(lying)
        return stamp is not None and content(lying) == content(self._shape.stamped(item, stamp))

    def _put_head(self, head: Item, old: Item | None, id: Value) -> int | None:
        """Write a head if it still is the one that was read, the side alone where that is all."""
        unchanged = self._unchanged(old)
        if old is None or content(old, SIDE) != content(head, SIDE):
            raw = encode_json(head)
            return len(raw) if self._table.put_if(raw, id, **unchanged) else None
        unchanged["ExpressionAttributeNames"]["#s"] = SIDE
        if SIDE in head:
            unchanged.setdefault("ExpressionAttributeValues", {})[":n"] = head[SIDE]
            unchanged["UpdateExpression"] = "SET #s = :n"
        else:
            unchanged["UpdateExpression"] = "REMOVE #s"
        done = self._table.update(self._table.key(head), id, **unchanged)
        return len(encode_json(head.get(SIDE))) if done else None

    def _unchanged(self, old: Item | None) -> dict[str, Any]:
        """The condition that a head still is the one that was read."""
        if old is None:
            return {
                "ConditionExpression": "attribute_not_exists(#k)",
                "ExpressionAttributeNames": {"#k": self._sk},
            }
        sum_ = old.get(SIDE, {}).get("M", {}).get(SUM)
        if sum_ is None:
            return {
                "ConditionExpression": "attribute_exists(#k) AND attribute_not_exists(#s.#m)",
                "ExpressionAttributeNames": {"#k": self._sk, "#s": SIDE, "#m": SUM},
            }
        return {
            "ConditionExpression": "#s.#m = :m",
            "ExpressionAttributeNames": {"#s": SIDE, "#m": SUM},
            "ExpressionAttributeValues": {":m": sum_},
        }

    def _staged(
        self,
        seen: Seen,
        new: Items,
        gone: Sequence[str],
        head: Item,
        said: Head | None,
        old: Item | None,
        id: Value,
    ) -> int | None:
        place, stage = seen.place, secrets.token_hex(6)
        waiting = [
            self._put(item | self._places.key(place, self._places.staged(place, sk, stage)), id)
            for sk, item in new.items()
        ]
        self._table.write_many(waiting)
        check = 0 if said is None else said.check
        only = said is not None and said.only
        turning = self._shape.headed(head, Head(check, only, stage, frozenset(gone)))
        sent = self._put_head(turning, old, id)
        if sent is None:
            staged = [self._places.staged(place, sk, stage) for sk in new]
            self._table.write_many([self._remove(place, sk, id) for sk in staged])
            return None
        self._carry_out(place, new, gone, stage, head, turning, seen.staged, id)
        return sent + 2 * sum(write.bytes for write in waiting)

    def _carry_out(
        self,
        place: Place,
        new: Items,
        gone: Sequence[str],
        stage: str,
        head: Item,
        turning: Item,
        left: Sequence[str],
        id: Value,
    ) -> None:
        """What follows once a change is in force; doing it again does the same."""
        self._table.write_many(
            [self._put(item, id) for item in new.values()]
            + [self._remove(place, sk, id) for sk in gone]
        )
        self._put_head(head, turning, id)
        staged = {self._places.staged(place, sk, stage) for sk in new} | set(left)
        self._table.write_many([self._remove(place, sk, id) for sk in sorted(staged)])

    def _finish(self, seen: Seen, id: Value) -> None:
        """Carry out a change that somebody has left in force and unfinished."""
        assert seen.head is not None
        assert seen.head.state is not None
        place, stage = seen.place, seen.head.state
        head_sk = place.prefix + self._places.head
        staged = {
            sk: item
            for sk, item in seen.entries.items()
            if self._places.staged(place, sk, stage) in seen.staged
        }
        new = {sk: item | self._places.key(place, sk) for sk, item in staged.items()}
        turning = seen.entries[head_sk]
        alone = len(seen.entries) == 1 and not seen.head.only
        over = None if alone else Head(seen.head.check, seen.head.only)
        head = self._shape.headed(turning, over)
        gone = sorted(seen.head.gone)
        self._carry_out(place, new, gone, stage, head, turning, seen.staged, id)

    # ------------------------------------------------------------ single entries

    def patch(self, patch: Patch, place: Place) -> None:
        """Set and remove entries of a block that is there. Raises Terminal where it is not."""
        for _ in range(_TRIES):
            seen = self._look(place)
            if seen is None or not seen.there:
                raise Terminal(
                    f"{show(patch.id)}: there is no such block to change",
                    where=self._where,
                    hint="put the whole block instead",
                )
            if seen.head is not None and seen.head.state is not None:
                self._finish(seen, patch.id)
            elif self._turn(seen, self._patched(seen, patch), patch.id) is not None:
                return
        raise self._busy(patch.id)

    def _patched(self, seen: Seen, patch: Patch) -> dict[str, Item]:
        """The items of the block with the change, as for a whole one."""
        place, shape = seen.place, self._shape
        head_sk = place.prefix + self._places.head
        unset = {place.prefix + self._places.entry(path) for path in patch.unset}
        items = {sk: self._bare(x) for sk, x in seen.entries.items() if sk not in unset}
        head = seen.entries.get(head_sk)
        like = head or next(iter(seen.entries.values()))
        for path, value in patch.set.items():
            sk = self._places.sk(patch.id, place, path)
            items[sk] = shape.entry(patch.id, path, value, self._blank(place, sk, like))
        only = seen.head is not None and seen.head.only and head_sk in items
        if "" in patch.set:
            only = False
        elif head_sk not in items:
            only = True
            items[head_sk] = self._blank(place, head_sk, like)
        side = Side.of(items[head_sk])
        side.id = None if head is None else Side.of(head).id
        side.more.pop("head", None)
        if len(items) > 1 or only:
            side.more["head"] = Head(only=only).wire()
        shape.seal(items[head_sk], side)
        return items

    def _blank(self, place: Place, sk: str, like: Item) -> Item:
        """An item without entry, of the class and with the deadline of another one."""
        item = self._places.key(place, sk) | self._marks(like)
        return self._shape.seal(item, Side(expires=Side.of(like).expires))

    def _bare(self, item: Item) -> Item:
        """An entry's item without what switching has noted there."""
        copy = dict(item)
        side = Side.of(item)
        side.more.pop("stamp", None)
        side.more.pop("head", None)
        return self._shape.seal(copy, side)

    # ------------------------------------------------------------ removal

    def delete(self, place: Place, id: Value) -> None:
        """Remove the block at a place, all at once for its readers."""
        seen = self._look(place)
        if seen is None:
            return
        head_sk = place.prefix + self._places.head
        keys = [str(item[self._sk]["S"]) for item in seen.items]
        if len(keys) > 1:
            gone = self._shape.headed(self._places.key(place, head_sk), Head(state=NEW))
            marks = self._marks(seen.entries.get(head_sk, {}))
            self._table.write_many([self._put(gone | marks, id)])
        self._table.write_many([self._remove(place, sk, id) for sk in keys if sk != head_sk])
        self._table.write_many([self._remove(place, head_sk, id)])


def content(item: Item | None, without: str = "") -> Item | None:
    """An item as it compares: sets have no order, numbers no form."""
    if item is None:
        return None
    return {name: _comparable(av) for name, av in item.items() if name != without}


def _comparable(av: Any) -> Any:
    ((type_, held),) = av.items()
    if type_ in ("SS", "BS"):
        return {type_: sorted(held)}
    if type_ == "N":
        return {type_: Decimal(held)}
    if type_ == "NS":
        return {type_: sorted(map(Decimal, held))}
    if type_ == "M":
        return {type_: {name: _comparable(x) for name, x in held.items()}}
    if type_ == "L":
        return {type_: [_comparable(x) for x in held]}
    return av

"""Changing a block of several items on condition, in one transaction (ADR 0031).

The head is the distinguished item: each exchange puts it anew, with a version drawn for it, if it
still is what was read, so that changes of disjoint entries of one block collide there. What else
is put or removed has to be as it was read, too. What does not go into one transaction is refused.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from migrator.errors import Terminal, Transient
from migrator.exchange import Change, TooMuch, is_still, made_of
from migrator.model.block import Block
from migrator.model.value import Value, show
from migrator.retry import check
from migrator.stores.dynamodb.codec import Item, Unreadable
from migrator.stores.dynamodb.edge import Unsupported
from migrator.stores.dynamodb.expressions import unchanged
from migrator.stores.dynamodb.gathered import GatheredShape, Head, Seen, encode_json, stamp_of
from migrator.stores.dynamodb.places import Place
from migrator.stores.dynamodb.ranges import unreadable
from migrator.stores.dynamodb.side import Side
from migrator.stores.dynamodb.switching import content
from migrator.stores.dynamodb.table import Table

MOST, MOST_BYTES = 100, 4_000_000
STANDS = 60.0
"""After how many seconds a change that stands unfinished counts as left by its writer."""
_TRIES = 20
_SENDINGS = 3


class Transactor:
    """Exchanges blocks at places that their keys give."""

    def __init__(
        self, table: Table, shape: GatheredShape, look: Callable[[Place], Seen | None], where: str
    ) -> None:
        self._table = table
        self._shape = shape
        self._places = shape.places
        self._look = look
        self._where = where
        self._standing: dict[Place, tuple[object, float]] = {}

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change a block that still is ``held``. Raises TooMuch, DoesNotFit."""
        place = self._places.of_id(id)
        if place is None:
            raise self._shape.unfit(id, "the key alone does not say where it lies")
        for _ in range(_TRIES):
            seen = self._look(place)
            self.wait_for_others(id, place, seen)
            found = self.block(id, seen)
            if not is_still(found, held):
                return False
            new = None if change is None else made_of(found or Block(id, {}), change)
            if new is None and found is None:
                return True
            version = drawn()
            left = None if new is None else version
            if self.send(id, place, self.actions(id, place, seen, new, version), left):
                return True
        raise Transient(f"{show(id)}: others keep writing it", where=self._where)

    def replace(self, id: Value, change: Block | None) -> None:
        """Put a whole block, or remove it, whatever lies there: also what can't be read."""
        place = self._places.of_id(id)
        if place is None:
            raise self._shape.unfit(id, "the key alone does not say where it lies")
        for _ in range(_TRIES):
            seen = self._look(place)
            self.wait_for_others(id, place, seen)
            if change is None and seen is None:
                return
            version = drawn()
            left = None if change is None else version
            if self.send(id, place, self.actions(id, place, seen, change, version), left):
                return
        raise Transient(f"{show(id)}: others keep writing it", where=self._where)

    def wait_for_others(self, id: Value, place: Place, seen: Seen | None) -> None:
        """Raise Transient while a change in several steps is under way, as plain writes are."""
        head = None if seen is None else seen.head
        if head is None or head.state is None:
            self._standing.pop(place, None)
        else:
            self.wait_while(id, place, head)

    def wait_while(self, id: Value, place: Place, lying: object) -> None:
        """Raise Transient while something lies there that may be of a change under way: until it
        has not changed for long."""
        before, since = self._standing.get(place, (None, 0.0))
        if before != lying:
            self._standing[place] = lying, time.monotonic()
        elif time.monotonic() - since >= STANDS:
            return
        raise Transient(
            f"{show(id)}: a write of the whole block is under way, or its writer is gone",
            where=self._where,
            hint=f"it counts as left once it has stood for {STANDS:.0f} s: try again then",
        )

    def block(self, id: Value, seen: Seen | None) -> Block | None:
        """The block of what lies at a place. Raises DamagedBlock."""
        if seen is None or not seen.there:
            return None
        try:
            return self._shape.decode(seen)
        except Unreadable as error:
            raise unreadable(id, error, self._where) from None

    # ------------------------------------------------------------ one transaction

    def actions(
        self, id: Value, place: Place, seen: Seen | None, new: Block | None, version: int
    ) -> list[dict[str, Any]]:
        """What makes this block, or none, of what was seen, with a version on its head. Raises
        TooMuch."""
        items = None if new is None else self._shape.encode(new)[1]
        sk_name = self._table.options.key_names[1]
        lying = {str(item[sk_name]["S"]): item for item in (seen.items if seen else ())}
        head_sk = place.prefix + self._places.head
        gone = [sk for sk in lying if sk not in (items or {}) and sk != head_sk]
        actions = [self._removal(id, lying[sk]) for sk in gone]
        if items is None:
            head = lying.get(head_sk)
            at = self._places.key(place, head_sk)
            actions.append(self._absence(id, at) if head is None else self._removal(id, head))
        else:
            differing = {
                sk: self._shape.stamped(item, drawn())
                for sk, item in items.items()
                if sk != head_sk and not _same(self._shape, lying.get(sk), item)
            }
            sum_ = 0
            for sk in items:
                if sk != head_sk:
                    sum_ ^= stamp_of(differing.get(sk) or lying[sk]) or 0
            head = self._versioned(items[head_sk], sum_, version)
            actions += [self._put(id, item, lying.get(sk)) for sk, item in differing.items()]
            actions.append(self._put(id, head, lying.get(head_sk)))
        return actions

    def _versioned(self, head: Item, check: int, version: int) -> Item:
        side = Side.of(head)
        said = Head.of(side)
        if said is not None:
            said.check = check
            head = self._shape.headed(head, said)
            side = Side.of(head)
        side.more["version"] = {"N": str(version)}
        return self._shape.seal(dict(head), side)

    def _put(self, id: Value, item: Item, lying: Item | None) -> dict[str, Any]:
        made = {"TableName": self._table.name, "Item": msgspec.Raw(encode_json(item))}
        return {"Put": made | self._unchanged(id, lying, item)}

    def _removal(self, id: Value, lying: Item) -> dict[str, Any]:
        at = {"TableName": self._table.name, "Key": self._table.key(lying)}
        return {"Delete": at | self._unchanged(id, lying, {})}

    def _absence(self, id: Value, key: Item) -> dict[str, Any]:
        at = {"TableName": self._table.name, "Key": key}
        return {"ConditionCheck": at | self._unchanged(id, None, {})}

    def _unchanged(self, id: Value, lying: Item | None, new: Item) -> dict[str, Any]:
        key = self._table.options.key_names[1]
        return unchanged(lying, new, key, id, self._where)

    def _check_size(self, id: Value, actions: list[dict[str, Any]]) -> None:
        size = len(encode_json(actions))
        if len(actions) > MOST or size > MOST_BYTES:
            raise TooMuch(
                f"{show(id)[:200]}: the change takes {len(actions):,} items of {size:,} bytes; a "
                f"transaction has at most {MOST} and {MOST_BYTES:,}",
                where=self._where,
                hint="cut the block into fewer entries, change fewer of them at once, or put the "
                "whole block without expected",
            )

    def send(
        self, id: Value, place: Place, actions: list[dict[str, Any]], version: int | None
    ) -> bool:
        """Send a transaction; again, under the same token, where no answer comes (R12). ``version``
        is what it leaves on a head. False where it is to be looked at anew; raises TooMuch."""
        self._check_size(id, actions)
        token = secrets.token_hex(16)
        lost: Transient | None = None
        for _ in range(_SENDINGS):
            try:
                check()
                taken = self._table.transact(actions, show(id)[:100], token)
            except Unsupported:
                raise Terminal(
                    "this server has no transactions, and a block of several items changes on "
                    "condition by nothing else",
                    where=self._where,
                    hint="choose the layout item",
                ) from None
            except Transient as error:
                if lost is None and not error.unknown:
                    raise
                lost = lost or error
                continue
            except Exception:
                if lost is None:
                    raise
                break
            if taken or lost is None:
                return taken
            break
        assert lost is not None
        if version is not None and self._version(place) == version:
            return True
        raise lost

    def _version(self, place: Place) -> int | None:
        """The version that the head at a place has."""
        at = self._places.key(place, place.prefix + self._places.head)
        found = self._table.get(at)
        told = None if found is None else Side.of(found).more.get("version")
        return None if told is None else int(told["N"])


def drawn() -> int:
    """A version that nobody else has."""
    return secrets.randbits(48) or 1


def _same(shape: GatheredShape, lying: Item | None, item: Item) -> bool:
    """Whether an entry lies there as it is to be, with a stamp or as somebody else has put it."""
    if lying is None:
        return False
    stamp = stamp_of(lying)
    return content(lying) == content(item if stamp is None else shape.stamped(item, stamp))

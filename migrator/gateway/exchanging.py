"""Changes of an aggregate: where it lies, or read, changed and exchanged for what was read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from migrator.errors import DamagedBlock, Failed, Refused
from migrator.exchange import Change, Replacing, done_unread
from migrator.gateway import changes
from migrator.gateway.errors import Conflict
from migrator.gateway.found import ANY, Expected, Found, found_in
from migrator.gateway.opened import Sides
from migrator.gateway.sending import in_doubt
from migrator.gateway.writing import Write
from migrator.model.block import Aggregate, name
from migrator.model.value import Value

_TRIES = 50


def amend(write: Write, set: Mapping[str, Value], append: Mapping[str, Value]) -> Found | None:
    """Change an aggregate where it lies, in one request; None where that was not done."""
    here, id = write.here, write.id

    def amended(sides: Sides) -> Found | None:
        amending = sides.amending
        if amending is None:
            return None
        after = amending.amend(id, set, append)
        try:
            return found_in(sides, after)
        except DamagedBlock as error:
            raise done_unread(error) from None

    if here.sides(here.follower.standing).amending is None:
        return None
    return write.send(amended, suits=_amends)


def _amends(sides: Sides) -> bool:
    return sides.amending is not None


def exchange(
    write: Write,
    change: Callable[[Aggregate | None], Aggregate | None],
    expected: Expected,
    *,
    whole: bool = False,
) -> Found:
    """Read, change, exchange; again where somebody was faster.

    What was sent before and is there now was carried out, where an answer was lost; where none was,
    somebody else has written the same. ``whole``: whatever is there goes, also what can't be read.
    """
    id = write.id
    sent: list[Found] = []

    def try_(sides: Sides) -> Found | None:
        key = sides.key(id)
        try:
            (held,) = sides.primary.read([key])
            found = found_in(sides, held)
        except DamagedBlock:
            blindly = whole and expected is ANY and sides.by_exchange
            if not blindly or not isinstance(sides.primary, Replacing):
                raise
            new = change(None)
            sides.primary.replace(key, None if new is None else sides.stored(new, None))
            return _after(id, new)
        if write.doubtful and sent and found is not None and found.version == sent[-1].version:
            return found
        if expected is not ANY and expected != (found and found.version):
            raise _conflict(write, found, expected)
        old = None if found is None else Aggregate(id, found.value, found.expires)
        new = change(old)
        made: Change = None
        if new is not None:
            there = held if found is not None else None  # what has ended gives nothing on
            made = changes.change_of(held, sides.stored(new, there), apart=sides.apart)
        after = _after(id, new)
        if changes.is_same(held, made):
            return after
        exchanging = sides.exchanging
        if exchanging is None:
            raise Refused(
                "this store can't change a block on condition yet",
                where=str(sides.primary.at),
                hint="put or delete whole aggregates without expected; docs/gateway.md tells "
                "which layouts can",
            )
        sent[:] = [after]
        return after if exchanging.exchange(key, held, made) else None

    for attempt in range(_TRIES):
        done = write.send(try_)
        if done is not None:
            return done
        time.sleep(min(0.05, 0.0005 * attempt))
    where = name(write.here.cls, id)
    if write.doubtful:
        raise in_doubt(where)
    raise Failed("others keep writing it", where=where, hint="nothing was written; try again")


def _after(id: Value, new: Aggregate | None) -> Found:
    """What is told once an aggregate is there, or gone."""
    return Found(id, {}) if new is None else Found(id, new.value, new.expires)


def _conflict(write: Write, found: Found | None, expected: Expected) -> Conflict:
    there = "there is none" if found is None else f"it has version {found.version}"
    wanted = "none was expected" if expected is None else f"{expected} was expected"
    return Conflict(
        f"{there}, and {wanted}; nothing was written", where=name(write.here.cls, write.id),
        hint="read it again, decide anew, and write with its version",
    )  # fmt: skip

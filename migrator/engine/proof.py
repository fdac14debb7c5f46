"""The proof of the way back, before the sides of a move are swapped: by some blocks of both."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.errors import Refused
from migrator.journal import OTHER
from migrator.model.block import Block, join
from migrator.model.canonical import encode, equal
from migrator.model.diff import same_block
from migrator.model.value import Value
from migrator.retry import Retry
from migrator.route import NOT_MADE, Route, read_each

_PROVEN = 20


def prove(route: Route, to: str, retry: Retry) -> None:
    """Show that what lies in the target leads back to what lies in the source. Raises Refused.

    ``to`` is the side that is to be the primary, and is the mirror yet.
    """
    if route.gathers:
        _prove_wholes(route, to, retry)
        return
    for old, new in _pairs(route, to, retry):
        try:
            made = route.expected(old)
            before = join(old)
        except NOT_MADE:
            continue  # it does not go over: it is in quarantine
        if not any(same_block(new, each) for each in made):
            continue  # written just now: there is nothing to compare
        if route.spreads:
            back = route.put_together(old.id, made, before)
        else:
            back = route.returned(new, before)
        if back is None or not (same_block(back, old) and equal(back.id, old.id)):
            raise _unproven(route, new)


def _unproven(route: Route, new: Block) -> Refused:
    return Refused(
        f"the way back is not proven: {route.name(new.id)} would come back changed",
        where=str(route.source_at),
        hint="see what a rollback loses: migrator show; or go on at rest",
    )


def _prove_wholes(route: Route, to: str, retry: Retry) -> None:
    """The same where blocks of the source are put together: each whole with all its parts."""
    for new in _wholes(route, to, retry):
        try:
            read = read_each(route.source, route.sources(new), retry)
            olds = [block for block in read if block is not None]
            before = [join(old) for old in olds]
            if not same_block(route.gathered(new.id, before), new):
                continue  # written just now: there is nothing to compare
            back = route.taken_apart(new, before)
        except NOT_MADE:
            continue  # it does not go over, or back: that is told already
        there = {encode(old.id): old for old in olds}
        if len(back) != len(olds) or not all(
            (old := there.get(encode(each.id))) is not None and same_block(each, old)
            for each in back
        ):
            raise _unproven(route, new)


def _wholes(route: Route, to: str, retry: Retry) -> list[Block]:
    """Some blocks of the target; chosen on the mirror."""
    if to == "target":
        return retry(route.target.sample, _PROVEN).blocks
    keys: dict[bytes, Value] = {}
    for part in retry(route.source.sample, _PROVEN).blocks:
        try:
            keys.update((encode(key), key) for key in route.leads_to(part))
        except NOT_MADE:
            continue
    return [b for b in read_each(route.target, list(keys.values()), retry) if b is not None]


def _pairs(route: Route, to: str, retry: Retry) -> Iterator[tuple[Block, Block]]:
    """Some blocks of the source, each with one of the target that it maps to.

    They are chosen on the mirror: choosing may read a collection from end to end, and on the
    primary's server the applications would wait for that.
    """
    sides = {"source": route.source, "target": route.target}
    chosen: list[Block] = []
    keys: list[Value] = []
    for block in retry(sides[to].sample, _PROVEN).blocks:
        try:
            there = route.sources(block) if to == "target" else [b.id for b in route.made(block)]
        except NOT_MADE:
            continue  # it leads nowhere: that stands in the ledger
        if there:
            chosen.append(block)
            keys.append(there[0])
    for one, other in zip(chosen, read_each(sides[OTHER[to]], keys, retry), strict=True):
        if other is not None:
            yield (other, one) if to == "target" else (one, other)

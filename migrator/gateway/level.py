"""Whether the mirror holds of one aggregate what the primary does, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.gateway.opened import Sides
from migrator.journal import OTHER
from migrator.model.block import Block, has_ended
from migrator.model.canonical import encode
from migrator.model.diff import same_block
from migrator.model.value import Value
from migrator.retry import Retry
from migrator.route import NOT_MADE


@dataclass(frozen=True)
class Before:
    """Before a write: which side was the primary, and, where keys change, those of the mirror that
    the aggregate led to."""

    side: str
    led: Sequence[Value] = ()


def is_level(sides: Sides, id: Value, before: Before) -> bool:
    """Whether both sides hold the same of an aggregate; ``id`` is the application's key of it."""
    retry, key, side = Retry(1.0), sides.key(id), sides.primary_side
    held = _living(retry(sides.primary.read, [key])[0])
    if not sides.route.changes_key:
        there = _living(retry(sides.mirror.read, [key])[0])
        return held is there if held is None or there is None else _same(sides, held, there)
    now = sides.led(side, held)
    if held is not None and not now:
        return False
    left = {encode(old): old for old in (before.led if before.side == side else ())}
    for led in now:
        left.pop(encode(led), None)
        there = _living(retry(sides.mirror.read, [led])[0])
        if held is None or there is None or not _same(sides, held, there):
            return False
    # Where it lay before another aggregate may lie by now.
    found = retry(sides.mirror.read, list(left.values())) if left else []
    return not any(
        encode(key) in map(encode, sides.led(OTHER[side], there)) for there in found if there
    )


def _living(block: Block | None) -> Block | None:
    """A block, unless it has ended, whether or not its server has removed it yet."""
    return None if block is None or has_ended(block.expires, time.time()) else block


def _same(sides: Sides, held: Block, there: Block) -> bool:
    source, target = (held, there) if sides.primary_side == "source" else (there, held)
    try:
        return all(same_block(target, made) for made in sides.route.expected(source))
    except NOT_MADE:
        return False

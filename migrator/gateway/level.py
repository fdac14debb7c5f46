"""Whether the mirror holds of one aggregate what the primary does, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.gateway.opened import Sides
from migrator.journal import OTHER
from migrator.model.block import Block
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
    (held,) = retry(sides.primary.read, [key])
    if not sides.route.changes_key:
        (there,) = retry(sides.mirror.read, [key])
        return held is there if held is None or there is None else _same(sides, held, there)
    now = sides.led(side, held)
    if held is not None and not now:
        return False
    left = {encode(old): old for old in (before.led if before.side == side else ())}
    for led in now:
        left.pop(encode(led), None)
        (there,) = retry(sides.mirror.read, [led])
        if held is None or there is None or not _same(sides, held, there):
            return False
    # Where it lay before another aggregate may lie by now.
    found = retry(sides.mirror.read, list(left.values())) if left else []
    return not any(
        encode(key) in map(encode, sides.led(OTHER[side], there)) for there in found if there
    )


def _same(sides: Sides, held: Block, there: Block) -> bool:
    source, target = (held, there) if sides.primary_side == "source" else (there, held)
    try:
        return all(same_block(target, made) for made in sides.route.expected(source))
    except NOT_MADE:
        return False

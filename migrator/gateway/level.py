"""Waiting until the mirror holds of one aggregate what the primary does, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.errors import DamagedBlock
from migrator.gateway.errors import Behind
from migrator.gateway.opened import Opened, Sides
from migrator.journal import OTHER
from migrator.model.block import Block, has_ended, name
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


def before_write(here: Opened, id: Value) -> Before:
    """What ``wait`` has to know before a write: where else the aggregate may lie until then."""
    sides = here.sides(here.follower.standing)
    if not sides.mirrored or not sides.route.changes_key or sides.elsewhere:
        return Before(sides.primary_side)
    try:
        (held,) = Retry(here.follower.terms.bound)(sides.primary.read, [sides.key(id)])
    except DamagedBlock:
        held = None  # where it lay nobody can tell; whether it may be replaced, its write says
    return Before(sides.primary_side, sides.led(sides.primary_side, held))


def until_level(here: Opened, id: Value, before: Before) -> None:
    """Wait until both sides hold the same under a key. Raises Behind."""
    until = time.monotonic() + here.follower.terms.bound
    pause = 0.001
    while True:
        sides = here.sides(here.follower.standing)
        # Before a swap that changed the keys all that was written had come over.
        if not sides.mirrored or sides.elsewhere or is_level(sides, id, before):
            return
        if time.monotonic() > until:
            raise Behind(
                f"it is written, and the mirror did not hold it within "
                f"{here.follower.terms.bound:g} s",
                where=name(here.cls, id),
                hint="see whether a mirror is running:  migrator status",
            )
        time.sleep(pause)
        pause = min(0.05, pause * 2)


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
        (there,) = retry(sides.mirror.read, [led])
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

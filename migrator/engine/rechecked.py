"""Groups that differed when they were first compared, looked at until each of their parts agreed.

Somebody may write to a group all the while, so that never all of it is the same on both sides. Each
part was, though, once no write of its own was on its way. What comes into a group later is no
business of a comparison that has listed it before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from migrator.model.block import Block
from migrator.model.canonical import encode
from migrator.model.diff import same_block
from migrator.model.value import Value
from migrator.route import NOT_MADE, Route

# A group as the source makes it, the block that the target must hold, and what it does hold.
Pair: TypeAlias = tuple[Block, Block, Block | None]
# What the source holds of each part that differs, None for nothing; and at how many looks running.
Unlike: TypeAlias = dict[bytes, tuple[Block | None, int]]

# The source held a part before all had settled and after the target was read: what that lacks then
# is no write on its way.
_LOOKS = 3


def rechecked(
    route: Route,
    ids: Sequence[Value],
    look: Callable[[Sequence[Value]], list[Pair]],
    settle: Callable[[], None],
    most: int,
) -> list[Pair]:
    """Both sides of groups, once they are decided, or were looked at ``most`` times; those that are
    equal by their parts are given as the target must hold them."""
    found: list[Pair] = []
    before: dict[bytes, Unlike] = {}
    left: list[Pair] = []
    for _ in range(most):
        settle()
        left, unlike = [], {}
        for pair in look(ids):
            source, new, old = pair
            form = encode(source.id)
            parts = _onward(before.get(form), _unlike(route, new, old))
            if not parts:
                found.append((source, new, new))
            elif any(looks >= _LOOKS for _, looks in parts.values()):
                found.append(pair)
            else:
                left.append(pair)
                unlike[form] = parts
        before, ids = unlike, [source.id for source, _, _ in left]
        if not ids:
            break
    return found + left


def _onward(before: Unlike | None, now: dict[bytes, Block | None]) -> Unlike:
    """What differs still of what did before."""
    if before is None:
        return {form: (part, 1) for form, part in now.items()}
    found: Unlike = {}
    for form, part in now.items():
        if form in before:
            last, looks = before[form]
            found[form] = part, looks + 1 if _same(last, part) else 1
    return found


def _unlike(route: Route, new: Block, old: Block | None) -> dict[bytes, Block | None]:
    """The parts that differ, as the source holds them; what can't be taken apart is one part."""
    try:
        wanted = _parts(route, new)
        held = {} if old is None else _parts(route, old)
    except NOT_MADE:
        return {} if old is not None and same_block(new, old) else {b"": new}
    unlike: dict[bytes, Block | None] = {
        form: part for form, part in wanted.items() if not _same(part, held.get(form))
    }
    return unlike | dict.fromkeys(held.keys() - wanted.keys())


def _parts(route: Route, block: Block) -> dict[bytes, Block]:
    return {encode(part.id): part for part in route.taken_apart(block, ())}


def _same(one: Block | None, other: Block | None) -> bool:
    if one is None or other is None:
        return one is other
    return same_block(one, other)


__all__ = ["Pair", "rechecked"]

"""Keys that a mirror takes for one, though the primary tells them apart (R3).

Where a store compares numbers by their value, or texts by a collation, the block that lies there
for one key is found by another, and would be written over, or deleted, for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from migrator.model.block import Block
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.ports import Collection

# Keys of one of these types alone are told apart by every store, or it refuses the second itself.
_PLAIN = frozenset((str, int, bytes))


def is_key(one: Value, other: Value) -> bool:
    """Whether both are the same key to a store that tells all kinds and values apart."""
    if type(one) in _PLAIN and type(one) is type(other):
        return one == other
    return encode(one) == encode(other)


def own(
    keys: Sequence[Value], found: Sequence[Block | None]
) -> tuple[list[Block | None], dict[bytes, Block]]:
    """What was found under some keys, without what lies there for another key; and that, by the
    canonical form of the key under which it was found."""
    others = {
        encode(key): block
        for key, block in zip(keys, found, strict=True)
        if block is not None and not is_key(key, block.id)
    }
    if not others:
        return list(found), others
    return [
        None if encode(key) in others else block for key, block in zip(keys, found, strict=True)
    ], others


def own_and_others(
    keys: Sequence[Value], found: Sequence[Block | None]
) -> tuple[list[Value], list[Block | None]]:
    """Keys with what lies there for them; and the keys of what else was found, with that."""
    there, others = own(keys, found)
    forms = set(map(encode, keys)) if others else set()
    more = {form: block for block in others.values() if (form := encode(block.id)) not in forms}
    return [*keys, *(block.id for block in more.values())], [*there, *more.values()]


def turns(side: Collection, keys: Sequence[Value]) -> list[list[int]]:
    """Places of keys in turns, as a rule one, so that none holds two that a side takes for one.

    Only where the block of one lies there is it seen for the other.
    """
    kinds = {tuple(map(type, key)) if type(key) is list else (type(key),) for key in keys}
    if len(kinds) <= 1 and all(_PLAIN.issuperset(kind) for kind in kinds):
        return [list(range(len(keys)))]
    alike: dict[bytes, dict[bytes, int]] = defaultdict(dict)
    found: dict[int, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        forms = alike[encode(side.same_key(key))]
        found[forms.setdefault(encode(key), len(forms))].append(place)
    return [found[turn] for turn in sorted(found)]


def others(
    read: Callable[[Collection, Sequence[Value]], list[Block | None]],
    primary: Collection,
    keys: Sequence[Value],
    held: Sequence[Block | None],
) -> dict[bytes, Value]:
    """Of keys for which a mirror holds another key's block: whose, by canonical form, where that
    one is there on the primary, too."""
    odd = [
        (encode(key), block.id)
        for key, block in zip(keys, held, strict=True)
        if block is not None and not is_key(key, block.id)
    ]
    if not odd:
        return {}
    there = read(primary, [id for _, id in odd])
    return {
        form: id
        for (form, id), block in zip(odd, there, strict=True)
        if block is not None and is_key(id, block.id)
    }

"""Blocks of the source beside what the mirror holds for them, looked at until they are decided."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from migrator.engine.digests import hash_of
from migrator.engine.rechecked import Pair, rechecked
from migrator.engine.verification import (
    KEYS,
    Pass,
)
from migrator.errors import Terminal
from migrator.model.block import Block, join
from migrator.model.canonical import encode, equal
from migrator.model.diff import Difference, block_differences, same_block
from migrator.model.ending import Ending, without_ended
from migrator.model.rules import CorruptBlock
from migrator.model.value import Ref, Value
from migrator.ports import Matching
from migrator.route import NOT_MADE, Route, Unread, read_each

# Of a key that is written all the while.
RECHECKS = 100
# At one recheck, at a key that was written since the one before.
LOOKS = 4


def compare(walk: Pass, pairs: list[Pair], done: dict[str, int]) -> None:
    """Count and tell what became of some blocks; what differs is looked at once more before."""
    doubtful = [
        (source, new)
        for source, new, old in pairs
        if old is None or not as_expected(new, old, walk.route.ending)
    ]
    done[KEYS] += sum(hash_of(old.id) for _, _, old in pairs if old is not None)
    done["equal"] += len(pairs) - len(doubtful)
    if not doubtful:
        return
    done["rechecked"] += len(doubtful)
    spreads = walk.route.spreads
    ids = {encode(source.id): source.id for source, _ in doubtful}
    unequal = {encode(new.id) for _, new in doubtful}
    again = _again(walk, list(ids.values()))
    # What has gone from the source since: the other pass is to tell whether it lies there still.
    gone = ids.keys() - {encode(source.id) for source, _, _ in again}
    done[KEYS] -= sum(
        hash_of(old.id) for source, _, old in pairs if old is not None and encode(source.id) in gone
    )
    for source, new, old in again:
        same = old is not None and as_expected(new, old, walk.route.ending)
        if spreads and same and encode(new.id) not in unequal:
            continue  # another block of the same source, counted already
        shown = walk.route.name(new.id) if spreads else walk.route.source_name(source.id)
        if not same:
            walk.unlike.add("source", source.id, _led(walk, source, new))
        if old is None:
            done["missing"] += 1
            walk.tell(shown, "missing", [])
        elif same:
            done["equal"] += 1
        else:
            done["differ"] += 1
            walk.tell(shown, "differs", paths_between(walk.route, new, old))


def _led(walk: Pass, source: Block, new: Block) -> Iterator[tuple[str, Value]]:
    """The keys of both sides to be reconciled where a block of the source has not its equal."""
    route = walk.route
    if not route.gathers:
        yield "source", source.id
    elif type(source.id) is Ref:  # a part that belongs nowhere
        yield "source", source.id.id
        return
    else:
        # What is compared is a group: the blocks that it is made of lie under keys of their own.
        with suppress(*NOT_MADE):
            yield from (("source", key) for key in route.followed.sources(new))
    if route.gathers or route.changes_key:
        yield "target", new.id


def _again(walk: Pass, ids: list[Value]) -> list[Pair]:
    """Both sides of some keys once more; of a live run each of them until it is equal, or differs
    though it was not written since it was looked at before."""
    if walk.route.gathers and walk.scene.settle is not None:

        def look(some: Sequence[Value]) -> list[Pair]:
            read = read_each(walk.source, some, walk.scene.retry)
            return paired(walk, [block for block in read if block is not None])

        return rechecked(walk.route, ids, look, walk.scene.settle, RECHECKS)
    found: list[Pair] = []
    left: list[Pair] = []
    for _ in range(RECHECKS if walk.scene.settle else 1):
        before = {encode(source.id): source for source, _, _ in left}
        if walk.scene.settle:
            walk.scene.settle()
        decided, left = _looked_at(walk, ids, before)
        found += decided
        ids = list({encode(source.id): source.id for source, _, _ in left}.values())
        if not ids:
            break
    return found + left


def _looked_at(
    walk: Pass, ids: list[Value], before: dict[bytes, Block]
) -> tuple[list[Pair], list[Pair]]:
    """Both sides of some keys, settled just now: what is decided by that, and what is not.

    A key that was written since it was looked at ``before`` is decided where the mirror holds, at
    any look, what the source held at any: of one that is written more often than both can be read
    no two looks at once agree. A block is decided as a whole, with all that are made of it.
    """
    found: list[Pair] = []
    unlike: dict[bytes, list[Pair]] = {}
    seen: dict[bytes, list[list[Pair]]] = {}
    written: set[bytes] = set()
    for _ in range(LOOKS if before else 1):
        read = [b for b in read_each(walk.source, ids, walk.scene.retry) if b is not None]
        looked: dict[bytes, list[Pair]] = {}
        for pair in paired(walk, read):
            looked.setdefault(encode(pair[0].id), []).append(pair)
        unlike = {}
        for form, pairs in looked.items():
            looks = seen.setdefault(form, [])
            looks.append(pairs)
            if (last := before.get(form)) is None or not same_block(last, pairs[0][0]):
                written.add(form)
            if (equal := _met(walk, looks)) is not None:
                found += equal
            else:
                unlike[form] = pairs
        ids = [pairs[0][0].id for pairs in unlike.values()]
        if not ids:
            break
    for form in unlike.keys() - written:
        found += unlike.pop(form)
    return found, [pair for pairs in unlike.values() for pair in pairs]


def _met(walk: Pass, looks: list[list[Pair]]) -> list[Pair] | None:
    """What the source held at the last look and the mirror at any, or the other way around, where
    both are equal; None where they never were."""
    *others, last = looks
    tries = [(last, last), *((last, other) for other in others), *((o, last) for o in others)]
    for wanted, held in tries:
        there = {encode(new.id): old for _, new, old in held}
        met = [(source, new, there.get(encode(new.id))) for source, new, _ in wanted]
        if len(wanted) == len(held) and all(
            old is not None and as_expected(new, old, walk.route.ending) for _, new, old in met
        ):
            return met
    return None


def paired(walk: Pass, blocks: list[Block]) -> list[Pair]:
    """Blocks of the source, each with all that are made of it and what the mirror holds of them."""
    wanted: list[tuple[Block, Block]] = []
    for block in blocks:
        wanted += [(block, new) for new in expected(walk, block)]
    held = read_mirror(walk, [new for _, new in wanted])
    return [(block, new, old) for (block, new), old in zip(wanted, held, strict=True)]


def expected(walk: Pass, block: Block) -> list[Block]:
    """What the target must hold for a block of the source."""
    if isinstance(block, Unread):
        return [unknown(block.id, walk.route.told(block.reason))]
    try:
        return walk.route.expected(block)
    except NOT_MADE as error:
        return [unknown(block.id, walk.route.why(error)[0])]


def unknown(id: Value, reason: str) -> Block:
    """What stands for a block that nobody can tell: it differs from whatever is there."""
    return Block(id, {f"({reason})": None})


def as_expected(new: Block, old: Block, ending: Ending) -> bool:
    """Whether a block is what it must be, its key in value and in kind included.

    A field that ended since one side was read is absent on both.
    """
    if new is old:  # the observer matched it
        return True
    same = new.id == old.id if type(new.id) is type(old.id) is str else equal(new.id, old.id)
    if not same or same_block(new, old):
        return same
    return bool(ending) and _same_by_now(new, old, ending)


def _same_by_now(new: Block, old: Block, ending: Ending) -> bool:
    now = time.time_ns()
    try:
        before = [join(block).value for block in (new, old)]
    except CorruptBlock:
        return False
    left, right = (without_ended(record, ending, now) for record in before)
    if left is before[0] and right is before[1]:
        return False
    return same_block(
        Block(new.id, {"": left}, new.expires), Block(old.id, {"": right}, old.expires)
    )


_UNREADABLE = object()


def read_mirror(walk: Pass, blocks: list[Block]) -> list[Block | None]:
    """What the mirror holds; a block that can't be read is told and does not hide the others."""
    read = walk.scene.retry
    ids = [block.id for block in blocks]
    try:
        if isinstance(walk.target, Matching):
            return read(walk.target.match, blocks)
        return read(walk.target.read, ids)
    except Terminal:
        read(walk.route.target.exists)  # the store itself answers, or this is its error
    held: list[Block | None] = []
    for id in ids:
        try:
            held += read(walk.target.read, [id])
        except Terminal as error:
            why, _ = walk.route.why(error)
            held.append(Block(id, {f"(whole): can't be read: {why}": _UNREADABLE}))
    return held


def paths_between(route: Route, new: Block, old: Block) -> list[str]:
    if any(value is _UNREADABLE for value in old.entries.values()):
        return list(old.entries)
    try:
        join(old)
    except CorruptBlock as error:
        return [f"(whole): the mirror's block is damaged: {route.why(error)[0]}"]
    key = "" if equal(new.id, old.id) else Difference("(key)", new.id, old.id).text()
    paths = [d.text(masked=route.is_sensitive(d.path)) for d in block_differences(new, old)]
    return [key, *paths] if key else paths


__all__ = [
    "LOOKS", "RECHECKS", "as_expected", "compare", "expected", "paired", "paths_between",
    "read_mirror", "unknown",
]  # fmt: skip

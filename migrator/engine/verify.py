"""Verification: both sides read by their observers and compared in canonical form.

Two passes at once, each in its own side's order. One enumerates the primary and looks its keys
up in the mirror. The other enumerates the mirror's keys: where they add up to the very keys
that the first pass found there (a sum of hashes, whatever the order), there is nothing else;
where they do not, each is looked for on the primary. A difference is looked at once more before
it counts. All passes have checkpoints.

Where reading the mirror by key costs more than reading it through, and nobody writes, its blocks
are added up first, and so are those that it must hold: two sums that are the same leave nothing
to look for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Protocol, cast

import msgspec

from migrator.engine import archived
from migrator.engine.backfill import counts
from migrator.engine.checkpoints import Checkpoints, checkpoints
from migrator.engine.digests import digest, digest_of, hash_of
from migrator.engine.living import living
from migrator.engine.mending import Unlike
from migrator.engine.moving import Moving, reading
from migrator.engine.points import reached
from migrator.engine.rechecked import Pair, rechecked
from migrator.engine.work import Scene, carry_out, keys_aside
from migrator.errors import Terminal
from migrator.grouping import Reader
from migrator.model.block import Block, join
from migrator.model.canonical import encode, equal
from migrator.model.diff import Difference, block_differences, same_block
from migrator.model.ending import Ending, without_ended
from migrator.model.rules import CorruptBlock
from migrator.model.value import Ref, Value
from migrator.ports import Json, Matching, Observer, Page, Summing
from migrator.route import NOT_MADE, Route, Unread, accounted, ahead, pages, read_each
from migrator.state import Task, quarantine_key

# Of a key that is written all the while.
RECHECKS = 100
MOST_TOLD = 1_000
PATHS_TOLD = 20
_AT_ONCE = 100


class Mismatched(msgspec.Struct, frozen=True, kw_only=True):
    """One key on which the sides differ: ``differs``, ``missing`` or ``extra`` in the mirror."""

    key: str
    what: str
    paths: list[str]


class Verification(msgspec.Struct, kw_only=True):
    """The result for one move. ``told`` is bounded; the counts are of all.

    ``read`` are the blocks of the source, which may be fewer or more than those of the mirror.
    ``archived`` are those that lie in the archive instead, ``parts`` those of which a part does.
    ``mended`` are those that differed, were reconciled by the mirror, and then no longer did.
    """

    cls: str
    source: str
    target: str
    read: int = 0
    equal: int = 0
    differ: int = 0
    missing: int = 0
    extra: int = 0
    quarantined: int = 0
    archived: int = 0
    parts: int = 0
    rechecked: int = 0
    told: list[Mismatched] = []
    mended: int = 0

    @property
    def unlike(self) -> int:
        """On how many keys the sides differ."""
        return self.differ + self.missing + self.extra

    @property
    def clean(self) -> bool:
        return not self.unlike


@dataclass
class _Pass:
    """The readers of a verification, and what they found so far.

    ``odd``: a block was met that has to be decoded to be compared.
    """

    scene: Scene
    route: Route
    source: Observer
    target: Observer
    aside: frozenset[str]
    found: Verification
    checkpoints: Checkpoints
    archive: archived.Look | None = None
    odd: bool = False
    unlike: Unlike = field(default_factory=Unlike)

    def is_aside(self, id: Value) -> bool:
        """Whether a key of the source is in quarantine. The mirror of a live move takes keys out
        of it while they are compared."""
        if not self.aside or (key := quarantine_key(id)) not in self.aside:
            return False
        scene = self.scene
        if not scene.run.live:
            return True
        return scene.retry(scene.control.is_aside, scene.run.id, self.route.number, key)

    def tell(self, key: str, what: str, paths: list[str]) -> None:
        told = Mismatched(key=key, what=what, paths=paths[:PATHS_TOLD])
        if len(self.found.told) < MOST_TOLD:
            self.found.told.append(told)


def verify(
    scene: Scene, route: Route, *, resume: bool = False, unlike: Unlike | None = None
) -> Verification:
    """Compare both sides of a move, all blocks.

    With ``resume`` one that was interrupted goes on where it was, unless it had found a
    difference already: that may have been mended since. ``unlike`` takes the keys that differ.
    """
    walk, groups = _begun(scene, route)
    if not (resume and _is_clean_so_far(walk)):
        walk.checkpoints.forget(WORKS)
    walk.unlike, found = unlike or walk.unlike, walk.found
    if not (_can_sum(walk) and _add_up(walk)):
        _look_at_all(walk)
        if groups is not None:
            _look_at_moved(walk, groups)
    scene.watcher.ends("verify", route.cls)
    walk.checkpoints.forget(WORKS)
    if route.gathers:
        found.read = scene.retry(route.source_blocks)
    if groups is not None:
        found.quarantined = len(keys_aside(scene, route))
    return found


def verify_again(scene: Scene, route: Route, found: Verification, unlike: Unlike) -> Verification:
    """What was found, with all on which the sides of a live move differed looked at once more;
    where that can't be named, with all there is."""
    if unlike.whole:
        again = verify(scene, route)
    else:
        walk, _ = _begun(scene, route)
        again = walk.found
        _look_at_named(walk, unlike)
        again.equal += found.equal
        again.read, again.quarantined = found.read, found.quarantined
    again.mended = max(0, found.unlike - again.unlike)
    return again


def _look_at_named(walk: _Pass, unlike: Unlike) -> None:
    extra = list(unlike.found["target"])
    for start in range(0, len(unlike.found["source"]), _AT_ONCE):
        done = dict.fromkeys((*_COUNTED, _KEYS), 0)
        ids = unlike.found["source"][start : start + _AT_ONCE]
        read = read_each(walk.source, ids, walk.scene.retry)
        there = [block for block in read if block is not None]
        _compare(walk, _pairs(walk, there), done)
        for name in ("equal", "differ", "missing", "rechecked"):
            setattr(walk.found, name, getattr(walk.found, name) + done[name])
        if not walk.route.changes_key:  # what is there no longer must be gone there, too
            extra += [id for id, block in zip(ids, read, strict=True) if block is None]
    for start in range(0, len(extra), _AT_ONCE):
        left = _extra(walk, extra[start : start + _AT_ONCE])
        walk.found.extra += len(left)
        _tell_extra(walk, left)


def _begun(scene: Scene, route: Route) -> tuple[_Pass, Moving | None]:
    """The readers of a verification; of a live move that gathers also its groups."""
    found = Verification(cls=route.cls, source=str(route.source_at), target=str(route.move.target))
    target, aside = living(route.target.observer()), keys_aside(scene, route)
    groups: Moving | None = None
    if route.gathers and scene.run.live:
        # Those in quarantine are parts: the groups are read without them.
        groups = Moving(
            route, target, lambda: keys_aside(scene, route), scene.retry, scene.check, lists=True
        )
        source, aside = cast("Observer", reading(route, groups)), frozenset()
    else:
        source = living(route.source.observer())
    noted, look = checkpoints(scene, route), _look(scene, route)
    return _Pass(scene, route, source, target, aside, found, noted, look), groups


def _look_at_moved(walk: _Pass, groups: Moving) -> None:
    """Groups that blocks went to after they were listed: their pages may have been behind."""
    moved = list(groups.moved.values())
    for start in range(0, len(moved), _AT_ONCE):
        done = dict.fromkeys((*_COUNTED, _KEYS), 0)
        ids = moved[start : start + _AT_ONCE]
        read = read_each(walk.source, ids, walk.scene.retry)
        _compare(walk, _pairs(walk, [block for block in read if block is not None]), done)
        for name in ("differ", "missing", "rechecked"):  # else they are counted already
            setattr(walk.found, name, getattr(walk.found, name) + done[name])


def _look_at_all(walk: _Pass) -> None:
    """Every block by its key, and nothing beside them."""
    _begins(walk, FORTH)
    forth, back = _walk(walk, FORTH, BACK)
    if forth % _MODULUS != back % _MODULUS:
        _walk(walk, EXTRA)
    if walk.archive is not None:
        _walk(walk, ARCHIVE)


def _can_sum(walk: _Pass) -> bool:
    """Whether to add both sides up first: what is written meanwhile would only spoil the sums."""
    at_rest = walk.scene.settle is None and walk.archive is None
    return at_rest and walk.route.target_store.capabilities.reads_through


def _add_up(walk: _Pass) -> bool:
    """Whether the blocks that the mirror must hold add up to those that it holds, undecoded
    where they can be told apart so."""
    if isinstance(walk.target, Summing):
        if _sums_agree(walk, FORM, FORM_BACK):
            return True
        if not walk.odd:
            return False
        walk.odd = False
    return _sums_agree(walk, SUM, SUM_BACK)


def _sums_agree(walk: _Pass, work: str, work_back: str) -> bool:
    _begins(walk, work)
    forth, back = _walk(walk, work, work_back)
    if not walk.odd and forth % _MODULUS == back % _MODULUS:
        return True
    walk.found.read = walk.found.equal = walk.found.quarantined = 0
    return False


def _begins(walk: _Pass, work: str) -> None:
    scene, route = walk.scene, walk.route
    done = sum(
        sum(task.counts.get(name, 0) for name in ("equal", "quarantined", "archived"))
        for task in walk.checkpoints.tasks(work)
    )
    scene.watcher.begins("verify", route.cls, done, scene.planned(route).read)


def _look(scene: Scene, route: Route) -> archived.Look | None:
    if route.archive is None:
        return None
    return archived.Look(scene, route, route.archive, counts(scene, route)["archived"] > 0)


def forget(scene: Scene, route: Route) -> None:
    """Forget an interrupted verification, since one of the sides is about to change."""
    checkpoints(scene, route).forget(WORKS)


def _is_clean_so_far(walk: _Pass) -> bool:
    return not any(
        task.counts.get(name, 0)
        for work in WORKS
        for task in walk.checkpoints.tasks(work)
        for name in ("differ", "missing", "extra")
    )


def _walk(walk: _Pass, *works: str) -> list[int]:
    """Carry out passes, at once; for each the sum of the hashes of the mirror's keys it met."""
    scene, route = walk.scene, walk.route
    ranges = scene.planned(route).ranges
    listed: list[list[Task]] = []
    for work in works:
        side: Splitting = route.target
        if work in (FORTH, SUM, FORM):
            side = walk.source if isinstance(walk.source, Reader) else route.source
        if work == ARCHIVE and route.archive is not None:
            side = route.archive.collection
        listed.append(walk.checkpoints.listed(work, partial(scene.retry, side.split, ranges)))
    # By turns, so that workers wait for both servers at once: the mirror may be one range alone.
    tasks = [task for turn in zip_longest(*listed) for task in turn if task is not None]
    reached("verify.listed")
    do = {
        FORTH: _forth, BACK: _back, EXTRA: _look_up, ARCHIVE: _archive,
        SUM: _sum, SUM_BACK: _sum_back, FORM: _form, FORM_BACK: _form_back,
    }  # fmt: skip
    workers = 1 if route.in_process else None
    carry_out(scene, tasks, lambda task: do[task.work](walk, task), workers)
    return [_count(walk, work) for work in works]


def _count(walk: _Pass, work: str) -> int:
    total = 0
    for task in walk.checkpoints.tasks(work):
        total += task.counts.get(_KEYS, 0)
        for name, count in task.counts.items():
            if name != _KEYS:
                setattr(walk.found, name, getattr(walk.found, name) + count)
    return total


class Splitting(Protocol):
    """What is read in ranges."""

    def split(self, parts: int) -> list[Json]:
        """About so many ranges."""


FORTH, BACK, EXTRA, ARCHIVE = "verify", "verify back", "verify extra", "verify archive"
SUM, SUM_BACK = "verify sum", "verify sum back"
FORM, FORM_BACK = "verify form", "verify form back"
WORKS = (FORTH, BACK, EXTRA, ARCHIVE, SUM, SUM_BACK, FORM, FORM_BACK)
_COUNTED = (
    "read", "equal", "differ", "missing", "extra", "quarantined", "archived", "parts", "rechecked",
)  # fmt: skip
_KEYS = "keys"
_MODULUS = 2**128


def _forth(walk: _Pass, task: Task) -> None:
    """Every block of the source has its equal in the target."""
    scene, route = walk.scene, walk.route
    read = _read(walk, task)
    for page, pairs, done in read if route.in_process else ahead(read):
        scene.check()
        done["read"] = len(page.blocks) + len(page.damaged)
        for id, reason in page.damaged:
            if walk.is_aside(id):
                done["quarantined"] += 1
            else:
                done["differ"] += 1
                shown = route.source_name(id)
                walk.unlike.add("source", id, [("source", id)])
                walk.tell(shown, "differs", [f"(whole): can't be read: {reason}"])
        _compare(walk, pairs, done)
        task = _checkpoint(walk, task, page.next, done)
        scene.watcher.advances("verify", route.cls, len(page.blocks), page.bytes)


def _read(walk: _Pass, task: Task) -> Iterator[tuple[Page, list[Pair], dict[str, int]]]:
    """The pages of the source, each with what the target holds for it and the first counts."""
    limit = walk.scene.planned(walk.route).page
    for page in pages(walk.source, task.range, task.position, limit, walk.scene.retry):
        done = dict.fromkeys((*_COUNTED, _KEYS), 0)
        blocks = [block for block in page.blocks if not walk.is_aside(block.id)]
        done["quarantined"] = len(page.blocks) - len(blocks)
        if walk.archive is not None:
            blocks = walk.archive.compare(blocks, done, walk.tell)
        yield page, _pairs(walk, blocks), done


def _compare(walk: _Pass, pairs: list[Pair], done: dict[str, int]) -> None:
    doubtful = [
        (source, new)
        for source, new, old in pairs
        if old is None or not as_expected(new, old, walk.route.ending)
    ]
    done[_KEYS] += sum(hash_of(old.id) for _, _, old in pairs if old is not None)
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
    done[_KEYS] -= sum(
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


def _led(walk: _Pass, source: Block, new: Block) -> Iterator[tuple[str, Value]]:
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


def _again(walk: _Pass, ids: list[Value]) -> list[Pair]:
    """Both sides of some keys once more; of a live run each of them until it is equal, or differs
    though it was not written since it was looked at before."""
    if walk.route.gathers and walk.scene.settle is not None:

        def look(some: Sequence[Value]) -> list[Pair]:
            read = read_each(walk.source, some, walk.scene.retry)
            return _pairs(walk, [block for block in read if block is not None])

        return rechecked(walk.route, ids, look, walk.scene.settle, RECHECKS)
    found: list[Pair] = []
    moving: list[Pair] = []
    for _ in range(RECHECKS if walk.scene.settle else 1):
        before = {encode(source.id): source for source, _, _ in moving}
        if walk.scene.settle:
            walk.scene.settle()
        read = [b for b in read_each(walk.source, ids, walk.scene.retry) if b is not None]
        pairs = _pairs(walk, read)
        # A block is decided as a whole, with all that are made of it.
        unlike = {
            encode(s.id): s
            for s, new, old in pairs
            if old is None or not as_expected(new, old, walk.route.ending)
        }
        undecided = {
            form for form, source in unlike.items()
            if (last := before.get(form)) is None or not same_block(last, source)
        }  # fmt: skip
        moving = [pair for pair in pairs if encode(pair[0].id) in undecided]
        found += [pair for pair in pairs if encode(pair[0].id) not in undecided]
        ids = [unlike[form].id for form in undecided]
        if not ids:
            break
    return found + moving


def _pairs(walk: _Pass, blocks: list[Block]) -> list[Pair]:
    wanted: list[tuple[Block, Block]] = []
    for block in blocks:
        wanted += [(block, new) for new in _expected(walk, block)]
    held = _held(walk, [new for _, new in wanted])
    return [(block, new, old) for (block, new), old in zip(wanted, held, strict=True)]


def _expected(walk: _Pass, block: Block) -> list[Block]:
    """What the target must hold for a block of the source."""
    if isinstance(block, Unread):
        return [_unknown(block.id, block.reason)]
    try:
        return walk.route.expected(block)
    except NOT_MADE as error:
        return [_unknown(block.id, str(error))]


def _unknown(id: Value, reason: str) -> Block:
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


def _held(walk: _Pass, blocks: list[Block]) -> list[Block | None]:
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
            held.append(Block(id, {f"(whole): can't be read: {error.what}": _UNREADABLE}))
    return held


def paths_between(route: Route, new: Block, old: Block) -> list[str]:
    if any(value is _UNREADABLE for value in old.entries.values()):
        return list(old.entries)
    try:
        join(old)
    except CorruptBlock as error:
        return [f"(whole): the mirror's block is damaged: {error}"]
    key = "" if equal(new.id, old.id) else Difference("(key)", new.id, old.id).text()
    paths = [d.text(masked=route.is_sensitive(d.path)) for d in block_differences(new, old)]
    return [key, *paths] if key else paths


def _back(walk: _Pass, task: Task) -> None:
    """Add up the keys of the target."""
    for ids, position in _keys(walk, task):
        walk.scene.check()
        task = _checkpoint(walk, task, position, {_KEYS: sum(map(hash_of, ids))})


def _look_up(walk: _Pass, task: Task) -> None:
    """Every block of the target has its source."""
    for ids, position in _keys(walk, task):
        walk.scene.check()
        done = {"extra": 0}
        extra = _extra(walk, ids)
        done["extra"] += len(extra)
        _tell_extra(walk, extra)
        task = _checkpoint(walk, task, position, done)


def _tell_extra(walk: _Pass, extra: Sequence[Value]) -> None:
    for id in extra:
        walk.unlike.add("target", id, [("target", id)])
        walk.tell(walk.route.name(id), "extra", [])


def _archive(walk: _Pass, task: Task) -> None:
    """Every block of the archive has its source."""
    assert walk.archive is not None
    for page, extra in walk.archive.strangers(task, walk.tell):
        walk.scene.check()
        task = _checkpoint(walk, task, page.next, {"extra": extra})


def _keys(walk: _Pass, task: Task) -> Iterable[tuple[list[Value], object]]:
    position, limit = task.position, walk.scene.planned(walk.route).page
    while True:
        ids, position = walk.scene.retry(walk.route.target.keys, task.range, position, limit)
        yield ids, position
        if position is None:
            return


def _extra(walk: _Pass, ids: list[Value]) -> list[Value]:
    """Those keys of the mirror that no block of the source accounts for; of a live run those
    that are so still once they have settled."""
    extra = _unaccounted(walk, ids)
    for _ in range(RECHECKS if walk.scene.settle else 0):
        if not extra or walk.scene.settle is None:
            break
        walk.scene.settle()
        extra = _unaccounted(walk, extra)
    return extra


def _unaccounted(walk: _Pass, ids: list[Value]) -> list[Value]:
    """Those keys of the mirror that no block of the source accounts for, looked at twice."""
    route, retry = walk.route, walk.scene.retry
    blocks = [Block(id, {}) for id in ids]
    if route.changes_key:
        blocks = [b for b in read_each(walk.target, ids, retry) if b is not None]
    sources = accounted(route, blocks, walk.source, retry)
    # What is in quarantine, or whole in the archive, is not in the mirror: a block under its key
    # was written there later. But of what was damaged while it was mirrored the last copy stays.
    there = [source for source in sources if source is not None]
    kept = _damaged(walk, [source for source in there if walk.is_aside(source)])
    whole = set() if walk.archive is None else walk.archive.whole(there)
    extra = [
        block.id
        for block, source in zip(blocks, sources, strict=True)
        if source is None
        or (walk.is_aside(source) and encode(source) not in kept)
        or (whole and encode(source) in whole)
    ]
    # A block may have reached its deadline since its key was listed (C45).
    held = _held(walk, [Block(id, {}) for id in extra]) if extra else []
    return [id for id, block in zip(extra, held, strict=True) if block is not None]


def _damaged(walk: _Pass, aside: list[Value]) -> set[bytes]:
    """Those keys in quarantine whose blocks are damaged, of a live run."""
    if not (walk.scene.run.live and aside):
        return set()
    damaged = set()
    for key, block in zip(aside, read_each(walk.source, aside, walk.scene.retry), strict=True):
        try:
            if block is not None:
                join(block)
        except CorruptBlock:
            damaged.add(encode(key))
    return damaged


def _sum(walk: _Pass, task: Task) -> None:
    _sum_of(walk, task, digest)


def _form(walk: _Pass, task: Task) -> None:
    assert isinstance(walk.target, Summing)
    form = walk.target.form

    def number(block: Block) -> int | None:
        made = form(block)
        return None if made is None else digest_of(made)

    _sum_of(walk, task, number)


def _sum_of(walk: _Pass, task: Task, number: Callable[[Block], int | None]) -> None:
    """Add up the blocks that the target must hold; no further than to one without a number."""
    limit = walk.scene.planned(walk.route).page
    for page in ahead(pages(walk.source, task.range, task.position, limit, walk.scene.retry)):
        walk.scene.check()
        ids = [*(block.id for block in page.blocks), *(id for id, _ in page.damaged)]
        aside = sum(map(walk.is_aside, ids))
        wanted: list[Block] = []
        for block in page.blocks:
            if not walk.is_aside(block.id):
                wanted += _expected(walk, block)
        wanted += [_unknown(id, reason) for id, reason in page.damaged if not walk.is_aside(id)]
        done = {"read": len(ids), "equal": len(wanted), "quarantined": aside, _KEYS: 0}
        for block in wanted:
            added = number(block)
            walk.odd = walk.odd or added is None
            done[_KEYS] += added or 0
        if walk.odd:
            return
        task = _checkpoint(walk, task, page.next, done)
        walk.scene.watcher.advances("verify", walk.route.cls, len(ids), page.bytes)


def _sum_back(walk: _Pass, task: Task) -> None:
    """Add up the blocks that the target holds."""
    limit = walk.scene.planned(walk.route).page
    for page in ahead(pages(walk.target, task.range, task.position, limit, walk.scene.retry)):
        walk.scene.check()
        # What can't be read on either side is never the same as on the other.
        held = page.blocks + [_unknown(id, f"there: {reason}") for id, reason in page.damaged]
        task = _checkpoint(walk, task, page.next, {_KEYS: sum(map(digest, held))})


def _form_back(walk: _Pass, task: Task) -> None:
    """Add up what lies in the target as it lies there."""
    assert isinstance(walk.target, Summing)
    position, limit = task.position, walk.scene.planned(walk.route).page
    while not (task.done or walk.odd):
        walk.scene.check()
        held, position = walk.scene.retry(walk.target.forms, task.range, position, limit)
        task = _checkpoint(walk, task, position, {_KEYS: sum(map(digest_of, held))})


def _checkpoint(walk: _Pass, task: Task, position: object, done: dict[str, int]) -> Task:
    counts = {name: task.counts.get(name, 0) + n for name, n in done.items()}
    counts[_KEYS] = counts.get(_KEYS, 0) % _MODULUS
    task = replace(task, position=position, done=position is None, counts=counts)
    walk.checkpoints.keep(task)
    reached("verify.checkpointed")
    return task


__all__ = ["Mismatched", "Verification", "verify", "verify_again"]

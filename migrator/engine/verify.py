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

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Protocol, cast

from migrator.engine import archived, pairs
from migrator.engine.backfill import counts
from migrator.engine.checkpoints import checkpoints
from migrator.engine.digests import hash_of
from migrator.engine.living import living
from migrator.engine.mending import Unlike
from migrator.engine.moving import Moving, reading
from migrator.engine.points import reached
from migrator.engine.rechecked import Pair
from migrator.engine.sums import add, add_back, add_form, add_form_back
from migrator.engine.verification import (
    KEYS,
    MODULUS,
    Mismatched,
    Pass,
    Verification,
    checkpoint,
    nothing,
)
from migrator.engine.work import Scene, carry_out, keys_aside
from migrator.grouping import Reader
from migrator.model.block import Block, join
from migrator.model.canonical import encode
from migrator.model.rules import CorruptBlock
from migrator.model.value import Value
from migrator.ports import Json, Observer, Page, Summing
from migrator.route import Route, accounted, ahead, pages, read_each
from migrator.state import Task

_AT_ONCE = 100


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


def _look_at_named(walk: Pass, unlike: Unlike) -> None:
    extra = list(unlike.found["target"])
    for start in range(0, len(unlike.found["source"]), _AT_ONCE):
        done = nothing()
        ids = unlike.found["source"][start : start + _AT_ONCE]
        read = read_each(walk.source, ids, walk.scene.retry)
        there = [block for block in read if block is not None]
        pairs.compare(walk, pairs.paired(walk, there), done)
        for name in ("equal", "differ", "missing", "rechecked"):
            setattr(walk.found, name, getattr(walk.found, name) + done[name])
        if not walk.route.changes_key:  # what is there no longer must be gone there, too
            extra += [id for id, block in zip(ids, read, strict=True) if block is None]
    for start in range(0, len(extra), _AT_ONCE):
        left = _extra(walk, extra[start : start + _AT_ONCE])
        walk.found.extra += len(left)
        _tell_extra(walk, left)


def _begun(scene: Scene, route: Route) -> tuple[Pass, Moving | None]:
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
    return Pass(scene, route, source, target, aside, found, noted, look), groups


def _look_at_moved(walk: Pass, groups: Moving) -> None:
    """Groups that blocks went to after they were listed: their pages may have been behind."""
    moved = list(groups.moved.values())
    for start in range(0, len(moved), _AT_ONCE):
        done = nothing()
        ids = moved[start : start + _AT_ONCE]
        read = read_each(walk.source, ids, walk.scene.retry)
        pairs.compare(
            walk, pairs.paired(walk, [block for block in read if block is not None]), done
        )
        for name in ("differ", "missing", "rechecked"):  # else they are counted already
            setattr(walk.found, name, getattr(walk.found, name) + done[name])


def _look_at_all(walk: Pass) -> None:
    """Every block by its key, and nothing beside them."""
    _begins(walk, FORTH)
    forth, back = _walk(walk, FORTH, BACK)
    if forth % MODULUS != back % MODULUS:
        _walk(walk, EXTRA)
    if walk.archive is not None:
        _walk(walk, ARCHIVE)


def _can_sum(walk: Pass) -> bool:
    """Whether to add both sides up first: what is written meanwhile would only spoil the sums."""
    at_rest = walk.scene.settle is None and walk.archive is None
    return at_rest and walk.route.target_store.capabilities.reads_through


def _add_up(walk: Pass) -> bool:
    """Whether the blocks that the mirror must hold add up to those that it holds, undecoded
    where they can be told apart so."""
    if isinstance(walk.target, Summing):
        if _sums_agree(walk, FORM, FORM_BACK):
            return True
        if not walk.odd:
            return False
        walk.odd = False
    return _sums_agree(walk, SUM, SUM_BACK)


def _sums_agree(walk: Pass, work: str, work_back: str) -> bool:
    _begins(walk, work)
    forth, back = _walk(walk, work, work_back)
    if not walk.odd and forth % MODULUS == back % MODULUS:
        return True
    walk.found.read = walk.found.equal = walk.found.quarantined = 0
    return False


def _begins(walk: Pass, work: str) -> None:
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


def _is_clean_so_far(walk: Pass) -> bool:
    return not any(
        task.counts.get(name, 0)
        for work in WORKS
        for task in walk.checkpoints.tasks(work)
        for name in ("differ", "missing", "extra")
    )


def _walk(walk: Pass, *works: str) -> list[int]:
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
        SUM: add, SUM_BACK: add_back, FORM: add_form, FORM_BACK: add_form_back,
    }  # fmt: skip
    workers = 1 if route.in_process else None
    carry_out(scene, tasks, lambda task: do[task.work](walk, task), workers)
    return [_count(walk, work) for work in works]


def _count(walk: Pass, work: str) -> int:
    total = 0
    for task in walk.checkpoints.tasks(work):
        total += task.counts.get(KEYS, 0)
        for name, count in task.counts.items():
            if name != KEYS:
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


def _forth(walk: Pass, task: Task) -> None:
    """Every block of the source has its equal in the target."""
    scene, route = walk.scene, walk.route
    read = _read(walk, task)
    for page, found, done in read if route.in_process else ahead(read):
        scene.check()
        done["read"] = len(page.blocks) + len(page.damaged)
        for id, reason in page.damaged:
            if walk.is_aside(id):
                done["quarantined"] += 1
            else:
                done["differ"] += 1
                shown = route.source_name(id)
                walk.unlike.add("source", id, [("source", id)])
                walk.tell(shown, "differs", [f"(whole): can't be read: {route.told(reason)}"])
        pairs.compare(walk, found, done)
        task = checkpoint(walk, task, page.next, done)
        scene.watcher.advances("verify", route.cls, len(page.blocks), page.bytes)


def _read(walk: Pass, task: Task) -> Iterator[tuple[Page, list[Pair], dict[str, int]]]:
    """The pages of the source, each with what the target holds for it and the first counts."""
    limit = walk.scene.planned(walk.route).page
    for page in pages(walk.source, task.range, task.position, limit, walk.scene.retry):
        done = nothing()
        blocks = [block for block in page.blocks if not walk.is_aside(block.id)]
        done["quarantined"] = len(page.blocks) - len(blocks)
        if walk.archive is not None:
            blocks = walk.archive.compare(blocks, done, walk.tell)
        yield page, pairs.paired(walk, blocks), done


def _back(walk: Pass, task: Task) -> None:
    """Add up the keys of the target."""
    for ids, position in _keys(walk, task):
        walk.scene.check()
        task = checkpoint(walk, task, position, {KEYS: sum(map(hash_of, ids))})


def _look_up(walk: Pass, task: Task) -> None:
    """Every block of the target has its source."""
    for ids, position in _keys(walk, task):
        walk.scene.check()
        done = {"extra": 0}
        extra = _extra(walk, ids)
        done["extra"] += len(extra)
        _tell_extra(walk, extra)
        task = checkpoint(walk, task, position, done)


def _tell_extra(walk: Pass, extra: Sequence[Value]) -> None:
    for id in extra:
        walk.unlike.add("target", id, [("target", id)])
        walk.tell(walk.route.name(id), "extra", [])


def _archive(walk: Pass, task: Task) -> None:
    """Every block of the archive has its source."""
    assert walk.archive is not None
    for page, extra in walk.archive.strangers(task, walk.tell):
        walk.scene.check()
        task = checkpoint(walk, task, page.next, {"extra": extra})


def _keys(walk: Pass, task: Task) -> Iterable[tuple[list[Value], object]]:
    position, limit = task.position, walk.scene.planned(walk.route).page
    while True:
        ids, position = walk.scene.retry(walk.route.target.keys, task.range, position, limit)
        yield ids, position
        if position is None:
            return


def _extra(walk: Pass, ids: list[Value]) -> list[Value]:
    """Those keys of the mirror that no block of the source accounts for; of a live run those
    that are so still once they have settled."""
    extra = _unaccounted(walk, ids)
    for _ in range(pairs.RECHECKS if walk.scene.settle else 0):
        if not extra or walk.scene.settle is None:
            break
        walk.scene.settle()
        extra = _unaccounted(walk, extra)
    return extra


def _unaccounted(walk: Pass, ids: list[Value]) -> list[Value]:
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
    held = pairs.read_mirror(walk, [Block(id, {}) for id in extra]) if extra else []
    return [id for id, block in zip(extra, held, strict=True) if block is not None]


def _damaged(walk: Pass, aside: list[Value]) -> set[bytes]:
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


__all__ = ["Mismatched", "Verification", "verify", "verify_again"]

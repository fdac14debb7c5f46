"""Both sides added up: two sums that are the same leave nothing to look for."""

from __future__ import annotations

from collections.abc import Callable

from migrator.engine.digests import digest, digest_of
from migrator.engine.pairs import expected, unknown
from migrator.engine.verification import (
    KEYS,
    Pass,
    checkpoint,
)
from migrator.model.block import Block
from migrator.ports import Summing
from migrator.route import ahead, pages
from migrator.state import Task


def add(walk: Pass, task: Task) -> None:
    """Add up the blocks that the target must hold."""
    _sum_of(walk, task, digest)


def add_form(walk: Pass, task: Task) -> None:
    """The same, as they would lie there."""
    assert isinstance(walk.target, Summing)
    form = walk.target.form

    def number(block: Block) -> int | None:
        made = form(block)
        return None if made is None else digest_of(made)

    _sum_of(walk, task, number)


def _sum_of(walk: Pass, task: Task, number: Callable[[Block], int | None]) -> None:
    """Add up the blocks that the target must hold; no further than to one without a number."""
    limit = walk.scene.planned(walk.route).page
    for page in ahead(pages(walk.source, task.range, task.position, limit, walk.scene.retry)):
        walk.scene.check()
        ids = [*(block.id for block in page.blocks), *(id for id, _ in page.damaged)]
        aside = sum(map(walk.is_aside, ids))
        wanted: list[Block] = []
        for block in page.blocks:
            if not walk.is_aside(block.id):
                wanted += expected(walk, block)
        wanted += [unknown(id, reason) for id, reason in page.damaged if not walk.is_aside(id)]
        done = {"read": len(ids), "equal": len(wanted), "quarantined": aside, KEYS: 0}
        for block in wanted:
            added = number(block)
            walk.odd = walk.odd or added is None
            done[KEYS] += added or 0
        if walk.odd:
            return
        task = checkpoint(walk, task, page.next, done)
        walk.scene.watcher.advances("verify", walk.route.cls, len(ids), page.bytes)


def add_back(walk: Pass, task: Task) -> None:
    """Add up the blocks that the target holds."""
    limit = walk.scene.planned(walk.route).page
    for page in ahead(pages(walk.target, task.range, task.position, limit, walk.scene.retry)):
        walk.scene.check()
        # What can't be read on either side is never the same as on the other.
        held = page.blocks + [unknown(id, f"there: {reason}") for id, reason in page.damaged]
        task = checkpoint(walk, task, page.next, {KEYS: sum(map(digest, held))})


def add_form_back(walk: Pass, task: Task) -> None:
    """Add up what lies in the target as it lies there."""
    assert isinstance(walk.target, Summing)
    position, limit = task.position, walk.scene.planned(walk.route).page
    while not (task.done or walk.odd):
        walk.scene.check()
        held, position = walk.scene.retry(walk.target.forms, task.range, position, limit)
        task = checkpoint(walk, task, position, {KEYS: sum(map(digest_of, held))})


__all__ = ["add", "add_back", "add_form", "add_form_back"]

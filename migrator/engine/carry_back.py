"""Carries what was written to the target since a cut-over back to the source, at rest.

``old`` is what the source holds, ``new`` what the target holds: the source gets
``backward(new, old)``. Keys that only the source has were deleted since; keys that only the
target has were born since, unless the archive keeps a part of them, which then comes back. Blocks
in quarantine, or whole in the archive, never reached the target and stay as they are, unless the
target has written their keys anew. Where blocks of the source became several, all that the target
holds of one go back together.
"""

from __future__ import annotations

from migrator.engine.archived import parts_kept, tidy, whole_ones
from migrator.engine.carry_parts import carry_parts_back
from migrator.engine.work import Scene, keys_aside
from migrator.errors import Failed
from migrator.model.block import Address, Block, join
from migrator.model.canonical import encode
from migrator.model.diff import same_block
from migrator.model.rules import CorruptBlock
from migrator.model.value import Value
from migrator.route import NOT_MADE, Route, pages
from migrator.state import quarantine_key


def carry_back(scene: Scene, route: Route) -> dict[str, int]:
    """Make the source equal to the target; the counts of what was done there."""
    done = {"create": 0, "change": 0, "delete": 0}
    aside = keys_aside(scene, route)
    if route.spreads:
        return carry_parts_back(scene, route, aside, done)
    limit = scene.planned(route).page
    for range_ in scene.retry(route.target.split, 1):
        for page in pages(route.target, range_, None, limit, scene.retry):
            scene.check()
            for id, reason in page.damaged:
                raise _damaged(route, id, reason)
            _write(scene, route, page.blocks, aside, done)
    for range_ in scene.retry(route.source.split, 1):
        for page in pages(route.source, range_, None, limit, scene.retry):
            scene.check()
            left = [b for b in page.blocks if quarantine_key(b.id) not in aside]
            whole = whole_ones(scene, route, [block.id for block in left])
            _delete(scene, route, [b for b in left if encode(b.id) not in whole], done)
    tidy(scene, route)
    return done


def _damaged(route: Route, id: Value, reason: str) -> Failed:
    return Failed(
        f"{route.name(id)} is damaged: {route.told(reason)}",
        where=str(route.move.target),
        hint="mend or delete it there, then run the same command again",
    )


def _write(
    scene: Scene, route: Route, blocks: list[Block], aside: frozenset[str], done: dict[str, int]
) -> None:
    for block in blocks:
        try:
            join(block)
        except CorruptBlock as error:
            raise _damaged(route, block.id, str(error)) from None
    keys = [route.sources(block) for block in blocks]
    flat = [key for each in keys for key in each]
    held = {encode(b.id): b for b in scene.retry(route.source.read, flat) if b is not None}
    kept = parts_kept(scene, route, [key for key in flat if encode(key) not in held])
    writes: list[Block] = []
    for block, each in zip(blocks, keys, strict=True):
        old = held.get(encode(each[0]))
        try:
            if old is not None and all(same_block(block, new) for new in route.expected(old)):
                continue
            before = None if old is None else join(old)
        except NOT_MADE:
            before = None  # it was in quarantine and never reached the target: it is replaced
        writes.append(route.returned(block, before, kept.get(encode(each[0]))))
        done["create" if old is None else "change"] += 1
    if writes:
        scene.retry(route.source.write, writes)
    for key in aside.intersection(quarantine_key(each[0]) for each in keys if each):
        scene.control.take_up(scene.run.id, route.number, key)


def _delete(scene: Scene, route: Route, blocks: list[Block], done: dict[str, int]) -> None:
    """Delete those blocks of the source whose mirror block is gone."""
    expected = [(block, route.expected(block)) for block in blocks]
    flat = [new.id for _, each in expected for new in each]
    there = {encode(b.id) for b in scene.retry(route.target.read, flat) if b is not None}
    gone = [
        Address(block.id, block.place)
        for block, each in expected
        if not any(encode(new.id) in there for new in each)
    ]
    if gone:
        scene.retry(route.source.delete, gone)
        done["delete"] += len(gone)

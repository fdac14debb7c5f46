"""Carries parts back into the blocks of the source that they were split out of.

The target is listed once to see which parts belong together; then each group goes back as one.
A block of the source without any part left keeps what else it holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from migrator.engine.archived import tidy, whole_ones
from migrator.engine.work import Scene
from migrator.errors import Failed
from migrator.grouping import Group, Groups, Side
from migrator.model.block import Address, Aggregate, Block, cut, join
from migrator.model.canonical import encode
from migrator.model.diff import same_block
from migrator.model.rules import CorruptBlock
from migrator.model.value import Ref, Value
from migrator.route import Route, pages
from migrator.state import quarantine_key


def carry_parts_back(
    scene: Scene, route: Route, aside: frozenset[str], done: dict[str, int]
) -> dict[str, int]:
    """Make the source hold exactly the target's parts. Raises Failed for one that leads nowhere."""
    groups = _grouped(route)
    limit = scene.planned(route).page
    after: bytes | None = None
    while True:
        scene.check()
        found, after = scene.retry(groups.page, after, None, limit)
        _join_in(scene, route, found, aside, done)
        if after is None:
            break
    for range_ in scene.retry(route.source.split, 1):
        for page in pages(route.source, range_, None, limit, scene.retry):
            scene.check()
            left = [b for b in page.blocks if quarantine_key(b.id) not in aside]
            whole = whole_ones(scene, route, [block.id for block in left])
            left = [block for block in left if encode(block.id) not in whole]
            there = groups.read([block.id for block in left])
            lone = [block for block, group in zip(left, there, strict=True) if group is None]
            _put_back(scene, route, ((block.id, [], block) for block in lone), done)
    tidy(scene, route)
    return done


def _grouped(route: Route) -> Groups:
    """The parts that the target holds, by the block of the source that they belong to."""
    translation = route.translation

    def key(part: Aggregate) -> Value:
        return translation.sources(part.id, part.value)[0]

    return Groups(Side(route.cls, route.target, route.target), key)


def _join_in(
    scene: Scene, route: Route, groups: list[Group], aside: frozenset[str], done: dict[str, int]
) -> None:
    for group in groups:
        if group.what:
            shown = str(group.id) if type(group.id) is Ref else route.source_name(group.id)
            raise Failed(
                f"{shown} can't go back: {route.told(group.what)}",
                where=str(route.move.target),
                hint="mend or delete it there, then run the same command again",
            )
    olds = scene.retry(route.source.read, [group.id for group in groups])
    wanted = ((g.id, g.parts, old) for g, old in zip(groups, olds, strict=True))
    _put_back(scene, route, wanted, done)
    for key in aside.intersection(quarantine_key(group.id) for group in groups):
        scene.control.take_up(scene.run.id, route.number, key)


def _put_back(
    scene: Scene,
    route: Route,
    wanted: Iterable[tuple[Value, list[Aggregate], Block | None]],
    done: dict[str, int],
) -> None:
    """Make blocks of the source what their parts say: key, parts, and the block that is there."""
    writes: list[Block] = []
    gone: list[Address] = []
    for id, parts, block in wanted:
        old = _held(route, block)
        back = route.translation.returned(id, parts, old)
        if back is None:
            gone.append(Address(id, None if block is None else block.place))
            continue
        new = cut(back, route.translation.source)
        if block is None or not same_block(new, block):
            writes.append(new)
            done["create" if block is None else "change"] += 1
    if writes:
        scene.retry(route.source.write, writes)
    if gone:
        scene.retry(route.source.delete, gone)
        done["delete"] += len(gone)


def _held(route: Route, block: Block | None) -> Aggregate | None:
    if block is None:
        return None
    try:
        return join(block)
    except CorruptBlock as error:
        raise Failed(
            f"{route.source_name(block.id)} is damaged: {error}",
            where=str(route.source_at),
            hint="mend it there, then run the same command again",
        ) from None


__all__ = ["carry_parts_back"]

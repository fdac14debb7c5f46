"""Backfill: copy what the source holds, page by page, behind a checkpoint.

A page is read, cut for the target and written; only then does the checkpoint move (it is never
ahead of the data). Where the target held blocks before, each page is compared first and only
what differs is written; what the page will do is noted before, so that counts survive a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from migrator.engine.points import reached
from migrator.engine.throttle import Throttle
from migrator.engine.turns import Turns
from migrator.engine.work import Scene, carry_out, log
from migrator.errors import DoesNotFit, Refused
from migrator.model.block import Address, Block
from migrator.model.canonical import encode
from migrator.model.diff import same_block
from migrator.model.rules import CorruptBlock
from migrator.model.value import Value, show
from migrator.ports import Page
from migrator.route import NOT_MADE, Route, ahead, extra_blocks, pages
from migrator.state import Quarantined, Task, quarantine_key, read_pace

COUNTED = (
    "read", "spread", "create", "change", "leave", "delete", "quarantined", "archived", "parts",
    "bytes",
)  # fmt: skip


@dataclass
class Batch:
    """What one page turns into.

    ``origins`` are the keys of the target with those of the source, where they are others,
    ``there`` those that the target holds already, both by canonical form. The count ``spread``
    is how many more blocks the source's became than they were. Where there is an archive,
    ``sources`` are the blocks that were read, ``whole`` and ``parts`` what goes there; all by the
    canonical form of the source's key.
    """

    blocks: list[Block] = field(default_factory=list)
    origins: dict[bytes, tuple[Value, Value]] = field(default_factory=dict)
    there: set[bytes] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    sources: dict[bytes, Block] = field(default_factory=dict)
    whole: dict[bytes, Block] = field(default_factory=dict)
    parts: dict[bytes, Block] = field(default_factory=dict)

    @property
    def aside(self) -> int:
        """How many of the source's blocks do not reach the target."""
        return self.counts["quarantined"] + len(self.whole)


def backfill(scene: Scene, route: Route) -> dict[str, int]:
    """Copy one collection; goes on where it was left. Returns what was done, in blocks."""
    planned = scene.planned(route)
    tasks = scene.tasks(route, "backfill", lambda: scene.retry(route.source.split, planned.ranges))
    reached("backfill.listed")
    done = sum(task.counts.get("read", 0) for task in tasks)
    scene.watcher.begins("backfill", route.cls, done, planned.read)
    throttle = Throttle(lambda: scene.retry(read_pace, scene.control, scene.run.id))
    if planned.shuffled:
        left = [task for task in tasks if not task.done]
        turns = Turns(_Backfill(scene, route, task, throttle).steps() for task in left)
        carry_out(scene, left[: scene.workers], lambda _: turns.work())
    else:
        carry_out(scene, tasks, lambda task: _Backfill(scene, route, task, throttle).run())
    if not planned.fresh:
        extra = scene.tasks(route, "delete", lambda: scene.retry(route.target.split, 1))
        carry_out(scene, extra, lambda task: _delete_extra(scene, route, task))
    scene.watcher.ends("backfill", route.cls)
    return counts(scene, route)


def counts(scene: Scene, route: Route) -> dict[str, int]:
    """What the backfill of a move did so far."""
    total = dict.fromkeys(COUNTED, 0)
    for work in ("backfill", "delete"):
        for task in scene.control.tasks(scene.run.id, route.number, work):
            for name, count in task.counts.items():
                total[name] += count
    return total


class _Backfill:
    """One range on its way."""

    def __init__(self, scene: Scene, route: Route, task: Task, throttle: Throttle) -> None:
        self.scene = scene
        self.route = route
        self.task = task
        self.throttle = throttle
        self.planned = scene.planned(route)

    def run(self) -> None:
        """To its end; while a page is written the next one is read."""
        for _ in self.steps(ahead):
            pass

    def steps(self, read: Callable[[Iterator[Page]], Iterator[Page]] = iter) -> Iterator[None]:
        """Page by page, each with its checkpoint."""
        scene, task = self.scene, self.task
        limit = self.planned.page
        source = self.route.source
        for page in read(pages(source, task.range, task.position, limit, scene.retry)):
            self.throttle.wait(scene.check)
            scene.check()
            reached("backfill.read")
            intent = self.task.intent
            batch = self._cut(page)
            if not self.planned.fresh:
                self._compare(batch)
                if intent is None:
                    scene.retry(scene.control.intend, scene.run.id, self.task, batch.counts)
                else:
                    batch.counts = dict(intent)
                reached("backfill.intended")
            self._write(batch)
            reached("backfill.written")
            self._archive(batch)
            self._checkpoint(page, batch.counts)
            self.throttle.copied(batch.counts["read"])
            yield
        reached("backfill.task_done")

    def _cut(self, page: Page) -> Batch:
        """The blocks that the target gets for a page of the source."""
        batch = Batch()
        expected, archive = self.route.expected, self.route.archive
        if archive is not None:
            batch.sources = {encode(block.id): block for block in page.blocks}
        for block in page.blocks:
            try:
                cut = expected(block)
                part = None if archive is None else archive.part(block)
                if part is not None:
                    batch.parts[encode(block.id)] = part
                if self.route.changes_key:
                    batch.origins.update((encode(new.id), (new.id, block.id)) for new in cut)
                batch.blocks += cut
            except NOT_MADE as error:
                self._set_aside(batch, block.id, *self.route.why(error))
                self._drop_leftover_of(block.id)
        for id, reason in page.damaged:
            self._set_aside(batch, id, self.route.told(reason), "")
            self._drop_leftover_of(id)
        batch.counts["read"] = len(page.blocks) + len(page.damaged)
        went = batch.counts["read"] - batch.aside
        batch.counts["spread"] = len(batch.blocks) - went
        batch.counts["create"] = len(batch.blocks)
        return batch

    def _compare(self, batch: Batch) -> None:
        """Leave out what the target holds already."""
        held = self.scene.retry(self.route.target.read, [block.id for block in batch.blocks])
        pairs = list(zip(batch.blocks, held, strict=True))
        batch.blocks = [new for new, old in pairs if old is None or not same_block(new, old)]
        batch.there = {encode(new.id) for new, old in pairs if old is not None}
        create = sum(old is None for _, old in pairs)
        batch.counts.update(
            create=create,
            change=len(batch.blocks) - create,
            leave=len(pairs) - len(batch.blocks),
        )

    def _write(self, batch: Batch) -> None:
        while batch.blocks:
            try:
                batch.counts["bytes"] += self.scene.retry(self.route.target.write, batch.blocks)
            except DoesNotFit as error:
                batch.blocks = self._without(batch, error)
            else:
                return

    def _without(self, batch: Batch, error: DoesNotFit) -> list[Block]:
        """The batch without the block that does not fit, which goes into quarantine.

        Where the source's block became several, all of them go: it is moved whole or not at all.
        """
        form = encode(error.key)
        if all(encode(block.id) != form for block in batch.blocks):
            error.what, _ = self.route.why(error)
            raise error
        _, origin = batch.origins.get(form, (error.key, error.key))
        going = _made_of(batch, origin) if self.route.spreads else {form: error.key}
        rest = [block for block in batch.blocks if encode(block.id) not in going]
        written = {encode(block.id) for block in batch.blocks}
        for each in going:
            there = "change" if each in written else "leave"
            batch.counts[there if each in batch.there else "create"] -= 1
        batch.counts["spread"] -= len(going) - 1
        self._set_aside(batch, origin, *self.route.why(error))
        for each in batch.there.intersection(going):
            self._drop_leftover(going[each])
        return rest

    def _drop_leftover_of(self, id: Value) -> None:
        """As ``_drop_leftover``, for a block that could not be cut: where its key is the same."""
        if not self.planned.fresh and not self.route.changes_key:
            self._drop_leftover(id)

    def _drop_leftover(self, id: Value) -> None:
        """Remove the target's older copy of a block in quarantine: it would pass for the block,
        and a rollback could not tell it from a later write."""
        self.scene.retry(self.route.target.delete, [Address(id)])

    def _set_aside(self, batch: Batch, id: Value, reason: str, path: str) -> None:
        """Into the archive or quarantine with a block that can't be written, or stop. Raises
        DoesNotFit."""
        form = encode(id)
        whole = self._whole(batch.sources.get(form))
        if whole is not None:
            batch.parts.pop(form, None)
            batch.whole[form] = whole
            log.warning("archived", key=self.route.source_name(id), path=path, reason=reason)
            return
        if self.planned.oversize != "quarantine":
            done = counts(self.scene, self.route)
            raise DoesNotFit(
                reason,
                key=id,
                path=path,
                where=f"{self.route.move.target}  {self.route.source_name(id)}"
                + (f"  path {path}" if path else ""),
                hint=f"nothing was written for this block; {done['read']:,} others are done. "
                'Mend it and go on with the same command, or set oversize="quarantine" on the '
                f"move and plan again:  migrator plan {self.scene.plan.revision}",
            )
        batch.counts["quarantined"] += 1
        item = quarantined(self.route, id, reason, path)
        self.scene.retry(self.scene.control.set_aside, self.scene.run.id, item)
        log.warning("quarantined", key=self.route.source_name(id), path=path, reason=reason)

    def _whole(self, source: Block | None) -> Block | None:
        """A block as it is archived, where the plan says so and it can be read."""
        archive = self.route.archive
        if archive is None or source is None or self.planned.oversize != "archive":
            return None
        try:
            return archive.whole(source)
        except CorruptBlock:
            return None

    def _archive(self, batch: Batch) -> None:
        """Write what goes into the archive. What is counted here is the same after a crash."""
        archive = self.route.archive
        if archive is None:
            return
        blocks = [*batch.whole.values(), *batch.parts.values()]
        if blocks:
            try:
                batch.counts["bytes"] += self.scene.retry(archive.collection.write, blocks)
            except DoesNotFit as error:
                raise not_archived(self.route, error) from None
        batch.counts["archived"] = len(batch.whole)
        batch.counts["parts"] = len(batch.parts)
        reached("backfill.archived")

    def _checkpoint(self, page: Page, done: dict[str, int]) -> None:
        before = self.task.counts
        self.task = replace(
            self.task,
            position=page.next,
            done=page.next is None,
            counts={name: before.get(name, 0) + done.get(name, 0) for name in COUNTED},
            intent=None,
        )
        self.scene.retry(self.scene.control.checkpoint, self.scene.run.id, self.task)
        reached("backfill.checkpointed")
        self.scene.watcher.advances("backfill", self.route.cls, done["read"], done["bytes"])


def not_archived(route: Route, error: DoesNotFit) -> DoesNotFit:
    """The error for a block that neither the target nor the archive takes."""
    assert route.archive is not None
    what, path = route.why(error)
    return DoesNotFit(
        what,
        key=error.key,
        path=path,
        where=f"{route.archive.at}  {route.source_name(error.key)}",
        hint="choose an archive that holds it, or mend the block, and plan again:  migrator plan",
    )


def _made_of(batch: Batch, origin: Value) -> dict[bytes, Value]:
    """All keys of the target that one block of the source became, by canonical form."""
    wanted = encode(origin)
    return {form: id for form, (id, key) in batch.origins.items() if encode(key) == wanted}


def quarantined(
    route: Route, id: Value, reason: str, path: str, shown: str | None = None
) -> Quarantined:
    """The record of a block that does not go over; ``shown`` where it is not the source's."""
    name = route.source_name(id) if shown is None else shown
    return Quarantined(
        route.number, quarantine_key(id), name, show(path), show(reason), time.time()
    )


def _delete_extra(scene: Scene, route: Route, task: Task) -> None:
    """Remove from the target what the source does not have; the plan said how many."""
    planned = scene.planned(route)
    for page in pages(route.target, task.range, task.position, planned.page, scene.retry):
        scene.check()
        extra = extra_blocks(route, page.blocks, scene.retry)
        _refuse_unplanned(scene, route, extra)
        # After a crash a page reaches further, as what it held before is gone: the keys say which
        # of them were counted already.
        going = {**(task.intent or {}), **{quarantine_key(block.id): 1 for block in extra}}
        if going != task.intent:
            scene.retry(scene.control.intend, scene.run.id, task, going)
        reached("delete.intended")
        if extra:
            scene.retry(route.target.delete, [Address(block.id, block.place) for block in extra])
        reached("delete.written")
        task = replace(
            task,
            position=page.next,
            done=page.next is None,
            counts={"delete": task.counts.get("delete", 0) + len(going)},
            intent=None,
        )
        scene.retry(scene.control.checkpoint, scene.run.id, task)


def _refuse_unplanned(scene: Scene, route: Route, extra: Sequence[Block]) -> None:
    """Raise Refused where more would be deleted than somebody agreed to."""
    if not extra:
        return
    planned = scene.planned(route)
    accepted = any(f.code == "A107" and f.cls == route.cls for f in scene.plan.to_accept)
    done = counts(scene, route)["delete"]
    if (accepted and not planned.exact) or done + len(extra) <= planned.delete:
        return
    keys = ", ".join(route.name(block.id) for block in extra[:5])
    raise Refused(
        f"it holds blocks that {route.source_at} lacks and that the plan did not count: {keys}"
        + (" ..." if len(extra) > 5 else ""),
        where=str(route.move.target),
        hint=f"leave this run and plan again:  migrator abort {scene.plan.revision} --keep-target,"
        f"  migrator plan {scene.plan.revision}",
    )


def write_again(scene: Scene, route: Route, ids: Sequence[Value]) -> list[Value]:
    """Bring single keys of the target to what the source holds now. Returns those that failed."""
    failed: list[Value] = []
    for id, block in zip(ids, scene.retry(route.source.read, list(ids)), strict=True):
        try:
            blocks = route.expected(block) if block is not None else []
            if blocks:
                scene.retry(route.target.write, blocks)
            part = None if block is None or route.archive is None else route.archive.part(block)
            if part is not None and route.archive is not None:
                scene.retry(route.archive.collection.write, [part])
        except NOT_MADE as error:
            scene.control.set_aside(scene.run.id, quarantined(route, id, *route.why(error)))
            failed.append(id)
    return failed


__all__ = ["backfill", "counts", "quarantined", "write_again"]

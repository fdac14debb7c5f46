"""Archives during a run: what verification finds in them, and what the way back leaves there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from migrator.archive import Archive, residue_in
from migrator.engine.living import living
from migrator.engine.work import Scene
from migrator.model.block import Address, Block
from migrator.model.canonical import encode
from migrator.model.diff import block_differences, same_block
from migrator.model.value import Record, Value
from migrator.ports import Observer, Page
from migrator.route import NOT_MADE, Route, pages
from migrator.state import Task

Tell = Callable[[str, str, list[str]], None]


def held(scene: Scene, archive: Archive, ids: Sequence[Value]) -> dict[bytes, Block]:
    """What an archive holds for some keys of the source, by canonical form."""
    return _held(scene, archive.collection, ids)


def _held(scene: Scene, reader: Observer, ids: Sequence[Value]) -> dict[bytes, Block]:
    read = scene.retry(reader.read, list(ids)) if ids else []
    return {encode(id): block for id, block in zip(ids, read, strict=True) if block is not None}


def whole_ones(scene: Scene, route: Route, ids: Sequence[Value]) -> dict[bytes, Value]:
    """Those keys of the source whose blocks lie whole in the archive: the target has none."""
    if route.archive is None:
        return {}
    there = held(scene, route.archive, ids)
    forms = {encode(id): id for id in ids}
    return {form: forms[form] for form, block in there.items() if residue_in(block) is None}


def parts_kept(scene: Scene, route: Route, ids: Sequence[Value]) -> dict[bytes, Record]:
    """What the archive keeps of blocks of these keys, by canonical form."""
    if route.archive is None or not route.archive.keeps_parts:
        return {}
    found = {form: residue_in(b) for form, b in held(scene, route.archive, ids).items()}
    return {form: kept for form, kept in found.items() if kept is not None}


def tidy(scene: Scene, route: Route) -> int:
    """Remove from the archive what the source, as it is now, would not put there.

    For the way back alone: the source is about to be the primary. Returns how many.
    """
    archive, gone = route.archive, 0
    if archive is None:
        return gone
    limit = scene.planned(route).page
    for range_ in scene.retry(archive.collection.split, 1):
        for page in pages(archive.collection, range_, None, limit, scene.retry):
            scene.check()
            kept = _wanted(scene, route, archive, page.blocks)
            stale = [Address(b.id, b.place) for b in page.blocks if encode(b.id) not in kept]
            if stale:
                scene.retry(archive.collection.delete, stale)
            gone += len(stale)
    return gone


def _wanted(scene: Scene, route: Route, archive: Archive, blocks: Sequence[Block]) -> set[bytes]:
    """Which of an archive's blocks say what the source says now, whole ones without a mirror."""
    wanted: set[bytes] = set()
    sources = _held(scene, route.source, [block.id for block in blocks])
    for block in blocks:
        form = encode(block.id)
        source = sources.get(form)
        if source is None:
            continue
        whole = residue_in(block) is None
        if (whole and not _mirrored(scene, route, source)) or (
            not whole and _same(archive.part(source), block)
        ):
            wanted.add(form)
    return wanted


def _mirrored(scene: Scene, route: Route, source: Block) -> bool:
    """Whether the target holds a block that one of the source makes."""
    try:
        made = route.expected(source)
    except NOT_MADE:
        return False
    return any(b is not None for b in scene.retry(route.target.read, [new.id for new in made]))


def _same(new: Block | None, old: Block) -> bool:
    return new is not None and same_block(new, old)


class Look:
    """The verifier's look at an archive, by its observer."""

    def __init__(self, scene: Scene, route: Route, archive: Archive, any_whole: bool) -> None:
        self._scene = scene
        self._route = route
        self._archive = archive
        self._reader = living(archive.collection.observer())
        # Where nothing can lie there, no page need ask; what lies there all the same is extra.
        self._any = any_whole or archive.keeps_parts

    def whole(self, ids: Sequence[Value]) -> set[bytes]:
        """Those keys of the source that lie in the archive whole."""
        there = _held(self._scene, self._reader, ids) if self._any else {}
        return {form for form, block in there.items() if residue_in(block) is None}

    def compare(self, blocks: list[Block], done: dict[str, int], tell: Tell) -> list[Block]:
        """Hold the archive against a page of the source; the blocks that the target must have."""
        if not self._any:
            return blocks
        left, doubtful = self._compare(blocks, done, None)
        if doubtful:
            # Looked at once more, as the blocks of the target are.
            done["rechecked"] += len(doubtful)
            source = living(self._route.source.observer())
            read = self._scene.retry(source.read, [b.id for b in doubtful])
            left += self._compare([b for b in read if b is not None], done, tell)[0]
        return left

    def _compare(
        self, blocks: list[Block], done: dict[str, int], tell: Tell | None
    ) -> tuple[list[Block], list[Block]]:
        there = _held(self._scene, self._reader, [block.id for block in blocks])
        left: list[Block] = []
        doubtful: list[Block] = []
        for block in blocks:
            lies = there.get(encode(block.id))
            whole = lies is not None and residue_in(lies) is None
            wanted = self._wanted(block, whole)
            if wanted is None and lies is None:
                left.append(block)
                continue
            if wanted is not None and lies is not None and same_block(wanted, lies):
                done["archived" if whole else "parts"] += 1
            elif tell is None:
                doubtful.append(block)
                continue
            else:
                self._differs(block, wanted, lies, done, tell)
            if not whole:
                left.append(block)
        return left, doubtful

    def _wanted(self, block: Block, whole: bool) -> Block | None:
        try:
            return self._archive.whole(block) if whole else self._archive.part(block)
        except NOT_MADE:
            return None  # told where it is held against the target

    def _differs(
        self, block: Block, wanted: Block | None, lies: Block | None,
        done: dict[str, int], tell: Tell,
    ) -> None:  # fmt: skip
        shown = self._route.source_name(block.id)
        if lies is None:
            what, paths = "missing", [f"(archive): nothing of it lies in {self._archive.at}"]
        elif wanted is None:
            what, paths = "extra", [f"(archive): {self._archive.at} holds it"]
        else:
            what = "differs"
            differences = block_differences(wanted, lies)
            paths = [f"(archive) {d.text(masked=self._masked(d.path))}" for d in differences]
        done[_COUNTS[what]] += 1
        tell(shown, what, paths)

    def _masked(self, path: str) -> bool:
        # What was left out is told by other paths than the sensitive ones are declared by.
        return bool(self._route.move.sensitive) and (
            path.startswith("_dropped") or self._route.is_sensitive(path)
        )

    def strangers(self, task: Task, tell: Tell) -> Iterator[tuple[Page, int]]:
        """The pages of the archive, each with how many blocks the source does not account for."""
        limit = self._scene.planned(self._route).page
        for page in pages(self._reader, task.range, task.position, limit, self._scene.retry):
            ids = [block.id for block in page.blocks] if self._any else []
            sources = _held(self._scene, living(self._route.source.observer()), ids)
            lone = [block for block in page.blocks if encode(block.id) not in sources]
            # One may have reached its deadline since it was listed (C45).
            there = _held(self._scene, self._reader, [block.id for block in lone])
            lone = [block for block in lone if encode(block.id) in there]
            for block in lone:
                shown = self._route.source_name(block.id)
                tell(shown, "extra", [f"(archive): {self._archive.at} holds it"])
            for id, reason in page.damaged:
                tell(self._route.source_name(id), "extra", [f"(archive): can't be read: {reason}"])
            yield page, len(lone) + len(page.damaged)


_COUNTS = {"missing": "missing", "extra": "extra", "differs": "differ"}


__all__ = ["Look", "held", "parts_kept", "tidy", "whole_ones"]

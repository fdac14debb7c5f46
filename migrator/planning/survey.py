"""Reads both sides of a move and compares them, block by block, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from migrator.errors import DoesNotFit, Refused
from migrator.model.block import EXPIRES, Block, join
from migrator.model.canonical import encode
from migrator.model.diff import (
    Difference,
    differences,
    entry_changes,
    same_block,
    same_deadline,
)
from migrator.model.plan import BlockDiff, EntryLine, Severity, Sizes
from migrator.model.rules import CorruptBlock, general_path
from migrator.model.translate import key_agrees
from migrator.model.value import Value, show
from migrator.planning.archiving import Archiving
from migrator.planning.counters import Counters
from migrator.planning.elsewhere import Elsewhere
from migrator.planning.keys import Collisions, Dangling, SecretKeys
from migrator.planning.metering import Metering
from migrator.planning.tally import Issues, Kinds, Largest, key_bytes
from migrator.ports import Capabilities, Collection, How, Page
from migrator.retry import Retry
from migrator.route import NOT_MADE, Route, Unread, extra_blocks, is_empty, pages, read_each

PAGE = 1_000
SAMPLES = 3
LINES = 4
SAMPLE_SIZE = 20_000
ALL_UP_TO = 200_000
_UNREADABLE = ("E101", "E102")


@dataclass
class Survey:
    """What a survey found."""

    read: int = 0
    create: int = 0
    change: int = 0
    delete: int = 0
    leave: int = 0
    entries: int = 0
    bytes: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    exact: bool = True
    bound: str = ""
    fresh: bool = True
    seconds: float = 0.0
    samples: list[BlockDiff] = field(default_factory=list)
    issues: Issues = field(default_factory=Issues)
    largest: Largest = field(default_factory=Largest)
    kinds: Kinds | None = None
    archiving: Archiving | None = None
    metering: Metering | None = None

    def sizes(self, capabilities: Capabilities) -> Sizes:
        """The largest of everything that is limited."""
        longest = 0 if self.kinds is None else self.kinds.longest_name
        return self.largest.sizes(capabilities, longest)


class Surveyor:
    """Surveys one route; ``full`` reads everything and hands every difference to ``sink``."""

    def __init__(
        self,
        route: Route,
        retry: Retry,
        *,
        full: bool,
        progress: Callable[[int, int], None],
        referred: dict[str, Collection],
        sink: Callable[[BlockDiff], None] = lambda difference: None,
    ) -> None:
        self.route = route
        self.retry = retry
        self.full = full
        self.sink = sink
        self.progress = progress
        self.collisions = Collisions(route)
        self._secret_keys = SecretKeys(route), SecretKeys(route)
        hides = route.is_sensitive if route.move.sensitive else None
        self._dangling = Dangling(referred, retry, hides)
        self._shown = {"create": 0, "change": 0}
        self._capabilities = route.target_store.capabilities.at(route.move.target.layout)
        self._unfit = 0
        self._elsewhere = Elsewhere(route, retry)
        self._counters = Counters(route)
        told = (How.REFUSED,) if route.tags.anywhere else (How.REFUSED, How.TAGGED)
        self.found = Survey(kinds=Kinds(route.target, self._capabilities, told))
        self._metering = self.found.metering = Metering(route, retry)
        if route.archive is not None:
            self.found.archiving = Archiving(
                route.archive, route, self.found.issues, retry, self._metering
            )

    def run(self) -> Survey:
        """Survey both sides. Raises Terminal where the source is not there."""
        route, found = self.route, self.found
        total = self.retry(route.source.statistics)
        found.fresh = is_empty(route.target, self.retry)
        began = time.monotonic()
        large = total.blocks > ALL_UP_TO and not self.full
        # None may be readable of those that a sample takes.
        page = self.retry(route.source.sample, SAMPLE_SIZE) if large else Page([], None)
        if sample := page.blocks:
            self._damaged(page.damaged)
        for blocks in self._in_pages(sample) if sample else self._all():
            self._page(blocks)
            self.progress(found.read, total.blocks)
        found.seconds = time.monotonic() - began
        for keys in self._secret_keys:
            keys.refuse()
        if sample:
            self._extrapolate(self.retry(route.source.count))
            if not found.fresh:
                found.issues.add(
                    "accept", "A107",
                    f"{route.move.target} holds blocks already: those that {route.source_at} "
                    "lacks will be deleted (--full counts and names them)",
                )  # fmt: skip
        elif not found.fresh:
            self._extra()
        self.collisions.close(self._folded(), found.issues)
        self._dangling.close()
        if told := self._counters.told(found.read, sampled=bool(sample)):
            found.issues.add(*told)
        if remedy := self._elsewhere.text():
            found.issues.add("note", "N121", remedy)
        return found

    def _all(self) -> Iterator[list[Block]]:
        for range_ in self.retry(self.route.source.split, 1):
            for page in pages(self.route.source, range_, None, PAGE, self.retry):
                self._damaged(page.damaged)
                yield page.blocks

    def _in_pages(self, blocks: list[Block]) -> Iterator[list[Block]]:
        for start in range(0, len(blocks), PAGE):
            yield blocks[start : start + PAGE]

    def _folded(self) -> Iterator[Value]:
        """All keys of the source, where the target folded one; else none."""
        if not self.collisions.any:
            return
        for range_ in self.retry(self.route.source.split, 1):
            for page in pages(self.route.source, range_, None, PAGE, self.retry):
                for block in page.blocks:
                    yield from (new.id for new in self._expected_if_any(block))

    def _damaged(self, damaged: list[tuple[Value, str]]) -> None:
        for key, reason in damaged:
            self.found.read += 1
            why = self.route.told(reason)
            self._misfit("E101", f"can't be read: {why}", self.route.source_name(key), "")

    def _misfit(self, code: str, text: str, key: str, path: str) -> None:
        self._unfit += 1
        severity: Severity = "error"
        match self.route.move.oversize:
            case "quarantine":
                severity, text = "accept", f"{text}, and will be set aside"
            # What can't be read can't be archived either.
            case "archive" if code not in _UNREADABLE:
                severity = "accept"
                text += f", and will go to the archive {self.route.move.archive}"
        self.found.issues.add(severity, code, text, key=key, path=_general_path(path))

    def _page(self, blocks: list[Block]) -> None:
        expected: list[Block] = []
        self._metering.begin_page()
        for block in blocks:
            self.found.read += 1
            self._counters.add(block.id)
            unfit = self._unfit
            expected += self._expected(block)
            self._archive(block, fits=self._unfit == unfit)
        for new in expected:
            self.collisions.add(new, self.found.issues)
        for ref in self._dangling.of(expected):
            self.found.issues.add(
                "warning", "W109", "references that lead to no aggregate", key=ref
            )
        held: list[Block | None] = [None] * len(expected)
        if not self.found.fresh:
            held = read_each(self.route.target, [block.id for block in expected], self.retry)
        for new, old in zip(expected, held, strict=True):
            if isinstance(old, Unread):
                self._unread(old.id, old.reason)
            else:
                self._compare(new, old)

    def _unread(self, id: Value, reason: str) -> None:
        """A block that lies in the target: nobody can tell what would be lost with it."""
        name = self.route.name(id)
        for key in (name, show(id)):  # who was asked for a block names it
            reason = reason.removeprefix(f"{key} can't be read: ")
        why = self.route.told(reason)
        text = f"lies in {self.route.move.target} and can't be read: {why}"
        self.found.issues.add("error", "E101", text, key=name)

    def _expected(self, block: Block) -> list[Block]:
        """The target's blocks that can be written; findings for the others."""
        route, name = self.route, self.route.source_name(block.id)
        try:
            expected = route.made(block)
            self._check_keys(block, expected, name)
        except CorruptBlock as error:
            self._misfit("E102", f"is damaged: {route.why(error)[0]}", name, "")
            return []
        except (DoesNotFit, Refused) as error:
            why, path = route.why(error)
            self._misfit("E103", why, name, path)
            return []
        fitting = [new for new in expected if self._fits(new, name)]
        # A block that becomes several is moved whole or not at all.
        return [] if route.spreads and len(fitting) < len(expected) else fitting

    def _archive(self, block: Block, *, fits: bool) -> None:
        """Count what of a block goes into the archive, where there is one."""
        archiving, name = self.found.archiving, self.route.source_name(block.id)
        if archiving is None:
            return
        if fits:
            archiving.add_part(block, name)
        elif self.route.move.oversize == "archive":
            archiving.add_whole(block, name)

    def _expected_if_any(self, block: Block) -> list[Block]:
        try:
            return self.route.expected(block)
        except NOT_MADE:
            return []  # told by the first pass

    def _check_keys(self, block: Block, expected: list[Block], name: str) -> None:
        if self.route.move.sensitive:
            for keys, blocks in zip(self._secret_keys, ([block], expected), strict=True):
                for each in blocks:
                    keys.add(join(each))
        path = self.route.move.identifier
        if path is not None and not key_agrees(join(block), path):
            self.found.issues.add(
                "warning", "W104", "the identifier field does not agree with the block key",
                key=name, path=path,
            )  # fmt: skip

    def _fits(self, block: Block, name: str) -> bool:
        """Count kinds and sizes of a block; whether the target can hold it."""
        found = self.found
        assert found.kinds is not None
        odd, nesting = False, 0
        for path, value in block.entries.items():
            deep, told = found.kinds.add(path, value)
            odd = odd or told
            nesting = max(nesting, deep)
        if odd and not self._may_travel(block, name, found.kinds):
            return False  # the columns of tables would refuse the same again
        key = key_bytes(block.id)
        try:
            # Asked of the server, where what lies there says how the block would.
            size = self._metering.size(block)
        except DoesNotFit as error:
            over = list(self._over(key=key, nesting=nesting))
            for code, text in over or [("E103", self._reason(error, block.id))]:
                self._misfit(code, text, name, error.path)
            self._elsewhere.add(block)
            return False
        found.largest.add(name, size, key, nesting)
        over = list(self._over(block=size, key=key))
        for code, text in over:
            self._misfit(code, text, name, "")
        if over:
            self._elsewhere.add(block)
            return False
        found.bytes += size
        found.entries += len(block.entries)
        return True

    def _reason(self, error: DoesNotFit, id: Value) -> str:
        """What is wrong with a block, in words that are the same for all blocks."""
        what = error.what.removeprefix(f"{self.route.name(id)}: ").removeprefix(f"{show(id)}: ")
        return self.route.told(what, error.path)

    def _may_travel(self, block: Block, name: str, kinds: Kinds) -> bool:
        """Whether the target takes all kinds of a block, and none of them tagged against the
        move's word."""
        refused = [
            ("E105", path, f"{kind} can't be held by {self.route.move.target}")
            for path, kind in kinds.refusals(block)
        ]
        tagged = [("E120", path, why) for path, why in self.route.tags.unwanted(block)]
        for code, path, text in refused + tagged:
            self._misfit(code, text, name, path)
        return not refused and not tagged

    def _over(self, *, block: int = 0, key: int, nesting: int = 0) -> Iterator[tuple[str, str]]:
        """Which limits are passed, each in words that are the same for all blocks.

        A little more nesting than the limit may be held: that is asked only for what is not.
        """
        limits = self._capabilities.limits
        for taken, limit, what in (
            (block, limits.block_bytes, "bytes for a block"),
            (key, limits.key_bytes, "bytes for a key"),
            (nesting, limits.nesting, "levels of nesting"),
        ):
            if limit is not None and taken > limit:
                yield "E106", f"is over the limit of {limit:,} {what}"

    def _compare(self, new: Block, old: Block | None) -> None:
        found = self.found
        if old is None:
            found.create += 1
            found.added += len(new.entries)
            self._example(new, None, "create")
            self._metering.create(new)
        elif same_block(new, old):
            found.leave += 1
            self._metering.leave(new)
        else:
            found.change += 1
            self._metering.change(new, old)
            changes = entry_changes(old.entries, new.entries)
            found.added += len(changes.added)
            found.changed += len(changes.changed)
            found.removed += len(changes.removed)
            self._example(new, old, "change")

    def _example(self, new: Block, old: Block | None, change: Literal["create", "change"]) -> None:
        # A created block differs from nothing in every entry: counts say it all.
        sampled = self._shown[change] < SAMPLES
        wanted = self.full and old is not None
        if not sampled and not wanted:
            return
        self._shown[change] += 1
        lines = self._created(new) if old is None else self._changed(new, old)
        key = self.route.name(new.id)
        if wanted:
            self.sink(BlockDiff(key=key, change=change, entries=lines))
        if sampled:
            kept = [_short(line) for line in lines[:LINES]]
            more = len(lines) - len(kept)
            self.found.samples.append(BlockDiff(key=key, change=change, entries=kept, more=more))

    def _created(self, new: Block) -> list[EntryLine]:
        return [_line("+", path, value) for path, value in new.entries.items()]

    def _changed(self, new: Block, old: Block) -> list[EntryLine]:
        changes = entry_changes(old.entries, new.entries)
        added = [_line("+", path, new.entries[path]) for path in changes.added]
        removed = [_line("-", path, old.entries[path]) for path in changes.removed]
        changed = [self._changed_line(path, new, old) for path in changes.changed]
        return added + changed + removed + self._deadline(new, old)

    def _deadline(self, new: Block, old: Block) -> list[EntryLine]:
        """That a block is to end at another time, which is no entry of it."""
        if same_deadline(new, old):
            return []
        masked = self.route.is_sensitive(EXPIRES)
        detail = [Difference(EXPIRES, old.expires, new.expires).text(masked=masked)]
        return [EntryLine(sign="~", path=EXPIRES, detail=detail)]

    def _changed_line(self, path: str, new: Block, old: Block) -> EntryLine:
        detail = [
            found.text(masked=self.route.is_sensitive(found.path))
            for found in differences(old.entries[path], new.entries[path], path)
        ]
        return _line("~", path, new.entries[path], detail)

    def _extra(self) -> None:
        """Blocks of the target that the source does not have."""
        route, found = self.route, self.found
        for range_ in self.retry(route.target.split, 1):
            for page in pages(route.target, range_, None, PAGE, self.retry):
                unread = {encode(id): reason for id, reason in page.damaged}
                blocks = page.blocks + [Block(id, {}) for id, _ in page.damaged]
                for block in extra_blocks(route, blocks, self.retry):
                    if (reason := unread.get(encode(block.id))) is not None:
                        self._unread(block.id, reason)
                        continue
                    if self.collisions.expects(block.id):
                        continue  # what stands under a key that is made is changed, not deleted
                    found.delete += 1
                    self._metering.change(None, block)
                    if self.full:
                        self.sink(self._deleted(block))
                    found.removed += len(block.entries)
                    found.issues.add(
                        "accept", "A107",
                        f"{route.move.target} holds blocks that {route.source_at} lacks: "
                        "they will be deleted",
                        key=route.name(block.id),
                    )  # fmt: skip

    def _deleted(self, block: Block) -> BlockDiff:
        lines = [_line("-", path, value) for path, value in block.entries.items()]
        return BlockDiff(key=self.route.name(block.id), change="delete", entries=lines)

    def _extrapolate(self, blocks: int) -> None:
        found = self.found
        seen = found.read
        for name in (
            "create", "change", "leave", "entries", "bytes", "added", "changed", "removed",
        ):  # fmt: skip
            setattr(found, name, round(getattr(found, name) * blocks / seen))
        self._metering.extrapolate(blocks / seen)
        if found.archiving is not None:
            found.archiving.extrapolate(blocks / seen)
        found.exact = False
        # Rule of three: a trait absent from n blocks taken at random is, with 95% confidence,
        # in fewer than 3/n of all.
        found.bound = (
            f"{seen:,} of {blocks:,} blocks read; what none of them shows may still be in up to "
            f"{round(3 * blocks / seen):,} others (95% confidence); read all with --full"
        )


def _line(
    sign: Literal["+", "~", "-"], path: str, value: Value, detail: list[str] | None = None
) -> EntryLine:
    fields = [show(name) for name in value] if type(value) is dict else []
    size = len(encode(value))
    return EntryLine(sign=sign, path=show(path), bytes=size, fields=fields, detail=detail or [])


def _short(line: EntryLine) -> EntryLine:
    """A line of a sample: of many places the first."""
    return msgspec.structs.replace(line, detail=line.detail[:LINES])


def _general_path(path: str) -> str:
    """The path with its indexes as ``[*]``, where it is one: a store may name other places."""
    try:
        return general_path(path)
    except ValueError:
        return path

"""The requests of one move to its two sides: every write leaves a note of what was sent (R11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from migrator.engine.alike import own
from migrator.engine.points import reached
from migrator.engine.written import Written
from migrator.errors import Terminal
from migrator.model.block import Address, Block
from migrator.model.canonical import encode
from migrator.model.value import Value, show
from migrator.ports import Collection
from migrator.retry import Retry
from migrator.route import Route, Unread, read_each

# Blocks that can't be read and were told.
_TOLD = 1_000

log = structlog.get_logger("migrator.mirror")


class Access:
    """Reads and writes both sides of one move, and notes in ``written`` what lies there."""

    def __init__(self, route: Route, retry: Retry) -> None:
        self._route = route
        self._retry = retry
        self.written = {"source": Written(), "target": Written()}
        for written in self.written.values():
            written.forgets = bool(route.ending)  # fields go when their deadlines are reached
        self._unreadable: set[tuple[str, bytes, str]] = set()

    def side(self, name: str) -> Collection:
        return self._route.source if name == "source" else self._route.target

    def name(self, side: Collection) -> str:
        return "source" if side is self._route.source else "target"

    def written_to(self, side: Collection) -> Written:
        return self.written[self.name(side)]

    # ------------------------------------------------------------------ reading

    def read(self, side: Collection, keys: Sequence[Value]) -> list[Block | None]:
        """The blocks of some keys as they are now; ``Unread`` stands for one that is damaged."""
        found = read_each(side, keys, self._retry)
        for block in found:
            if isinstance(block, Unread):
                self._tell_unread(str(side.at), block)
        return found

    def _tell_unread(self, where: str, block: Unread) -> None:
        """Log it, once as long as it is for the same reason: it is tried again and again."""
        told = where, encode(block.id), block.reason
        if told in self._unreadable:
            return
        if len(self._unreadable) >= _TOLD:
            self._unreadable.clear()
        self._unreadable.add(told)
        reason = self._route.told(block.reason)
        log.warning("can't be read", where=where, key=show(block.id), reason=reason)

    # ------------------------------------------------------------------ writing

    def write(self, side: Collection, blocks: list[Block]) -> list[tuple[Block, Terminal]]:
        """Write all at once, so that rows that depend on one another go together; where that is
        refused, each alone. Those that are refused for good are returned, each with why."""
        if not blocks:
            return []
        written = self.written_to(side)
        forms = written.sends(blocks)
        try:
            side.write(blocks)
        except Terminal:
            if not self._retry(side.exists):
                raise
        else:
            written.answered(forms)
            reached("mirror.written")
            return []
        refused = self._one_by_one(side, blocks)
        if len(refused) > 1:
            # Perhaps each holds what another is to have: a unique value that was swapped.
            ids = [block.id for block, _ in refused]
            held, _ = own(ids, self.read(side, ids))
            self.delete(side, held)
            written.sends(block for block, _ in refused)
            refused = self._one_by_one(side, [block for block, _ in refused])
        reached("mirror.written")
        return refused

    def _one_by_one(self, side: Collection, blocks: list[Block]) -> list[tuple[Block, Terminal]]:
        """Write each alone, as long as one that is written makes way for another."""
        written = self.written_to(side)
        left: list[tuple[Block, Terminal]] = []
        while True:
            before, left = len(left), []
            for block in blocks:
                try:
                    side.write([block])
                except Terminal as error:
                    left.append((block, error))
                else:
                    written.answered([encode(block.id)])
            if not left or len(left) in (before, len(blocks)):
                written.refused(encode(block.id) for block, _ in left)
                return left
            blocks = [block for block, _ in left]

    def delete(self, side: Collection, held: Iterable[Block | None]) -> int:
        """Remove what was found there; how many blocks that was."""
        there = [Address(block.id, block.place) for block in held if block is not None]
        if there:
            self.remove(side, there)
            reached("mirror.deleted")
        return len(there)

    def remove(self, side: Collection, there: Sequence[Address]) -> None:
        """Remove blocks, whatever lies there."""
        written = self.written_to(side)
        forms = written.sends((), [address.id for address in there])
        side.delete(there)
        written.answered(forms)


__all__ = ["Access"]

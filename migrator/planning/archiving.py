"""What a move would put into its archive, and whether it can be held there."""

from __future__ import annotations

from migrator.archive import Archive
from migrator.errors import DoesNotFit, Refused
from migrator.model.block import Block
from migrator.model.rules import CorruptBlock
from migrator.planning.metering import Metering
from migrator.planning.tally import Issues, Kinds, key_bytes
from migrator.retry import Retry
from migrator.route import NOT_MADE, Route


class Archiving:
    """Counts what goes into an archive; a block that can't be held there is an error."""

    def __init__(
        self, archive: Archive, route: Route, issues: Issues, retry: Retry, metering: Metering
    ) -> None:
        self._archive = archive
        self._route = route
        self._metering = metering
        self._retry = retry
        self._issues = issues
        self._capabilities = archive.store.capabilities.at(archive.at.layout)
        self._kinds = Kinds(archive.collection, self._capabilities)
        self.blocks = 0
        self.parts = 0
        self.bytes = 0

    def add_whole(self, block: Block, name: str) -> None:
        """A block of the source that the target does not take."""
        try:
            whole = self._archive.whole(block)
        except CorruptBlock:
            return  # told already, as an error
        except (DoesNotFit, Refused) as error:
            self._tell(name, *self._route.why(error))
            return
        if self._holds(whole, name):
            self.blocks += 1

    def add_part(self, block: Block, name: str) -> None:
        """A block that the target takes, of which something may be left out."""
        try:
            part = self._archive.part(block)
        except NOT_MADE:
            return  # told already, by the target
        if part is not None and self._holds(part, name):
            self.parts += 1

    def _holds(self, block: Block, name: str) -> bool:
        odd = [self._kinds.add(path, value)[1] for path, value in block.entries.items()]
        refused = self._kinds.refusals(block) if any(odd) else []
        for path, kind in refused:
            self._tell(name, f"{kind} can't be held by {self._archive.at}", path)
        if refused:
            return False
        try:
            size = self._retry(self._archive.collection.size, block)
        except DoesNotFit as error:
            self._tell(name, *self._route.why(error))
            return False
        limits = self._capabilities.limits
        for taken, limit, what in (
            (size, limits.block_bytes, "a block"),
            (key_bytes(block.id), limits.key_bytes, "a key"),
        ):
            if limit is not None and taken > limit:
                self._tell(name, f"is over the limit of {limit:,} bytes for {what}", "")
                return False
        self.bytes += size
        self._metering.add_archived(block)
        return True

    def _tell(self, name: str, why: str, path: str) -> None:
        text = f"the archive {self._archive.at} can't hold it: {why}"
        self._issues.add("error", "E118", text, key=name, path=path)

    def extrapolate(self, share: float) -> None:
        """From a sample to all blocks."""
        for name in ("blocks", "parts", "bytes"):
            setattr(self, name, round(getattr(self, name) * share))

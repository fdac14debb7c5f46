"""What a gateway may raise beyond what its stores do."""

from __future__ import annotations

from migrator.errors import Refused, Waiting


class Conflict(Refused):
    """A condition did not hold: the aggregate is no longer what was read. Nothing was written."""


class Stopped(Waiting):
    """Writes are stopped for now, for longer than a write may wait. Nothing was written."""


class Rekeyed(Refused):
    """The sides were swapped, and aggregates lie under the keys of the other shape now, which do
    not follow from those of this gateway's. Nothing was written."""


class Behind(Waiting):
    """The write is done and acknowledged; that the mirror holds it was not seen in time."""

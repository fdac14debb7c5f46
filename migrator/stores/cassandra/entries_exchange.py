"""Changing blocks of entries on condition, by lightweight transactions (R12, ADR 0031)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.errors import Transient
from migrator.exchange import Change as Asked
from migrator.exchange import is_still, made_of
from migrator.model.block import Block, Patch
from migrator.model.value import Value, show
from migrator.stores.cassandra.entries_form import Cell, Change, Form, Raw, integer
from migrator.stores.cassandra.entries_read import Reader
from migrator.stores.cassandra.entries_write import Writer, name_of
from migrator.stores.cassandra.seen import ended, lasts
from migrator.stores.cassandra.table_wire import Statement, Wire
from migrator.stores.cassandra.table_write import time_to_live
from migrator.stores.cassandra.transactions import AHEAD, claim, drawn, settled

_TRIES = 20
_PUTS_AGAIN = 8
_PAUSE = 0.005


@dataclass(frozen=True)
class _Step:
    """What becomes of a block: cells to put and names to remove; None for its removal."""

    put: Mapping[bytes, Cell] | None
    gone: Sequence[bytes] = ()
    expires: int | None = None


class Exchanger:
    """Exchanges the blocks of one table."""

    def __init__(self, wire: Wire, form: Form, table: str, reader: Reader, writer: Writer) -> None:
        self._wire = wire
        self._form = form
        self._table = table
        self._reader = reader
        self._writer = writer

    def exchange(self, id: Value, held: Block | None, change: Asked) -> bool:
        """Change a block that still is ``held``; all updates of a block collide on its version."""
        key = self._writer.key(id)
        self._writer.pristine.holds = False  # it is removed by another clock than plain writes have
        for _ in range(_TRIES):
            (raw,) = self._reader.raw([key])
            found = self._reader.block(raw)
            if not is_still(found, held):
                return False
            before = raw or Raw(key)
            step = self._step(id, before, found, change)
            if (found is None and step.put is None) or self._take(id, before, step):
                return True
        raise Transient(
            f"{show(id)}: others keep writing it", where=self._writer.where, hint="try again"
        )

    def _step(self, id: Value, before: Raw, found: Block | None, change: Asked) -> _Step:
        """What the change comes to. Raises DoesNotFit."""
        if isinstance(change, Patch) and found is None:
            change = made_of(Block(id, {}), change)
        if isinstance(change, Patch):
            cells = self._writer.cells(id, change.set)
            names = set(map(name_of, change.unset))
            gone = [name for name in names if name in before.fields and name not in cells]
            if len(gone) == len(before.fields) and not cells:
                self._writer.unfit(id, "", "a block has no entry")
            return _Step(cells, gone, before.expires)
        if change is None or ended(change.expires):
            return _Step(None)
        cells = self._writer.fitting(change).cells
        return _Step(cells, [x for x in before.fields if x not in cells], change.expires)

    def _take(self, id: Value, before: Raw, step: _Step) -> bool:
        """Carry a step out; False where it is to be looked at anew."""
        there = bool(before.fields) and not ended(before.expires)
        block = _Version(self, id, before)
        if there and (before.version is None or before.version >= 0):
            before.version = claim(block, before.version, self._writer.where)
            if before.version is None:
                return False
        new = drawn()
        if step.put is None:
            statements = self._form.removal(self._table, before)
        else:
            statements = self.statements(before, step, new)
        if not settled(block, lambda: self._wire.transact(id, statements), before.version, new):
            return False
        if not there and step.put is not None and lasts(step.expires):
            self._see(id, before, step, new)
        return True

    def _see(self, id: Value, before: Raw, step: _Step, version: int) -> None:
        """Raise Transient where what was put is not there."""
        try:
            seen = self._seen(id, before, step, version)
        except Transient as error:
            error.unknown = True  # it was carried out: only whether it shows is not known
            raise
        if not seen:
            raise Transient(AHEAD[0], where=self._writer.where, hint=AHEAD[1])

    def statements(self, before: Raw, step: _Step, version: int) -> list[Statement]:
        """The statements of a change that leaves a version."""
        assert step.put is not None
        ttl = time_to_live(step.expires)
        change = Change(before.key, step.put, step.gone, step.expires, 0, ttl, before, version)
        return self._form.change(self._table, change)

    def _seen(self, id: Value, before: Raw, step: _Step, version: int) -> bool:
        """Look for what was put where nothing lay, as a delete by a clock that is ahead may hide
        it; and put it again, later (ADR 0030)."""
        assert step.put is not None
        pause = _PAUSE
        for left in reversed(range(_PUTS_AGAIN + 1)):
            (found,) = self._reader.there([before.key])
            if found is not None and (
                found.version not in (None, before.version, version)
                or (found.version == version and step.put.keys() <= found.fields.keys())
            ):
                return True
            if left:
                time.sleep(pause)
                pause *= 2
                again = found or Raw(before.key)
                self._wire.transact(id, self.statements(again, step, version))
        return False

    def turn(self, id: Value, before: Raw, old: int | None, new: int) -> bool:
        """Change the version of a block alone."""
        from_ = Raw(before.key, expires=before.expires, version=old)
        return self._wire.transact(id, self.statements(from_, _Step({}, (), before.expires), new))

    def version(self, before: Raw) -> int | None:
        """The version that is there after every transaction that has ended."""
        query = f"SELECT version FROM {self._table} WHERE block = ? LIMIT 1"  # noqa: S608
        rows = self._wire.serially().few(query, [before.key])
        return integer(rows[0][0]) if rows else None


@dataclass(frozen=True)
class _Version:
    """The version of one block, for what is common to all layouts."""

    exchanger: Exchanger
    id: Value
    before: Raw

    def version(self) -> int | None:
        return self.exchanger.version(self.before)

    def turn(self, old: int | None, new: int) -> bool:
        return self.exchanger.turn(self.id, self.before, old, new)

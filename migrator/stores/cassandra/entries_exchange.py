"""Changing blocks of entries on condition, by lightweight transactions (R12, ADR 0031)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.exchange import Change as Asked
from migrator.exchange import made_of
from migrator.model.block import Block, Patch
from migrator.model.value import Value
from migrator.stores.cassandra.entries_form import Cell, Change, Form, Raw, integer
from migrator.stores.cassandra.entries_read import Reader
from migrator.stores.cassandra.entries_write import Writer, name_of
from migrator.stores.cassandra.seen import ended
from migrator.stores.cassandra.table_wire import Statement, Wire
from migrator.stores.cassandra.table_write import time_to_live
from migrator.stores.cassandra.transactions import exchange, replace


@dataclass(frozen=True)
class _Step:
    """What becomes of a block: cells to put and names to remove; None for its removal."""

    put: Mapping[bytes, Cell] | None
    gone: Sequence[bytes] = ()
    expires: int | None = None


class Exchanger:
    """Exchanges the blocks of one table."""

    def __init__(self, wire: Wire, form: Form, table: str, reader: Reader, writer: Writer) -> None:
        self.wire = wire
        self.form = form
        self.table = table
        self.reader = reader
        self.writer = writer

    def exchange(self, id: Value, held: Block | None, change: Asked) -> bool:
        """Change a block that still is ``held``; all updates of a block collide on its version."""
        key = self.writer.key(id)
        self.writer.pristine.holds = False  # it is removed by another clock than plain writes have
        return exchange(lambda: self._look(id, key), id, held, change, self.writer.where)

    def replace(self, id: Value, change: Block | None) -> None:
        """Put a whole block, or remove it, also where what lies there can't be read."""
        key = self.writer.key(id)
        self.writer.pristine.holds = False
        replace(lambda: self._look(id, key, reads=False), id, change, self.writer.where)

    def _look(self, id: Value, key: bytes, *, reads: bool = True) -> _Lying:
        (raw,) = self.reader.raw([key])
        before = raw or Raw(key)
        block = self.reader.block(raw) if reads else None
        return _Lying(self, id, before, block, before.version)

    def statements(self, before: Raw, step: _Step, version: int) -> list[Statement]:
        """The statements of a change that leaves a version."""
        assert step.put is not None
        ttl = time_to_live(step.expires)
        change = Change(before.key, step.put, step.gone, step.expires, 0, ttl, before, version)
        return self.form.change(self.table, change)


@dataclass
class _Lying:
    """What lies under one key."""

    of: Exchanger
    id: Value
    before: Raw
    block: Block | None
    known: int | None

    @property
    def there(self) -> bool:
        return bool(self.before.fields) and not ended(self.before.expires)

    @property
    def drawn(self) -> bool:
        return self.known is not None and self.known < 0

    def becomes(self, change: Asked) -> _Becoming:
        return _Becoming(self, self._step(change))

    def _step(self, change: Asked) -> _Step:
        """What the change comes to. Raises DoesNotFit."""
        before, writer = self.before, self.of.writer
        if isinstance(change, Patch) and self.block is None:
            change = made_of(Block(self.id, {}), change)
        if isinstance(change, Patch):
            cells = writer.cells(self.id, change.set)
            names = set(map(name_of, change.unset))
            gone = [name for name in names if name in before.fields and name not in cells]
            if len(gone) == len(before.fields) and not cells:
                writer.unfit(self.id, "", "a block has no entry")
            return _Step(cells, gone, before.expires)
        if change is None or ended(change.expires):
            return _Step(None)
        cells = writer.fitting(change).cells
        return _Step(cells, [x for x in before.fields if x not in cells], change.expires)

    def turn(self, old: int | None, new: int) -> bool:
        before = self.before
        from_ = Raw(before.key, expires=before.expires, version=old)
        step = _Step({}, (), before.expires)
        return self.of.wire.transact(self.id, self.of.statements(from_, step, new))

    def version(self) -> int | None:
        query = f"SELECT version FROM {self.of.table} WHERE block = ? LIMIT 1"  # noqa: S608
        rows = self.of.wire.serially().few(query, [self.before.key])
        return integer(rows[0][0]) if rows else None


class _Becoming:
    """A step on what lies there."""

    def __init__(self, lying: _Lying, step: _Step) -> None:
        self._lying = lying
        self._of = lying.of
        self._step = step
        self._found: Raw | None = None

    @property
    def gone(self) -> bool:
        return self._step.put is None

    @property
    def expires(self) -> int | None:
        return self._step.expires

    def send(self, new: int) -> bool:
        before = self._lying.before
        before.version = self._lying.known
        if self.gone:
            statements = self._of.form.removal(self._of.table, before)
        else:
            statements = self._of.statements(before, self._step, new)
        return self._of.wire.transact(self._lying.id, statements)

    def shows(self, new: int) -> bool:
        assert self._step.put is not None
        before = self._lying.before
        (found,) = self._of.reader.there([before.key])
        self._found = found
        return found is not None and (
            found.version not in (None, before.version, new)
            or (found.version == new and self._step.put.keys() <= found.fields.keys())
        )

    def again(self, new: int) -> None:
        again = self._found or Raw(self._lying.before.key)
        self._of.wire.transact(self._lying.id, self._of.statements(again, self._step, new))

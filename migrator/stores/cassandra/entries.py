"""One class at one location in Cassandra, layouts ``row`` and ``partition``: any aggregate.

Read ``entries_form.py`` for how a block lies, ``entries_read.py`` for how a table is walked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from migrator.errors import Refused
from migrator.exchange import Change
from migrator.model import json_text as codec
from migrator.model.block import Address, Block, Patch
from migrator.model.move import At
from migrator.model.rules import Entries
from migrator.model.value import Value
from migrator.ports import Held, Json, Observer, Page, Statistics
from migrator.retry import request
from migrator.stores.cassandra import entries_facts as facts
from migrator.stores.cassandra.entries_exchange import Exchanger
from migrator.stores.cassandra.entries_form import RESERVED, Form, PartitionForm, RowForm, unpack
from migrator.stores.cassandra.entries_read import Decoder, Observing, Reader, key_of
from migrator.stores.cassandra.entries_write import Writer
from migrator.stores.cassandra.live import Live
from migrator.stores.cassandra.ring import sample
from migrator.stores.cassandra.seen import Pristine
from migrator.stores.cassandra.table import Node
from migrator.stores.cassandra.table_catalog import table_info
from migrator.stores.cassandra.table_ddl import name_in
from migrator.stores.cassandra.table_facts import COUNTED, COUNTED_AT_ONCE, estimate
from migrator.stores.cassandra.table_wire import Wire

_TABLE = re.compile(r"\w{1,48}", re.ASCII)


def form_of(at: At) -> Form:
    """The form of a location. Raises Refused for an option or name that Cassandra does not know."""
    layout = at.layout
    options = dict(layout.options) if layout else {}
    if not _TABLE.fullmatch(at.collection):
        raise Refused(
            f"{at}: {at.collection!r} can't be the name of a table",
            hint="up to 48 letters, digits and _",
        )
    if layout is None or layout.name == "partition":
        columns: object = ()
        form: Form = PartitionForm()
    else:
        columns = options.pop("columns", ())
        form = RowForm(_declared(at, columns))
    if options:
        raise Refused(f"{at}: there is no option {', '.join(options)}", hint="columns, of row")
    return form


def _declared(at: At, columns: object) -> dict[bytes, str]:
    """The entries that have a column of their own, by name, and how it is called."""
    names: dict[bytes, str] = {}
    for name in columns if isinstance(columns, (list, tuple)) else [columns]:
        if type(name) is not str or not name or name in RESERVED or not name.isprintable():
            raise Refused(
                f"{at}: {name!r} can't be a column of its own",
                hint=f"any text but {', '.join(RESERVED)}; other entries lie in the map entries",
            )
        names[codec.to_text(name).encode()] = name
    return names


class EntriesCollection(Live):
    """The blocks of one class, as entries."""

    def __init__(self, node: Node, cls: str, at: At) -> None:
        self.at = at
        self.cls = cls
        self.where = f"{node.name}:{at.collection}"
        self._node = node
        self._rules = at.rules(cls)
        self._form = form_of(at)
        self._pristine = Pristine()
        self._table = name_in(node.keyspace, at.collection)

    @property
    def _wire(self) -> Wire:
        return self._node.wire.at(self.where)

    @cached_property
    def _reader(self) -> Reader:
        # ``codec.load`` by name: looked up when it is used.
        decoder = Decoder(lambda text, tags: codec.load(text, tags), unpack)
        return self._read(decoder)

    def _read(self, decoder: Decoder) -> Reader:
        elements = self._node.tells_elements
        return Reader(self._wire, self._form, self._table, decoder, self.where, elements)

    @cached_property
    def _writer(self) -> Writer:
        wire, node = self._wire, self._node
        where = self.cls, self.where
        return Writer(wire, self._form, self._table, self._reader, node, where, self._pristine)

    @cached_property
    def _exchanger(self) -> Exchanger:
        return Exchanger(self._wire, self._form, self._table, self._reader, self._writer)

    # ------------------------------------------------------------ the collection itself

    def exists(self) -> bool:
        """Whether the table is there."""
        return table_info(self._wire, self._node.keyspace, self.at.collection) is not None

    def create(self) -> None:
        """Make the table; does nothing where it is there. Raises Refused where it is another."""
        if not self.exists():
            self._wire.define(self._form.table(self._table))
            self._wire.forget()
            self._pristine.holds = True
        info = table_info(self._wire, self._node.keyspace, self.at.collection)
        names = {column.name for column in info.columns} if info else set()
        wanted = {name.strip('"').replace('""', '"') for name in self._form.columns}
        if wanted - names:
            raise Refused(
                f"the table is another: it has no column {', '.join(sorted(wanted - names))}",
                where=self.where,
                hint="give the target a name of its own",
            )

    def drop(self) -> None:
        """Remove the table with all its blocks; does nothing where it is not there."""
        self._wire.define(f"DROP TABLE IF EXISTS {self._table}")
        self._wire.forget()
        self._pristine.holds = False

    def schema(self) -> Json:
        """The table as the catalogue describes it."""
        info = table_info(self._wire, self._node.keyspace, self.at.collection)
        return None if info is None else info.described()

    def findings(self) -> Iterable[tuple[str, str, str]]:
        """What a plan should tell of this table."""
        return facts.findings(self._wire, self._node.keyspace, self.at.collection)

    @property
    def write_times(self) -> None:
        """No field holds when the others were written."""

    def count(self) -> int:
        """The number of blocks, counted range by range."""
        about = estimate(self._wire, self._node.keyspace, self.at.collection)
        ranges = self.split(max(4, about // COUNTED_AT_ONCE))
        return sum(request(self._reader.count, range_) for range_ in ranges)

    def statistics(self) -> Statistics:
        """Counted where the server's estimate says that there are few; bytes from a sample."""
        about = estimate(self._wire, self._node.keyspace, self.at.collection)
        exact = about < COUNTED
        blocks = self.count() if exact else about
        page = self._reader.page(None, None, 100)
        return Statistics(blocks, page.bytes * blocks // max(1, len(page.blocks)), exact)

    def settle(self) -> None:
        """Cassandra has neither sequences nor statistics of its own to mend."""

    # ------------------------------------------------------------ reading

    def split(self, parts: int) -> list[Json]:
        """About ``parts`` token ranges that cover all keys."""
        return self._node.split(self.at.collection, parts)

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        """Up to ``limit`` blocks of a range after a position."""
        return self._reader.page(range_, position, limit)

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        """As ``page``, the keys alone."""
        return self._reader.keys(range_, position, limit)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        """The blocks of these keys, in their order."""
        return self._reader.read([key_of(id) for id in ids])

    def sample(self, size: int) -> Page:
        """Blocks from all over the ring."""
        return sample(self, size, 16)

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        """Some entries of a block, those that exist; None where there is no such block."""
        (block,) = self.read([id])
        if block is None:
            return None
        return {path: block.entries[path] for path in paths if path in block.entries}

    def observer(self) -> Observer:
        """The independent reader of the same table."""
        from migrator.stores.cassandra.entries_observe import OBSERVER

        return Observing(self._read(OBSERVER))

    # ------------------------------------------------------------ writing

    def write(self, blocks: Sequence[Block]) -> int:
        """Put whole blocks; the bytes sent. Raises DoesNotFit before anything is written."""
        return self._writer.write(blocks) if blocks else 0

    def patch(self, patches: Sequence[Patch]) -> None:
        """Set and remove entries. Raises Terminal for a block that is not there."""
        self._writer.patch(patches)

    def delete(self, addresses: Sequence[Address]) -> None:
        """Remove blocks; those that are not there are no error."""
        self._writer.delete([address.id for address in addresses])

    exchanging_alone = True

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change a block that still is ``held``, by a lightweight transaction."""
        return self._exchanger.exchange(id, held, change)

    def replace(self, id: Value, change: Block | None) -> None:
        """Put a whole block, or remove it, whatever lies there, by a lightweight transaction."""
        self._exchanger.replace(id, change)

    def _read_by(self, node: Node) -> EntriesCollection:
        return EntriesCollection(node, self.cls, self.at)

    # ------------------------------------------------------------ what fits

    def size(self, block: Block) -> int:
        """The bytes of the block's cells. Raises DoesNotFit for what can't be held."""
        return self._writer.encode(block).size

    def needs_tag(self, value: Value) -> Held | None:
        """How a value of a kind that JSON has is held after all."""
        return facts.needs_tag(value)

    def same_key(self, id: Value) -> Value:
        """The key itself: Cassandra compares it by its bytes."""
        return id

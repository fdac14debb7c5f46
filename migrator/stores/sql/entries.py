"""Layout ``entries``: the blocks of any class as rows (block, entry, value, tags)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection

from migrator.errors import DoesNotFit, Terminal
from migrator.exchange import Change, is_still
from migrator.model import json_text as codec
from migrator.model.block import Address, Block, Patch, check_deadline, name
from migrator.model.move import At
from migrator.model.rules import Entries
from migrator.model.value import Int64, Value
from migrator.ports import Held, How, Json, Page, Statistics, one_page
from migrator.stores.sql.entries_read import CHUNK, EntriesReader
from migrator.stores.sql.entries_schema import LARGEST, bounds
from migrator.stores.sql.errors import is_unique
from migrator.stores.sql.live import Live
from migrator.stores.sql.upsert import attempt

if TYPE_CHECKING:
    from migrator.stores.sql.store import SqlStore

_SAMPLE = 100
_ROWS = 2000
_COLUMNS = ("block", "entry", "value", "tags")

Row = dict[str, Any]


class EntriesCollection(EntriesReader, Live):
    """A collection of entries in a relational store."""

    _layout = "entries"

    def __init__(self, store: SqlStore, cls: str, at: At) -> None:
        super().__init__(store, cls, at, codec.load)

    def observer(self) -> EntriesReader:
        return EntriesReader(self.store, self.cls, self.at, codec.observe)

    # ------------------------------------------------------------ the collection

    def exists(self) -> bool:
        if self.database.absent:
            return False
        with self.database.reading(self.where) as connection:
            return self.tables.exist(connection)

    def create(self) -> None:
        self.database.may_create = True
        with self.database.writing(self.where) as connection:
            self.tables.exist(connection)
            self.tables.metadata.create_all(connection)

    def drop(self) -> None:
        if self.database.absent:
            return
        with self.database.writing(self.where) as connection:
            self.tables.exist(connection)
            self.tables.metadata.drop_all(connection)

    def schema(self) -> Json:
        if self.database.absent:
            return None
        with self.database.reading(self.where) as connection:
            return self.tables.describe(connection)

    def findings(self) -> Iterable[tuple[str, str, str]]:
        return ()

    def settle(self) -> None:
        with self.database.writing(self.where) as connection:
            quote = connection.dialect.identifier_preparer.quote
            word = "ANALYZE TABLE" if self._binary else "ANALYZE"
            for table in (self.tables.blocks, self.tables.entries):
                connection.exec_driver_sql(f"{word} {quote(table.name)}")

    # ------------------------------------------------------------ how much there is

    def count(self) -> int:
        with self.database.reading(self.where) as connection:
            return self._count(connection)

    def _count(self, connection: Connection) -> int:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(self.tables.blocks)))  # type: ignore[arg-type]

    def statistics(self) -> Statistics:
        blocks = self.count()
        first = self.page([None, None], None, _SAMPLE)
        seen = len(first.blocks) + len(first.damaged)
        return Statistics(blocks, blocks * first.bytes // max(1, seen), exact=blocks <= seen)

    def split(self, parts: int) -> list[Json]:
        column = self.tables.blocks.c.block
        with self.database.reading(self.where) as connection:
            blocks = self._count(connection)
            step = max(1, -(-blocks // max(1, parts)))
            numbered = sa.select(
                column, sa.func.row_number().over(order_by=column).label("number")
            ).subquery()
            found = connection.scalars(
                sa.select(numbered.c.block)
                .where(numbered.c.number % step == 0, numbered.c.number < blocks)
                .order_by(numbered.c.block)
            ).all()
        bounds: list[Json] = [None, *map(self.text, found)]
        return [list(pair) for pair in zip(bounds, [*bounds[1:], None], strict=True)]

    def sample(self, size: int) -> Page:
        ranges = self.split(min(size, 50))
        each = -(-size // len(ranges))
        return one_page((self.page(range_, None, each) for range_ in ranges), size)

    def size(self, block: Block) -> int:
        check_deadline(block.id, block.expires, self.where)
        return sum(map(_bytes, self._rows(block.id, block.entries)))

    def needs_tag(self, value: Value) -> Held | None:
        odd = type(value) is Int64 or (type(value) is float and not codec.native(value))
        return Held(How.TAGGED, "json string") if odd else None

    def same_key(self, id: Value) -> Value:
        return id

    # ------------------------------------------------------------ writing

    def write(self, blocks: Sequence[Block]) -> int:
        heads: list[Row] = []
        rows: list[Row] = []
        for block in blocks:
            if not block.entries:
                raise DoesNotFit("a block has at least one entry", key=block.id, where=self.where)
            made = self._rows(block.id, block.entries)
            heads.append({"block": made[0]["block"], "expires": block.expires})
            rows += made
        if not heads:
            return 0
        # Always in one order: two writers that lock the same blocks then wait and never deadlock.
        heads.sort(key=lambda head: head["block"])
        with self.database.writing(self.where) as connection:
            connection.execute(self._put_blocks, heads)
            self._delete(connection, self.tables.entries, [head["block"] for head in heads])
            self._insert(connection, rows)
        return sum(map(_bytes, rows))

    def _insert(self, connection: Connection, rows: list[Row]) -> None:
        if self.database.dialect != "postgresql":
            connection.execute(sa.insert(self.tables.entries), rows)
            return
        # A column as one array of texts: a statement for thousands of rows, several times faster.
        table = connection.dialect.identifier_preparer.quote(self.tables.entries.name)
        statement = (
            f"INSERT INTO {table} (block, entry, value, tags) "  # noqa: S608
            "SELECT b, e, CAST(v AS json), CAST(t AS json) FROM unnest(CAST(%s AS text[]), "
            "CAST(%s AS text[]), CAST(%s AS text[]), CAST(%s AS text[])) AS given(b, e, v, t)"
        )
        for start in range(0, len(rows), _ROWS):
            chunk = rows[start : start + _ROWS]
            columns = tuple([row[name] for row in chunk] for name in _COLUMNS)
            connection.exec_driver_sql(statement, columns)

    def patch(self, patches: Sequence[Patch]) -> None:
        made = [(patch, self._rows(patch.id, patch.set)) for patch in patches]
        with self.database.writing(self.where) as connection:
            for patch, rows in sorted(made, key=lambda each: self.column(each[0].id)):
                self._patch(connection, patch, rows)

    def _patch(self, connection: Connection, patch: Patch, rows: list[Row]) -> None:
        blocks, entries = self.tables.blocks.c, self.tables.entries.c
        column = self.column(patch.id)
        locked = sa.select(blocks.block).where(blocks.block == column).with_for_update()
        if connection.scalar(locked) is None:
            raise Terminal(f"there is no block {name(self.cls, patch.id)}", where=self.where)
        unset = [self.column(path) for path in patch.unset]
        for start in range(0, len(unset), CHUNK):
            connection.execute(
                sa.delete(self.tables.entries).where(
                    entries.block == column, entries.entry.in_(unset[start : start + CHUNK])
                )
            )
        if rows:
            connection.execute(self._put_entries, rows)

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        column = self.column(id)
        with self.database.writing(self.where) as connection:
            if not is_still(self._locked(connection, id), held):
                return False
            if change is None:
                for table in (self.tables.blocks, self.tables.entries):
                    self._delete(connection, table, [column])
            elif isinstance(change, Patch):
                self._patch(connection, change, self._rows(id, change.set))
            else:
                head = {"block": column, "expires": change.expires}
                rows = self._rows(id, change.entries)
                if held is not None:
                    connection.execute(self._put_blocks, [head])
                elif not self._is_first(connection, head):
                    return False
                self._delete(connection, self.tables.entries, [column])
                self._insert(connection, rows)
        return True

    def _locked(self, connection: Connection, id: Value) -> Block | None:
        """The block as it is now, its row held until the end of the transaction."""
        blocks, column = self.tables.blocks.c, self.column(id)
        heads = connection.execute(
            sa.select(blocks.block, blocks.expires).where(blocks.block == column).with_for_update()
        ).all()
        page = Page([], None)
        self._gather(connection, heads, self.tables.entries.c.block == column, page)
        for damaged, reason in page.damaged:
            raise self._unreadable(damaged, reason)
        return page.blocks[0] if page.blocks else None

    def _is_first(self, connection: Connection, head: Row) -> bool:
        """Take a key that nobody has; False where somebody was faster."""
        try:
            with attempt(connection):
                connection.execute(sa.insert(self.tables.blocks), [head])
        except sa.exc.IntegrityError as error:
            if not is_unique(error):
                raise
            return False
        return True

    def delete(self, addresses: Sequence[Address]) -> None:
        columns = sorted({self.column(address.id) for address in addresses})
        with self.database.writing(self.where) as connection:
            self._delete(connection, self.tables.blocks, columns)
            self._delete(connection, self.tables.entries, columns, *self._unless_made_anew)

    def _delete(
        self,
        connection: Connection,
        table: sa.Table,
        columns: Sequence[str | bytes],
        *conditions: sa.ColumnElement[bool],
    ) -> None:
        for start in range(0, len(columns), CHUNK):
            chunk = columns[start : start + CHUNK]
            connection.execute(sa.delete(table).where(table.c.block.in_(chunk), *conditions))

    @cached_property
    def _unless_made_anew(self) -> list[sa.ColumnElement[bool]]:
        """PostgreSQL's second statement sees more than its first: a block that was being made, and
        so was not deleted, would lose its entries. Others wait for it, or have one writer."""
        if self.database.dialect != "postgresql":
            return []
        blocks, entries = self.tables.blocks.c, self.tables.entries.c
        return [~sa.exists().where(blocks.block == entries.block)]

    @cached_property
    def _put_blocks(self) -> sa.Insert:
        return self._upsert(self.tables.blocks, ("expires",))

    @cached_property
    def _put_entries(self) -> sa.Insert:
        return self._upsert(self.tables.entries, ("value", "tags"))

    def _upsert(self, table: sa.Table, changed: Sequence[str]) -> sa.Insert:
        dialect = self.database.dialect
        if dialect == "mysql":
            given = mysql.insert(table)
            return given.on_duplicate_key_update({key: given.inserted[key] for key in changed})
        into = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
        return into.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={key: into.excluded[key] for key in changed},
        )

    # ------------------------------------------------------------ rows

    def _rows(self, id: Value, entries: Entries) -> list[Row]:
        """The rows of a block's entries. Raises DoesNotFit naming key and path."""
        column = self.column(id)
        most = bounds(self.database.dialect)
        self._bounded(column, most.key, "key", id, "")
        rows = []
        for path, value in entries.items():
            entry = self.column(path)
            self._bounded(entry, most.path, "access path", id, path)
            try:
                text, tags = codec.dump(value)
            except codec.UNFIT as error:
                raise DoesNotFit(
                    f"it can't be held: {error}", key=id, path=path, where=self.where
                ) from None
            row = {"block": column, "entry": entry, "value": text, "tags": tags}
            if _bytes(row) > most.value or 2 * _bytes(row) > self._packet:
                self._check_size(row, most.value, id, path)
            rows.append(row)
        return rows

    def _bounded(self, column: str | bytes, most: int, what: str, id: Value, path: str) -> None:
        if len(column) * 4 <= most:
            return
        taken = len(column if isinstance(column, bytes) else column.encode())
        if taken > most:
            raise DoesNotFit(
                f"the {what} takes {taken:,} bytes; an index here holds {most:,}",
                key=id,
                path=path,
                where=self.where,
            )

    def _check_size(self, row: Row, most: int, id: Value, path: str) -> None:
        text = row["value"]
        # MySQL's driver sends text with a backslash before quotes and backslashes.
        taken = _bytes(row) + (sum(map(text.count, "\"'\\")) if self._binary else 0)
        limit = min(most, self._packet - 4096)
        if taken > limit:
            raise DoesNotFit(
                f"the entry takes {taken:,} bytes; the server takes {limit:,}",
                key=id,
                path=path,
                where=self.where,
                hint="raise max_allowed_packet on the server, or cut the aggregate into smaller "
                "entries"
                if self._binary
                else "cut the aggregate into smaller entries",
            )

    @cached_property
    def _packet(self) -> int:
        """The longest statement that the server takes, where it has such a bound."""
        if not self._binary:
            return 4 * LARGEST
        with self.database.reading(self.where) as connection:
            return int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())


def _bytes(row: Row) -> int:
    text, tags = row["value"], row["tags"]
    taken = len(text) if text.isascii() else len(text.encode())
    return taken + (len(tags.encode()) if tags else 0)

"""The blocks of one class as rows (block, entry, value, expires)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, cast

from migrator.errors import DamagedBlock, Terminal
from migrator.exchange import Change, is_still
from migrator.model.block import Address, Block, Patch, has_ended, name
from migrator.model.move import At
from migrator.model.rules import Entries
from migrator.model.value import Value
from migrator.ports import Held, Json, Page, Statistics, one_page
from migrator.stores.sqlite import codec
from migrator.stores.sqlite.codec import Column, Decode
from migrator.stores.sqlite.live import Live

if TYPE_CHECKING:
    from migrator.stores.sqlite.store import EmbeddedStore

PAGE_BYTES = 16_000_000
_IN = 500
_SAMPLE_ROWS = 1000
_ROWS = 200  # older SQLite takes 999 parameters
_VALUE = itemgetter(2)


class EntriesReader:
    """Reads blocks with one decoder: the copier's or the observer's."""

    def __init__(self, store: EmbeddedStore, cls: str, at: At, decode: Decode) -> None:
        self.store = store
        self.cls = cls
        self.at = at
        self._decode = decode

    @property
    def where(self) -> str:
        return f"{self.store.name}:{self.at.collection}"

    def table(self, connection: sqlite3.Connection) -> str | None:
        """The table of this collection, None where it was not created.

        Looked up each time: another process may have dropped it and made it anew.
        """
        row = connection.execute(
            "SELECT id FROM collections WHERE name = ?", (self.at.collection,)
        ).fetchone()
        return f"entries_{row[0]}" if row else None

    def must(self, connection: sqlite3.Connection) -> str:
        table = self.table(connection)
        if table is None:
            raise Terminal(
                "there is no such collection", where=self.where, hint="check the name in the script"
            )
        return table

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        condition, bounds = _between(range_, position)
        page = Page([], None)
        with self.store.reading(self.where) as connection:
            cursor = connection.execute(
                f"SELECT block, entry, value, expires FROM {self.must(connection)} {condition} "  # noqa: S608
                "ORDER BY block, entry",
                bounds,
            )
            last = self._gather(cursor, page, limit)
            cursor.close()
        page.next = None if last is None else _position(last)
        return page

    def _gather(self, cursor: sqlite3.Cursor, page: Page, limit: int) -> Column | None:
        """Fill a page from rows in block order; the last block's key where more follow."""
        last: Column | None = None
        for begun, lying in enumerate(_lying(cursor)):
            if begun >= limit or page.bytes > PAGE_BYTES:
                return last
            self._put(page, lying)
            last = lying.column
        return None

    def _put(self, page: Page, lying: Lying) -> None:
        """Add a block to a page, or once the reason why it can't be read."""
        id: Value = lying.column
        decode = self._decode
        what = "its key"
        try:
            id = codec.from_column(lying.column, decode)
            entries: Entries = {}
            for entry, value in lying.rows:
                what = f"entry {entry!r}"
                entries[entry if type(entry) is str else codec.from_name(entry)] = decode(value)
                page.bytes += len(value)
        except Exception as error:  # noqa: BLE001 - whatever foreign bytes provoke
            page.damaged.append((id, f"{what}: {error}"))
        else:
            page.blocks.append(Block(id, entries, lying.expires))

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        condition, bounds = _between(range_, position)
        with self.store.reading(self.where) as connection:
            rows = connection.execute(
                f"SELECT DISTINCT block FROM {self.must(connection)} {condition} "  # noqa: S608
                f"ORDER BY block LIMIT {int(limit)}",
                bounds,
            ).fetchall()
        ids = [self._id(row[0]) for row in rows]
        return ids, _position(rows[-1][0]) if len(rows) == limit else None

    def _id(self, column: Column) -> Value:
        """A key; one that can't be read as it lies, which is how a page names it."""
        try:
            return codec.from_column(column, self._decode)
        except Exception:  # noqa: BLE001 - whatever foreign bytes provoke
            return column

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        columns = [codec.key_column(id) for id in ids]
        found = {key: self._block(lying) for key, lying in self._find(columns)}
        return [found.get((type(column), column)) for column in columns]

    def _find(self, columns: list[Column]) -> Iterator[tuple[tuple[type, Column], Lying]]:
        """What lies under some keys; nothing where there is no collection."""
        with self.store.reading(self.where) as connection:
            table = self.table(connection)
            if table is None:
                return
            for start in range(0, len(columns), _IN):
                chunk = columns[start : start + _IN]
                cursor = connection.execute(
                    f"SELECT block, entry, value, expires FROM {table} "  # noqa: S608
                    f"WHERE block IN ({','.join('?' * len(chunk))}) ORDER BY block, entry",
                    chunk,
                )
                for lying in _lying(cursor):
                    yield (type(lying.column), lying.column), lying

    def _block(self, lying: Lying) -> Block:
        page = Page([], None)
        self._put(page, lying)
        for id, reason in page.damaged:
            raise self._unreadable(id, reason)
        return page.blocks[0]

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        column = codec.key_column(id)
        entries: Entries = {}
        with self.store.snapshot(self.where) as connection:
            table = self.table(connection)
            if table is None or not _living(connection, table, column):
                return None
            for start in range(0, len(paths), _IN):
                chunk = [codec.to_name(path) for path in paths[start : start + _IN]]
                rows = connection.execute(
                    f"SELECT entry, value FROM {table} WHERE block = ? "  # noqa: S608
                    f"AND entry IN ({','.join('?' * len(chunk))})",
                    [column, *chunk],
                )
                for entry, value in rows:
                    try:
                        entries[codec.from_name(entry)] = self._decode(value)
                    except Exception as error:  # noqa: BLE001 - whatever foreign bytes provoke
                        raise self._unreadable(id, f"entry {entry!r}: {error}") from None
        return entries

    def _unreadable(self, id: Value, reason: str) -> DamagedBlock:
        return DamagedBlock(
            f"{name(self.cls, id)} can't be read: {reason}",
            where=self.where,
            hint="somebody else wrote to this file; restore the block or delete it",
        )


class Lying(NamedTuple):
    """A block as it lies: its rows of entry and value, not looked into yet."""

    column: Column
    expires: int | None
    rows: list[tuple[str | bytes, bytes]]


def _lying(cursor: sqlite3.Cursor) -> Iterator[Lying]:
    """The blocks of rows in block order."""
    current: Lying | None = None
    for block, entry, value, expires in cursor:
        if current is None or block != current.column or type(block) is not type(current.column):
            if current is not None:
                yield current
            current = Lying(block, expires, [])
            add = current.rows.append
        add((entry, value))
    if current is not None:
        yield current


class EntriesObserver(EntriesReader):
    """The verifier's reader, which also tells without decoding what lies there as expected."""

    def match(self, expected: Sequence[Block]) -> list[Block | None]:
        columns = [codec.key_column(block.id) for block in expected]
        found = dict(self._find(columns))
        matches = codec.Matcher()
        blocks: list[Block | None] = []
        for block, column in zip(expected, columns, strict=True):
            lying = found.get((type(column), column))
            if lying is None:
                blocks.append(None)
            elif block.expires == lying.expires and matches(block.entries, lying.rows):
                blocks.append(block)
            else:
                blocks.append(self._block(lying))
        return blocks


def _held(connection: sqlite3.Connection, table: str, keys: list[Column]) -> list[tuple[Column]]:
    """Those of the keys that are there: asking for many at once is cheap, deleting is not."""
    found: list[tuple[Column]] = []
    for start in range(0, len(keys), _IN):
        chunk = keys[start : start + _IN]
        marks = ",".join("?" * len(chunk))
        sql = f"SELECT DISTINCT block FROM {table} WHERE block IN ({marks})"  # noqa: S608
        found += connection.execute(sql, chunk).fetchall()
    return found


def _replaced(
    connection: sqlite3.Connection, table: str, blocks: list[list[codec.Row]], held: set[Column]
) -> Iterator[codec.Row]:
    """Take out what is held of some blocks, but for a row each, which is written; the others.

    A block that is rewritten never has no row: that would be its deletion to who follows it.
    """
    firsts = [rows[0] for rows in blocks if rows[0][0] in held]
    connection.executemany(
        f"INSERT INTO {table} VALUES (?, ?, ?, ?) ON CONFLICT (block, entry) "  # noqa: S608
        "DO UPDATE SET value = excluded.value, expires = excluded.expires",
        firsts,
    )
    connection.executemany(
        f"DELETE FROM {table} WHERE block = ? AND entry <> ?",  # noqa: S608
        [row[:2] for row in firsts],
    )
    for rows in blocks:
        yield from rows[1:] if rows[0][0] in held else rows


def _put(connection: sqlite3.Connection, table: str, by_block: list[list[codec.Row]]) -> None:
    """Put whole blocks by their rows."""
    rows = list(chain.from_iterable(by_block))
    held = {key for (key,) in _held(connection, table, [of_block[0][0] for of_block in by_block])}
    if held:
        rows = [*_replaced(connection, table, by_block, held)]
    _insert(connection, table, rows)


def _insert(connection: sqlite3.Connection, table: str, rows: list[codec.Row]) -> None:
    """Insert rows, many with a statement.

    The driver gives the interpreter's lock away once a statement, and a busy thread beside this
    one keeps it for a while: with a statement a row, two workers were slower than one.
    """
    sql = f"INSERT INTO {table} VALUES (?, ?, ?, ?)"  # noqa: S608
    whole = len(rows) - len(rows) % _ROWS
    for start in range(0, whole, _ROWS):
        given = [*chain.from_iterable(rows[start : start + _ROWS])]
        connection.execute(sql + ", (?, ?, ?, ?)" * (_ROWS - 1), given)
    connection.executemany(sql, rows[whole:])


def _delete(connection: sqlite3.Connection, table: str, ids: Sequence[Value]) -> None:
    connection.executemany(
        f"DELETE FROM {table} WHERE block = ?",  # noqa: S608
        [(codec.to_column(id),) for id in ids],
    )


def _living(connection: sqlite3.Connection, table: str, column: Column) -> bool:
    sql = f"SELECT expires FROM {table} WHERE block = ? LIMIT 1"  # noqa: S608
    row = connection.execute(sql, (column,)).fetchone()
    return row is not None and not has_ended(row[0], time.time())


def _position(column: Column) -> Json:
    if isinstance(column, bytes):
        return ["bytes", column.hex()]
    return ["text" if isinstance(column, str) else "number", column]


def _between(range_: Json, position: Json) -> tuple[str, list[Column]]:
    """The condition for the rest of a range, empty for everything, and its parameters."""
    low, high = cast("tuple[Json, Json]", range_)
    low = low if position is None else position
    sides = [("block > ?", low), ("block <= ?", high)]
    where = [(text, _bound(side)) for text, side in sides if side is not None]
    condition = "WHERE " + " AND ".join(text for text, _ in where) if where else ""
    return condition, [bound for _, bound in where]


def _bound(position: Json) -> Column:
    kind, held = cast("tuple[str, str | int]", position)
    return bytes.fromhex(str(held)) if kind == "bytes" else held


class EntriesCollection(EntriesReader, Live):
    """A collection of the embedded store."""

    def __init__(self, store: EmbeddedStore, cls: str, at: At) -> None:
        super().__init__(store, cls, at, codec.decode)

    def observer(self) -> EntriesObserver:
        return EntriesObserver(self.store, self.cls, self.at, codec.observe)

    def exists(self) -> bool:
        with self.store.reading(self.where) as connection:
            return self.table(connection) is not None

    def create(self) -> None:
        with self.store.writing(self.where) as connection:
            connection.execute(
                "INSERT INTO collections (name) VALUES (?) ON CONFLICT DO NOTHING",
                (self.at.collection,),
            )
            table = self.must(connection)
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {table} "
                "(block NOT NULL, entry NOT NULL, value BLOB NOT NULL, expires INTEGER)"
            )
            connection.execute(
                f"CREATE UNIQUE INDEX IF NOT EXISTS {table}_key ON {table} (block, entry)"
            )

    def drop(self) -> None:
        with self.store.writing(self.where) as connection:
            table = self.table(connection)
            if table is not None:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
                connection.execute("DELETE FROM collections WHERE name = ?", (self.at.collection,))

    def schema(self) -> Json:
        return {"layout": "entries"} if self.exists() else None

    def findings(self) -> Iterable[tuple[str, str, str]]:
        return ()

    def count(self) -> int:
        with self.store.reading(self.where) as connection:
            sql = f"SELECT count(*) FROM (SELECT DISTINCT block FROM {self.must(connection)})"  # noqa: S608
            return int(connection.execute(sql).fetchone()[0])

    def statistics(self) -> Statistics:
        blocks = self.count()
        with self.store.reading(self.where) as connection:
            table = self.must(connection)
            rows = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            mean = connection.execute(
                f"SELECT avg(length(value)) FROM (SELECT value FROM {table} LIMIT {_SAMPLE_ROWS})"  # noqa: S608
            ).fetchone()[0]
        return Statistics(blocks, int(rows * (mean or 0)), exact=rows <= _SAMPLE_ROWS)

    def split(self, parts: int) -> list[Json]:
        blocks = self.count()
        step = max(1, -(-blocks // max(1, parts)))
        bounds: list[Json] = [None]
        with self.store.reading(self.where) as connection:
            cursor = connection.execute(
                f"SELECT DISTINCT block FROM {self.must(connection)} ORDER BY block"  # noqa: S608
            )
            for i, (block,) in enumerate(cursor, 1):
                if i % step == 0 and i < blocks:
                    bounds.append(_position(block))
        return [list(pair) for pair in zip(bounds, [*bounds[1:], None], strict=True)]

    def sample(self, size: int) -> Page:
        ranges = self.split(min(size, 50))
        each = -(-size // len(ranges))
        return one_page((self.page(range_, None, each) for range_ in ranges), size)

    def write(self, blocks: Sequence[Block]) -> int:
        by_block = [codec.rows(block) for block in blocks]
        with self.store.writing(self.where) as connection:
            _put(connection, self.must(connection), by_block)
        return sum(map(len, map(_VALUE, chain.from_iterable(by_block))))

    def patch(self, patches: Sequence[Patch]) -> None:
        with self.store.writing(self.where) as connection:
            table = self.must(connection)
            for patch in patches:
                self._patch(connection, table, patch)

    def _patch(self, connection: sqlite3.Connection, table: str, patch: Patch) -> None:
        column = codec.key_column(patch.id)
        found = connection.execute(
            f"SELECT expires FROM {table} WHERE block = ? LIMIT 1",  # noqa: S608
            (column,),
        ).fetchone()
        if found is None:
            raise Terminal(f"there is no block {name(self.cls, patch.id)}", where=self.where)
        # In this order, so that the block never has no row: that would be its deletion.
        connection.executemany(
            f"INSERT INTO {table} VALUES (?, ?, ?, ?) "  # noqa: S608
            "ON CONFLICT (block, entry) DO UPDATE SET value = excluded.value",
            codec.rows(Block(patch.id, patch.set, found[0])) if patch.set else (),
        )
        connection.executemany(
            f"DELETE FROM {table} WHERE block = ? AND entry = ?",  # noqa: S608
            [(column, codec.to_name(path)) for path in patch.unset],
        )

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        with self.store.writing(self.where) as connection:
            # A read of this thread is on this connection, too, and so in this transaction.
            if not is_still(self.read([id])[0], held):
                return False
            table = self.must(connection)
            if isinstance(change, Block):
                _put(connection, table, [codec.rows(change)])
            elif change is not None:
                self._patch(connection, table, change)
            else:
                _delete(connection, table, [id])
        return True

    def delete(self, addresses: Sequence[Address]) -> None:
        with self.store.writing(self.where) as connection:
            _delete(connection, self.must(connection), [address.id for address in addresses])

    def settle(self) -> None:
        with self.store.reading(self.where) as connection:
            connection.execute("PRAGMA optimize")

    def size(self, block: Block) -> int:
        return sum(len(row[2]) for row in codec.rows(block))

    def needs_tag(self, value: Value) -> Held | None:
        return None

    def same_key(self, id: Value) -> Value:
        return id

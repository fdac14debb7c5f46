"""Walking blocks of entries by token, and reading them by key; with one decoder or another.

A range is a pair of tokens (from, to], either None where it is open. A position is the key of
the last block seen: it holds in another process, after any change of schema, and where several
keys share a token. No block is read in two steps, so none is seen half written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from migrator.errors import DamagedBlock, Refused, Transient
from migrator.model import json_text as codec
from migrator.model.block import Block
from migrator.model.path import parse_path
from migrator.model.rules import Entries
from migrator.model.value import Value, show
from migrator.ports import Json, Page
from migrator.retry import request
from migrator.stores.cassandra.entries_form import Form, Raw, Unpack, pack_list
from migrator.stores.cassandra.seen import ended
from migrator.stores.cassandra.table_wire import Bytes, Row, Statement, Wire

PAGE_BYTES = 8_000_000
MAX_ROWS = 5000
_TOGETHER = 20
_UNREADABLE = (ValueError, TypeError, LookupError, RecursionError, ArithmeticError)


class Damaged(Exception):
    """What lies under a key is no block."""


@dataclass(frozen=True)
class Decoder:
    """How bytes become values: the copier has one, the observer another."""

    load: codec.Load
    unpack: Unpack

    def id(self, key: bytes) -> Value:
        """A block key; text that is no key of ours is taken as it is."""
        text = key.decode()
        try:
            return codec.from_text(text, self.load)
        except _UNREADABLE:
            return text

    def entries(self, raw: Raw) -> Entries:
        """The entries of a block. Raises Damaged, naming the entry."""
        entries: Entries = {}
        for name, (value, tags) in raw.fields.items():
            try:
                path = codec.from_text(name.decode(), self.load)
                assert isinstance(path, str)
                parse_path(path)
                if value is None:
                    raise ValueError("there is no value")
                entries[path] = self.load(value.decode(), None if tags is None else tags.decode())
            except (*_UNREADABLE, AssertionError) as error:
                shown = name.decode("utf-8", "backslashreplace")
                raise Damaged(f"entry {shown!r}: {error}") from None
        return entries

    def block(self, raw: Raw) -> Block:
        """The block. Raises Damaged."""
        if raw.apart:
            names = ", ".join(
                sorted(name.decode("utf-8", "backslashreplace") for name in raw.apart)
            )
            raise Damaged(f"entries {names} do not end when the block does, which ends as a whole")
        entries = self.entries(raw)
        if not entries:
            raise Damaged("it has no entry")
        return Block(self.id(raw.key), entries, raw.expires)


class Reader:
    """Reads blocks of one table by one decoder."""

    def __init__(
        self,
        wire: Wire,
        form: Form,
        table: str,
        decoder: Decoder,
        where: str,
        elements: bool,
    ) -> None:
        self._wire = wire
        self._form = form
        self._columns = (*form.columns, *form.lives(elements))
        self._table = table
        self._decoder = decoder
        self._where = where
        # What was seen so far says how many rows make a page of bounded size.
        self._row_bytes = 50_000.0
        self._block_rows = 1.0 if form.single else 8.0

    # ------------------------------------------------------------ walking

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        """Up to ``limit`` blocks of a range after a position (None: from the start)."""
        page = Page([], None)
        after, taken = _key(position), 0
        while taken < limit and page.bytes < PAGE_BYTES:
            # A page that is not answered in time is asked for anew, with half the rows (C56).
            found, more = request(self._some, range_, after, limit - taken)
            for raw in found:
                self._add(page, raw)
            taken += len(found)
            if found:
                after = found[-1].key
            if not more:
                return page
        page.next = None if after is None else after.decode()
        return page

    def _add(self, page: Page, raw: Raw) -> None:
        page.bytes += raw.size
        if ended(raw.expires):
            return
        try:
            page.blocks.append(self._decoder.block(raw))
        except Damaged as error:
            page.damaged.append((self._decoder.id(raw.key), str(error)))

    def _some(self, range_: Json, after: bytes | None, limit: int) -> tuple[list[Raw], bool]:
        """Some blocks after a key, and whether there may be more of them."""
        if after is not None:
            beside = self._beside(after)[:limit]
            if beside:
                return [raw for raw in self.raw(beside) if raw is not None], True
        rows = int(min(limit * self._block_rows * 1.1 + 1, PAGE_BYTES / self._row_bytes, MAX_ROWS))
        rows = max(2, rows)
        where, values = _between(range_, after)
        query = f"{self._query(self._columns)}{where} LIMIT ?"
        try:
            found = list(self._wire.rows(query, [*values, rows.to_bytes(4, "big")], fetch=None))
        except Transient:
            self._row_bytes *= 2
            raise
        blocks = [list(group) for _, group in groupby(found, key=lambda row: row[0])]
        whole = len(found) < rows
        if not whole and not self._form.single:
            cut = blocks.pop()  # the limit may have cut it in two
            if not blocks:
                lone = [raw for raw in self.raw([cut[0][0] or b""]) if raw is not None]
                return lone or [self._gather(cut)], True
        if len(blocks) > limit:
            blocks, whole = blocks[:limit], False
        gathered = [self._gather(group) for group in blocks]
        if gathered:
            total = sum(raw.size for raw in gathered)
            self._row_bytes = max(100.0, total / len(found), self._row_bytes / 4)
            self._block_rows = max(1.0, len(found) / len(gathered))
        return gathered, not whole

    def _beside(self, key: bytes) -> list[bytes]:
        """Other keys of the same token that come after one: rare, but not to be passed over."""
        query = f"SELECT DISTINCT block FROM {self._table} WHERE token(block) = token(?)"  # noqa: S608
        return [other for (other,) in self._wire.few(query, [key]) if other and other > key]

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        """As ``page``, the keys alone."""
        after = _key(position)
        found = [] if after is None else self._beside(after)
        if len(found) < limit:
            where, values = _between(range_, after)
            query = f"SELECT DISTINCT block FROM {self._table}{where} LIMIT ?"  # noqa: S608
            left = (limit - len(found)).to_bytes(4, "big")
            found += [key or b"" for (key,) in self._wire.rows(query, [*values, left], MAX_ROWS)]
        found = found[:limit]
        next_ = found[-1].decode() if len(found) == limit else None
        return [self._decoder.id(key) for key in found], next_

    def count(self, range_: Json) -> int:
        """The number of keys of a range, counted here: a counting query would run out of time."""
        where, values = _between(range_, None)
        query = f"SELECT DISTINCT block FROM {self._table}{where}"  # noqa: S608
        return sum(1 for _ in self._wire.rows(query, values, fetch=MAX_ROWS))

    # ------------------------------------------------------------ by key

    def raw(self, keys: Sequence[bytes]) -> Iterator[Raw | None]:
        """What lies under some keys, in their order."""
        query = f"{self._query(self._columns)} WHERE block = ?"
        for rows in self._wire.each(Statement(query, [key], None) for key in keys):
            yield self._gather(rows) if rows else None

    def there(self, keys: Sequence[bytes]) -> Iterator[Raw | None]:
        """The names of the entries that lie under some keys, and the latest stamp."""
        taken = self._taken(keys)
        query = f"{self._query(self._form.held)} WHERE block = ?"
        found = self._wire.each(Statement(query, [key], None) for key in keys if key in taken)
        for key in keys:
            rows = next(found) if key in taken else []
            yield self._form.there(rows) if rows else None

    def _taken(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which of some keys are there: a few at a time, for most of a copy's are not. Of as few
        as touches name that is not asked before they are read: who waits does so for one answer
        and not for two."""
        if len(keys) <= _TOGETHER:
            return set(keys)
        query = f"SELECT DISTINCT block FROM {self._table} WHERE block IN ?"  # noqa: S608
        groups = (keys[i : i + _TOGETHER] for i in range(0, len(keys), _TOGETHER))
        asked = (Statement(query, [pack_list(group)], None) for group in groups)
        return {key for rows in self._wire.each(asked) for (key,) in rows if key}

    def read(self, keys: Sequence[bytes]) -> list[Block | None]:
        """The blocks of some keys, in their order; None where there is none."""
        return [self.block(raw) for raw in self.raw(keys)]

    def block(self, raw: Raw | None) -> Block | None:
        """The block of what lies under a key; None where there is none."""
        if raw is None or ended(raw.expires):
            return None
        try:
            return self._decoder.block(raw)
        except Damaged as error:
            raise DamagedBlock(
                f"{show(self._decoder.id(raw.key))} can't be read: {error}",
                where=self._where,
                hint="mend or remove it with the application that wrote it",
            ) from None

    def _gather(self, rows: Sequence[Row]) -> Raw:
        raw = self._form.gather(rows, self._decoder.unpack)
        raw.apart = tuple(self._form.apart(rows, self._decoder.unpack))
        return raw

    def _query(self, columns: Sequence[str]) -> str:
        return f"SELECT {', '.join(columns)} FROM {self._table}"  # noqa: S608


class Observing:
    """The verifier's reader: keys of blocks in, blocks out."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return self._reader.page(range_, position, limit)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return self._reader.read([key_of(id) for id in ids])


def key_of(id: Value) -> bytes:
    """A block key as its column holds it. Raises one of ``codec.UNFIT``."""
    # Cassandra takes no empty key.
    return (codec.to_text(id) if id != "" else f'{codec.MARK}""').encode()


def _key(position: Json) -> bytes | None:
    if position is None:
        return None
    if type(position) is not str:
        raise Refused(f"{position!r} is no position in a table of Cassandra")
    return position.encode()


def _between(range_: Json, after: bytes | None) -> tuple[str, list[Bytes]]:
    """The condition for what is left of a range, and its values."""
    start, end = range_ if isinstance(range_, list) else (None, None)
    conditions: list[str] = []
    values: list[Bytes] = []
    if after is not None:
        conditions.append("token(block) > token(?)")
        values.append(after)
    elif start is not None:
        conditions.append("token(block) > ?")
        values.append(_token(start))
    if end is not None:
        conditions.append("token(block) <= ?")
        values.append(_token(end))
    return (f" WHERE {' AND '.join(conditions)}" if conditions else ""), values


def _token(token: object) -> bytes:
    if type(token) is not int:
        raise Refused(f"{token!r} is no token")
    return token.to_bytes(8, "big", signed=True)

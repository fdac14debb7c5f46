"""How a block lies in a document: layouts ``document`` and ``flat``.

``document`` keeps the aggregate as the nested record that it is; ``flat`` keeps every entry in
a top-level field named by its access path, the remainder (the entry with the empty path) in
``_``. Names that MongoDB can't take are escaped; which ones stands in the side field, so that a
document written by somebody else is always taken at its word:

    _migrator: {
      tags:  {<field>: [[path below the field, tag], ...]},
      names: {<field>: true},      the fields whose names are escaped
      id:    [[path, tag], ...]    where the block key had to be carried
    }

The side field is absent where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from migrator.errors import DoesNotFit
from migrator.model import value as v
from migrator.model.block import Block
from migrator.model.path import parse_path
from migrator.model.rules import CorruptBlock, Entries, Representation, assemble
from migrator.model.value import Kind, Record, Value, kind_of, show
from migrator.stores.mongo import carry, codec, wire
from migrator.stores.mongo.carry import Pairs
from migrator.stores.mongo.wire import MILLI, Damaged, Unheld

SIDE = "_migrator"
REST = "_"
MAX_BYTES = 16 * 1024 * 1024
MAX_NESTING = 100
# MongoDB promises 100 levels and takes 200; the fields of the layout itself need some of them.
_DEEPEST = 150
_SIDE_KEYS = {"tags", "names", "id", "version"}
_NAMES_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Stored:
    """A block as MongoDB gets it: type and bytes of its ``_id``, and the document."""

    type: int
    id: bytes
    raw: bytes


def is_side(held: Value) -> bool:
    """Whether a field named like the side field is ours and not somebody's own."""
    return type(held) is dict and held.keys() <= _SIDE_KEYS


class Shape:
    """One layout: blocks to documents and back.

    ``expires`` names the field that holds the deadline, where one is declared.
    """

    def __init__(
        self, flat: bool, representation: Representation, where: str, expires: str | None = None
    ) -> None:
        self.flat = flat
        self.expires = expires
        self._representation = representation
        self._where = where
        self._reserved = {"_id", SIDE, expires} | ({REST} if flat else set())
        self._known: set[str] = set()

    # ------------------------------------------------------------ names

    def name(self, path: str) -> str:
        """The field of an entry (flat) or of a top-level field (document)."""
        if not path:
            return REST if self.flat else ""
        if path in self._reserved or path[0] == "$":
            return carry.escape_first(carry.escape(path, "." if self.flat else ""))
        odd = "\0" in path or not codec.native(path) or (self.flat and "." in path)
        if odd or carry.looks_escaped(path):
            return carry.escape(path, "." if self.flat else "")
        return path

    def _all_known(self, names: set[str]) -> bool:
        """Whether all names lie as they are, remembering those that do."""
        new = names - self._known
        if not new:
            return True
        if any(self.name(name) != name for name in new):
            return False
        if len(self._known) < _NAMES_KEPT:
            self._known |= new
        return True

    # ------------------------------------------------------------ writing

    def encode(self, block: Block) -> Stored:
        """A block as a document. Raises DoesNotFit where MongoDB could not hold it."""
        raw = self.document(block)
        type_, id_ = wire.id_of(raw)
        self._check_bytes(block, raw)
        self._check(block, type_, raw)
        return Stored(type_, id_, raw)

    def size(self, block: Block) -> int:
        """The bytes of the document, over the limit or not. Raises DoesNotFit for the rest."""
        raw = self.document(block)
        self._check(block, wire.id_of(raw)[0], raw)
        return len(raw)

    def document(self, block: Block) -> bytes:
        """The document of a block, however large. Raises DoesNotFit where there is none."""
        if not block.entries:
            raise self._unfit(block.id, "a block has no entry")
        try:
            fields = block.entries if self.flat else assemble(block.entries)
            return self._plain(block, fields) or self._carried(block, fields)
        except RecursionError:
            raise self._unfit(block.id, f"it nests deeper than {MAX_NESTING} levels") from None
        except (Unheld, CorruptBlock, TypeError) as error:
            raise self._unfit(block.id, str(error)) from None

    def _plain(self, block: Block, fields: Record) -> bytes | None:
        """The document where nothing needs to be carried; None where something does."""
        if type(block.id) is list or not self._all_known(fields.keys() - {""}):
            return None
        document = {"_id": block.id, **self._deadline(block), **fields}
        if self.flat and "" in fields:
            document[REST] = document.pop("")
        try:
            return codec.encode(document)
        except Unheld:
            return None

    def _deadline(self, block: Block) -> Record:
        if block.expires is None:
            return {}
        if self.expires is None:
            raise self._unfit(
                block.id,
                "the block has an expiry and the layout no field for it",
                'declare one: Layout("document", {"expires": "expireAt"})',
            )
        return {self.expires: v.instant(block.expires * MILLI)}

    def _carried(self, block: Block, fields: Record) -> bytes:
        id_, id_pairs = carry.hold_id(block.id)
        document: Record = {"_id": id_, **self._deadline(block)}
        held, side = self.side(fields)
        document |= held
        if id_pairs:
            side["id"] = id_pairs
        if side:
            document[SIDE] = side
        return codec.encode(document)

    def side(self, fields: Record) -> tuple[Record, Record]:
        """Fields under their stored names as native values, and what the side field says."""
        held: Record = {}
        tags: dict[str, Pairs] = {}
        names: Record = {}
        for path, value in fields.items():
            name, pairs = self.name(path), []  # type: tuple[str, Pairs]
            held[name] = value if codec.holds(value) else carry.hold(value, "", pairs)
            if pairs:
                tags[name] = pairs
            if name != path and not (self.flat and not path):
                names[name] = True
        return held, {k: x for k, x in (("tags", tags), ("names", names)) if x}

    def _check_bytes(self, block: Block, raw: bytes) -> None:
        if len(raw) > MAX_BYTES:
            largest = max(block.entries, key=lambda p: _size(block.entries[p]), default="")
            raise DoesNotFit(
                f"block of {len(raw):,} bytes is over the limit of {MAX_BYTES:,} of a document "
                f"(largest entry: {largest or 'the whole'})",
                key=block.id,
                path=largest,
                where=self._where,
                hint="move its large part out, or set oversize='quarantine' on the move",
            )

    def _check(self, block: Block, type_: int, raw: bytes) -> None:
        # Every level opens a record or a list, so few such bytes mean few levels.
        if raw.count(b"\3") + raw.count(b"\4") >= _DEEPEST:
            self.check_nesting(block.id, block.entries)
        if type_ in (0x04, 0x06, 0x0B):
            raise self._unfit(block.id, f"{type(block.id).__name__} can't be an _id")
        if type_ == 0x03 and any(name.startswith("$") for name in _names(block.id)):
            raise self._unfit(block.id, "a field of an _id can't begin with $")

    def check_nesting(self, id_: Value, entries: Entries) -> None:
        """Raises DoesNotFit where entries nest deeper than MongoDB takes."""
        for path, value in entries.items():
            try:
                deep = v.depth(value) + len(parse_path(path)) > _DEEPEST
            except RecursionError:
                deep = True
            if deep:
                raise self._unfit(id_, f"{path or 'it'} nests deeper than {MAX_NESTING} levels")

    def _unfit(self, id_: Value, why: str, hint: str = "") -> DoesNotFit:
        return DoesNotFit(f"{show(id_)}: {why}", key=id_, where=self._where, hint=hint)

    # ------------------------------------------------------------ reading

    def decode(self, raw: bytes) -> Block:
        """The block of a document. Raises Damaged with the path of what can't be read."""
        record = codec.decode(raw)
        id_ = record.pop("_id", None)
        expires = self._take_deadline(record)
        if SIDE in record and is_side(record[SIDE]):
            side: Record = record.pop(SIDE)  # type: ignore[assignment]
            id_ = carry.release(id_, carry.pairs_of(side.get("id")))
            self._release(record, side)
        elif self.flat and REST in record:
            _rename(record, REST, "")
        return Block(id_, self._entries(record), expires)

    def _take_deadline(self, record: Record) -> int | None:
        if self.expires is None or self.expires not in record:
            return None
        if kind_of(record[self.expires]) is not Kind.TIMESTAMP:
            return None  # MongoDB itself leaves such a document alone
        return v.nanos_of(record.pop(self.expires)) // MILLI

    def _release(self, record: Record, side: Record) -> None:
        tags, names = side.get("tags"), side.get("names")
        for name, pairs in (tags if type(tags) is dict else {}).items():
            if name in record:
                record[name] = carry.release(record[name], carry.pairs_of(pairs))
        if self.flat and REST in record:
            _rename(record, REST, "")
        for name in names if type(names) is dict else ():
            if name in record:
                _rename(record, name, carry.unescape(name))

    def _entries(self, record: Record) -> Entries:
        if not self.flat:
            return self._representation.partition(record)
        for path in record:
            try:
                parse_path(path)
            except ValueError as error:
                raise Damaged(path, str(error)) from None
        return record

    def id_of(self, raw: bytes) -> Value:
        """The key of a document, perhaps of one that holds nothing but its ``_id`` and side."""
        record = codec.decode(raw)
        side = record.get(SIDE)
        pairs = carry.pairs_of(side.get("id")) if is_side(side) else []  # type: ignore[attr-defined]
        return carry.release(record["_id"], pairs)


def _rename(record: Record, old: str, new: str) -> None:
    if new in record:
        raise Damaged(new, f"the fields {old!r} and {new!r} both stand for this one")
    record[new] = record.pop(old)


def _size(value: Value) -> int:
    try:
        return len(codec.encode({"": value}))
    except Unheld:
        return len(repr(value))


def _names(value: Value) -> set[str]:
    found: set[str] = set()
    add: Callable[[Value], None] = lambda item: found.update(item if type(item) is dict else ())  # noqa: E731
    v.walk(value, add)
    return found

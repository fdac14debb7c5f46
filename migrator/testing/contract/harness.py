"""How the promises look at a store: by pages, by keys, and both again by the observer."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import pytest

from migrator.errors import Refused, Transient
from migrator.model.block import Aggregate, Block, cut
from migrator.model.canonical import encode, equal
from migrator.model.move import Layout
from migrator.model.rules import Representation, assemble
from migrator.model.value import Record, Value, instant, kind_of, walk
from migrator.ports import Capabilities, Collection, FieldsEnd, How, Json, Observer, Store
from migrator.testing.contract.case import CLS, REPRESENTATIONS, ContractCase, declared

Held = dict[bytes, Block]
ENDLESS = 3000
# Deadlines to the millisecond, in nanoseconds since 1970; some stores keep none after January 2038.
_LATER, _PAST = 2_114_380_800_123_000_000, 1_000_000_000_123_000_000
# Seconds: of a machine that is busy elsewhere, and for which others may go on before.
_PATIENCE, _PAUSE = 120.0, 0.01
_numbers = itertools.count(1)
T = TypeVar("T")


def insist(call: Callable[[], T]) -> T:
    """What a call gives at last that is made again where the store asks for it, as the engine
    does; an exchange may be sent twice."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return call()
        except Transient:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE)


@dataclass
class Place:
    """A fresh collection, and what it takes to make blocks for it."""

    case: ContractCase
    folder: Path
    collection: Collection
    rules: Representation

    def block(self, key: Value, rounds: int = 2, expires: int | None = None) -> Block:
        return self.cut(key, self.case.game(key, rounds), expires)

    def cut(self, key: Value, aggregate: Record, expires: int | None = None) -> Block:
        return cut(Aggregate(key, aggregate, expires), self.rules)

    def blocks(self, count: int, rounds: int = 2, start: int = 0) -> list[Block]:
        return [self.block(self.case.key(i), rounds) for i in range(start, start + count)]

    def again(self) -> tuple[Store, Collection]:
        """The same location through a newly opened store, which the caller closes."""
        store = self.case.open(self.folder)
        return store, store.collection(CLS, self.collection.at)


Make = Callable[[str], Place]


class Harness:
    """The fixtures that every promise stands on. A subclass gives the fixture ``case``."""

    @pytest.fixture(autouse=True)
    def _declared(self, request: pytest.FixtureRequest, case: ContractCase) -> None:
        promise = request.node.name.removeprefix("test_")
        if reason := case.excluded(promise):
            declared(reason)

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, case: ContractCase, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("contract")

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, case: ContractCase, folder: Path) -> Iterator[Store]:
        store = case.open(folder)
        yield store
        store.close()

    @pytest.fixture
    def any_aggregate(self, case: ContractCase) -> None:
        """For promises of layouts that hold any aggregate; the others make no collection first."""
        if case.schema:
            declared("its schema is fixed")

    @pytest.fixture
    def can(self, case: ContractCase, store: Store) -> Capabilities:
        """What the store can do in this layout."""
        return store.capabilities.at(Layout(case.layout))

    @pytest.fixture
    def make(self, case: ContractCase, folder: Path, store: Store) -> Iterator[Make]:
        """Make fresh collections; they are dropped when the test ends, or emptied for the next."""
        made: list[Collection] = []

        def make(representation: str) -> Place:
            rules = REPRESENTATIONS[representation]
            number = len(made) if case.empty else next(_numbers)
            kind = crc32(f"{case} {representation}".encode()) if case.empty else 0
            at = case.at(f"contract_{kind:x}_{number}", rules)
            collection = store.collection(CLS, at)
            made.append(collection)
            if case.empty is None:
                collection.drop()
            collection.create()
            if case.empty is not None:
                case.empty(collection)
            return Place(case, folder, collection, at.rules(CLS))

        yield make
        if case.empty is None:
            for collection in made:
                collection.drop()

    @pytest.fixture
    def place(self, make: Make) -> Place:
        """A fresh collection of whole aggregates."""
        return make("EAO")

    @pytest.fixture(params=list(REPRESENTATIONS))
    def cut_place(self, request: pytest.FixtureRequest, case: ContractCase, make: Make) -> Place:
        """A fresh collection in each representation in turn."""
        return self._in(request.param, case, make)

    @pytest.fixture(params=["EAO", "ETF", "EAV"])
    def plain_place(self, request: pytest.FixtureRequest, case: ContractCase, make: Make) -> Place:
        """As ``cut_place``, for aggregates without rounds."""
        return self._in(request.param, case, make)

    @staticmethod
    def _in(representation: str, case: ContractCase, make: Make) -> Place:
        if reason := case.excluded(f"representation {representation}"):
            with pytest.raises(Refused):
                make(representation)
            declared(reason)
        return make(representation)


def write_all(place: Place, blocks: list[Block]) -> list[Block]:
    """Write blocks of distinct keys in batches; what was written."""
    for start in range(0, len(blocks), 50):
        place.collection.write(blocks[start : start + 50])
    return blocks


def through_json(position: Json) -> Json:
    """A position or range as it comes back from a checkpoint."""
    return json.loads(json.dumps(position))


def pages(reader: Observer, range_: Json, limit: int) -> Iterator[list[Block]]:
    """All pages of a range, each from a position that went through JSON."""
    position: Json = None
    for _ in range(ENDLESS):
        page = reader.page(through_json(range_), through_json(position), limit)
        assert len(page.blocks) <= limit, f"a page of {limit} has {len(page.blocks)} blocks"
        assert not page.damaged, page.damaged
        yield page.blocks
        if page.next is None:
            return
        position = page.next
    pytest.fail(f"a range has no end after {ENDLESS} pages")


def scan(reader: Observer, ranges: Iterable[Json], limit: int = 100) -> list[Block]:
    """The blocks of some ranges, in order of appearance."""
    return [b for range_ in ranges for blocks in pages(reader, range_, limit) for b in blocks]


def by_key(blocks: Iterable[Block]) -> Held:
    """Blocks by the canonical form of their key; fails where a key appears twice."""
    held: Held = {}
    for block in blocks:
        form = encode(block.id)
        assert form not in held, f"{block.id!r} appears twice"
        held[form] = block
    return held


def same(left: Block, right: Block) -> bool:
    """Whether two blocks have the same key and entries, in canonical form."""
    return encode(left.id) == encode(right.id) and equal(left.entries, right.entries)


def assert_same(found: Block | None, expected: Block) -> None:
    """Fail, naming key and paths, where a block is not the expected one."""
    assert found is not None, f"block {expected.id!r} is missing"
    assert encode(found.id) == encode(expected.id)
    wrong = [
        (path, found.entries.get(path, "absent"), expected.entries.get(path, "absent"))
        for path in found.entries.keys() | expected.entries.keys()
        if path not in found.entries
        or path not in expected.entries
        or not equal(found.entries[path], expected.entries[path])
    ]
    assert not wrong, f"block {expected.id!r}, (path, found, expected): {str(wrong)[:2000]}"
    assert equal(assemble(found.entries), assemble(expected.entries))


def assert_holds(collection: Collection, expected: Sequence[Block]) -> None:
    """The collection holds exactly these blocks, however one reads it, and whoever reads."""
    wanted = by_key(expected)
    for reader in (collection, collection.observer()):
        held = by_key(scan(reader, collection.split(3)))
        assert held.keys() == wanted.keys(), (
            f"missing {[wanted[k].id for k in wanted.keys() - held.keys()]!r:.500}, "
            f"too many {[held[k].id for k in held.keys() - wanted.keys()]!r:.500}"
        )
        for form, block in wanted.items():
            assert_same(held[form], block)
        for found, block in zip(reader.read([b.id for b in expected]), expected, strict=True):
            assert_same(found, block)
    assert collection.count() == len(wanted)


def assert_fields_end(collection: Collection, id: Value, record: Record, field: str) -> None:
    """The promise of ``FieldsEnd``: deadlines of single fields are told to the millisecond, go when
    they are taken away, and what has ended is absent with them; held to a field of a record."""
    assert isinstance(collection, FieldsEnd)
    ((name, of),) = collection.ending.items()
    rules = collection.at.rules(collection.cls)

    def put(moments: Record, but: str = "") -> None:
        fields = record[of] if of else record
        assert isinstance(fields, dict)
        left = {n: x for n, x in fields.items() if n != but}
        after = {**record, of: left} if of else left
        collection.write([cut(Aggregate(id, {**record, name: moments}), rules)])
        ended = moments if not but else {}
        for reader in (collection, collection.observer()):
            assert_same(reader.read([id])[0], cut(Aggregate(id, {**after, name: ended}), rules))

    put({field: instant(_LATER)})
    put({})
    put({field: instant(_PAST)}, but=field)


def is_held(can: Capabilities, collection: Collection, value: Value) -> bool:
    """Whether the store says that it holds a value, natively or tagged, all inside included."""
    held = True

    def visit(part: Value) -> None:
        nonlocal held
        says = collection.needs_tag(part) or can.kinds[kind_of(part)]
        held = held and says.how is not How.REFUSED

    walk(value, visit)
    return held


def difference(old: Block, new: Block) -> tuple[dict[str, Value], tuple[str, ...]]:
    """The entries to set and the paths to unset that make one block the other."""
    return (
        {
            path: value
            for path, value in new.entries.items()
            if path not in old.entries or not equal(old.entries[path], value)
        },
        tuple(path for path in old.entries if path not in new.entries),
    )

"""Promises about what an operation costs: its requests, and whether the block travels with it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from migrator.errors import Transient
from migrator.exchange import Amending, Exchanging
from migrator.model.block import Address, Block, Patch
from migrator.model.rules import assemble
from migrator.model.value import Record, Value
from migrator.ports import Collection, Cost, Store
from migrator.testing.contract.case import CLS, ContractCase, Traffic, declared
from migrator.testing.contract.harness import Harness, Make, Place, difference

# A request that does not carry the block may grow by this for a longer one: wider numbers.
_SLACK = 150
# And so much does a request more carry, whose block lies in another way.
_REQUEST = 400
_SHORT, _LONG = 3, 30
_ATTEMPTS = 5
# The others carry a block by their nature, or nothing but keys.
_MAY_CARRY = ("get_entries", "update", "append", "amend", "exchange")


# What was counted of each operation, each time with the number of entries that it moved.
Seen = Mapping[str, list[tuple[Traffic, int]]]


class CostPromises(Harness):
    """Each operation sends what the layout says of it."""

    def test_operations_cost_what_is_said(self, case: ContractCase, make: Make) -> None:
        if case.meter is None:
            declared("nobody counts what it sends")
        place = make("EAO" if case.excluded("representation ROUNDS") else "ROUNDS")
        store, _ = place.again()
        try:
            costs = store.capabilities.layouts[case.layout].costs
            assert ("exchange" in costs) is isinstance(place.collection, Exchanging)
            assert "amend" not in costs or isinstance(place.collection, Amending)
            if case.excluded("exchange"):
                costs = {name: cost for name, cost in costs.items() if name != "exchange"}
            short, long = (_settled(place, store, n) for n in (_SHORT, _LONG))
        finally:
            store.close()
        for operation, cost in costs.items():
            judge(operation, cost, case, [*short[operation], *long[operation]])
        for operation in _MAY_CARRY:
            if operation in costs:
                (little, _), (much, _) = short[operation][0], long[operation][0]
                more = much.sent - little.sent
                slack = _SLACK + _REQUEST * max(0, much.requests - little.requests)
                assert (more > slack) is costs[operation].whole, (operation, more)


def judge(
    operation: str, cost: Cost, case: ContractCase, counted: Sequence[tuple[Traffic, int]]
) -> None:
    """Raise AssertionError where what is said is not what was counted: a bound that no block
    reaches, and a least that none falls to, are as untrue as what is exceeded."""
    seen = [(t.requests, cost.at_most(case.tables, case.has, n)) for t, n in counted]
    assert all(requests <= said for requests, said in seen), (operation, seen)
    assert any(requests == said for requests, said in seen), (operation, seen)
    least, found = cost.at_least(case.tables), min(requests for requests, _ in seen)
    assert least <= found if case.has else least == found, (operation, seen)


def _settled(place: Place, store: Store, rounds: int) -> Seen:
    """What goes over the wire; measured anew, on another key, where a request failed for now."""
    for attempt in range(_ATTEMPTS):
        try:
            return _Measured(place, store, rounds, attempt).all()
        except Transient:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


class _Measured:
    """What goes over the wire for each operation on a block of so many rounds."""

    def __init__(self, place: Place, store: Store, rounds: int, attempt: int) -> None:
        assert place.case.meter is not None
        self._meter = place.case.meter
        self._place = place
        self._store = store
        self._collection: Collection = store.collection(CLS, place.collection.at)
        self._rounds = rounds
        self._key = place.case.key(rounds + 1000 * attempt)
        self._seen = defaultdict[str, list[tuple[Traffic, int]]](list)

    @contextmanager
    def _counted(self, operation: str, entries: int = 1) -> Iterator[None]:
        with self._meter(self._store) as traffic:
            yield
        self._seen[operation].append((traffic, entries))

    def all(self) -> Seen:
        """Each operation in the cases that cost another number of requests somewhere."""
        place, collection, key = self._place, self._collection, self._key
        block, longer = place.block(key, self._rounds), place.block(key, self._rounds + 1)
        self._begin()
        one_path = ["rounds[1]" if "rounds[1]" in block.entries else ""]
        for other in (block, longer, self._otherwise(longer), block, block):
            self._put(other)
        with self._counted("get"):
            collection.read([key])
        with self._counted("get_entries"):
            assert collection.read_entries(key, one_path) is not None
        appended = _with(place, block, longer, self._rounds)
        self._patched("append", block, appended)
        if place.case.schema is None:
            self._patched("append", appended, appended := self._odder(appended))
        one = _with(place, appended, longer, 1)
        two = _with(place, _with(place, one, longer, 0), longer, 2)
        last = self._otherwise(two)
        steps = (appended, one, two, _plainer(place, two), two, last)
        for before, after in itertools.pairwise(steps):
            self._patched("update", before, after)
        with self._counted("delete", len(last.entries)):
            collection.delete([Address(key)])
        with self._counted("delete"):
            collection.delete([Address(key)])
        with self._counted("get"):
            assert collection.read([key]) == [None]
        with self._counted("get_entries"):
            assert collection.read_entries(key, one_path) is None
        costs = self._store.capabilities.layouts[place.case.layout].costs
        if "amend" in costs and isinstance(collection, Amending):
            self._amends(collection, block)
        self._put(block)
        if isinstance(collection, Exchanging) and not place.case.excluded("exchange"):
            self._exchanges(collection, longer)
        return self._seen

    def _begin(self) -> None:
        """What is done once for each handle or connection, which is no part of an operation."""
        place, collection = self._place, self._collection
        other = place.case.key(0)
        collection.write([place.block(other, self._rounds)])
        collection.read([other])
        collection.read_entries(other, [""])
        collection.delete([Address(other)])

    def _put(self, block: Block) -> None:
        with self._counted("put", len(block.entries)):
            self._collection.write([block])

    def _patched(self, operation: str, old: Block, new: Block) -> None:
        patch = _patch(old, new)
        with self._counted(operation, len(patch.set) + len(patch.unset)):
            self._collection.patch([patch])

    def _amends(self, collection: Amending, block: Block) -> None:
        """Of a field, of two, of a list that grows, and of a block that is not there."""
        more = _rounds(self._place.block(self._key, self._rounds + 1))[1][-1]
        first: Record = {"firstPlayer": "eve"}
        grows: tuple[Record, Record] = {}, {"rounds": more}
        changes: list[tuple[Record, Record]] = [(first, {}), ({**first, "note": "kept"}, {}), grows]
        collection.amend(self._key, *grows)  # what a server has to be told once
        self._collection.write([block])
        for change in changes:
            with self._counted("amend"):
                assert collection.amend(self._key, *change) is not None
        self._collection.delete([Address(self._key, block.place)])
        with self._counted("amend"):
            assert collection.amend(self._key, *grows) is None

    def _exchanges(self, collection: Exchanging, longer: Block) -> None:
        """Of a block that was put, one that was exchanged, another one, and none."""
        place, key = self._place, self._key

        def exchanged(after: Callable[[Block], Block | None]) -> None:
            (held,) = self._collection.read([key])
            assert held is not None
            new = after(held)
            change = None if new is None else _patch(held, new)
            with self._counted("exchange"):
                assert collection.exchange(key, held, change)

        exchanged(lambda held: _with(place, held, longer, 2))
        exchanged(self._otherwise)
        with self._counted("exchange"):
            assert not collection.exchange(key, longer, None)
        exchanged(lambda held: None)
        with self._counted("exchange", len(longer.entries)):
            assert collection.exchange(key, None, longer)

    def _odder(self, block: Block) -> Block:
        """A block with one round more, which has something that not every store holds natively."""
        aggregate, rounds = _rounds(block)
        return self._place.cut(block.id, {**aggregate, "rounds": [*rounds, {"clock": 0.5}]})

    def _otherwise(self, block: Block) -> Block:
        """A block with a field changed, a round less, another one changed, and one more."""
        aggregate, (first, _, *others) = _rounds(block)
        more = _rounds(self._place.block(self._key, self._rounds + 3))[1][-1]
        rounds = [_moved(first, "g4"), *others, more]
        return self._place.cut(block.id, {**aggregate, "firstPlayer": "zoe", "rounds": rounds})


def _patch(old: Block, new: Block) -> Patch:
    return Patch(old.id, *difference(old, new))


def _rounds(block: Block) -> tuple[Record, list[Value]]:
    """The aggregate of a block, and its rounds."""
    aggregate = assemble(block.entries)
    rounds = aggregate["rounds"]
    assert isinstance(rounds, list)
    return aggregate, rounds


def _with(place: Place, block: Block, longer: Block, number: int) -> Block:
    """A block with one round more, or one changed."""
    aggregate, rounds = _rounds(block)
    if number == len(rounds):
        changed = [*rounds, _rounds(longer)[1][-1]]
    else:
        changed = [*rounds[:number], _moved(rounds[number]), *rounds[number + 1 :]]
    return place.cut(block.id, {**aggregate, "rounds": changed})


def _plainer(place: Place, block: Block) -> Block:
    """A block without what not every store holds natively beside its rounds."""
    aggregate, _ = _rounds(block)
    return place.cut(block.id, {x: value for x, value in aggregate.items() if x != "score"})


def _moved(round_: Value, moves: str = "f4") -> Value:
    assert isinstance(round_, dict)
    return {**round_, "moves": moves}

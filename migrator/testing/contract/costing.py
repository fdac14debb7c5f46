"""Promises about what an operation costs: its requests, and whether the block travels with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from migrator.exchange import Exchanging
from migrator.model.block import Address, Block, Patch
from migrator.model.rules import assemble
from migrator.model.value import Record, Value
from migrator.ports import Store
from migrator.testing.contract.case import CLS, ContractCase, Traffic, declared
from migrator.testing.contract.harness import Harness, Make, Place, difference

# A request that does not carry the block may grow by this for a longer one: wider numbers.
_SLACK = 150
_SHORT, _LONG = 3, 60
# The others carry a block by their nature, or nothing but keys.
_MAY_CARRY = ("get_entries", "update", "append", "exchange")

Seen = Mapping[str, list[Traffic]]


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
            short, long = (_measured(place, store, n) for n in (_SHORT, _LONG))
        finally:
            store.close()
        for operation, cost in costs.items():
            seen = max(t.requests for t in (*short[operation], *long[operation]))
            said = cost.requests + cost.more * (case.tables - 1)
            # What is said is a bound for every block; these need most of it.
            assert said / 2 <= seen <= said, (operation, seen)
        for operation in _MAY_CARRY:
            if operation in costs:
                more = long[operation][0].sent - short[operation][0].sent
                assert (more > _SLACK) is costs[operation].whole, (operation, more)


def _measured(place: Place, store: Store, rounds: int) -> Seen:
    """What goes over the wire for each operation on a block of so many rounds."""
    case, collection = place.case, store.collection(CLS, place.collection.at)
    assert case.meter is not None
    meter, seen = case.meter, defaultdict[str, list[Traffic]](list)

    @contextmanager
    def counted(operation: str) -> Iterator[None]:
        with meter(store) as traffic:
            yield
        seen[operation].append(traffic)

    key = case.key(rounds)
    block, longer = place.block(key, rounds), place.block(key, rounds + 1)
    # What is done once for each handle or connection is no part of an operation.
    collection.write([place.block(case.key(0))])
    collection.read([case.key(0)])
    collection.read_entries(case.key(0), [""])
    collection.delete([Address(case.key(0))])
    with counted("put"):
        collection.write([block])
    for other in (longer, place.cut(key, _otherwise(block)), block):
        with counted("put"):
            collection.write([other])
    with counted("get"):
        collection.read([key])
    with counted("get_entries"):
        collection.read_entries(key, ["rounds[1]" if "rounds[1]" in block.entries else ""])
    with counted("append"):
        collection.patch([_patch(block, _with(place, block, longer, rounds))])
    appended = _with(place, block, longer, rounds)
    with counted("update"):
        collection.patch([_patch(appended, _with(place, appended, longer, 1))])
    if isinstance(collection, Exchanging):
        (held,) = collection.read([key])
        assert held is not None
        with counted("exchange"):
            assert collection.exchange(key, held, _patch(held, _with(place, held, longer, 2)))
    with counted("delete"):
        collection.delete([Address(key)])
    return seen


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


def _otherwise(block: Block) -> Record:
    """A block with a field changed, a round less and another one changed."""
    aggregate, (first, _, *others) = _rounds(block)
    return {**aggregate, "firstPlayer": "zoe", "rounds": [_moved(first), *others]}


def _moved(round_: Value) -> Value:
    assert isinstance(round_, dict)
    return {**round_, "moves": "f4"}

"""What lies on the sides of a move under the keys of a drill: read, tried out, removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from migrator.drill.history import Key, State
from migrator.drill.making import Shape
from migrator.errors import MigratorError, Refused
from migrator.gateway import Gateway
from migrator.gateway.opened import Sides
from migrator.model.block import Address
from migrator.ports import Collection
from migrator.retry import Retry
from migrator.route import Route

T = TypeVar("T")
SIDES = ("source", "target")
_BATCH = 100


def held(route: Route, side: str, shape: Shape, names: Sequence[str]) -> dict[Key, State | None]:
    """What a side holds, in the shape of the source; what it lacks is not in it."""
    sides = Sides(route, side, mirrored=True, shape="source")
    found: dict[Key, State | None] = {}
    for some in _batches(names):
        blocks = Retry()(sides.primary.read, [sides.key(shape.maker.id(name)) for name in some])
        for name, block in zip(some, blocks, strict=True):
            if block is not None:
                found[route.cls, name] = shape.state(sides.seen(block).value)
    return found


def left(route: Route, side: str, shape: Shape, names: Sequence[str], *, remove: bool) -> int:
    """How many keys a side still has, after they were removed there if that is asked for.

    Ask for it only where no run is under way: it goes past the gateway.
    """
    sides = Sides(route, side, mirrored=True, shape="source")
    collection = sides.primary
    if not Retry()(collection.exists):
        return 0
    count = 0
    for some in _batches(names):
        ids = [sides.key(shape.maker.id(name)) for name in some]
        there = _addresses(collection, ids)
        if there and remove:
            Retry()(collection.delete, there)
            there = _addresses(collection, ids)
        count += len(there)
    return count


def _addresses(collection: Collection, ids: list[object]) -> list[Address]:
    blocks = Retry()(collection.read, ids)
    return [Address(block.id, block.place) for block in blocks if block is not None]


def try_out(gateway: Gateway, shape: Shape, name: str) -> None:
    """Put an aggregate, and remove it. Raises Refused where it fails or is changed by it."""
    id, value = shape.maker.id(name), shape.value(name, 0, 1)
    try:
        gateway.put(id, value)
        if shape.items:
            value = gateway.append(id, shape.items_path, shape.element(value, 2)).value
        found = gateway.get(id)
    except MigratorError as error:
        raise Refused(
            f"what lies there can't be put again under another key: {error.what}",
            where=error.where or shape.cls, hint=error.hint,
        ) from None  # fmt: skip
    finally:
        with suppress(MigratorError):
            gateway.delete(id)
    if found is None or shape.state(found.value) != shape.state(value):
        raise Refused(
            "what was put came back changed: nothing can be proven by it", where=shape.cls
        )


def _batches(names: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(names), _BATCH):
        yield names[start : start + _BATCH]

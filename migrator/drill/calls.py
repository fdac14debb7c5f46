"""A call of a writer, and the place among its keys that it goes to. Pure but for ``send``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from migrator.drill.history import READS, Act, Key, Known, Left, State
from migrator.drill.making import Shape
from migrator.gateway import Gateway
from migrator.gateway.changes import appended, updated
from migrator.model.value import Record, Value

Turn = Callable[[], int]
"""The number of the call that is made next."""


@dataclass
class Place:
    """A place among the keys of a writer: the key that stands there, and what it holds."""

    shape: Shape
    writer: int
    number: int
    part: int = 0
    value: Record | None = None
    unread: bool = False

    @property
    def name(self) -> str:
        """The name of the key that stands there."""
        return f"{self.writer}.{self.number}.{self.part}"

    @property
    def state(self) -> State | None:
        """What it is known to hold; nothing where that was not read yet."""
        return None if self.unread else self.shape.state(self.value)


def place(shape: Shape, writer: int, number: int, before: Known) -> Place:
    """A place as the processes before left it: past every key whose outcome is unknown."""
    made = Place(shape, writer, number)
    key: Key = shape.cls, made.name
    while key in before.doubtful:
        made.part += 1
        key = shape.cls, made.name
    made.unread = before.certain.get(key) is not None
    return made


@dataclass(frozen=True)
class Call:
    """What is asked of the gateway: ``value`` is put; ``set`` and ``remove`` are an update's,
    ``path`` and ``item`` an append's, ``paths`` those of a read of entries. ``line`` is as in a
    history."""

    act: Act
    value: Record | None = None
    set: Mapping[str, Value] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    path: str = ""
    item: Value = None
    paths: tuple[str, ...] = ()
    line: int | None = None

    def after(self, place: Place) -> Record | None:
        """What the place holds once it is carried out. Raises Refused where it does not fit."""
        match self.act:
            case Act.PUT:
                return self.value
            case Act.DELETE:
                return None
            case Act.UPDATE if place.value is not None:
                return updated(place.value, self.set, self.remove, place.name)
            case Act.APPEND if place.value is not None:
                return appended(place.value, self.path, self.item, place.name)
        return place.value

    def finds(self, place: Place, after: Record | None) -> State | None:
        """What a history is to have of the key: what is there then, or what a read has to find."""
        if self.act is Act.ENTRIES:
            return place.shape.part(place.value, self.paths)
        return place.state if self.act in READS else place.shape.state(after)

    def send(self, gateway: Gateway, id: Value) -> Record | None:
        """Make the call; what a read found. Raises as the gateway does."""
        match self.act:
            case Act.GET:
                found = gateway.get(id)
                return None if found is None else found.value
            case Act.ENTRIES:
                return gateway.get_entries(id, self.paths)
            case Act.DELETE:
                gateway.delete(id)
            case Act.UPDATE:
                gateway.update(id, self.set, remove=self.remove)
            case Act.APPEND:
                gateway.append(id, self.path, self.item)
            case Act.PUT:
                gateway.put(id, self.value or {})
        return None

    def saw(self, place: Place, found: Record | None) -> State | None:
        """What a read found, as a history has it."""
        if self.act is Act.ENTRIES:
            return None if found is None else place.shape.part_state(found)
        return place.shape.state(found) if self.act is Act.GET else None


class Traffic(Protocol):
    """What a writer is to do. So many seconds by which it is ``late`` it may make up for."""

    late: float

    def next(self) -> tuple[float, Place]:
        """The place of the next call, and how many seconds after the one before it is due."""

    def calls(self, place: Place, turn: Turn) -> Iterator[Call | Left]:
        """The calls for it, each made before the next is asked for."""

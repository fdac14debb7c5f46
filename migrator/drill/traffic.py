"""A writer of a drill: a process that calls the gateway, and notes each call before and after.

What it notes is with the system when a call is made, so it outlives a SIGKILL of the process.
Moments are of the machine's monotonic clock, which all processes of a drill share.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import FrameType

import msgspec

from migrator.drill.history import (
    Act,
    Denied,
    Entry,
    Key,
    Known,
    State,
    Told,
    Tried,
    Unsure,
    read_lines,
)
from migrator.drill.making import Shape
from migrator.errors import MigratorError, Transient
from migrator.gateway import Gateway, Terms
from migrator.gateway.changes import appended, updated
from migrator.model.value import Record

LONGEST_LIST = 20


@dataclass(frozen=True)
class Orders:
    """What a writer has to know. ``pause`` is the time from one call to the next, in seconds."""

    config: Path
    env: str
    revision: str
    folder: Path
    writer: int
    shapes: tuple[Shape, ...]
    mix: Mapping[Act, float]
    keys: int
    pause: float
    skew: float
    seed: int
    terms: Terms


def histories(folder: Path, writer: int | None = None) -> list[Path]:
    """The files of a drill, or of one writer: in the order in which its processes ran."""
    of = "*" if writer is None else str(writer)
    return sorted(folder.glob(f"writer-{of}.*.jsonl"), key=lambda p: [*map(int, _numbers(p))])


def _numbers(path: Path) -> list[str]:
    return path.name.removeprefix("writer-").removesuffix(".jsonl").split(".")


def known(folder: Path, writer: int | None = None) -> Known:
    """What the histories of a drill, or of one writer, say."""
    found = Known()
    for path in histories(folder, writer):
        found.take(read_lines(path.read_bytes()))
    return found


def write(orders: Orders) -> None:
    """Be a writer until SIGTERM, or until who started it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is for the drill
    writer = _Writer(orders)
    signal.signal(signal.SIGTERM, writer.stop)
    writer.run()


@dataclass
class _Place:
    """A place among the keys of a writer: the key that stands there, and what it holds."""

    shape: Shape
    number: int
    part: int = 0
    value: Record | None = None
    unread: bool = False

    def name(self, writer: int) -> str:
        return f"{writer}.{self.number}.{self.part}"


class _Writer:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._stopped = False
        self._parent = os.getppid()
        before = known(orders.folder, orders.writer)
        self._turn = sum(tally.acknowledged + tally.refused + tally.unknown
                         for tally in before.done.values())  # fmt: skip
        part = len(histories(orders.folder, orders.writer))
        self._chosen = random.Random(f"{orders.seed} {orders.writer} {part}")  # noqa: S311
        shapes = orders.shapes
        self._places = [
            _placed(_Place(shapes[n % len(shapes)], n), before, orders.writer)
            for n in range(orders.keys)
        ]
        # The most wanted keys are other ones in each process.
        self._chosen.shuffle(self._places)
        self._weights = list(
            accumulate(1 / rank**orders.skew for rank in range(1, orders.keys + 1))
        )
        self._file = os.open(
            orders.folder / f"writer-{orders.writer}.{part}.jsonl",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600,
        )  # fmt: skip

    def stop(self, _: int, __: FrameType | None) -> None:
        self._stopped = True

    def run(self) -> None:
        orders = self._orders
        with ExitStack() as stack:
            gateways = {
                shape.cls: stack.enter_context(
                    Gateway.open(
                        shape.cls, orders.config, orders.env, revision=orders.revision,
                        shape="source", terms=orders.terms,
                    )
                )
                for shape in orders.shapes
            }  # fmt: skip
            due = time.monotonic()
            while not self._stopped and os.getppid() == self._parent:
                place = self._chosen.choices(self._places, cum_weights=self._weights)[0]
                self._call(gateways[place.shape.cls], place)
                # Time lost to a pause is not made up for: there would be a burst after it.
                due = max(due + orders.pause, time.monotonic() - orders.pause)
                with suppress(InterruptedError):
                    time.sleep(max(0.0, due - time.monotonic()))

    def _note(self, entry: Entry) -> None:
        os.write(self._file, msgspec.json.encode(entry) + b"\n")

    def _act(self, place: _Place) -> Act:
        if place.unread:
            return Act.GET  # what it held before this process began
        mix = self._orders.mix
        act = self._chosen.choices(list(mix), list(mix.values()))[0]
        if place.value is None and act is not Act.GET:
            return Act.PUT
        if act is Act.APPEND:
            there = (place.value or {}).get(place.shape.items)
            if not place.shape.items or not isinstance(there, list) or len(there) >= LONGEST_LIST:
                return Act.PUT
        return act

    def _call(self, gateway: Gateway, place: _Place) -> None:
        self._turn += 1
        shape, name = place.shape, place.name(self._orders.writer)
        act = self._act(place)
        mark = self._turn * 100 + self._orders.writer
        value, item = place.value, None
        match act:
            case Act.PUT:
                value = shape.value(name, self._turn, mark)
            case Act.UPDATE if value is not None:
                new = shape.value(name, self._turn, mark)[shape.mark]
                value = updated(value, {shape.mark_path: new}, (), name)
            case Act.APPEND if value is not None:
                item = shape.element(value, mark)
                value = appended(value, shape.items_path, item, name)
            case Act.DELETE:
                value = None
        number, id = self._turn, shape.maker.id(name)
        then = place_state(place) if act is Act.GET else shape.state(value)
        self._note(Tried(number, time.monotonic(), act, shape.cls, name, then))
        saw: State | None = None
        try:
            match act:
                case Act.GET:
                    found = gateway.get(id)
                    saw = shape.state(None if found is None else found.value)
                    if place.unread:
                        value = None if found is None else found.value
                        place.unread = False
                case Act.DELETE:
                    gateway.delete(id)
                case Act.UPDATE if value is not None:
                    gateway.update(id, {shape.mark_path: value[shape.mark]})
                case Act.APPEND:
                    gateway.append(id, shape.items_path, item)
                case _:
                    gateway.put(id, value or {})
        except MigratorError as error:
            why = f"{type(error).__name__}: {error.what}"
            if act is not Act.GET and isinstance(error, Transient) and error.unknown:
                self._note(Unsure(number, time.monotonic(), why))
                place.part, place.value = place.part + 1, None
            else:
                self._note(Denied(number, time.monotonic(), why))
            return
        self._note(Told(number, time.monotonic(), saw))
        place.value = value


def place_state(place: _Place) -> State | None:
    """What a place is known to hold; nothing where that was not read yet."""
    return None if place.unread else place.shape.state(place.value)


def _placed(place: _Place, before: Known, writer: int) -> _Place:
    """A place as the processes before left it: past every key whose outcome is unknown."""
    key: Key = place.shape.cls, place.name(writer)
    while key in before.doubtful:
        place.part += 1
        key = place.shape.cls, place.name(writer)
    place.unread = before.certain.get(key) is not None
    return place

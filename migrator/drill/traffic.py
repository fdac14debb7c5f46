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
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from migrator.drill.calls import Call, Place, Traffic
from migrator.drill.calls import place as placed
from migrator.drill.generated import Generated
from migrator.drill.history import (
    READS,
    Act,
    Denied,
    Entry,
    Known,
    Left,
    Told,
    Tried,
    Unsure,
    read_lines,
)
from migrator.drill.making import Shape
from migrator.drill.replayed import Replayed
from migrator.errors import MigratorError, Refused, Transient
from migrator.gateway import Gateway, Terms

_LOOK = 0.25


@dataclass(frozen=True)
class Orders:
    """What a writer has to know. ``pause`` is the time from one call to the next, in seconds;
    ``replay`` is the file of what it is to replay instead."""

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
    replay: Path | None = None


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


class _Writer:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._stopped = False
        self._parent = os.getppid()
        before = known(orders.folder, orders.writer)
        self._turn = sum(tally.acknowledged + tally.refused + tally.unknown
                         for tally in before.done.values())  # fmt: skip
        part = len(histories(orders.folder, orders.writer))
        self._traffic = _traffic(orders, part, before)
        self._file = os.open(
            orders.folder / f"writer-{orders.writer}.{part}.jsonl",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600,
        )  # fmt: skip

    def stop(self, _: int, __: FrameType | None) -> None:
        self._stopped = True

    def run(self) -> None:
        orders, traffic = self._orders, self._traffic
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
            while True:
                after, place = traffic.next()
                due = max(due + after, time.monotonic() - traffic.late)
                if not self._wait(due):
                    return
                gateway = gateways[place.shape.cls]
                for call in traffic.calls(place, lambda: self._turn + 1):
                    if isinstance(call, Left):
                        self._note(call)
                    else:
                        self._call(gateway, place, call)

    def _wait(self, due: float) -> bool:
        """Wait until a call is due; false where none is to be made any more."""
        while not self._stopped and os.getppid() == self._parent:
            left = due - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(left, _LOOK))
        return False

    def _note(self, entry: Entry) -> None:
        os.write(self._file, msgspec.json.encode(entry) + b"\n")

    def _call(self, gateway: Gateway, place: Place, call: Call) -> None:
        shape, act = place.shape, call.act
        try:
            value = call.after(place)
        except Refused as error:
            if call.line is None:
                raise
            self._note(Left(call.line, error.what))
            return
        self._turn += 1
        number, id = self._turn, shape.maker.id(place.name)
        then = call.finds(place, value)
        now = time.monotonic()
        self._note(Tried(number, now, act, shape.cls, place.name, then, call.line))
        try:
            found = call.send(gateway, id)
        except MigratorError as error:
            why = f"{type(error).__name__}: {error.what}"
            if act not in READS and isinstance(error, Transient) and error.unknown:
                self._note(Unsure(number, time.monotonic(), why))
                place.part, place.value = place.part + 1, None
            else:
                self._note(Denied(number, time.monotonic(), why))
            return
        self._note(Told(number, time.monotonic(), call.saw(place, found)))
        if act is Act.GET and place.unread:
            value, place.unread = found, False
        place.value = value


def _traffic(orders: Orders, part: int, before: Known) -> Traffic:
    """What a writer's process is to do, being its ``part``-th."""
    if orders.replay is not None:
        return Replayed(orders.replay, orders.shapes, orders.writer, before)
    shapes = orders.shapes
    places = [placed(shapes[n % len(shapes)], orders.writer, n, before) for n in range(orders.keys)]
    chosen = random.Random(f"{orders.seed} {orders.writer} {part}")  # noqa: S311
    return Generated(places, orders.mix, orders.pause, orders.skew, chosen)

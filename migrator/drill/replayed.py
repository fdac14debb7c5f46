"""Traffic that is replayed: the lines of a recording, under keys of the drill's own.

Each line is one call, in the order of its key. Whatever it writes carries a mark, by which the
history tells one write from another. Where a recording says nothing of values, they are made like
those that lie there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.drill.calls import Call, Place, Turn
from migrator.drill.calls import place as placed
from migrator.drill.history import Act, Known, Left
from migrator.drill.making import Shape
from migrator.model import recorded
from migrator.model.path import format_path, parse_path
from migrator.model.recorded import Line, read_line
from migrator.model.value import Value

LATE = 0.05
MOST_ITEMS = 10_000
"""How long a list is made at most, however long it was recorded."""


@dataclass(frozen=True)
class Due:
    """A line of one writer's, how many seconds after the one before it is due, and the number of
    the place that its key stands at."""

    after: float
    place: int
    text: bytes


def due_bytes(due: Due) -> bytes:
    """A line as the file of one writer holds it, its end included."""
    return b"%.6f %d %s\n" % (due.after, due.place, due.text)


def read_due(text: bytes) -> Due:
    """The line behind it."""
    after, number, line = text.split(b" ", 2)
    return Due(float(after), int(number), line)


class Replayed:
    """The lines of one writer, from where the processes before it ended; then from the start."""

    def __init__(self, file: Path, shapes: Sequence[Shape], writer: int, before: Known) -> None:
        self.late = LATE
        self._lines = [read_due(line) for line in file.read_bytes().splitlines()]
        self._shapes = {shape.cls: shape for shape in shapes}
        self._writer = writer
        self._before = before
        self._places: dict[int, Place] = {}
        self._at = before.line
        self._first = True
        self._line: Line | None = None

    def next(self) -> tuple[float, Place]:
        due = self._lines[self._at % len(self._lines)]
        self._at += 1
        # The first call of a process is made at once, so that it is seen to be at work.
        after = 0.0 if self._first else due.after
        line = self._line = read_line(due.text)
        if due.place not in self._places:
            shape = self._shapes[line.cls]
            self._places[due.place] = placed(shape, self._writer, due.place, self._before)
        return after, self._places[due.place]

    def calls(self, place: Place, turn: Turn) -> Iterator[Call | Left]:
        for call in self._made(place, turn):
            self._first = self._first and isinstance(call, Left)
            yield call

    def _made(self, place: Place, turn: Turn) -> Iterator[Call | Left]:
        line, at = self._line, self._at
        assert line is not None
        if place.unread:
            yield Call(Act.GET)
            if place.unread:
                yield Left(at, "what its key holds could not be read after a writer was killed")
                return
        if place.value is None and _needs_one(line):
            # It was there when the recording began, or somebody else put it.
            number = turn()
            made = place.shape.value(place.name, number, number * 100 + place.writer)
            yield Call(Act.PUT, made, line=0)
            if place.value is None:
                yield Left(at, "what it changes or reads could not be put first")
                return
        yield self._call(line, place, turn(), at)

    def _call(self, line: Line, place: Place, number: int, at: int) -> Call | Left:
        mark = number * 100 + place.writer
        match line:
            case recorded.Put():
                return Call(Act.PUT, _whole(line, place, number, mark), line=at)
            case recorded.Update():
                set_, remove = _changed(line, place, number, mark)
                return Call(Act.UPDATE, set=set_, remove=remove, line=at)
            case recorded.Append():
                return _appended(line, place, mark, at)
            case recorded.Delete():
                return Call(Act.DELETE, line=at)
            case recorded.GetEntries(paths=paths):
                return Call(Act.ENTRIES, paths=paths, line=at)
        return Call(Act.GET, line=at)


def _needs_one(line: Line) -> bool:
    match line:
        case recorded.Get(found=found) | recorded.GetEntries(found=found):
            return found
        case recorded.Update() | recorded.Append():
            return True
    return False


def _whole(line: recorded.Put, place: Place, number: int, mark: int) -> dict[str, Value]:
    shape, name = place.shape, place.name
    if line.value is not None:
        return shape.own(line.value, name, mark)
    sample = number if line.size is None else shape.nearest(line.size)
    value = shape.value(name, sample, mark)
    wanted = line.lists.get(shape.items) if shape.items else None
    there = value.get(shape.items)
    if wanted is None or not isinstance(there, list):
        return value
    wanted = min(wanted, MOST_ITEMS)
    value[shape.items] = items = there[:wanted]
    while len(items) < wanted:
        items.append(shape.element(value, mark))
    return value


def _changed(
    line: recorded.Update, place: Place, number: int, mark: int
) -> tuple[Mapping[str, Value], tuple[str, ...]]:
    """What an update sets and removes: never the key, and always the mark."""
    shape = place.shape
    like = shape.value(place.name, number, mark)
    own = {*shape.key_fields, shape.mark}
    if not recorded.kept(line):
        fields = [str(parse_path(path)[0]) for path in line.paths]
        set_ = {
            format_path((field,)): like[field]
            for field in fields if field in like and field not in own
        }  # fmt: skip
        return {**set_, shape.mark_path: like[shape.mark]}, ()
    set_ = {path: item for path, item in (line.set or {}).items() if parse_path(path)[0] not in own}
    remove = tuple(path for path in line.remove if parse_path(path)[0] not in own)
    return {**set_, shape.mark_path: like[shape.mark]}, remove


def _appended(line: recorded.Append, place: Place, mark: int, at: int) -> Call | Left:
    shape = place.shape
    for name, there in (place.value or {}).items():
        if isinstance(there, list) and len(there) >= MOST_ITEMS:
            return Left(at, f"its list {name} has {MOST_ITEMS:,} elements already")
    if recorded.kept(line):
        item = line.item
        if line.path == shape.items_path and shape.items:
            item = shape.own_element(item, place.value or {}, mark)
        return Call(Act.APPEND, path=line.path, item=item, line=at)
    if not shape.items:
        return Left(at, f"{shape.cls} has no list here that elements could be made for")
    if not isinstance((place.value or {}).get(shape.items), list):
        return Left(at, f"there is no {shape.items} to append to")
    item = shape.element(place.value or {}, mark)
    return Call(Act.APPEND, path=shape.items_path, item=item, line=at)

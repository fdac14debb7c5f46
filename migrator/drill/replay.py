"""A recording of an application's calls, read whole and shared out to the writers of a drill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from migrator.drill.history import Act, Key
from migrator.drill.making import PLACES
from migrator.drill.replayed import Due, due_bytes
from migrator.errors import Refused
from migrator.model.recorded import kept, read_line

MOST_BYTES = 256_000_000
MOST_LINES = 2_000_000
_HINT = "how a line has to look:  docs/operations.md, Traffic that was recorded"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A line of a recording, and what of it has to be known before it is replayed."""

    at: float
    act: Act
    key: Key
    kept: bool
    text: bytes


@dataclass(frozen=True)
class Recording:
    """The lines of some files, in the order of their moments; ``left_out`` says why others are
    not replayed."""

    files: tuple[str, ...]
    lines: tuple[Recorded, ...]
    left_out: Counter[str]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.lines[-1].at - self.lines[0].at

    @property
    def keys(self) -> Counter[Key]:
        """The keys, and how many lines each has."""
        return Counter(line.key for line in self.lines)

    @property
    def acts(self) -> Counter[Act]:
        """The calls of each kind."""
        return Counter(line.act for line in self.lines)

    @property
    def values(self) -> str:
        """Whether it holds the values that were written: kept, synthetic, or mixed."""
        found = {line.kept for line in self.lines if line.act in (Act.PUT, Act.UPDATE, Act.APPEND)}
        return "mixed" if len(found) > 1 else "kept" if True in found else "synthetic"

    def of(self, classes: Collection[str]) -> Recording:
        """Its lines of some classes. Raises Refused where there are none, or no writes."""
        lines = tuple(line for line in self.lines if line.key[0] in classes)
        others = Counter(line.key[0] for line in self.lines if line.key[0] not in classes)
        told = Counter({f"{cls} is not of this move": n for cls, n in others.items()})
        if all(line.act in (Act.GET, Act.ENTRIES) for line in lines):
            raise Refused(
                f"no write of {' or '.join(classes)} was recorded", where=", ".join(self.files),
                hint="record for longer, or a larger share of the keys",
            )  # fmt: skip
        return replace(self, lines=lines, left_out=self.left_out + told)


def read(files: Sequence[Path]) -> Recording:
    """The recording that some files hold together. Raises Refused, naming file and line, for what
    is none, and for one that is too large."""
    lines: list[Recorded] = []
    left_out: Counter[str] = Counter()
    room = MOST_BYTES
    for file in files:
        try:
            room -= file.stat().st_size
            if room < 0:
                raise _too_large(file, f"{MOST_BYTES // 1_000_000:,} MB")
            data = file.read_bytes()
        except OSError as error:
            raise Refused(f"it can't be read: {error.strerror}", where=str(file)) from None
        texts = data.split(b"\n")
        if whole := texts[-1] == b"":
            texts.pop()
        for number, text in enumerate(texts, 1):
            try:
                line = read_line(text)
            except ValueError as error:
                if not whole and number == len(texts):
                    left_out["its line was cut off at the end of the file"] += 1
                    continue
                raise Refused(f"line {number:,}: {error}", where=str(file), hint=_HINT) from None
            act = Act(str(line.__struct_config__.tag))
            lines.append(Recorded(line.at, act, (line.cls, line.key), kept(line), text.strip()))
        if len(lines) > MOST_LINES:
            raise _too_large(file, f"{MOST_LINES:,} lines")
    if not lines:
        names = ", ".join(map(str, files))
        raise Refused("there is not one call in it", where=names, hint=_HINT)
    lines.sort(key=lambda line: line.at)  # of one moment in the order of the files
    return Recording(tuple(file.name for file in files), tuple(lines), left_out)


def _too_large(file: Path, most: str) -> Refused:
    return Refused(
        f"it is too large: a recording has {most} at most", where=str(file),
        hint="record a smaller share of the keys, or replay one file after another",
    )  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What one writer is to replay, and how many keys it has."""

    lines: tuple[Due, ...]
    keys: int


def share_out(recording: Recording, writers: int, speed: float) -> list[Part]:
    """The parts of at most so many writers: each key has one, and each writer has work.

    Raises Refused where a writer would have more keys than a drill can name.
    """
    places: dict[Key, tuple[int, int]] = {}
    keys = recording.keys
    work = [0] * min(writers, len(keys))
    counts = [0] * len(work)
    for key, lines in keys.most_common():
        writer = min(range(len(work)), key=work.__getitem__)
        places[key] = writer, counts[writer]
        counts[writer] += 1
        work[writer] += lines
    if max(counts) > PLACES:
        raise Refused(
            f"{len(keys):,} keys were recorded, and each of {len(work)} writers can have "
            f"{PLACES:,}",
            where=", ".join(recording.files),
            hint="take more --writers, or record a smaller share of the keys",
        )
    dues: list[list[tuple[float, int, bytes]]] = [[] for _ in work]
    for line in recording.lines:
        writer, place = places[line.key]
        dues[writer].append((line.at, place, line.text))
    return [
        Part(tuple(_due(each, speed)), number)
        for each, number in zip(dues, counts, strict=True)
    ]  # fmt: skip


def _due(lines: Sequence[tuple[float, int, bytes]], speed: float) -> Iterable[Due]:
    yield Due(0.0, *lines[0][1:])
    for before, line in pairwise(lines):
        yield Due((line[0] - before[0]) / speed, *line[1:])


def keep(part: Part, file: Path) -> None:
    """Write what one writer is to replay. It may hold what an application wrote."""
    file.touch(mode=0o600)
    with file.open("wb") as out:
        out.writelines(map(due_bytes, part.lines))

"""Every difference of a plan, streamed into a file beside it: they may be as many as blocks.

The file has a line of JSON for each block that is changed or deleted: the class, and the same
difference that a plan shows of its samples.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from migrator.errors import Failed, Refused
from migrator.model.plan import BlockDiff

Sink: TypeAlias = Callable[[str, BlockDiff], None]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file."""

    cls: str
    difference: BlockDiff


class Differences:
    """Differences on their way into a file, which is there once ``keep`` was called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        self._encoder = msgspec.json.Encoder()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._beside.open("wb")

    def add(self, cls: str, difference: BlockDiff) -> None:
        """Write one down. Raises OSError."""
        self._file.write(self._encoder.encode(Line(cls=cls, difference=difference)) + b"\n")
        self.count += 1

    def keep(self) -> None:
        """Put the file in its place; one without a line is none, nor is an earlier plan's."""
        self._file.close()
        if self.count:
            self._beside.replace(self.path)
        else:
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Leave nothing behind that was not kept."""
        self._file.close()
        self._beside.unlink(missing_ok=True)


def beside(plan: Path) -> Path:
    """Where the differences of a plan lie: ``plans/0002.dev.differences.jsonl``."""
    return plan.with_name(f"{plan.stem}.differences.jsonl")


def forget(plan: Path) -> None:
    """Remove the differences of an earlier plan at this place. Raises Failed."""
    try:
        if beside(plan).is_file():
            beside(plan).unlink()
    except OSError as error:
        raise _failed(beside(plan), error) from None


def _failed(path: Path, error: OSError) -> Failed:
    return Failed(f"the differences can't be written: {error.strerror}", where=str(path))


@contextmanager
def writing(plan: Path) -> Iterator[Differences]:
    """The file beside a plan that is being made. Raises Failed where it can't be written."""
    path = beside(plan)
    try:
        out = Differences(path)
        try:
            yield out
        finally:
            out.close()
    except OSError as error:
        raise Failed(
            f"the differences can't be written: {error.strerror}", where=str(path)
        ) from None


def reading(plan: Path) -> Iterator[Line]:
    """The differences beside a plan, one by one. Raises Refused for a damaged file."""
    path = beside(plan)
    decoder = msgspec.json.Decoder(Line)
    try:
        with path.open("rb") as file:
            for text in file:
                yield decoder.decode(text)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"the differences can't be read: {error}", where=str(path)) from None


__all__ = ["Differences", "Line", "Sink", "beside", "forget", "reading", "writing"]

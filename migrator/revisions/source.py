"""Python text for drafts: calls and lists, on one line where they fit and else one part a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

WIDTH = 100
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True)
class Part:
    """One argument or element: its name or key with what follows it, its text, comments above."""

    what: Piece
    name: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Group:
    """What stands in brackets; ``notes`` are comments below the last part."""

    opening: str
    parts: Sequence[Part]
    closing: str = ")"
    notes: Sequence[str] = field(default=())

    @property
    def noted(self) -> bool:
        return bool(self.notes) or any(
            p.notes or (isinstance(p.what, Group) and p.what.noted) for p in self.parts
        )


Piece: TypeAlias = str | Group


def quoted(text: str) -> str:
    """A text as a Python literal in double quotes, whatever it holds."""
    return '"' + "".join(_ESCAPES.get(c) or _plain(c) for c in text) + '"'


def _plain(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def words(texts: Sequence[str]) -> Piece:
    """One text, or a list of several."""
    if len(texts) == 1:
        return quoted(texts[0])
    return Group("[", [Part(quoted(text)) for text in texts], "]")


def written(piece: Piece, indent: int = 0, used: int = 0) -> str:
    """The text of a piece; ``indent`` are the blanks before its line, ``used`` what stands
    before it there, with the comma that follows."""
    if isinstance(piece, str):
        return piece
    flat = _flat(piece)
    if not piece.noted and indent + used + len(flat) <= WIDTH:
        return flat
    pad = " " * (indent + 4)
    lines = [piece.opening]
    for part in piece.parts:
        lines += [f"{pad}# {note}" for note in part.notes]
        body = written(part.what, indent + 4, len(part.name) + 1)
        lines.append(f"{pad}{part.name}{body},")
    lines += [f"{pad}# {note}" for note in piece.notes]
    return "\n".join([*lines, " " * indent + piece.closing])


def _flat(piece: Piece) -> str:
    if isinstance(piece, str):
        return piece
    inner = ", ".join(part.name + _flat(part.what) for part in piece.parts)
    return f"{piece.opening}{inner}{piece.closing}"

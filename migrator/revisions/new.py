"""New scripts: the next number, after the heads there are, with a draft of the move."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from migrator.errors import Failed, Refused
from migrator.model.move import At
from migrator.model.shape import TableShape
from migrator.revisions.draft import draft_tables, moved_out, repartitioned
from migrator.revisions.graph import Graph
from migrator.revisions.source import quoted

_SCRIPT = Template("""\
$doc

from migrator import $names

revision, down_revision = $revision, $down

$move""")
_PLAIN = "move = ...  # Move(CLASS, source=At(STORE, ...), target=At(STORE, COLLECTION))\n"
_SLUG_LENGTH = 50


@dataclass(frozen=True)
class FromSql:
    """A table to draft from: the store it lies in, its name, and all tables of that store."""

    store: str
    table: str
    shapes: Sequence[TableShape]


@dataclass(frozen=True)
class NewScript:
    """A script that was written."""

    id: str
    down: tuple[str, ...]
    file: Path
    text: str


def new(
    folder: Path,
    graph: Graph,
    message: str,
    *,
    from_sql: FromSql | None = None,
    repartition: str | None = None,
    stores: Sequence[str] = (),
) -> NewScript:
    """Write the next script; it follows all heads.

    ``repartition`` names a class or a collection; ``stores`` are those of the settings. Raises
    Refused for an empty message and for a table or class that is not there, Failed where the
    file can't be written. A file that is there is never overwritten.
    """
    message = " ".join(message.split())
    if not message or not message.isprintable():
        raise Refused("a revision needs a message of printable text")
    if from_sql is not None and repartition is not None:
        raise Refused("a draft is from tables or from a class that was moved, not both")
    id, down = next_id(graph), graph.heads
    names, move = "At, Move", _PLAIN
    if from_sql is not None:
        names, move = "At, Move, tables", _from_sql(from_sql, stores)
    elif repartition is not None:
        cls, at = _find(graph, repartition)
        move = repartitioned(cls, at, f"{at.collection}_{id}")
    text = _SCRIPT.substitute(
        doc=_doc(message), names=names, revision=quoted(id), down=_down(down), move=move
    )
    compile(text, "draft", "exec", dont_inherit=True)
    file = folder / f"{id}_{slug(message)}.py"
    _write(file, text)
    return NewScript(id, down, file, text)


def next_id(graph: Graph) -> str:
    """The number after the highest one, in four digits or more."""
    numbers = [int(r.id) for r in graph.revisions if r.id.isdecimal()]
    return f"{max(numbers, default=0) + 1:04}"


def slug(message: str) -> str:
    """The words of a message as a part of a file name."""
    text = "_".join(re.findall(r"[a-z0-9]+", message.lower()))
    if len(text) > _SLUG_LENGTH:
        text = text[: _SLUG_LENGTH + 1].rpartition("_")[0] or text[:_SLUG_LENGTH]
    return text or "revision"


def _from_sql(from_sql: FromSql, stores: Sequence[str]) -> str:
    draft = draft_tables(from_sql.table, from_sql.shapes)
    others = [name for name in stores if name != from_sql.store]
    if len(others) == 1:
        return moved_out(draft, from_sql.store, quoted(others[0]))
    return moved_out(draft, from_sql.store, quoted("STORE"), others)


def _find(graph: Graph, name: str) -> tuple[str, At]:
    """The class of a name, or the only class that lies in a collection of that name."""
    places = {cls: graph.locate(cls) for cls in graph.classes()}
    found = [
        (cls, at)
        for cls, at in places.items()
        if at is not None and name in (cls, at.collection, str(at))
    ]
    exact = [pair for pair in found if pair[0] == name] or found
    if len(exact) == 1:
        return exact[0]
    if exact:
        classes = ", ".join(cls for cls, _ in exact)
        raise Refused(f"several classes lie at {name}: {classes}", hint="name the class")
    known = ", ".join(f"{cls} at {at}" for cls, at in places.items()) or "none yet"
    raise Refused(
        f"no revision has moved a class or to a collection named {name!r}", hint=f"known: {known}"
    )


def _doc(message: str) -> str:
    text = message.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    text = text if text.endswith((".", "!", "?")) else text + "."
    return f'"""{text}"""'


def _down(heads: Sequence[str]) -> str:
    if not heads:
        return "None"
    if len(heads) == 1:
        return quoted(heads[0])
    return "(" + ", ".join(map(quoted, heads)) + ")"


def _write(file: Path, text: str) -> None:
    made = False
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            made = True
            out.write(text)
    except OSError as error:
        if isinstance(error, FileExistsError) and file.exists():
            raise Refused("the file is there already", where=str(file)) from None
        if made:  # half a script would stop all the others from loading
            file.unlink(missing_ok=True)
        raise Failed(f"it can't be written: {error.strerror}", where=str(file)) from None

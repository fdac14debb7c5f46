"""One migration script: read, run and checked, before alembic sees it.

The source is compiled here and not imported, so that nothing is written beside the scripts and
no two projects share a module. What a script declares is found at a line, for the errors.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from migrator.errors import MigratorError, Refused
from migrator.model.move import Move
from migrator.revisions.declared import check_move
from migrator.revisions.helpers import text_digest

_ID = re.compile(r"[A-Za-z0-9_]+")
# These words stand for revisions on the command line, hence no revision can have them as a name.
_RESERVED = frozenset({"base", "head", "heads", "current"})
_ALEMBIC_ONLY = ("depends_on", "branch_labels")


@dataclass(frozen=True)
class Revision:
    """One versioned migration script and what it declares.

    ``digest`` is the SHA-256 of the source text and of the project's own modules that it imports,
    ``lines`` where its names are set and ``move_lines`` where each move stands.
    """

    id: str
    down: tuple[str, ...]
    message: str
    doc: str
    file: Path
    moves: tuple[Move, ...]
    digest: str
    lines: Mapping[str, int] = field(default_factory=dict, repr=False)
    move_lines: tuple[int, ...] = field(default=(), repr=False)

    def where(self, name: str = "revision") -> str:
        """File and line of what the script declares, for an error."""
        return f"{shown(self.file)}:{self.lines.get(name, 1)}"

    def where_move(self, cls: str) -> str:
        """File and line of the move of a class."""
        for move, line in zip(self.moves, self.move_lines, strict=True):
            if move.cls == cls:
                return f"{shown(self.file)}:{line}"
        return self.where("moves")


def shown(file: Path) -> str:
    """How a script's file is named to people: with its folder, from the project's root."""
    return f"{file.parent.name}/{file.name}"


def find_scripts(folder: Path) -> list[Path]:
    """The script files of a folder, in the order of their names.

    Raises Refused where there is no such folder.
    """
    if not folder.is_dir():
        raise Refused(
            f"there is no folder of migration scripts at {folder}",
            hint="start a project with:  migrator init",
        )
    return sorted(
        file
        for file in folder.glob("*.py")
        if file.is_file() and not file.name.startswith(".") and file.name != "__init__.py"
    )


def load_script(file: Path) -> Revision:
    """Run a script and take what it declares.

    Raises Refused, with file and line, where it does not run or declares something wrong.
    """
    try:
        source = file.read_bytes()
    except OSError as error:
        raise Refused(f"it can't be read: {error.strerror}", where=shown(file)) from None
    tree = _parse(source, file)
    module = _run(tree, source, file)
    lines, move_lines = _lines(tree)
    return _Script(file, text_digest(source, tree), module, lines, move_lines).revision()


def _parse(source: bytes, file: Path) -> ast.Module:
    try:
        return ast.parse(source, str(file))
    except SyntaxError as error:
        where = f"{shown(file)}:{error.lineno or 1}"
        raise Refused(f"syntax error: {error.msg}", where=where) from None
    except ValueError as error:  # a NUL in the source, before Python 3.12
        raise Refused(f"it is no Python source: {error}", where=f"{shown(file)}:1") from None


def _run(tree: ast.Module, source: bytes, file: Path) -> ModuleType:
    name = f"migrator_script_{hashlib.sha256(str(file).encode() + source).hexdigest()}"
    module = ModuleType(name)
    module.__file__ = str(file)
    # Dataclasses in a script look their module up while they are made.
    sys.modules[name] = module
    try:
        exec(compile(tree, str(file), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except MigratorError as error:
        raise Refused(error.what, where=_at(error, file), hint=error.hint) from error
    except (Exception, SystemExit) as error:
        what = f"the script does not run: {type(error).__name__}: {error}".rstrip(": ")
        raise Refused(what, where=_at(error, file)) from error
    finally:
        del sys.modules[name]
    return module


def _at(error: BaseException, file: Path) -> str:
    line = 1
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{shown(file)}:{line}"


def _lines(tree: ast.Module) -> tuple[dict[str, int], tuple[int, ...]]:
    """Where the script's top-level names are set, and where each of its moves begins."""
    lines: dict[str, int] = {}
    moves: tuple[int, ...] = ()
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            targets: list[ast.expr] = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        else:
            continue
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    lines[name.id] = node.lineno
                    if name.id == "moves" and isinstance(node.value, ast.List | ast.Tuple):
                        moves = tuple(item.lineno for item in node.value.elts)
    return lines, moves


@dataclass
class _Script:
    """A script that has run, on its way to a Revision."""

    file: Path
    digest: str
    module: ModuleType
    lines: Mapping[str, int]
    move_lines: tuple[int, ...]

    def revision(self) -> Revision:
        for name in _ALEMBIC_ONLY:
            if hasattr(self.module, name):
                raise self.refuse(name, f"{name} is not known here", "use down_revision alone")
        moves = self.moves()
        lines = self.move_lines
        if len(lines) != len(moves):
            lines = (self.lines.get("moves", self.lines.get("move", 1)),) * len(moves)
        doc = (self.module.__doc__ or "").strip()
        found = Revision(
            self.id(),
            self.down(),
            doc.partition("\n")[0],
            doc,
            self.file,
            moves,
            self.digest,
            self.lines,
            lines,
        )
        self.check(found)
        return found

    def id(self) -> str:
        given = getattr(self.module, "revision", None)
        if given is None:
            raise self.refuse("revision", "no revision is named", 'write  revision = "0001"')
        if not isinstance(given, str):
            raise self.refuse("revision", f"revision is {_kind(given)}, it must be text")
        if not _ID.fullmatch(given) or given.lower() in _RESERVED:
            raise self.refuse(
                "revision",
                f"{given!r} can't name a revision",
                f"use letters, digits and _, and none of the words {', '.join(sorted(_RESERVED))}",
            )
        return given

    def down(self) -> tuple[str, ...]:
        name = "down_revision"
        if not hasattr(self.module, name):
            raise self.refuse(name, "no down_revision is named", "the first one has  None")
        given = self.module.down_revision
        parents = (given,) if isinstance(given, str) else (() if given is None else given)
        if not isinstance(parents, list | tuple) or not all(isinstance(p, str) for p in parents):
            raise self.refuse(
                name, f"down_revision is {_kind(given)}, it must be None, text or several texts"
            )
        if len(set(parents)) != len(parents):
            raise self.refuse(name, "down_revision names a revision twice")
        return tuple(parents)

    def moves(self) -> tuple[Move, ...]:
        single, several = getattr(self.module, "move", None), getattr(self.module, "moves", None)
        if single is not None and several is not None:
            raise self.refuse("moves", "both move and moves are there", "keep one of them")
        if single is None and several is None:
            raise self.refuse("moves", "no move is declared", "write  move = Move(...)")
        name = "move" if several is None else "moves"
        found = (single,) if several is None else several
        if found == (...,) or found is ...:
            raise self.refuse(name, f"{name} is still to be written", "write  move = Move(...)")
        if not isinstance(found, list | tuple):
            raise self.refuse(name, f"moves is {_kind(found)}, it must be a list of Move(...)")
        if not found:
            raise self.refuse(name, "moves is empty: a revision moves something")
        for item in found:
            if not isinstance(item, Move):
                raise self.refuse(name, f"{name} holds {_kind(item)}, it must be Move(...)")
        return tuple(found)

    def check(self, revision: Revision) -> None:
        seen: set[str] = set()
        for move, line in zip(revision.moves, revision.move_lines, strict=True):
            where = f"{shown(self.file)}:{line}"
            check_move(move, where)
            if move.cls in seen:
                raise Refused(
                    f"revision {revision.id} moves {move.cls} twice",
                    where=where,
                    hint="write a second revision for the second move",
                )
            seen.add(move.cls)

    def refuse(self, name: str, what: str, hint: str = "") -> Refused:
        line = self.lines.get(name, self.lines.get("move", 1))
        return Refused(what, where=f"{shown(self.file)}:{line}", hint=hint)


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}" if value is not None else "None"

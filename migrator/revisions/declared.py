"""What can be told of a move from its declaration alone: types, rules and paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from migrator.errors import MigratorError, Refused
from migrator.model.evolution import Evolution, MergeIn, Regrouping
from migrator.model.evolution.regroup import divide
from migrator.model.layouts import splitting
from migrator.model.move import OVERSIZE, At, Layout, Move, Tables
from migrator.model.path import parse_path
from migrator.model.rules import Any_, parse_pattern

_CLASS = re.compile(r"[^\s/:*\[\]\\]+")


def check_move(move: Move, where: str) -> None:
    """Check a move as far as its script alone tells. Raises Refused that begins with ``where``."""

    def refuse(what: str, hint: str = "") -> Refused:
        named = f"move of {move.cls}: " if isinstance(move.cls, str) else ""
        return Refused(f"{named}{what}", where=where, hint=hint)

    if not isinstance(move.cls, str) or not _CLASS.fullmatch(move.cls):
        raise refuse(f"{move.cls!r} is no class name", 'a move looks like  Move("Game", ...)')
    if not isinstance(move.target, At):
        raise refuse("target must be At(...)")
    if move.source is not None and not isinstance(move.source, At):
        raise refuse("source must be At(...), or be left out")
    if move.archive is not None and not isinstance(move.archive, At):
        raise refuse("archive must be At(...), or be left out")
    if move.of is not None and (not isinstance(move.of, str) or not _CLASS.fullmatch(move.of)):
        raise refuse(f"{move.of!r} is no class name", 'of is the class of the source:  of="Game"')
    _check_evolve(move, refuse)
    merges = move.merges
    for at, cls, side in (
        (move.source, move.source_cls, "source"),
        (move.target, move.cls, "target"),
        *([(merges.at, merges.of, "location merged in")] if merges is not None else []),
        (move.archive, move.source_cls, "archive"),
    ):
        if at is not None:
            _check_at(at, side, refuse)
            _quote(lambda at=at, cls=cls: at.rules(cls), refuse)  # type: ignore[misc]
    _check_texts(move, refuse)
    _check_archive(move, refuse)
    if move.source is not None:
        check_ways(move.cls, move.source, move.target, where)


def check_ways(cls: str, source: At, target: At, where: str) -> None:
    """Refuse a move onto itself: finishing it would drop the only copy.

    Two layouts that differ may share a name (an item collection beside items), so whether they
    meet physically is for the plan to find.
    """
    same = (source.store, source.collection) == (target.store, target.collection)
    if same and (None in (source.layout, target.layout) or source.layout == target.layout):
        raise Refused(
            f"move of {cls}: source and target are the same collection, {target}",
            where=where,
            hint="give the target a name of its own",
        )


def check_stores(moves: Collection[Move], known: Collection[str], where: str) -> None:
    """Refuse a store that the settings do not name."""
    for move in moves:
        for at in (*move.reads().values(), *move.writes()):
            for store in _stores_of(at):
                if store not in known:
                    raise Refused(
                        f"move of {move.cls}: {store!r} is no store of the settings",
                        where=where,
                        hint=f"known: {', '.join(sorted(known)) or 'none'}",
                    )


def all_tables(tables: Tables) -> Iterator[Tables]:
    """A table and all below it."""
    yield tables
    for below in tables.children.values():
        yield from all_tables(below)


def _stores_of(at: At) -> Iterator[str]:
    yield at.store
    if at.tables is not None:
        for table in all_tables(at.tables):
            if table.like is not None:
                yield table.like


def _check_at(at: At, side: str, refuse: Callable[..., Refused]) -> None:
    if not isinstance(at.store, str) or not at.store:
        raise refuse(f"the store of the {side} must be a name")
    if not isinstance(at.collection, str) or not at.collection:
        raise refuse(f"the collection of the {side} must be a name or tables(...)")
    rules = at.representation
    if not all(isinstance(rule, str) for rule in rules):
        raise refuse(f"the representation of the {side} must be a list of rules")
    if len(rules) > 1 and all(len(rule) == 1 for rule in rules):
        # A text is a sequence too: of its letters.
        raise refuse(
            f"the representation of the {side} is a text",
            f'write a list:  representation=["{"".join(rules)}"]',
        )
    if at.layout is not None and not isinstance(at.layout, Layout):
        raise refuse(f"the layout of the {side} must be a name or a layout with options")
    for table in all_tables(at.tables) if at.tables is not None else ():
        if not isinstance(table.table, str) or not table.table:
            raise refuse(f"tables(...) of the {side} needs the name of a table")
        for field, below in table.children.items():
            if not isinstance(below, Tables):
                raise refuse(f"{field} of table {table.table} must be tables(...)")


def _check_texts(move: Move, refuse: Callable[..., Refused]) -> None:
    if not isinstance(move.references, Mapping):
        raise refuse('references must map paths to classes, as  {"firstPlayer": "Player"}')
    for path, cls in move.references.items():
        _check_pattern(path, "references", refuse)
        if not isinstance(cls, str) or not _CLASS.fullmatch(cls.removesuffix(":")):
            raise refuse(f"references: {path} refers to {cls!r}, which is no class name")
    if isinstance(move.sensitive, str) or not isinstance(move.sensitive, Collection):
        raise refuse("sensitive must be a list of paths")
    for path in move.sensitive:
        _check_pattern(path, "sensitive", refuse)
    if move.oversize not in OVERSIZE:
        raise refuse(
            f"oversize is {move.oversize!r}",
            f"it is one of: {', '.join(OVERSIZE)}",
        )
    if move.oversize == "split":
        _check_split(move, refuse)
    if move.tagged not in ("accept", "refuse"):
        if isinstance(move.tagged, str) or not isinstance(move.tagged, Collection):
            raise refuse(
                f"tagged is {move.tagged!r}",
                'it is "accept", "refuse", or a list of the paths where tagged values may travel',
            )
        for path in move.tagged:
            _check_pattern(path, "tagged", refuse)
    if move.identifier is not None:
        if not isinstance(move.identifier, str):
            raise refuse("identifier must be a path")
        try:
            parse_path(move.identifier)
        except ValueError as error:
            raise refuse(f"identifier: {error}") from None


def _check_split(move: Move, refuse: Callable[..., Refused]) -> None:
    """Whether the target's layout has a way to lay large blocks out in parts."""
    layout = move.target.layout
    if layout is None or splitting(layout) is None:
        named = "no layout of it is named" if layout is None else f"it has the layout {layout.name}"
        raise refuse(
            f'oversize="split": {move.target} has no way to split a block; {named}',
            'split goes by DynamoDB\'s layout item:  target=At("dynamo", "Player", layout=item())',
        )


def _check_archive(move: Move, refuse: Callable[..., Refused]) -> None:
    """Whether what is to be archived has a place, and the place something to take."""
    steps = [step for step in move.evolve if isinstance(step, Evolution) and step.archives]
    wants = [f'oversize="{move.oversize}"'] if move.oversize == "archive" else []
    wants += [step.describe() for step in steps]
    if move.archive is None:
        if wants:
            raise refuse(f"{wants[0]}: nothing says where to", "name a place:  archive=At(...)")
        return
    if not wants:
        raise refuse(
            "nothing would go into its archive",
            'say what:  oversize="archive", or Drop(..., archive=True)',
        )
    if move.archive.tables is not None:
        raise refuse("an archive takes blocks of any shape, which tables(...) can't")
    before, regrouping, _ = divide(move.evolve)
    if regrouping is not None and regrouping.gathers:
        raise refuse(
            "what is put together of several blocks can't be archived as they lie",
            "archive in a revision of its own, before this one",
        )
    late = [step for step in steps if step not in before]
    if late:
        raise refuse(
            f"{late[0].describe()}: what is left out of parts can't be archived",
            f"do it before {regrouping.describe()}" if regrouping is not None else "",
        )


def _check_pattern(path: object, what: str, refuse: Callable[..., Refused]) -> None:
    if not isinstance(path, str) or not path:
        raise refuse(f"{what}: {path!r} is no path")
    try:
        deep = Any_.DEEP in parse_pattern(path)
    except ValueError as error:
        raise refuse(f"{what}: {path!r} is no path: {error}") from None
    if deep:
        above = path.removesuffix("**").removesuffix(".") or "*"
        raise refuse(f"{what}: {path!r} is no path: ** can't stand in it", f"write {above!r}")


def _check_evolve(move: Move, refuse: Callable[..., Refused]) -> None:
    if isinstance(move.evolve, str) or not isinstance(move.evolve, list | tuple):
        raise refuse("evolve must be a list of evolutions")
    for step in move.evolve:
        if not isinstance(step, Evolution | Regrouping):
            raise refuse(f"evolve holds {type(step).__name__}, which is no evolution")
        # Some read their paths only when asked.
        _quote(step.describe, refuse)
    _quote(lambda: divide(move.evolve), refuse)
    for step in move.evolve:
        if isinstance(step, MergeIn):
            if not isinstance(step.of, str) or not _CLASS.fullmatch(step.of):
                raise refuse(f"{step.of!r} is no class name", 'MergeIn("rounds", of="Round", ...)')
            if step.at is not None and not isinstance(step.at, At):
                raise refuse("at of MergeIn must be At(...), or be left out")
        elif isinstance(step, Regrouping) and move.source_cls == move.cls:
            raise refuse(
                "what is regrouped becomes another class",
                f'name the class that the source holds:  Move("{move.cls}", of="...", ...)',
            )


def _quote(ask: Callable[[], object], refuse: Callable[..., Refused]) -> None:
    try:
        ask()
    except MigratorError as error:
        raise refuse(error.what, error.hint) from None
    except ValueError as error:
        raise refuse(str(error)) from None

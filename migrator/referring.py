"""References in columns: bare identifiers there, references everywhere else.

A column can't say that its value refers to another aggregate. The location declares it by path;
this wraps a collection of layout ``tables`` so that what it gives are references, and what it
takes may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from migrator.errors import DoesNotFit
from migrator.exchange import Change, Exchanging, made_of
from migrator.model.block import Aggregate, Block, Patch, cut, join
from migrator.model.path import child
from migrator.model.references import DeclaredReferences
from migrator.model.rules import Entries, Representation, general_path
from migrator.model.value import Ref, Value
from migrator.ports import AsTarget, Collection, Inference, Infers, Json, Observer, Page


def referring(collection: Collection) -> Collection:
    """The collection itself, or wrapped where it lies in columns."""
    if collection.at.tables is None:
        return collection
    declared = DeclaredReferences(collection.at.references)
    rules = collection.at.rules(collection.cls)
    return cast("Collection", _Collection(collection, declared, rules))


class _Observer:
    """Gives references where a reader gives bare identifiers."""

    def __init__(
        self, inner: Observer, declared: DeclaredReferences, rules: Representation
    ) -> None:
        self._inner = inner
        self._declared = declared
        self._rules = rules

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return self._referred(self._inner.page(range_, position, limit))

    def _referred(self, page: Page) -> Page:
        page.blocks = [self._refer(block) for block in page.blocks]
        return page

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return [block and self._refer(block) for block in self._inner.read(ids)]

    def _refer(self, block: Block) -> Block:
        if not self._declared.references:
            return block
        return replace(cut(self._declared.forward(join(block)), self._rules), place=block.place)


class _Collection(_Observer):
    """A whole collection; what is not named here is the collection's own."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    _inner: Collection

    @cached_property
    def _exchanging(self) -> Exchanging:
        inner = self._inner
        assert isinstance(inner, Exchanging)
        return inner

    def observer(self) -> Observer:
        return _Observer(self._inner.observer(), self._declared, self._rules)

    def inference(self) -> Inference | None:
        return self._inner.inference() if isinstance(self._inner, Infers) else None

    def target_findings(self, blocks: int, size: int) -> Iterable[tuple[str, str, str]]:
        inner = self._inner
        return inner.target_findings(blocks, size) if isinstance(inner, AsTarget) else ()

    def sample(self, size: int) -> Page:
        return self._referred(self._inner.sample(size))

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        (block,) = self.read([id])
        if block is None:
            return None
        return {path: block.entries[path] for path in paths if path in block.entries}

    def size(self, block: Block) -> int:
        return self._inner.size(self._bare(block))

    def write(self, blocks: Sequence[Block]) -> int:
        return self._inner.write([self._bare(block) for block in blocks])

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        if isinstance(change, Patch):
            change = made_of(held or Block(id, {}), change)  # references are told by the whole
        return self._exchanging.exchange(
            id, held and self._bare(held), change if change is None else self._bare(change)
        )

    def _bare(self, block: Block) -> Block:
        """The block as columns hold it. Raises DoesNotFit for a reference nobody declared."""
        if not self._declared.references and not _refers(block.entries):
            return block
        written = self._declared.backward(join(block))
        found = _first_reference(written.value, "")
        if found is not None:
            path, ref = general_path(found[0]), found[1]
            raise DoesNotFit(
                f"it refers to {ref.cls}, which a column can't tell from a bare identifier",
                key=block.id,
                path=path,
                hint=f'declare it: At(..., references={{"{path}": "{ref.cls}"}})',
            )
        whole = Aggregate(block.id, written.value, block.expires)
        return replace(cut(whole, self._rules), place=block.place)


_SURE = frozenset((str, int, bool, float, type(None)))  # no references, and most of all values


def _refers(value: Value) -> bool:
    """Whether a reference lies in a value."""
    items: Iterable[Value]
    if type(value) is dict:
        items = value.values()
    elif type(value) is list:
        items = value
    else:
        return type(value) is Ref
    return not _SURE.issuperset(map(type, items)) and any(map(_refers, items))


def _first_reference(value: Value, path: str) -> tuple[str, Ref] | None:
    if type(value) is Ref:
        return path, value
    if type(value) is dict:
        parts = [(child(path, name), item) for name, item in value.items()]
    elif type(value) is list:
        parts = [(f"{path}[{i}]", item) for i, item in enumerate(value)]
    else:
        return None
    return next(filter(None, (_first_reference(item, below) for below, item in parts)), None)

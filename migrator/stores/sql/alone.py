"""One aggregate of tables, written alone: in two round trips where the server takes that.

The first begins, holds the root's row, and reads it and the rows below it; the second changes what
differs, and commits. Whatever a server refuses in them is undone and done again statement by
statement, which tells the row that it was about. So it is from the start on SQLite, where a
statement is no round trip, and where rows lie deeper than a level below the root: some of them may
have to be looked for below another parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa

from migrator.model.value import Value
from migrator.stores.sql.amend import Amender
from migrator.stores.sql.changes import changes_of, parents_first
from migrator.stores.sql.errors import ByStep, is_refused
from migrator.stores.sql.rows import Found, Row
from migrator.stores.sql.shape import Node
from migrator.stores.sql.single import One
from migrator.stores.sql.together import BEGIN, Asked, is_able, send
from migrator.stores.sql.unfold import Unfolded
from migrator.stores.sql.upsert import putting

if TYPE_CHECKING:
    from migrator.stores.sql.write import Writer


@dataclass(frozen=True)
class Wanted:
    """What an aggregate is to become: these rows; None for none."""

    rows: Unfolded | None


Decide: TypeAlias = Callable[[list[Found]], Wanted | None]
"""What is made of what was found; None where it stays as it is. It may be asked again."""
Ahead: TypeAlias = Callable[[], object]
"""What can be made before that is known. It is asked for while the server looks, or not at all."""


class Alone:
    """Changes single aggregates of one collection while their root's row is held."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._collection = writer.collection
        self._dialect = writer.dialect
        self._nodes = list(writer.root.walk())

    def change(self, id: Value, decide: Decide, ahead: Ahead | None = None) -> None:
        """Make an aggregate what is decided by what lies there, in one transaction. ``ahead`` is
        given where that is decided by keys alone: then what is found has no records."""
        one, key = self._one, self._collection.encoded_key(id)
        if one is not None and key is not None:
            try:
                self._in_two(one, id, key, decide, ahead)
                return
            except ByStep:
                pass
        self._writer.by_steps(id, decide)

    @cached_property
    def amender(self) -> Amender | None:
        """What changes an aggregate without a look before; None where that does not suit."""
        if self._one is None:
            return None
        amender = Amender(self._collection, self._one)
        return amender if amender.suits() else None

    @cached_property
    def _one(self) -> One | None:
        """What asks for an aggregate at once; None where it goes step by step."""
        deep = any(node.up is not None and node.children for node in self._nodes)
        if deep or not is_able(self._dialect):
            return None
        return self._collection.single

    def _in_two(
        self, one: One, id: Value, key: list[Any], decide: Decide, ahead: Ahead | None
    ) -> None:
        begin: Asked = (BEGIN[self._dialect], None)
        with self._collection.database.sending(self._collection.where) as raw:
            seen: dict[Node, list[Found]] = {node: [] for node in self._nodes}
            told = send(raw, self._dialect, [begin, *one.together(key)], ahead)
            answers = [answer.rows for answer in told[1:]]
            found = self._held(one, answers, seen, records=ahead is None)
            wanted = decide(found or [])
            if wanted is None:
                return
            if found is None and wanted.rows is None:
                if any(answers):  # rows without a root, or one that was made in between
                    raise ByStep
                return
            asked = self._changing(wanted.rows, seen, new=found is None)
            if not asked:
                return
            if found is None and self._dialect == "mysql":
                # What holds the place of a row that is not there keeps others from making theirs.
                asked = [("ROLLBACK", None), begin, *asked]
            doubtful = [] if wanted.rows is None else list(wanted.rows.doubtful.values())
            commit: Asked = ("COMMIT", None)
            try:
                send(raw, self._dialect, asked if doubtful else [*asked, commit])
            except Exception as error:
                if is_refused(error):
                    raise ByStep from error
                raise
            if doubtful:
                self._writer.compare(doubtful, self._collection.in_order(one.read(raw, key), [id]))
                send(raw, self._dialect, [commit])

    def _held(
        self,
        one: One,
        answers: Sequence[Sequence[Row]],
        seen: dict[Node, list[Found]],
        *,
        records: bool,
    ) -> list[Found] | None:
        """What lies under a key, the root's row held; None where there is none."""
        return one.of(answers, seen) if records else one.rows_of(answers, seen)

    def _changing(
        self, rows: Unfolded | None, held: dict[Node, list[Found]], *, new: bool
    ) -> list[Asked]:
        """What is deleted, children first, and what is put, parents first."""
        changes = {
            node: changes_of(node, rows.rows[node] if rows else [], held[node])
            for node in self._nodes
        }
        asked = []
        for node in reversed(self._nodes):
            if changes[node].gone:
                asked += self._deleting(node, changes[node].gone)
        engine = self._collection.database.engine
        for node in self._nodes:
            fresh, changed = parents_first(node, changes[node].fresh), changes[node].changed
            asked += putting(engine, node, fresh, changed, new=new and node.up is None)
        return asked

    def _deleting(self, node: Node, gone: list[list[Any]]) -> list[Asked]:
        made = []
        for condition in self._writer.keys_of(node, gone):
            text = sa.delete(node.table).where(condition).compile(
                dialect=self._collection.database.engine.dialect,
                compile_kwargs={"render_postcompile": True},
            )  # fmt: skip
            made.append((str(text), dict(text.params)))
        return made

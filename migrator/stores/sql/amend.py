"""Fields of a root's row, or one row more below it, written where they lie: in one round trip.

Nothing is read before. The statement itself asks for what has to be so: that there is a root of
this very key, and that the new row comes behind all others of its list. Where it changes no row, or
a server refuses it, or more has to be looked at, nothing is done here; ``Writer`` finds out why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from migrator.errors import DoesNotFit
from migrator.model.block import Block
from migrator.model.value import Ref, Value
from migrator.stores.sql.columns import Codec, server_cast
from migrator.stores.sql.errors import ByStep, is_refused
from migrator.stores.sql.shape import Node
from migrator.stores.sql.single import One, given_key, own_order
from migrator.stores.sql.together import Answer, Asked, send, whole
from migrator.stores.sql.unfit import Unfit
from migrator.stores.sql.unfold import row_below
from migrator.stores.sql.upsert import length

if TYPE_CHECKING:
    from migrator.stores.sql.tables import TablesCollection

_ONE: sa.ColumnElement[int] = sa.literal_column("1")
_LARGE = 100_000
_KEPT = 100  # texts, of as many lists of fields


class Amender:
    """Carries such changes out, for one collection."""

    def __init__(self, collection: TablesCollection, one: One) -> None:
        self._collection = collection
        self._dialect = collection.database.dialect
        self._one = one
        # Elsewhere a second lock, which asks for more than the change, is no other.
        self._returns = self._dialect == "postgresql"
        self._root = root = collection.root
        linked = {name for node in root.children for name in node.refs}
        fixed = {root.position, *root.key, *root.apart, *linked}
        self._fields = {codec.name: codec for codec in root.codecs if codec.name not in fixed}
        self._lists = {node.name: node for node in root.children if not node.spec.one}
        self._updates: dict[tuple[str, ...], str] = {}
        self._inserts: dict[Node, str | None] = {}

    def suits(self) -> bool:
        """Whether a condition tells the root's key exactly, and what is read after the change is
        sure to be whole."""
        texts = self._dialect == "mysql"  # that are told apart by their bytes
        exact = all(codec.family or (texts and _is_text(codec)) for codec in _key(self._root))
        return exact and len(self._lists) == len(self._root.children)

    def amend(
        self, id: Value, set_: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        """The block after a change; None where nothing was done."""
        key = self._collection.encoded_key(id)
        try:
            if key is None:
                return None
            if append:
                return self._added(id, key, append) if len(append) == 1 and not set_ else None
            return self._updated(id, key, set_)
        except (Unfit, DoesNotFit, ByStep):
            return None

    def _updated(self, id: Value, key: list[Any], set_: Mapping[str, Value]) -> Block | None:
        if not set_ or not set_.keys() <= self._fields.keys():
            return None
        if any(value is None or type(value) is Ref for value in set_.values()):
            return None  # what becomes of it is told by the shape
        names = tuple(set_)
        text = self._updates.get(names)
        if text is None:
            if len(self._updates) == _KEPT:
                self._updates.clear()
            text = self._updates[names] = self._update(names)
        given = [self._fields[name].encode(value) for name, value in set_.items()]
        # The row is held by its change, so what is read behind that is of one moment.
        root, *below = self._one.together(key)
        asked = [self._asked(text, key, given), *([] if self._returns else [root]), *below]
        changed, *answers = self._sent(asked)
        return self._told(id, changed, [changed, *answers] if self._returns else answers)

    def _added(self, id: Value, key: list[Any], append: Mapping[str, Value]) -> Block | None:
        ((name, item),) = append.items()
        node = self._lists.get(name)
        if node is None:
            return None
        if node not in self._inserts:
            self._inserts[node] = self._insert(node)
        text = self._inserts[node]
        if text is None:
            return None
        row = row_below(self._root, node, id, item, self._collection.where)
        root, *below = self._one.together(key)
        held, changed, *answers = self._sent([root, self._asked(text, key, row.raw), *below])
        return self._told(id, changed, [held, *answers])

    def _asked(self, text: str, key: Sequence[Any], given: Sequence[Any]) -> Asked:
        if self._dialect == "mysql" and length(given) > _LARGE:
            raise ByStep  # perhaps too long for a statement, which the other way tells
        bound = {f"given{i}": raw for i, raw in enumerate(given)}
        return text, bound | {f"key{i}": part for i, part in enumerate(key)}

    def _sent(self, asked: Sequence[Asked]) -> list[Answer]:
        """Carry all of it out in one transaction."""
        with self._collection.database.sending(self._collection.where) as raw:
            try:
                answers = send(raw, self._dialect, whole(self._dialect, asked))
            except Exception as error:
                if is_refused(error):
                    raise ByStep from error
                raise
        return answers[1:-1] if self._dialect == "mysql" else answers

    def _told(self, id: Value, changed: Answer, read: Sequence[Answer]) -> Block | None:
        """The block that was read behind a change; None where that changed nothing."""
        if not changed.number:
            return None
        found = self._one.of([answer.rows for answer in read], None)
        return self._collection.only(found or [], id)

    # ------------------------------------------------------------------ the statements

    def _update(self, names: Sequence[str]) -> str:
        values = {name: self._given(self._fields[name], i) for i, name in enumerate(names)}
        for codec in self._root.codecs:
            # By itself it may become the moment of each change (ON UPDATE).
            if self._dialect == "mysql" and codec.column.base in ("datetime", "timestamp"):
                values.setdefault(codec.name, self._root.table.c[codec.name])
        update = sa.update(self._root.table).where(self._of_root()).values(values)
        if self._returns:
            update = update.returning(*self._one.reader.columns(self._root))
        return self._text(update)

    def _insert(self, node: Node) -> str | None:
        """What adds a row behind all others of its list; None where that is not so plain."""
        order = own_order(node)
        known = set(node.refs) <= set(self._root.key)
        always = any(codec.column.identity == "always" for codec in node.codecs)
        if len(order) != 1 or not known or always:
            return None
        (by,) = node.codecs_of(order)
        if by.family != "int" or by.column.nullable:
            return None
        there = node.table.alias("there")
        links = zip(node.parent, node.refs, strict=True)
        mine = [there.c[name] == given_key(self._root, ref) for name, ref in links]
        values = [self._given(codec, i) for i, codec in enumerate(node.codecs)]
        last, place = sa.func.max(there.c[by.name]), node.at[by.name]
        behind: sa.ColumnElement[bool]
        if node.position is None:
            behind = sa.func.coalesce(last < values[place], sa.true())
        else:  # its place is how many there are, where they are numbered so
            values[place] = sa.func.count()
            behind = sa.func.coalesce(last + _ONE, sa.literal_column("0")) == values[place]
        root = sa.exists(sa.select(_ONE).where(self._of_root()))
        rows = sa.select(*values).select_from(there).where(*mine).having(sa.and_(behind, root))
        names = [codec.name for codec in node.codecs]
        return self._text(sa.insert(node.table).from_select(names, rows))

    def _of_root(self) -> sa.ColumnElement[bool]:
        """The root's row of a key, and none that the server merely takes for it."""
        root, parts = self._root, []
        for codec in _key(root):
            column, key = root.table.c[codec.name], given_key(root, codec.name)
            parts.append(column == key)
            if not codec.family:
                parts.append(server_cast(column, "BINARY") == server_cast(key, "BINARY"))
        return sa.and_(*parts)

    def _given(self, codec: Codec, number: int) -> sa.ColumnElement[Any]:
        """What is bound for a column, as ``upsert`` binds it."""
        given: sa.ColumnElement[Any] = sa.bindparam(f"given{number}", type_=sa.types.NullType())
        if self._dialect == "mysql":
            return given
        return server_cast(server_cast(given, "text"), codec.cast or codec.column.type)

    def _text(self, statement: Any) -> str:
        return str(statement.compile(dialect=self._collection.database.engine.dialect))


def _key(root: Node) -> tuple[Codec, ...]:
    return root.codecs_of(root.key)


def _is_text(codec: Codec) -> bool:
    """Whether it is a text of MariaDB or MySQL."""
    return codec.column.base in ("char", "varchar") and codec.column.collation is not None

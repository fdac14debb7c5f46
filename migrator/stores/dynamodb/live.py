"""What a live move needs of DynamoDB: the journal of a table, and which blocks its items are of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from migrator.model.value import Value
from migrator.stores.dynamodb import keys
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.options import SIDE
from migrator.stores.dynamodb.side import Side

if TYPE_CHECKING:
    from migrator.journal import Journal, Note
    from migrator.stores.dynamodb.gathered import GatheredShape
    from migrator.stores.dynamodb.places import Place
    from migrator.stores.dynamodb.streams import Followed
    from migrator.stores.dynamodb.table import Table

_LOOKED_AT = 200
_REMEMBERED = 50_000


class Live:
    """Beside a collection."""

    _table: Table

    def journal(self, name: str) -> Journal:
        """The stream of its table, for a run of this name."""
        from migrator.stores.dynamodb.streams import StreamJournal

        return StreamJournal(self._followed, name)

    def note(self, name: str) -> Note:
        """The note of this name, in the same region of the same account."""
        from migrator.stores.dynamodb.note import DynamoNote

        return DynamoNote(self._table.wire, name, self._table.where)

    @cached_property
    def _followed(self) -> Followed:
        from migrator.stores.dynamodb.streams import Followed

        return Followed(self._table, self._touched())

    def _touched(self) -> Callable[[Item, list[Item]], Iterable[Value]]:
        raise NotImplementedError


def item_keys(hash_name: str) -> Callable[[Item, list[Item]], Iterable[Value]]:
    """The block keys of a touched item of the layout ``item``: as its images say, old and new."""

    def touched(key: Item, images: list[Item]) -> Iterable[Value]:
        tags = [Side.of(image).id for image in images] or [None]
        return [keys.read(key[hash_name], tag) for tag in dict.fromkeys(tags)]

    return touched


class GatheredKeys:
    """The block keys of a touched item of the layout ``item-collection``.

    An item tells the text of its block's identifier; of what kind that is stands on the head.
    Where identifiers of that table are of other kinds than text the head is looked at, once.
    """

    def __init__(self, table: Table, shape: GatheredShape) -> None:
        self._table = table
        self._shape = shape
        self._class: Mapping[str, Any] = {}
        if shape.options.class_attribute is not None:
            # The key alone does not say it: one touch too many does no harm.
            self._class = {shape.options.class_attribute: {"S": shape.cls}}
        self._kinds: bool | None = None
        self._known: dict[Place, Value] = {}

    def __call__(self, key: Item, images: list[Item]) -> Iterable[Value]:
        found = self._shape.places.find({**key, **self._class})
        if found is None:
            return []  # of another class
        tags = [tag for tag in (Side.of(image).id for image in images) if tag is not None]
        ids = [self._shape.places.read_id(found.id, tag) for tag in tags]
        if ids:
            self._kinds = True
            self._known[found.place] = ids[-1]
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
            return ids
        return [self._kind(found.place, found.id)]

    def _kind(self, place: Place, text: str) -> Value:
        """The identifier at a place of which no image says the kind."""
        if self._kinds is None:
            items, _, _ = self._table.scan(None, None, _LOOKED_AT)
            self._kinds = any(Side.of(item).id is not None for item in items)
        if not self._kinds:
            return self._shape.places.read_id(text, None)
        if place not in self._known:
            head = self._shape.places.key(place, place.prefix + self._shape.places.head)
            names = {"#s": SIDE, "#p": self._table.options.key_names[0]}
            item = self._table.get(
                head, ProjectionExpression="#p,#s", ExpressionAttributeNames=names
            )
            tag = None if item is None else Side.of(item).id
            if tag is None:
                return self._shape.places.read_id(text, None)
            self._known[place] = self._shape.places.read_id(text, tag)
        return self._known[place]

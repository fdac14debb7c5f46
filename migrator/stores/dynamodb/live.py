"""What a live move needs of DynamoDB: the journal of a table, and which blocks its items are of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from migrator.model.value import Value
from migrator.stores.dynamodb import keys
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.gathered import NEW, Head
from migrator.stores.dynamodb.options import SIDE
from migrator.stores.dynamodb.side import Side

if TYPE_CHECKING:
    from migrator.journal import Note
    from migrator.stores.dynamodb.gathered import GatheredShape
    from migrator.stores.dynamodb.places import Found, Place
    from migrator.stores.dynamodb.streams import Followed, StreamJournal
    from migrator.stores.dynamodb.table import Table

Keys = Callable[[Item, list[Item]], tuple[Iterable[Value], bool]]
"""From a key and the images of an item to block keys, and whether the block goes with it."""

_LOOKED_AT = 200
_REMEMBERED = 50_000


class Live:
    """Beside a collection."""

    _table: Table

    def journal(self, name: str) -> StreamJournal:
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

    def _touched(self) -> Keys:
        raise NotImplementedError


def item_keys(hash_name: str) -> Keys:
    """The block keys of a touched item of the layout ``item``: as its images say, old and new."""

    def touched(key: Item, images: list[Item]) -> tuple[Iterable[Value], bool]:
        tags = [Side.of(image).id for image in images] or [None]
        return [keys.read(key[hash_name], tag) for tag in dict.fromkeys(tags)], True

    return touched


class GatheredKeys:
    """The block keys of a touched item of the layout ``item-collection``.

    An item tells the text of its block's identifier; of what kind that is stands on the head.
    Where identifiers of that table are of other kinds than text the head is looked at, once; where
    it has gone, the touch is of each identifier that it may have been. A block goes with its
    head: an entry that is removed leaves the rest of it.
    """

    def __init__(self, table: Table, shape: GatheredShape) -> None:
        self._table = table
        self._places = shape.places
        self._class: Mapping[str, Any] = {}
        if shape.options.class_attribute is not None:
            # The key alone does not say it: one touch too many does no harm.
            self._class = {shape.options.class_attribute: {"S": shape.cls}}
        self._tags: set[str] | None = None
        self._known: dict[Place, Value] = {}

    def __call__(self, key: Item, images: list[Item]) -> tuple[Iterable[Value], bool]:
        found = self._places.find({**key, **self._class})
        if found is None:
            return [], False  # of another class
        root = found.path == "" and found.stage is None
        told = [Side.of(image) for image in images] if root else []
        # The head of a block that is new or going says nothing yet, or no more.
        tags = [side.id for side in told if not _is_bare(side)]
        if tags:
            return [self._learned(found, tag) for tag in dict.fromkeys(tags)], root
        return self._ids(found), root

    def _learned(self, found: Found, tag: str | None) -> Value:
        id = self._places.read_id(found.id, tag)
        if tag is not None:
            self._kinds().add(tag)
        self._known[found.place] = id
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return id

    def _kinds(self) -> set[str]:
        """The tags of identifiers that were seen in this table, by a first look too."""
        if self._tags is None:
            items, _, _ = self._table.scan(None, None, _LOOKED_AT)
            self._tags = {tag for item in items if (tag := Side.of(item).id) is not None}
        return self._tags

    def _ids(self, found: Found) -> Iterable[Value]:
        """The identifiers at a place of which no image says the kind."""
        kinds = self._kinds()
        if not kinds:
            return [self._places.read_id(found.id, None)]
        if found.place in self._known:
            return [self._known[found.place]]
        head = self._places.key(found.place, found.place.prefix + self._places.head)
        names = {"#s": SIDE, "#p": self._table.options.key_names[0]}
        item = self._table.get(head, ProjectionExpression="#p,#s", ExpressionAttributeNames=names)
        side = None if item is None else Side.of(item)
        if side is not None and not _is_bare(side):
            return [self._learned(found, side.id)]
        return [self._places.read_id(found.id, tag) for tag in (None, *sorted(kinds))]


def _is_bare(side: Side) -> bool:
    """Whether a head's side is of a block that is being made, or removed."""
    head = Head.of(side)
    return head is not None and head.state == NEW

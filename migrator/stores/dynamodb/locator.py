"""Where blocks lie whose keys use more than the block key: ``ORDER#{date}#{id}``.

A table beside the blocks' own, by the text of the block key, says where a block lies now and
which other places may hold a copy of it: one that is being written, or one it has left. That is
noted before anything moves, so that whoever comes after a crash knows what to clear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from migrator.errors import DoesNotFit
from migrator.model.move import At
from migrator.model.value import Value, show
from migrator.ports import Json
from migrator.stores.dynamodb import keys
from migrator.stores.dynamodb.codec import Av, Item
from migrator.stores.dynamodb.gathered import Seen, encode_json
from migrator.stores.dynamodb.options import ITEM, Attribute, Options
from migrator.stores.dynamodb.places import Place
from migrator.stores.dynamodb.table import Table, put, remove
from migrator.stores.dynamodb.wire import Wire

_KEY = "id"
Batch = Mapping[str, tuple[Place, Mapping[str, Item], Value]]
Delete = Callable[[Place, Value], None]


@dataclass(frozen=True)
class Record:
    """Where a block is, and where copies of it may be."""

    at: Place | None = None
    others: frozenset[Place] = frozenset()

    def item(self, text: str) -> Item:
        item: Item = {_KEY: {"S": text}}
        if self.at is not None:
            item["at"] = _wire(self.at)
        if self.others:
            item["others"] = {"L": [_wire(place) for place in sorted(self.others)]}
        return item

    @classmethod
    def of(cls, item: Item) -> Record:
        at = item.get("at")
        others = item.get("others", {"L": []})["L"]
        return cls(None if at is None else _read(at), frozenset(map(_read, others)))


def _wire(place: Place) -> Av:
    return {"L": [{"S": place.pk}, {"S": place.prefix}]}


def _read(av: Av) -> Place:
    return Place(*(part["S"] for part in av["L"]))


class Locator:
    """The table of the places of one class."""

    def __init__(self, wire: Wire, at: At, cls: str, where: str) -> None:
        name = f"{at.collection}.{cls}.locator"
        self.table = Table(wire, name, Options(ITEM, Attribute(_KEY)), f"{where} (locator)")
        self._there: bool | None = None

    @property
    def there(self) -> bool:
        """Whether there is such a table: a source written by others has none."""
        if not self._there:
            self._there = self.table.describe() is not None
        return self._there

    def _records(self, texts: Sequence[str]) -> dict[str, Record]:
        if not texts or not self.there:
            return {}
        at: list[Item] = [{_KEY: {"S": text}} for text in dict.fromkeys(texts)]
        return {item[_KEY]["S"]: Record.of(item) for item in self.table.get_many(at)}

    def _put(self, records: Mapping[str, Record]) -> None:
        self.table.write_many(
            [
                put((f"S{text}",), encode_json(record.item(text)), text)
                for text, record in records.items()
            ]
        )

    def places(self, ids: Sequence[Value]) -> list[Place | None]:
        """Where blocks lie; None for those that are nowhere."""
        texts = []
        for id in ids:
            try:
                texts.append(keys.text(id)[0])
            except DoesNotFit:
                texts.append("")
        records = self._records([text for text in texts if text])
        return [records[text].at if text in records else None for text in texts]

    def current(self, found: Sequence[Seen]) -> list[Seen]:
        """Those that lie where the locator says, and those of which it says nothing."""
        records = self._records([seen.id for seen in found])
        return [
            seen for seen in found if seen.id not in records or records[seen.id].at == seen.place
        ]

    def begin(self, batch: Batch) -> dict[str, Record]:
        """Note where blocks are about to be written; those that were elsewhere or nowhere."""
        known = self._records(list(batch))
        noted: dict[str, Record] = {}
        for text, (place, _, _) in batch.items():
            old = known.get(text, Record())
            if old.at != place or old.others:
                noted[text] = Record(old.at, old.others | {place})
        self._put(noted)
        return noted

    def finish(self, batch: Batch, noted: Mapping[str, Record], delete: Delete) -> None:
        """The blocks are written: say so, and remove the copies at other places."""
        new: dict[str, Record] = {}
        for text, old in noted.items():
            place, _, _ = batch[text]
            left = (old.others | ({old.at} if old.at is not None else set())) - {place}
            new[text] = Record(place, frozenset(left))
        self._put(new)
        cleared = {}
        for text, record in new.items():
            if record.others:
                for place in sorted(record.others):
                    delete(place, batch[text][2])
                cleared[text] = Record(record.at)
        self._put(cleared)

    def forget(self, id: Value, place: Place | None, delete: Delete) -> None:
        """The block at a place was deleted; what is left of it elsewhere goes, too."""
        try:
            text = keys.text(id)[0]
        except DoesNotFit:
            return
        record = self._records([text]).get(text)
        if record is None or (place is not None and record.at not in (place, None)):
            return
        for other in sorted(record.others):
            delete(other, id)
        at: Item = {_KEY: {"S": text}}
        self.table.write_many([remove((f"S{text}",), at, show(id)[:100])])


def find_all(
    texts: set[str], walk: Callable[[Json], tuple[list[Seen], Json, int]]
) -> dict[str, Place]:
    """Where blocks lie in a table of others, by looking through all of it."""
    found: dict[str, Place] = {}
    position: Json = None
    while True:
        page, position, _ = walk(position)
        found |= {seen.id: seen.place for seen in page if seen.id in texts}
        if position is None or len(found) == len(texts):
            return found

"""Changing whole top-level attributes of an item where they lie, in one conditional update.

The condition names all that the request relies on, so what it does not hold for is left to an
exchange. An attribute that is not there yet is one such: adding it draws a version (R12).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from migrator.errors import DoesNotFit
from migrator.model.path import escape
from migrator.model.rules import Representation
from migrator.model.value import Value
from migrator.stores.dynamodb.codec import Av, Item
from migrator.stores.dynamodb.expressions import Expressions, update
from migrator.stores.dynamodb.item import ItemShape
from migrator.stores.dynamodb.options import REST, SIDE
from migrator.stores.dynamodb.table import Table

# So many fit into a condition and an update for certain.
_MOST = 30


class Amender:
    """Carries such changes out."""

    def __init__(self, table: Table, shape: ItemShape, rules: Representation) -> None:
        self._table = table
        self._shape = shape
        self._rules = rules

    def amend(
        self, id: Value, set_: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Item | None:
        """The item after attributes were set and elements added; None where nothing was done."""
        names = [*set_, *append]
        if not names or len({*names}) < len(names) or len(names) > _MOST:
            return None
        if self._shape.computed.any or not all(map(self._rules.takes_whole, names)):
            return None
        try:
            key, _ = self._shape.key(id)
            sets = self._held(id, set_)
            added = self._held(id, {name: [item] for name, item in append.items()})
            if sets is None or added is None:
                return None
            return self._send(id, key, sets, added)
        except DoesNotFit:
            return None  # nothing was done; an exchange tells what is too large, and where

    def _held(self, id: Value, fields: Mapping[str, Value]) -> dict[str, Av] | None:
        """The attributes of fields; None where one has to be told of in the side attribute."""
        held: dict[str, Av] = {}
        for field, value in fields.items():
            name, escaped = self._shape.attribute(escape(field))
            av, tags = self._shape.hold(id, escape(field), value)
            if tags or escaped or name in self._shape.options.index_keys:
                return None
            held[name] = av
        return held

    def _send(
        self, id: Value, key: Av, sets: Mapping[str, Av], added: Mapping[str, Av]
    ) -> Item | None:
        options, made = self._table.options, Expressions()
        tags = f"{made.name(SIDE)}.{made.name('tags')}"
        # No attribute is added, so those alone have to be there; and the key, as there is an item.
        parts = [f"attribute_not_exists({made.name(REST)})"]
        parts += [f"attribute_exists({made.name(name)})" for name in sets]
        if added:
            lists = made.value({"S": "L"})
            parts += [f"attribute_type({made.name(name)},{lists})" for name in added]
        parts += [f"attribute_not_exists({tags}.{made.name(name)})" for name in (*sets, *added)]
        if options.expires is not None:
            # The attribute holds whole seconds, rounded up; who ends within two is left out.
            soon = made.value({"N": str(int(time.time()) + 1)})
            ends = made.name(options.expires)
            parts.append(f"(attribute_not_exists({ends}) OR {ends} > {soon})")
        changes = [f"{made.name(name)}={made.value(av)}" for name, av in sets.items()]
        for name, av in added.items():
            at = made.name(name)
            changes.append(f"{at}=list_append({at},{made.value(av)})")
        request = made.request(
            UpdateExpression=update(changes, []), ConditionExpression=" AND ".join(parts)
        )
        return self._table.updated({options.hash.name: key}, id, **request)

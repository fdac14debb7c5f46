"""A note on DynamoDB: the one item of a table of its own, changed under conditions."""

from __future__ import annotations

from migrator.stores.dynamodb.gathered import encode_json
from migrator.stores.dynamodb.options import ITEM, Attribute, Options
from migrator.stores.dynamodb.table import Table
from migrator.stores.dynamodb.wire import Wire

_KEY, _TEXT = "id", "text"
_IT = {_KEY: {"S": "epoch"}}
_STILL = {"ConditionExpression": "#t = :old", "ExpressionAttributeNames": {"#t": _TEXT}}
_NONE = {
    "ConditionExpression": "attribute_not_exists(#t)",
    "ExpressionAttributeNames": {"#t": _TEXT},
}


class DynamoNote:
    """Its table is made with its first text, and dropped with its last."""

    def __init__(self, wire: Wire, name: str, where: str) -> None:
        self._table = Table(wire, name, Options(ITEM, Attribute(_KEY)), f"{where} (epoch)")

    def read(self) -> str | None:
        if self._table.describe() is None:
            return None
        item = self._table.get(_IT)
        return None if item is None else str(item[_TEXT]["S"])

    def change(self, old: str | None, new: str | None) -> bool:
        if old is None:
            if new is None:
                return False
            self._table.create()
            return self._put(new, **_NONE)
        if self._table.describe() is None:
            return False
        still = {**_STILL, "ExpressionAttributeValues": {":old": {"S": old}}}
        if new is not None:
            return self._put(new, **still)
        done = self._table.delete_if(_IT, _KEY, **still)
        if done:
            self._table.drop()
        return done

    def _put(self, text: str, **condition: object) -> bool:
        item = encode_json({**_IT, _TEXT: {"S": text}})
        return self._table.put_if(item, _KEY, **condition)

"""A note on Cassandra: a row that is changed by lightweight transactions alone."""

# ruff: noqa: S608 - the table's name is quoted, every value bound
from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from migrator.stores.cassandra.table import Node
from migrator.stores.cassandra.table_ddl import name_in

NOTES = "migrator_epochs"
_THERE = "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"


class CassandraNote:
    """Its table stays, empty, when the last note has gone: another run may be about to use it."""

    def __init__(self, node: Node, where: str, name: str) -> None:
        self._node = node
        self._where = where
        self._name = name.encode()
        self._made = self._listed = False

    @cached_property
    def _table(self) -> str:
        return name_in(self._node.keyspace, NOTES)

    def read(self) -> str | None:
        if not self._is_there():
            return None
        # A read of that sort ends what another began and did not.
        wire = self._node.wire.at(self._where).serially()
        rows = wire.few(f"SELECT text FROM {self._table} WHERE name = ?", [self._name])
        return (rows[0][0] or b"").decode() if rows else None

    def _is_there(self) -> bool:
        if not (self._made or self._listed):
            wire = self._node.wire.at(self._where)
            self._listed = bool(wire.few(_THERE, [self._node.keyspace.encode(), NOTES.encode()]))
        return self._made or self._listed

    def change(self, old: str | None, new: str | None) -> bool:
        if old is None:
            return new is not None and self._begin(new)
        if not self._is_there():
            return False
        if new is None:
            return self._done(
                f"DELETE FROM {self._table} WHERE name = ? IF text = ?", [self._name, old.encode()]
            )
        return self._done(
            f"UPDATE {self._table} SET text = ? WHERE name = ? IF text = ?",
            [new.encode(), self._name, old.encode()],
        )

    def _begin(self, text: str) -> bool:
        if not self._made:
            # Also where the catalogue tells of it: it does so before statements can name it.
            wire = self._node.wire.at(self._where)
            columns = "(name text PRIMARY KEY, text text)"
            wire.define(f"CREATE TABLE IF NOT EXISTS {self._table} {columns}")
            wire.forget()
            self._made = True
        return self._done(
            f"INSERT INTO {self._table} (name, text) VALUES (?, ?) IF NOT EXISTS",
            [self._name, text.encode()],
        )

    def _done(self, cql: str, values: Sequence[bytes]) -> bool:
        ((applied, *_),) = self._node.wire.at(self._where).few(cql, values)
        return applied == b"\x01"

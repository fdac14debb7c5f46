"""Tables as ``system_schema`` describes them."""

from __future__ import annotations

from migrator.stores.cassandra.columns import SCALARS
from migrator.stores.cassandra.columns_nested import ListOf, Types
from migrator.stores.cassandra.table_shape import ColumnInfo, Role, TableInfo
from migrator.stores.cassandra.table_wire import Wire

_TEXTS = ListOf(SCALARS["text"], "list<text>")


def table_info(wire: Wire, keyspace: str, table: str) -> TableInfo | None:
    """A table of a keyspace, or None where there is none."""
    named = [keyspace.encode(), table.encode()]
    columns = tuple(
        ColumnInfo(
            (name or b"").decode(),
            (type_ or b"").decode(),
            Role((kind or b"").decode()),
            int.from_bytes(position or b"", "big", signed=True),
            order == b"desc",
        )
        for name, type_, kind, position, order in wire.few(
            "SELECT column_name, type, kind, position, clustering_order "
            "FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?",
            named,
        )
    )
    if not columns:
        return None
    indexes = {
        (name or b"").decode(): (options or b"").hex()
        for name, options in wire.few(
            "SELECT index_name, options FROM system_schema.indexes "
            "WHERE keyspace_name = ? AND table_name = ?",
            named,
        )
    }
    lives = wire.few(
        "SELECT default_time_to_live FROM system_schema.tables "
        "WHERE keyspace_name = ? AND table_name = ?",
        named,
    )
    ttl = sum(int.from_bytes(life or b"", "big") for (life,) in lives)
    return TableInfo(columns, user_types(wire, keyspace), indexes, ttl)


def user_types(wire: Wire, keyspace: str) -> Types:
    """The user-defined types of a keyspace: each field's type, in their order."""
    found: dict[str, dict[str, str]] = {}
    for name, names, types in wire.few(
        "SELECT type_name, field_names, field_types FROM system_schema.types "
        "WHERE keyspace_name = ?",
        [keyspace.encode()],
    ):
        fields = zip(_texts(names), _texts(types), strict=True)
        found[(name or b"").decode()] = dict(fields)
    return found


def _texts(data: bytes | None) -> list[str]:
    read = _TEXTS.read(data or b"", "", {})
    return [str(item) for item in read] if type(read) is list else []

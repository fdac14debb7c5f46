"""SQLite's catalogue."""

from __future__ import annotations

import re

from sqlalchemy.engine import Connection

from migrator.stores.sql.catalog import Column, ForeignKey, Index, Table

_TYPE = re.compile(r"([^()]*?)\s*(?:\(([^)]*)\))?\s*")
_HIDDEN_GENERATED = (2, 3)


def split_type(text: str) -> tuple[str, tuple[int, ...]]:
    """Base and arguments of a declared type: ``NUMERIC(10,2)``."""
    found = _TYPE.fullmatch(text)
    if found is None:
        return text.upper(), ()
    args = tuple(int(a) for a in (found[2] or "").split(",") if a.strip().isdigit())
    return " ".join(found[1].upper().split()), args


def mark(connection: Connection, names: list[str]) -> list[str]:
    """What is another once one of these tables has another shape: all that make one, but ours."""
    query = (
        "SELECT name || ' ' || coalesce(sql, '') FROM sqlite_master WHERE type IN ('table', "
        "'index') AND substr(tbl_name, 1, 8) <> 'migrator' AND substr(tbl_name, 1, 7) <> 'sqlite_' "
        "ORDER BY name"
    )
    return list(connection.exec_driver_sql(query).scalars())


def read(connection: Connection, schema: str | None, name: str) -> Table | None:
    """One table, None where there is none of this name."""
    ask = connection.exec_driver_sql
    # Names are compared without case, as SQLite itself does.
    made = ask(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE",
        (name,),
    ).one_or_none()
    if made is None:
        return None
    name, sql = made
    indexes = ask(
        'SELECT name, "unique", origin, partial FROM pragma_index_list(?) ORDER BY name', (name,)
    ).all()
    folds: dict[str, str] = {}
    read_indexes: list[Index] = []
    for index, unique, origin, partial in indexes:
        parts = ask(
            "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno", (index,)
        ).all()
        plain = () if partial or None in {p[0] for p in parts} else tuple(p[0] for p in parts)
        folds.update({p[0]: p[1] for p in parts if p[0] and unique})
        if origin == "pk":
            continue
        text = ask("SELECT sql FROM sqlite_master WHERE name = ?", (index,)).scalar() or ""
        read_indexes.append(Index(index, plain, bool(unique), origin == "u", text))
    rows = ask(
        'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?) '
        "ORDER BY cid",
        (name,),
    ).all()
    key = tuple(row[0] for row in sorted((r for r in rows if r[4]), key=lambda r: r[4]))
    columns = []
    for column, type_, notnull, default, pk, hidden in rows:
        base, args = split_type(type_)
        rowid = len(key) == 1 and pk and base == "INTEGER"
        coll = folds.get(column, "BINARY")
        columns.append(
            Column(
                column,
                type_,
                base,
                args,
                nullable=not (notnull or rowid),
                default=default,
                generated="" if hidden in _HIDDEN_GENERATED else None,
                identity="auto" if rowid else "",
                collation=coll,
                folds=coll not in ("BINARY", ""),
                said=type_ if base.endswith((" POSITION", " BLOCK KEY")) else "",
            )
        )
    return Table(
        name,
        None,
        tuple(columns),
        key,
        _foreign(connection, name),
        tuple(read_indexes),
        sql=sql or "",
        referenced=_referenced(connection, name),
    )


def _foreign(connection: Connection, name: str) -> tuple[ForeignKey, ...]:
    rows = connection.exec_driver_sql(
        'SELECT id, "table", "from", "to", on_delete, on_update '
        "FROM pragma_foreign_key_list(?) ORDER BY id, seq",
        (name,),
    ).all()
    found: dict[int, list[tuple[str, ...]]] = {}
    for number, *row in rows:
        found.setdefault(number, []).append(tuple(row))
    keys = []
    for number, parts in found.items():
        table, _, to, on_delete, on_update = parts[0]
        refs = tuple(part[2] for part in parts)
        if to is None:  # the short form REFERENCES t: its primary key
            refs = tuple(
                row[0]
                for row in connection.exec_driver_sql(
                    "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,)
                )
            )
        columns = tuple(part[1] for part in parts)
        keys.append(ForeignKey(f"fk{number}", columns, table, refs, on_delete, on_update))
    return tuple(keys)


def _referenced(connection: Connection, name: str) -> tuple[tuple[str, ForeignKey], ...]:
    tables = connection.exec_driver_sql(
        "SELECT DISTINCT m.name FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f "
        "WHERE m.type = 'table' AND f.\"table\" = ? COLLATE NOCASE ORDER BY m.name",
        (name,),
    ).scalars()
    return tuple(
        (table, key)
        for table in tables.all()
        for key in _foreign(connection, table)
        if key.table.lower() == name.lower()
    )

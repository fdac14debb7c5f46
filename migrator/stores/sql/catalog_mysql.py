"""The catalogue of MariaDB and MySQL."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy.engine import Connection

from migrator.stores.sql.catalog import Column, ForeignKey, Index, Table, said_in

_LABEL = re.compile(r"'((?:[^']|'')*)'")
_ARGS = re.compile(r"\(([\d, ]+)\)")
_JSON_CHECK = re.compile(r"json_valid\(`((?:[^`]|``)+)`\)", re.IGNORECASE)
_FRACTIONAL = ("time", "datetime", "timestamp")

_COLUMNS = """
SELECT column_name, column_type, data_type, is_nullable, column_default, extra,
  generation_expression, collation_name, column_comment
FROM information_schema.columns
WHERE table_schema = coalesce(%(schema)s, database()) AND table_name = %(name)s
ORDER BY ordinal_position
"""

_KEYS = """
SELECT k.{own}, k.constraint_name, k.{column}, k.{other}, k.{other_column},
  r.delete_rule, r.update_rule, k.{other_schema}
FROM information_schema.key_column_usage k
JOIN information_schema.referential_constraints r
  ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name
  AND r.table_name = k.table_name
WHERE k.{schema} = coalesce(%(schema)s, database()) AND k.{table} = %(name)s
  AND k.referenced_table_name IS NOT NULL
ORDER BY k.table_name, k.constraint_name, k.ordinal_position
"""

_INDEXES = """
SELECT index_name, column_name, non_unique, sub_part
FROM information_schema.statistics
WHERE table_schema = coalesce(%(schema)s, database()) AND table_name = %(name)s
ORDER BY index_name, seq_in_index
"""


def quote(name: str) -> str:
    """An identifier, quoted."""
    return "`" + name.replace("`", "``") + "`"


_NEXT = re.compile(r" AUTO_INCREMENT=\d+")


def mark(connection: Connection, names: list[str]) -> list[str]:
    """What is another once one of these tables has another shape: the statements that make them."""
    found = []
    for name in names:
        made = connection.exec_driver_sql(f"SHOW CREATE TABLE {quote(name).replace('%', '%%')}")
        found.append(_NEXT.sub("", str(made.one()[1])))
    return found


def read(connection: Connection, schema: str | None, name: str) -> Table | None:
    """One table, None where there is none of this name."""
    ask = connection.exec_driver_sql
    asked = {"schema": schema, "name": name}
    columns = ask(_COLUMNS, asked).all()
    if not columns:
        return None
    full = f"{quote(schema)}.{quote(name)}" if schema else quote(name)
    made = ask(f"SHOW CREATE TABLE {full.replace('%', '%%')}").one()
    sql = str(made[1])
    documents = {m[1].replace("``", "`") for m in _JSON_CHECK.finditer(sql)}
    primary, indexes = _indexes(ask(_INDEXES, asked).all())
    return Table(
        name,
        schema,
        tuple(_column(row, documents) for row in columns),
        primary,
        tuple(key for _, key in _foreign(connection, asked, incoming=False)),
        indexes,
        sql=sql,
        referenced=tuple(_foreign(connection, asked, incoming=True)),
    )


def read_temporary(connection: Connection, name: str) -> Table:
    """A temporary table of this session, which the information schema does not show: its
    columns and key."""
    ask = connection.exec_driver_sql
    sql = str(ask(f"SHOW CREATE TABLE {quote(name)}").one()[1])
    documents = {m[1].replace("``", "`") for m in _JSON_CHECK.finditer(sql)}
    columns, key = [], []
    for row in ask(f"SHOW FULL COLUMNS FROM {quote(name)}").mappings():
        base = re.split(r"[ (]", row["Type"])[0]
        shown = (row["Field"], row["Type"], base, row["Null"], row["Default"], row["Extra"])
        columns.append(_column((*shown, "", row["Collation"], row["Comment"]), documents))
        key += [row["Field"]] if row["Key"] == "PRI" else []
    return Table(name, None, tuple(columns), tuple(key))


def _indexes(rows: Any) -> tuple[tuple[str, ...], tuple[Index, ...]]:
    parts: dict[str, list[Any]] = {}
    for row in rows:
        parts.setdefault(row[0], []).append(row)
    primary: tuple[str, ...] = ()
    found = []
    for name, columns in parts.items():
        # A prefix or an expression is no key of whole values.
        plain = all(row[1] is not None and row[3] is None for row in columns)
        names = tuple(row[1] for row in columns) if plain else ()
        if name == "PRIMARY":
            primary = names
        else:
            found.append(Index(name, names, not int(columns[0][2])))
    return primary, tuple(found)


def _foreign(
    connection: Connection, asked: dict[str, Any], *, incoming: bool
) -> list[tuple[str, ForeignKey]]:
    side = "referenced_table" if incoming else "table"
    statement = _KEYS.format(
        own="table_name",
        column="column_name",
        other="referenced_table_name",
        other_column="referenced_column_name",
        other_schema="referenced_table_schema",
        schema=f"{side}_schema",
        table=f"{side}_name",
    )
    parts: dict[tuple[str, str], list[Any]] = {}
    for row in connection.exec_driver_sql(statement, asked):
        parts.setdefault((row[0], row[1]), []).append(row)
    return [
        (
            table,
            ForeignKey(
                name,
                tuple(row[2] for row in rows),
                rows[0][3],
                tuple(row[4] for row in rows),
                rows[0][5],
                rows[0][6],
            ),
        )
        for (table, name), rows in parts.items()
    ]


def _column(row: Any, documents: set[str]) -> Column:
    name, type_, base, nullable, default, extra, expression, collation, comment = row
    base = base.lower()
    args = _ARGS.search(type_) if base not in ("enum", "set") else None
    labels = _LABEL.findall(type_) if base in ("enum", "set") else []
    numbers = tuple(int(a) for a in args[1].split(",")) if args else ()
    if base in _FRACTIONAL and not numbers:
        numbers = (0,)
    if collation is not None and base in ("longtext", "json") and name in documents:
        base = "json"
    binary = collation is None or collation.endswith("bin")
    return Column(
        name,
        type_,
        base,
        numbers,
        nullable=nullable == "YES",
        default=default,
        generated=expression or None,
        identity="auto" if "auto_increment" in extra else "",
        collation=collation,
        # Even a binary collation may pad with blanks: "a" and "a " are one key.
        folds=collation is not None and not (binary and pads_not(collation)),
        labels=tuple(label.replace("''", "'") for label in labels),
        unsigned="unsigned" in type_,
        json=base == "json",
        said=said_in(comment),
    )


def pads_not(collation: str) -> bool:
    """Whether trailing blanks count in comparisons."""
    return "nopad" in collation or "0900" in collation or collation == "binary"

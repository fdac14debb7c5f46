"""What a database is made of, asked of its own catalogue: for comparing two of them."""

from __future__ import annotations

import sqlite3
from typing import Any

from tests.system.servers import rows

Described = dict[str, list[Any]]

POSTGRESQL = {
    "columns": """
        SELECT table_name, column_name, ordinal_position, data_type, udt_name,
               character_maximum_length, numeric_precision, numeric_scale, datetime_precision,
               is_nullable, column_default, is_identity, identity_generation, collation_name
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 3""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
    "indexes": """
        SELECT tablename, indexname, indexdef FROM pg_indexes
        WHERE schemaname = 'public' ORDER BY 1, 2""",
    "sequences": """
        SELECT sequencename, data_type::text, start_value, min_value, max_value, increment_by, cycle
        FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1""",
    "owned": """
        SELECT d.objid::regclass::text, d.refobjid::regclass::text, a.attname, d.deptype
        FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
          AND d.objid IN (SELECT oid FROM pg_class WHERE relkind = 'S') ORDER BY 1""",
}
MARIADB = {
    "columns": """
        SELECT table_name, column_name, ordinal_position, column_default, is_nullable, column_type,
               character_set_name, collation_name, extra, column_key
        FROM information_schema.columns WHERE table_schema = database() ORDER BY 1, 3""",
    "indexes": """
        SELECT table_name, index_name, non_unique, seq_in_index, column_name, sub_part
        FROM information_schema.statistics WHERE table_schema = database() ORDER BY 1, 2, 4""",
    "foreign keys": """
        SELECT k.table_name, k.constraint_name, k.column_name, k.ordinal_position,
               k.referenced_table_name, k.referenced_column_name, r.update_rule, r.delete_rule
        FROM information_schema.key_column_usage k
        JOIN information_schema.referential_constraints r
          ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name
         AND r.table_name = k.table_name
        WHERE k.table_schema = database() ORDER BY 1, 2, 4""",
    "tables": """
        SELECT table_name, engine, table_collation FROM information_schema.tables
        WHERE table_schema = database() AND table_type = 'BASE TABLE' ORDER BY 1""",
}


def describe(server: str, url: str) -> Described:
    """The whole schema of a database, part by part."""
    if server == "sqlite":
        return describe_sqlite(url)
    queries = POSTGRESQL if server == "postgresql" else MARIADB
    return {part: list(rows(server, url, query)) for part, query in queries.items()}


def describe_sqlite(path: str) -> Described:
    found: Described = {}
    with sqlite3.connect(path) as connection:
        for (table,) in _sqlite_tables(connection):
            found[f"{table} columns"] = _pragma(connection, "table_info", table)
            found[f"{table} foreign keys"] = sorted(
                row[2:] for row in _pragma(connection, "foreign_key_list", table)
            )
            found[f"{table} indexes"] = sorted(
                (unique, origin, partial, _pragma(connection, "index_info", name))
                for _, name, unique, origin, partial in _pragma(connection, "index_list", table)
            )
    return found


def _sqlite_tables(connection: sqlite3.Connection) -> list[Any]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    return connection.execute(f"{query} ORDER BY 1").fetchall()


def _pragma(connection: sqlite3.Connection, name: str, of: str) -> list[Any]:
    quoted = of.replace('"', '""')
    return connection.execute(f'PRAGMA {name}("{quoted}")').fetchall()


def all_rows(server: str, url: str) -> dict[str, list[str]]:
    """Every row of every table, as text that shows kinds, in an order of our own."""
    if server == "sqlite":
        with sqlite3.connect(url) as connection:
            names = [name for (name,) in _sqlite_tables(connection)]
            return {
                name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))
                for name in names
            }
    listed = rows(
        server,
        url,
        "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
        f"AND table_schema = {'current_schema()' if server == 'postgresql' else 'database()'}",
    )
    quote = '"' if server == "postgresql" else "`"
    return {
        name: sorted(map(repr, rows(server, url, f"SELECT * FROM {quote}{name}{quote}")))
        for (name,) in listed
    }

"""Statements that make a table again on the same system, exactly as it is on another server.

SQLite and MySQL keep or show the statement itself; PostgreSQL's is put together from the texts
its catalogue gives for types, defaults, constraints and indexes, with the sequences, enums and
domains it uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy.engine import Connection

from migrator.stores.sql.catalog import Column, Table
from migrator.stores.sql.ddl import Wanted, remarks
from migrator.stores.sql.options import Dialect

_NEXTVAL = re.compile(r"nextval\('((?:[^']|'')+)'::regclass\)")
_AUTO = re.compile(r" AUTO_INCREMENT=\d+")


def copied(connection: Connection, dialect: Dialect, table: Table) -> Wanted:
    """The statements for a table, read on a connection to the server that has it."""
    if dialect == "sqlite":
        return _sqlite(table)
    return _mysql(table) if dialect == "mysql" else _postgresql(connection, table)


def _sqlite(table: Table) -> Wanted:
    indexes = {i.name: i.definition for i in table.indexes if i.definition}
    return Wanted(table, [table.sql], indexes, exact=True)


def _mysql(table: Table) -> Wanted:
    """Without its foreign keys, which are added once both tables are there."""
    lines = [
        line
        for line in table.sql.splitlines()
        if not (line.lstrip().startswith("CONSTRAINT ") and " FOREIGN KEY (" in line)
    ]
    # The line before the closing one must not end in a comma.
    lines[-2] = lines[-2].rstrip(",")
    statement = _AUTO.sub("", "\n".join(lines)).replace("%", "%%")
    return Wanted(replace(table, schema=None), [statement], exact=True)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _postgresql(connection: Connection, table: Table) -> Wanted:
    full = (f"{_quote(table.schema)}." if table.schema else "") + _quote(table.name)
    statements = [statement for c in table.columns for statement in _types(connection, c)]
    if table.schema:
        statements.insert(0, f"CREATE SCHEMA IF NOT EXISTS {_quote(table.schema)}")
    owned = []
    lines = []
    for column in table.columns:
        made = _NEXTVAL.search(column.default or "")
        if made is not None:
            name, options = _sequence(connection, made[1].replace("''", "'"))
            statements.append(f"CREATE SEQUENCE IF NOT EXISTS {name}{options}")
            if column.identity == "serial":
                owned.append(f"ALTER SEQUENCE {name} OWNED BY {full}.{_quote(column.name)}")
        lines.append(_column(connection, table, column))
    if table.key:
        keys = ", ".join(map(_quote, table.key))
        lines.append(f"CONSTRAINT {_quote(table.key_name)} PRIMARY KEY ({keys})")
    lines += [f"CONSTRAINT {_quote(name)} {definition}" for name, definition in table.checks]
    body = ",\n  ".join(lines)
    statements += [f"CREATE TABLE {full} (\n  {body}\n)", *owned, *remarks(table, full, _quote)]
    indexes = {}
    for index in table.indexes:
        if index.constraint:
            definition = f"ALTER TABLE {full} ADD CONSTRAINT {_quote(index.name)} "
            indexes[index.name] = definition + index.definition
        else:
            unique = "UNIQUE " if index.unique else ""
            tail = index.definition.partition(" USING ")[2]
            head = f"CREATE {unique}INDEX {_quote(index.name)} ON {full} USING "
            indexes[index.name] = head + tail
    doubled = [statement.replace("%", "%%") for statement in statements]
    named = {name: text.replace("%", "%%") for name, text in indexes.items()}
    return Wanted(table, doubled, named, exact=True)


def _column(connection: Connection, table: Table, column: Column) -> str:
    line = f"{_quote(column.name)} {column.type}"
    if column.collation:
        line += f" COLLATE {_quote(column.collation)}"
    if column.generated is not None:
        line += f" GENERATED ALWAYS AS ({column.generated}) STORED"
    elif column.identity in ("always", "default"):
        full = (f"{_quote(table.schema)}." if table.schema else "") + _quote(table.name)
        sequence = connection.exec_driver_sql(
            "SELECT pg_get_serial_sequence(%s, %s)", (full, column.name)
        ).scalar_one()
        name, options = _sequence(connection, sequence)
        word = "ALWAYS" if column.identity == "always" else "BY DEFAULT"
        options = re.sub(r"^ AS \w+", "", options)
        line += f" GENERATED {word} AS IDENTITY (SEQUENCE NAME {name}{options})"
    elif column.default is not None:
        line += f" DEFAULT {column.default}"
    return line if column.nullable else f"{line} NOT NULL"


def _sequence(connection: Connection, regclass: str) -> tuple[str, str]:
    row: Any = connection.exec_driver_sql(
        "SELECT c.relname, format_type(s.seqtypid, NULL), s.seqincrement, s.seqmin, s.seqmax, "
        "s.seqstart, s.seqcache, s.seqcycle FROM pg_sequence s JOIN pg_class c "
        "ON c.oid = s.seqrelid WHERE s.seqrelid = to_regclass(%s)",
        (regclass,),
    ).one()
    name, type_, *numbers, cycle = row
    step, low, high, start, cache = map(int, numbers)
    options = (
        f" AS {type_} INCREMENT BY {step} MINVALUE {low} MAXVALUE {high} START WITH {start} "
        f"CACHE {cache} {'CYCLE' if cycle else 'NO CYCLE'}"
    )
    return _quote(name), options


def _types(connection: Connection, column: Column) -> Iterator[str]:
    """The enum or domain of a column."""
    bare = column.type.removesuffix("[]")
    row: Any = connection.exec_driver_sql(
        "SELECT t.typtype, format_type(t.typbasetype, t.typtypmod), t.typdefault, t.typnotnull, "
        "ARRAY(SELECT 'CONSTRAINT ' || quote_ident(conname) || ' ' || pg_get_constraintdef(oid) "
        "FROM pg_constraint WHERE contypid = t.oid ORDER BY conname) "
        "FROM pg_type t WHERE t.oid = to_regtype(%s)",
        (bare,),
    ).one_or_none()
    if row is None:
        return
    kind, base, default, notnull, checks = row
    if kind == "e":
        labels = ", ".join("'" + label.replace("'", "''") + "'" for label in column.labels)
        yield _unless(f"CREATE TYPE {bare} AS ENUM ({labels})", bare)
    elif kind == "d":
        tail = f" DEFAULT {default}" if default else ""
        tail += " NOT NULL" if notnull else ""
        yield _unless(" ".join([f"CREATE DOMAIN {bare} AS {base}{tail}", *checks]), bare)


def _unless(statement: str, type_: str) -> str:
    name = type_.replace("'", "''")
    return (
        f"DO $migrator$ BEGIN IF to_regtype('{name}') IS NULL THEN {statement}; END IF; END "
        "$migrator$"
    )

"""PostgreSQL's catalogue."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy.engine import Connection

from migrator.stores.sql.catalog import Column, ForeignKey, Index, Table, said_in

_ACTIONS = {
    "a": "NO ACTION",
    "r": "RESTRICT",
    "c": "CASCADE",
    "n": "SET NULL",
    "d": "SET DEFAULT",
}
_ARGS = re.compile(r"\(([\d,\- ]+)\)")

_TABLE = """
SELECT c.oid, n.nspname, pg_table_is_visible(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relname = %(name)s
  AND CASE WHEN %(schema)s::text IS NULL THEN pg_table_is_visible(c.oid)
      ELSE n.nspname = %(schema)s END
"""

# A domain's values are of its base type; an array's elements of the type it is made of.
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), b.typname, b.typcategory = 'A', e.typname,
  e.typtype, b.typtype, a.attnotnull OR t.typnotnull, pg_get_expr(d.adbin, d.adrelid),
  a.attidentity, a.attgenerated, k.collname, coalesce(k.collisdeterministic, true),
  ARRAY(SELECT enumlabel::text FROM pg_enum
        WHERE enumtypid = CASE WHEN b.typcategory = 'A' THEN e.oid ELSE b.oid END
        ORDER BY enumsortorder),
  pg_get_serial_sequence(quote_ident(n.nspname) || '.' || quote_ident(c.relname), a.attname),
  k.oid IS DISTINCT FROM t.typcollation, format_type(b.oid, a.atttypmod),
  col_description(a.attrelid, a.attnum), a.attnum || ' ' || a.xmin
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation k ON k.oid = a.attcollation
WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

_CONSTRAINTS = """
SELECT o.conname, o.contype, pg_get_constraintdef(o.oid),
  ARRAY(SELECT attname::text FROM unnest(o.conkey) WITH ORDINALITY k(n, i)
        JOIN pg_attribute ON attrelid = o.conrelid AND attnum = k.n ORDER BY k.i),
  CASE WHEN pg_table_is_visible(o.confrelid) THEN f.relname
       ELSE fn.nspname || '.' || f.relname END,
  ARRAY(SELECT attname::text FROM unnest(o.confkey) WITH ORDINALITY k(n, i)
        JOIN pg_attribute ON attrelid = o.confrelid AND attnum = k.n ORDER BY k.i),
  o.confdeltype, o.confupdtype,
  CASE WHEN pg_table_is_visible(o.conrelid) THEN c.relname
       ELSE cn.nspname || '.' || c.relname END
FROM pg_constraint o
JOIN pg_class c ON c.oid = o.conrelid JOIN pg_namespace cn ON cn.oid = c.relnamespace
LEFT JOIN pg_class f ON f.oid = o.confrelid LEFT JOIN pg_namespace fn ON fn.oid = f.relnamespace
WHERE o.{side} = %(oid)s AND o.contype IN {kinds}
ORDER BY o.conname
"""

_INDEXES = """
SELECT i.relname, x.indisunique, pg_get_indexdef(x.indexrelid),
  CASE WHEN x.indpred IS NULL AND x.indexprs IS NULL THEN
    ARRAY(SELECT attname::text FROM unnest(x.indkey::smallint[]) WITH ORDINALITY k(n, i)
          JOIN pg_attribute ON attrelid = x.indrelid AND attnum = k.n
          WHERE k.i <= x.indnkeyatts ORDER BY k.i)
    ELSE ARRAY[]::text[] END,
  EXISTS (SELECT FROM pg_constraint o WHERE o.conindid = x.indexrelid AND o.contype <> 'f')
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid = %(oid)s AND NOT x.indisprimary ORDER BY i.relname
"""

# One that is being detached shows no rows any more; who asks before version 14 knows no such.
_MEMBERS = """
WITH RECURSIVE below(oid) AS (
  SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = %(oid)s
    AND (to_jsonb(i) ->> 'inhdetachpending') IS DISTINCT FROM 'true'
  UNION SELECT i.inhrelid FROM pg_inherits i JOIN below ON i.inhparent = below.oid
    AND (to_jsonb(i) ->> 'inhdetachpending') IS DISTINCT FROM 'true')
SELECT c.oid, n.nspname, c.relname, c.relispartition
FROM below JOIN pg_class c ON c.oid = below.oid JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY c.oid
"""

# Each row of the catalogue that a table's shape is made of, by what is another once it changes.
_MARK = """
WITH RECURSIVE t AS (SELECT c.oid, c.relname FROM pg_class c WHERE c.relkind IN ('r', 'p')
  AND c.relname = ANY(%(names)s::text[]) AND pg_table_is_visible(c.oid)),
below(oid, top) AS (
  SELECT i.inhrelid, i.inhparent FROM pg_inherits i JOIN t ON t.oid = i.inhparent
    AND (to_jsonb(i) ->> 'inhdetachpending') IS DISTINCT FROM 'true'
  UNION SELECT i.inhrelid, below.top FROM pg_inherits i JOIN below ON i.inhparent = below.oid
    AND (to_jsonb(i) ->> 'inhdetachpending') IS DISTINCT FROM 'true'),
a AS (SELECT a.xmin, a.* FROM pg_attribute a JOIN t ON t.oid = a.attrelid
  WHERE a.attnum > 0 AND NOT a.attisdropped)
SELECT 't ' || t.relname || ' ' || t.oid FROM t
UNION ALL SELECT 'b ' || below.oid || ' ' || below.top FROM below
UNION ALL SELECT 'a ' || (a.attrelid, a.attnum, a.xmin::text, a.attname, a.atttypid, a.atttypmod,
    a.attnotnull, a.attidentity, a.attgenerated, a.attcollation,
    y.xmin::text, b.xmin::text, e.xmin::text, d.xmin::text, s.xmin::text,
    (SELECT max(objid) FROM pg_depend WHERE refclassid = 'pg_class'::regclass
       AND refobjid = a.attrelid AND refobjsubid = a.attnum AND deptype IN ('a', 'i')),
    (SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum
       WHERE enumtypid IN (y.oid, y.typbasetype, y.typelem, b.typelem)))::text
  FROM a JOIN pg_type y ON y.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = y.typbasetype
  LEFT JOIN pg_type e ON e.oid = y.typelem
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  LEFT JOIN pg_description s ON s.objoid = a.attrelid AND s.objsubid = a.attnum
    AND s.classoid = 'pg_class'::regclass
UNION ALL SELECT 'o ' || o.conrelid || ' ' || o.conname || ' ' || pg_get_constraintdef(o.oid)
  FROM pg_constraint o JOIN t ON t.oid = o.conrelid WHERE o.contype IN ('p', 'u', 'f')
UNION ALL SELECT 'i ' || pg_get_indexdef(x.indexrelid)
  FROM pg_index x JOIN t ON t.oid = x.indrelid WHERE x.indisunique
"""


def mark(connection: Connection, names: list[str]) -> list[str]:
    """What is another once one of these tables has another shape."""
    return sorted(connection.exec_driver_sql(_MARK, {"names": names}).scalars())


def read(connection: Connection, schema: str | None, name: str) -> Table | None:
    """One table, None where there is none of this name."""
    ask = connection.exec_driver_sql
    found = ask(_TABLE, {"name": name, "schema": schema}).one_or_none()
    if found is None:
        return None
    oid, namespace, visible = found
    kinds = _CONSTRAINTS.format(side="conrelid", kinds="('p', 'u', 'f', 'c', 'x')")
    constraints = ask(kinds, {"oid": oid}).all()
    primary = next((row for row in constraints if row[1] == "p"), None)
    by_name = {row[0]: row for row in constraints}
    # ALTER COLUMN ... TYPE ... USING leaves its mark here, whatever the type was and is.
    columns = ask(_COLUMNS, {"oid": oid}).all()
    incoming = _CONSTRAINTS.format(side="confrelid", kinds="('f')")
    members = ask(_MEMBERS, {"oid": oid}).all()
    return Table(
        name,
        None if visible else namespace,
        tuple(_column(row[:-1]) for row in columns),
        tuple(primary[3]) if primary else (),
        tuple(_foreign(row) for row in constraints if row[1] == "f"),
        tuple(
            Index(
                index,
                tuple(columns),
                unique,
                constraint,
                by_name[index][2] if constraint and index in by_name else definition,
            )
            for index, unique, definition, columns, constraint in ask(_INDEXES, {"oid": oid})
        ),
        tuple((row[0], row[2]) for row in constraints if row[1] == "c"),
        key_name=primary[0] if primary else "",
        referenced=tuple((row[8], _foreign(row)) for row in ask(incoming, {"oid": oid})),
        identity=",".join(str(number) for number in (oid, *(row[0] for row in members))),
        made=tuple((row[0], row[-1]) for row in columns),
        members=tuple((row[1], row[2], row[3]) for row in members),
    )


def _foreign(row: Any) -> ForeignKey:
    return ForeignKey(
        row[0], tuple(row[3]), row[4], tuple(row[5]), _ACTIONS[row[6]], _ACTIONS[row[7]], row[2]
    )


def _column(row: Any) -> Column:
    (name, type_, base, array, element, element_type, base_type, notnull, default) = row[:9]
    identity, generated, collation, deterministic, labels, sequence, own, precise, comment = row[9:]
    args = _ARGS.search(precise)
    enum = (element_type if array else base_type) == "e"
    serial = sequence is not None and not identity
    return Column(
        name,
        type_,
        "enum" if enum else (element if array else base),
        tuple(int(a) for a in args[1].split(",")) if args else (),
        nullable=not notnull,
        default=None if generated else default,
        generated=default if generated else None,
        identity={"a": "always", "d": "default"}.get(identity, "serial" if serial else ""),
        collation=collation if own else None,
        folds=not deterministic or base == "citext",
        labels=tuple(labels),
        array=array,
        json=base in ("json", "jsonb"),
        said=said_in(comment),
    )

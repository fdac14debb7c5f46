"""The statements that write rows: one for each system, values always as parameters.

PostgreSQL takes texts, by COPY or a column as an array, and casts them itself: a statement for
thousands of rows, and no literal anywhere. SQLite and MySQL take rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy.engine import Connection, Engine

from migrator.stores.sql.columns import Codec
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.shape import Node, unique_keys
from migrator.stores.sql.unfold import Written

_MANY = 100
_LONGEST = 500_000  # characters and bytes of the values of one statement of MySQL
_GIVEN = "migrator_given"


def attempt(connection: Connection) -> AbstractContextManager[object]:
    """For a statement that may fail while its transaction goes on.

    PostgreSQL needs a savepoint for that; on MySQL one would be gone after a deadlock, and hide it.
    """
    return connection.begin_nested() if connection.dialect.name == "postgresql" else nullcontext()


def upsert(
    connection: Connection, dialect: Dialect, node: Node, rows: list[Written], *, new: bool = False
) -> None:
    """Insert rows, or change those with the same key, on PostgreSQL and SQLite.

    ``new``: one that is there already is an error.
    """
    if not rows:
        return
    texts = texts_of(connection, dialect, node)
    places, tail = texts.places, "" if new else texts.tail
    if dialect == "sqlite":
        given = [tuple(row.raw[i] for i in places) for row in rows]
        connection.exec_driver_sql(f"{texts.row}{tail}", given)
    elif len(rows) >= _MANY:
        _copy(connection, texts.head, tail, places, rows)
    else:
        # By the driver itself: one row more or less is what a gateway's write is made of.
        raw: Any = connection.connection.driver_connection
        if len(rows) == 1:
            raw.execute(f"{texts.row}{tail}", [rows[0].raw[i] for i in places])
        else:
            columns = [[row.raw[i] for row in rows] for i in places]
            raw.execute(f"{texts.head}{texts.arrays}{tail}", columns)


def putting(
    engine: Engine, node: Node, fresh: list[Written], changed: list[Written], *, new: bool
) -> list[tuple[str, Any]]:
    """The statements by which a server takes rows of one aggregate; as ``upsert``, or as ``insert``
    and ``update``, of which each fresh row that is there already is an error."""
    if not fresh and not changed:
        return []
    mysql = engine.dialect.name != "postgresql"
    texts = texts_of(engine, "mysql" if mysql else "postgresql", node)
    if mysql:
        asked: list[tuple[str, Any]] = [
            (texts.update, [row.raw[i] for i in texts.updated]) for row in changed if texts.update
        ]
        for rows in _chunks(fresh):
            more = f", {texts.arrays}" * (len(rows) - 1)
            asked.append((texts.row + more, [row.raw[i] for row in rows for i in texts.places]))
        return asked
    rows, tail = fresh + changed, "" if new else texts.tail
    if len(rows) == 1:
        return [(f"{texts.row}{tail}", [rows[0].raw[i] for i in texts.places])]
    columns = [[row.raw[i] for row in rows] for i in texts.places]
    return [(f"{texts.head}{texts.arrays}{tail}", columns)]


def _chunks(rows: list[Written]) -> Iterator[list[Written]]:
    """Rows that go in one statement: a text that is too long is refused by the server."""
    some: list[Written] = []
    size = 0
    for row in rows:
        more = length(row.raw)
        if some and size + more > _LONGEST:
            yield some
            some, size = [], 0
        some.append(row)
        size += more
    if some:
        yield some


def length(raw: Sequence[Any]) -> int:
    """About how long the values of a row are, in characters and bytes."""
    return sum(len(x) if isinstance(x, (str, bytes)) else 8 for x in raw)


def spelled(raw: Sequence[Any]) -> int:
    """How many bytes PyMySQL makes of the values of a row, at most."""
    taken = 0
    for value in raw:
        if isinstance(value, str):
            escaped = sum(map(value.count, "\\\"'\0\n\r\x1a"))
            taken += escaped + (len(value) if value.isascii() else len(value.encode()))
        elif isinstance(value, bytes):
            taken += 2 * len(value)
    return taken + 40 * len(raw)


@dataclass(frozen=True, slots=True)
class Texts:
    """The parts of a table's statements. ``row`` takes one row, ``head`` what follows it;
    ``update`` is MySQL's and SQLite's, of the columns at ``updated``, empty where no row can be
    changed by its key; ``arrays`` is on MySQL one row more."""

    places: tuple[int, ...]
    row: str
    head: str
    arrays: str
    tail: str
    update: str = ""
    updated: tuple[int, ...] = ()


_TEXTS: WeakKeyDictionary[Node, Texts] = WeakKeyDictionary()


def texts_of(connection: Connection | Engine, dialect: Dialect, node: Node) -> Texts:
    """The statements of a table, made once."""
    texts = _TEXTS.get(node)
    if texts is None:
        texts = _TEXTS[node] = _made(connection, dialect, node)
    return texts


def _made(connection: Connection | Engine, dialect: Dialect, node: Node) -> Texts:
    columns = _written(node)
    names = ", ".join(_quote(connection, codec.name) for codec in columns)
    table = _table(connection, node)
    places = node.places(tuple(codec.name for codec in columns))
    if dialect == "mysql":
        return _made_mysql(connection, node, columns, f"INSERT INTO {table} ({names})")
    tail = _on_conflict(connection, node, columns)
    if dialect == "sqlite":
        marks = ", ".join("?" for _ in columns)
        # ABORT overrides a REPLACE or IGNORE that the table itself may declare.
        row = f"INSERT OR ABORT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608
        key = _unique(node)
        changed = tuple(codec.name for codec in columns if codec.name not in key)
        sets, of = ([f"{_quote(connection, name)} = ?" for name in some] for some in (changed, key))
        update = f"UPDATE OR ABORT {table} SET {', '.join(sets)} WHERE {' AND '.join(of)}"  # noqa: S608
        updated = node.places((*changed, *key))
        return Texts(places, row, "", "", tail, update if changed and key else "", updated)
    always = any(codec.column.identity == "always" for codec in columns)
    into = f"INSERT INTO {table} ({names})" + (" OVERRIDING SYSTEM VALUE" if always else "")
    types = [(codec.cast or codec.column.type).replace("%", "%%") for codec in columns]
    # A text is cast to the type, whether it stands for itself or comes out of an array.
    marks = ", ".join(f"CAST(CAST(%s AS text) AS {type_})" for type_ in types)
    casts = ", ".join(f"CAST(c{i} AS {type_})" for i, type_ in enumerate(types))
    aliases = ", ".join(f"c{i}" for i in range(len(columns)))
    arrays = ", ".join("CAST(%s AS text[])" for _ in columns)
    return Texts(
        places,
        f"{into} VALUES ({marks})",
        f"{into} SELECT {casts} FROM ",  # noqa: S608
        f"unnest({arrays}) AS given({aliases})",
        tail,
    )


def _copy(
    connection: Connection, head: str, tail: str, places: tuple[int, ...], rows: list[Written]
) -> None:
    """By COPY into a table of this transaction's own, and from there with the same casts."""
    fields = ", ".join(f"c{i} text" for i in range(len(places)))
    connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {_GIVEN} ({fields}) ON COMMIT DROP")
    raw: Any = connection.connection.driver_connection
    pick = itemgetter(*places) if len(places) > 1 else lambda values: (values[places[0]],)
    with raw.cursor() as cursor, cursor.copy(f"COPY {_GIVEN} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(pick(row.raw))
    connection.exec_driver_sql(f"{head}{_GIVEN}{tail}")
    connection.exec_driver_sql(f"DROP TABLE {_GIVEN}")


def _on_conflict(connection: Connection | Engine, node: Node, columns: list[Codec]) -> str:
    unique = _unique(node)
    if not unique:
        return ""
    key = ", ".join(_quote(connection, name) for name in unique)
    sets = ", ".join(
        f"{_quote(connection, codec.name)} = excluded.{_quote(connection, codec.name)}"
        for codec in columns
        if codec.name not in unique
    )
    return f" ON CONFLICT ({key}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")


def _unique(node: Node) -> tuple[str, ...]:
    """The columns of a row's key that no two rows have alike; empty for none."""
    return next((key for key in unique_keys(node.info) if set(key) <= set(node.key)), ())


def _made_mysql(
    connection: Connection | Engine, node: Node, columns: list[Codec], into: str
) -> Texts:
    places = node.places(tuple(codec.name for codec in columns))
    marks = f"({', '.join('%s' for _ in columns)})"
    row = f"{into} VALUES {marks}"
    changed = [codec.name for codec in columns if codec.name not in node.key]
    sets = ", ".join(f"{_quote(connection, name)} = %s" for name in changed)
    key = " AND ".join(f"{_quote(connection, name)} = %s" for name in node.key)
    update = f"UPDATE {_table(connection, node)} SET {sets} WHERE {key}"  # noqa: S608
    updated = node.places((*changed, *node.key))
    return Texts(places, row, "", marks, "", update if changed and key else "", updated)


def insert(connection: Connection, node: Node, rows: list[Written]) -> None:
    """Insert rows on MySQL, by one statement; one that is there already is an error."""
    if rows:
        texts = texts_of(connection, "mysql", node)
        _run(connection, texts.row, texts.places, rows)


def update(connection: Connection, node: Node, rows: list[Written]) -> None:
    """Change rows by their key on MySQL."""
    if rows and (texts := texts_of(connection, "mysql", node)).update:
        _run(connection, texts.update, texts.updated, rows)


def _run(connection: Connection, text: str, places: tuple[int, ...], rows: list[Written]) -> None:
    """By the driver itself, which puts the rows of an INSERT together."""
    raw: Any = connection.connection.driver_connection
    given = [tuple([row.raw[i] for i in places]) for row in rows]
    with raw.cursor() as cursor:
        if len(given) == 1:
            cursor.execute(text, given[0])
        else:
            cursor.executemany(text, given)


def _written(node: Node) -> list[Codec]:
    return [codec for codec in node.codecs if codec.column.generated is None]


def _quote(connection: Connection | Engine, name: str) -> str:
    return connection.dialect.identifier_preparer.quote_identifier(name)


def _table(connection: Connection | Engine, node: Node) -> str:
    name = _quote(connection, node.info.name)
    return f"{_quote(connection, node.info.schema)}.{name}" if node.info.schema else name


__all__ = ["Texts", "insert", "length", "putting", "spelled", "texts_of", "update", "upsert"]

"""Programs that write to tables by SQL, for the contract of feeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgpack
import sqlalchemy as sa

from migrator import tables
from migrator.model.move import At
from migrator.ports import Collection
from migrator.testing.feeds import Write
from migrator.testing.feeds.case import RULES

_DEADLOCK = 1213
_UPSERT = {
    "mysql": "ON DUPLICATE KEY UPDATE v = VALUES(v)",
    "": "ON CONFLICT (id) DO UPDATE SET v = excluded.v",
}
# What a feed or a fence may leave beside the data, by the server's own catalogue.
LEFT = {
    "postgresql": (
        "SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database()",
        "SELECT 'publication ' || pubname FROM pg_publication",
        "SELECT 'trigger ' || tgname || tgrelid::text FROM pg_trigger WHERE NOT tgisinternal",
        "SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
        "SELECT 'identity ' || relname || relreplident::text FROM pg_class "
        "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'",
    ),
    "sqlite": ("SELECT type || ' ' || name FROM sqlite_master",),
    "mysql": (
        "SELECT concat('trigger ', trigger_name) FROM information_schema.triggers "
        "WHERE trigger_schema = database()",
        "SELECT concat('table ', table_name) FROM information_schema.tables "
        "WHERE table_schema = database()",
    ),
}


def tables_at(name: str) -> At:
    """Games with rounds, which have moves."""
    moves = tables(f"{name}_m", parent="round")
    rounds = tables(f"{name}_r", parent="game", moves=moves)
    return At("store", tables(name, key="id", rounds=rounds), RULES)


class SqlApplication:
    """One session of a plain driver, and what all layouts have in common."""

    def __init__(self, url: str, collection: Collection) -> None:
        self.engine = sa.create_engine(url, poolclass=sa.StaticPool)
        self.dialect = self.engine.dialect.name
        self.name = collection.at.collection
        if self.dialect == "sqlite":
            sa.event.listen(self.engine, "connect", _sqlite)
            sa.event.listen(self.engine, "begin", lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"))

    def do(self, *statements: str) -> None:
        """Some statements in one transaction, again where the server undid it for a deadlock."""
        while True:
            try:
                with self._open(*statements):
                    return
            except sa.exc.OperationalError as error:
                if error.orig is None or error.orig.args[0] != _DEADLOCK:
                    raise

    @property
    def upsert(self) -> str:
        return _UPSERT.get(self.dialect, _UPSERT[""])

    def left(self) -> set[str]:
        with self.engine.connect() as connection:
            return {
                row[0] for query in LEFT[self.dialect] for row in connection.exec_driver_sql(query)
            }

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _open(self, *statements: str) -> Iterator[None]:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement.format(t=self.name))
            yield

    def write(
        self, name: str, before: Sequence[str], act: Sequence[str], touched: dict[str, bool],
        whole: bool = False, fenced: bool = True,
    ) -> Write:  # fmt: skip
        """A kind of write by its statements."""
        return Write(name, lambda: self.do(*before), lambda: self.do(*act), touched, whole, fenced)


class TablesApplication(SqlApplication):
    """Writes games, rounds and moves."""

    def make(self) -> None:
        self.do(
            "CREATE TABLE {t} (id varchar(50) PRIMARY KEY, v integer, w integer UNIQUE)",
            "CREATE TABLE {t}_r (id integer PRIMARY KEY, game varchar(50), v integer, "
            "FOREIGN KEY (game) REFERENCES {t} (id) ON DELETE CASCADE ON UPDATE CASCADE)",
            "CREATE TABLE {t}_m (id integer PRIMARY KEY, round integer, v integer, "
            "FOREIGN KEY (round) REFERENCES {t}_r (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        )

    def put(self, key: str, number: int) -> None:
        self.do(f"INSERT INTO {{t}} (id, v) VALUES ('{key}', {number}) {self.upsert}")

    def fill(self, keys: Sequence[str]) -> None:
        with self.engine.begin() as connection:
            statement = sa.text(f"INSERT INTO {self.name} (id, v) VALUES (:id, 1)")
            connection.execute(statement, [{"id": key} for key in keys])

    def delete(self, key: str) -> None:
        self.do(f"DELETE FROM {{t}} WHERE id = '{key}'")

    def holding(self, key: str) -> AbstractContextManager[object]:
        return self._open(f"INSERT INTO {{t}} (id, v) VALUES ('{key}', 1)")

    def writes(self) -> Iterator[Write]:
        write = self.write
        clean = ("DELETE FROM {t}_m", "DELETE FROM {t}_r", "DELETE FROM {t}")
        game = (*clean, "INSERT INTO {t} (id, v) VALUES ('a', 1), ('b', 1)")
        rounds = (*game, "INSERT INTO {t}_r (id, game, v) VALUES (1, 'a', 1), (2, 'b', 1)")
        moves = (*rounds, "INSERT INTO {t}_m (id, round, v) VALUES (11, 1, 1), (12, 2, 1)")
        a, b = {"a": False}, {"a": False, "b": False}
        yield write("insert", clean, ["INSERT INTO {t} (id, v) VALUES ('a', 1)"], a)
        yield write("update", game, ["UPDATE {t} SET v = 2 WHERE id = 'a'"], a)
        yield write(
            "another key", game, ["UPDATE {t} SET id = 'c' WHERE id = 'a'"],
            {"a": True, "c": False},
        )  # fmt: skip
        yield write("delete", game, ["DELETE FROM {t} WHERE id = 'a'"], {"a": True})
        again = ["DELETE FROM {t} WHERE id = 'a'", "INSERT INTO {t} (id, v) VALUES ('a', 5)"]
        yield write("delete and insert again", game, again, {"a": True})
        yield write(
            "insert and delete", clean,
            ["INSERT INTO {t} (id, v) VALUES ('a', 5)", "DELETE FROM {t} WHERE id = 'a'"],
            {"a": True},
        )  # fmt: skip
        child = "INSERT INTO {t}_r (id, game, v) VALUES (9, 'a', 1)"
        yield write("insert a child", game, [child], a)
        yield write("update a child", rounds, ["UPDATE {t}_r SET v = 2 WHERE id = 1"], a)
        yield write("delete a child", rounds, ["DELETE FROM {t}_r WHERE id = 1"], a)
        move = "UPDATE {t}_r SET game = 'b' WHERE id = 1"
        yield write("move a child", rounds, [move], b)
        yield write("move a child with its own", moves, [move], b)
        orphan = "UPDATE {t}_r SET game = NULL WHERE id = 1"
        yield write("orphan a child", rounds, [orphan], a)
        grand = "INSERT INTO {t}_m (id, round, v) VALUES (19, 1, 1)"
        yield write("insert a grandchild", rounds, [grand], a)
        yield write("update a grandchild", moves, ["UPDATE {t}_m SET v = 2 WHERE id = 11"], a)
        yield write("delete a grandchild", moves, ["DELETE FROM {t}_m WHERE id = 11"], a)
        yield write("move a grandchild", moves, ["UPDATE {t}_m SET round = 2 WHERE id = 11"], b)
        yield write(
            "move a child, then write below it", moves,
            [move, "UPDATE {t}_m SET v = 3 WHERE id = 11"], b,
        )  # fmt: skip
        yield write(
            "all of an aggregate", clean,
            ["INSERT INTO {t} (id, v) VALUES ('a', 1)", child,
             "INSERT INTO {t}_m (id, round, v) VALUES (19, 9, 1)"], a,
        )  # fmt: skip
        yield write(
            "delete all of an aggregate", moves,
            ["DELETE FROM {t}_m WHERE round = 1", "DELETE FROM {t}_r WHERE game = 'a'",
             "DELETE FROM {t} WHERE id = 'a'"], {"a": True},
        )  # fmt: skip
        yield write(
            "delete and let cascade", moves, ["DELETE FROM {t} WHERE id = 'a'"], {"a": True}
        )
        yield write(
            "another key and let cascade", moves, ["UPDATE {t} SET id = 'c' WHERE id = 'a'"],
            {"a": True, "c": False},
        )  # fmt: skip
        yield write("delete a child and let cascade", moves, ["DELETE FROM {t}_r WHERE id = 1"], a)
        yield write("many rows", moves, ["UPDATE {t} SET v = 3", "UPDATE {t}_m SET v = 3"], b)
        yield from self._more(moves, b)

    def _more(self, moves: tuple[str, ...], b: dict[str, bool]) -> Iterator[Write]:
        """What is there on some systems alone."""
        if self.dialect == "postgresql":
            below = ["TRUNCATE {t}_m"]
            yield self.write("truncate", moves, ["TRUNCATE {t} CASCADE"], {}, whole=True)
            yield self.write("truncate below", moves, below, {}, whole=True)
        if self.dialect == "mysql":
            replace = "REPLACE INTO {t}_m (id, round, v) VALUES (11, 2, 7)"
            yield self.write("replace another's grandchild", moves, [replace], b)
            truncate = ["TRUNCATE {t}_m"]
            yield self.write("truncate", moves, truncate, {}, whole=True, fenced=False)
            alter = ["ALTER TABLE {t}_r ADD COLUMN more integer DEFAULT 7"]
            yield self.write("alter", moves, alter, {}, whole=True, fenced=False)
        if self.dialect == "sqlite":
            replace = "INSERT OR REPLACE INTO {t} (id, v) VALUES ('a', 7)"
            yield self.write("replace", moves, [replace], {"a": True})
            ignore = "INSERT OR IGNORE INTO {t} (id, v) VALUES ('a', 7), ('c', 7)"
            yield self.write("ignore", moves, [ignore], {"a": False, "c": False})
            upsert = f"INSERT INTO {{t}} (id, v) VALUES ('a', 7) {self.upsert}"
            yield self.write("upsert", moves, [upsert], {"a": False})
            child = "INSERT OR REPLACE INTO {t}_r (id, game, v) VALUES (1, 'b', 7)"
            both = {"a": False, "b": False}
            yield self.write("replace another's child", moves, [child], both)
            key = "UPDATE OR REPLACE {t} SET id = 'b' WHERE id = 'a'"
            yield self.write("replace by another key", moves, [key], {"a": True, "b": True})
            unique = (*moves, "UPDATE {t} SET w = 9 WHERE id = 'b'")
            other = "REPLACE INTO {t} (id, w) VALUES ('c', 9)"
            gone = {"b": True, "c": False}
            yield self.write("replace by another unique column", unique, [other], gone)


def _sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA busy_timeout = 20000")


class EntriesApplication(SqlApplication):
    """Writes blocks of one entry, in the tables that Migrator has made."""

    def make(self) -> None:
        pass

    def _put(self, key: str, number: int) -> tuple[str, str]:
        text = f"'{{{{\"v\": {number}}}}}'"
        conflict = _UPSERT_BLOCK[self.dialect == "mysql"]
        return (
            f"INSERT INTO {{t}}_blocks (block) VALUES ('{key}') {conflict[0]}",
            f"INSERT INTO {{t}} (block, entry, value) VALUES ('{key}', '', {text}) {conflict[1]}",
        )

    def put(self, key: str, number: int) -> None:
        self.do(*self._put(key, number))

    def fill(self, keys: Sequence[str]) -> None:
        with self.engine.begin() as connection:
            for statement in (
                f"INSERT INTO {self.name}_blocks (block) VALUES (:id)",
                f"INSERT INTO {self.name} (block, entry, value) VALUES (:id, '', '{{\"v\":1}}')",
            ):
                query = sa.text(statement.replace('"v":', '"v"\\:'))
                connection.execute(query, [{"id": key} for key in keys])

    def delete(self, key: str) -> None:
        self.do(*self._delete(key))

    def _delete(self, key: str) -> tuple[str, str]:
        return (
            f"DELETE FROM {{t}}_blocks WHERE block = '{key}'",
            # Unless somebody makes it at this moment, which the first statement did not see.
            f"DELETE FROM {{t}} WHERE block = '{key}' "
            f"AND NOT EXISTS (SELECT 1 FROM {{t}}_blocks WHERE block = '{key}')",
        )

    def holding(self, key: str) -> AbstractContextManager[object]:
        return self._open(*self._put(key, 1))

    def writes(self) -> Iterator[Write]:
        write = self.write
        clean = ("DELETE FROM {t}", "DELETE FROM {t}_blocks")
        both = (*clean, *self._put("a", 1), *self._put("b", 1))
        a, b = {"a": False}, {"a": False, "b": False}
        yield write("put", clean, self._put("a", 1), a)
        yield write("put again", both, self._put("a", 2), a)
        yield write("update", both, ["UPDATE {t} SET value = '5' WHERE block = 'a'"], a)
        append = "INSERT INTO {t} (block, entry, value) VALUES ('a', 'rounds[0]', '1')"
        yield write("append", both, [append], a)
        yield write("remove an entry", (*both, append), ["DELETE FROM {t} WHERE entry <> ''"], a)
        expires = "UPDATE {t}_blocks SET expires = 9 WHERE block = 'a'"
        yield write("give it a deadline", both, [expires], a)
        yield write("delete", both, self._delete("a"), {"a": True})
        again = [*self._delete("a"), *self._put("a", 3)]
        yield write("delete and put again", both, again, {"a": True})
        yield write("all", both, ["UPDATE {t} SET value = '5'"], b)


class EmbeddedApplication(SqlApplication):
    """Writes blocks of one entry to a file of the embedded store."""

    def __init__(self, url: str, collection: Collection) -> None:
        super().__init__(url, collection)
        self.number = ""

    def make(self) -> None:
        pass

    def do(self, *statements: str) -> None:
        super().do(*(statement.replace("{t}", self._table) for statement in statements))

    @property
    def _table(self) -> str:
        if not self.number:
            query = "SELECT id FROM collections WHERE name = ?"
            with self.engine.connect() as connection:
                found = connection.exec_driver_sql(query, (self.name,)).scalar_one()
            self.number = f"entries_{found}"
        return self.number

    @staticmethod
    def _put(key: str, number: int) -> str:
        packed = msgpack.packb({"v": number}).hex()
        return (
            f"INSERT INTO {{t}} VALUES ('{key}', '', x'{packed}', NULL) "
            "ON CONFLICT (block, entry) DO UPDATE SET value = excluded.value"
        )

    def put(self, key: str, number: int) -> None:
        self.do(self._put(key, number))

    def fill(self, keys: Sequence[str]) -> None:
        self.do(*(self._put(key, 1) for key in keys))

    def delete(self, key: str) -> None:
        self.do(f"DELETE FROM {{t}} WHERE block = '{key}'")

    def holding(self, key: str) -> AbstractContextManager[object]:
        return self._open(self._put(key, 1).replace("{t}", self._table))

    def writes(self) -> Iterator[Write]:
        write, put = self.write, self._put
        clean = ("DELETE FROM {t}",)
        append = "INSERT INTO {t} VALUES ('a', 'rounds[0]', x'01', NULL)"
        both = (*clean, put("a", 1), append, put("b", 1))
        a = {"a": False}
        delete = "DELETE FROM {t} WHERE block = 'a'"
        yield write("put", clean, [put("a", 1)], a)
        yield write("put again", both, [put("a", 2)], a)
        yield write("append", (*clean, put("a", 1)), [append], a)
        yield write("remove an entry", both, [f"{delete} AND entry <> ''"], a)
        yield write("replace an entry", both, [append.replace("INSERT", "REPLACE")], a)
        yield write("delete", both, [delete], {"a": True})
        yield write("delete and put again", both, [delete, put("a", 3)], {"a": True})
        yield write("all", both, ["UPDATE {t} SET expires = 9"], {"a": False, "b": False})


_UPSERT_BLOCK = {
    True: (
        "ON DUPLICATE KEY UPDATE expires = NULL",
        "ON DUPLICATE KEY UPDATE value = VALUES(value)",
    ),
    False: (
        "ON CONFLICT (block) DO UPDATE SET expires = NULL",
        "ON CONFLICT (block, entry) DO UPDATE SET value = excluded.value",
    ),
}

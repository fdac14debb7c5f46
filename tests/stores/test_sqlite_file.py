"""Single aggregates in tables of SQLite, by connections that the file keeps."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator import At, tables
from migrator.errors import DoesNotFit
from migrator.model.block import Address, Block, Patch
from migrator.model.value import Opaque
from migrator.stores.sql.write_sqlite import SqliteWriter
from tests.stores.sql_servers import Base

SCHEMA = """
CREATE TABLE game (id text NOT NULL PRIMARY KEY, n integer NOT NULL, score real);
CREATE TABLE round (game text NOT NULL, pos {pos} NOT NULL, spell text,
  PRIMARY KEY (game, pos), FOREIGN KEY (game) REFERENCES game (id));
CREATE TABLE seen (what text, row text);
CREATE TRIGGER a AFTER INSERT ON round BEGIN INSERT INTO seen VALUES ('new', NEW.pos); END;
CREATE TRIGGER b AFTER UPDATE ON round BEGIN INSERT INTO seen VALUES ('changed', NEW.pos); END;
CREATE TRIGGER c AFTER DELETE ON round BEGIN INSERT INTO seen VALUES ('gone', OLD.pos); END;
CREATE TRIGGER d AFTER UPDATE ON game BEGIN INSERT INTO seen VALUES ('changed', NEW.id); END;
"""
GAME = tables("game", rounds=tables("round", order_by="pos"))


def game(number: int, *spells: str | None, score: float | None = None, id: str = "g") -> Block:
    rounds = [{"pos": place, "spell": spell} for place, spell in enumerate(spells)]
    return Block(id, {"": {"id": id, "n": number, "score": score, "rounds": rounds}})


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Base]:
    made = Base("sqlite", tmp_path)
    yield made
    made.drop()


def games(base: Base, pos: str = "integer") -> Any:
    base.run(SCHEMA.format(pos=pos))
    return base.store().collection("Game", At("shop", GAME))


def told(base: Base) -> list[tuple[Any, ...]]:
    """What triggers saw since they were asked last."""
    found = [tuple(row) for row in base.rows("SELECT what, row FROM seen ORDER BY rowid")]
    base.run("DELETE FROM seen")
    return found


def test_rows_that_lie_there_alike_are_left_alone(base: Base) -> None:
    """And so no trigger of an outbox fires for them."""
    collection = games(base)
    collection.write([game(1, "a", "b", "c", score=0.5)])
    told(base)
    collection.write([game(1, "a", "b", "c", score=0.5)])
    assert told(base) == []
    collection.write([game(2, "a", "x", score=0.5)])
    assert told(base) == [("gone", "2"), ("changed", "g"), ("changed", "1")]
    assert collection.read(["g"]) == [game(2, "a", "x", score=0.5)]


def test_a_row_of_another_kind_under_an_equal_value_is_written(base: Base) -> None:
    """1 and 1.0 are one to SQLite, and two to the model."""
    base.run("CREATE TABLE item (id text NOT NULL PRIMARY KEY, held)")
    collection = base.store().collection("Item", At("shop", tables("item")))
    for held in (1, 1.0, "1", b"1", None, 2**40, 2.0**40):
        collection.write([Block("i", {"": {"id": "i", "held": held}})])
        (found,) = collection.read(["i"])
        assert repr(found.entries[""]["held"]) == repr(held)


def test_fields_are_set_and_rows_are_added_where_they_lie(base: Base) -> None:
    collection = games(base)
    collection.write([game(1, "a", "b", score=0.5)])
    # An upsert would fire it: its row is to be inserted before it is found there.
    base.run(
        "CREATE TRIGGER e BEFORE INSERT ON game BEGIN INSERT INTO seen VALUES ('?', NEW.id); END"
    )
    told(base)
    assert collection.amend("g", {"n": 2}, {}) == game(2, "a", "b", score=0.5)
    assert told(base) == [("changed", "g")]
    more = {"rounds": {"pos": 2, "spell": "c"}}
    assert collection.amend("g", {"n": 2}, more) == game(2, "a", "b", "c", score=0.5)
    assert told(base) == [("new", "2")]
    collection.write([game(3, "a", "b", "c", score=0.5)])
    assert told(base) == [("changed", "g")]
    assert collection.read(["g"]) == [game(3, "a", "b", "c", score=0.5)]


@pytest.mark.parametrize(
    ("set", "append"),
    [
        ({"n": None}, {}),
        ({"id": "h"}, {}),
        ({"m": 1}, {}),
        ({"n": 2, "score": 1}, {}),
        ({"n": 2}, {"rounds": {"pos": 0, "spell": "b"}}),
        ({"n": 2}, {"rounds": {"pos": -1, "spell": "b"}}),
        ({"n": 2}, {"rounds": {"pos": 3, "spell": "b", "m": 1}}),
        ({"n": 2}, {"rounds": "b"}),
        ({"n": 2}, {"n": 3}),
    ],
)
def test_what_does_not_fit_is_not_amended(
    base: Base, set: dict[str, Any], append: dict[str, Any]
) -> None:
    collection = games(base)
    collection.write([game(1, "a")])
    told(base)
    assert collection.amend("g", set, append) is None
    assert told(base) == []
    assert collection.read(["g"]) == [game(1, "a")]


def test_an_order_that_only_the_file_tells_is_amended_as_a_whole(base: Base) -> None:
    """Texts by a collation, and a row whose place in the list is a number of its own."""
    collection = games(base, pos="text COLLATE NOCASE")
    rounds = [{"pos": "a", "spell": None}, {"pos": "B", "spell": None}]
    record = {"id": "g", "n": 1, "score": None, "rounds": rounds[:1]}
    collection.write([Block("g", {"": record})])
    after = collection.amend("g", {"score": 0.5}, {"rounds": rounds[1]})
    assert after == Block("g", {"": {**record, "score": 0.5, "rounds": rounds}})
    assert collection.read(["g"]) == [after]
    assert collection.amend("g", {}, {"rounds": {"pos": "A", "spell": None}}) is None
    assert collection.read(["g"]) == [after]


def test_positions_of_rows_go_on(base: Base) -> None:
    base.run(
        "CREATE TABLE game (id text NOT NULL PRIMARY KEY);"
        "CREATE TABLE round (game text NOT NULL REFERENCES game (id), place integer NOT NULL, "
        "spell text, PRIMARY KEY (game, place));"
        "INSERT INTO game VALUES ('g'); INSERT INTO round VALUES ('g', 7, 'a')"
    )
    placed = tables("round", order_by="place", columns={"place": "INTEGER POSITION"})
    collection = base.store().collection("Game", At("shop", tables("game", rounds=placed)))
    assert collection.amend("g", {}, {"rounds": {"spell": "b"}}) is not None
    (found,) = collection.read(["g"])
    assert found.entries[""]["rounds"] == [{"spell": "a"}, {"spell": "b"}]


def test_no_other_row_is_taken_for_one_by_its_collation(base: Base) -> None:
    """The index tells 'a' and 'A' apart, a condition on the column does not."""
    base.run(
        "CREATE TABLE item (id text NOT NULL COLLATE NOCASE, n integer);"
        "CREATE UNIQUE INDEX of_id ON item (id COLLATE BINARY);"
        "INSERT INTO item VALUES ('a', 1), ('A', 2)"
    )
    collection = base.store().collection("Item", At("shop", tables("item", key="id")))
    (held,) = collection.read(["a"])
    assert held == Block("a", {"": {"id": "a", "n": 1}})
    assert collection.amend("a", {"n": 3}, {}) is None
    for write in (
        lambda: collection.patch([Patch("a", {"": {"id": "a", "n": 3}})]),
        lambda: collection.exchange("a", held, None),
        lambda: collection.delete([Address("a")]),
    ):
        with pytest.raises(DoesNotFit, match="only as this collation does not"):
            write()
    assert collection.read(["a", "A"]) == [held, Block("A", {"": {"id": "A", "n": 2}})]
    assert collection.read(["A"]) == [Block("A", {"": {"id": "A", "n": 2}})]


def test_no_other_row_below_goes_with_one_by_its_collation(base: Base) -> None:
    base.run(
        "CREATE TABLE game (id text NOT NULL PRIMARY KEY);"
        "CREATE TABLE round (game text NOT NULL REFERENCES game (id), "
        "pos text NOT NULL COLLATE NOCASE, spell text);"
        "CREATE UNIQUE INDEX of_pos ON round (pos COLLATE BINARY);"
    )
    both = tables("game", rounds=tables("round", key="pos", order_by="spell"))
    collection = base.store().collection("Game", At("shop", both))
    rounds = [{"pos": "b", "spell": "1"}, {"pos": "B", "spell": "2"}]
    collection.write([Block("g", {"": {"id": "g", "rounds": rounds}})])
    made = Block("g", {"": {"id": "g", "rounds": rounds[:1]}})
    collection.write([made])
    assert collection.read(["g"]) == [made]


def test_what_lies_below_a_row_that_stays_is_left_as_a_row_beside_it_goes(base: Base) -> None:
    base.run(
        "CREATE TABLE game (id text NOT NULL PRIMARY KEY);"
        "CREATE TABLE round (game text NOT NULL REFERENCES game (id), n integer PRIMARY KEY, "
        "pos text NOT NULL COLLATE NOCASE);"
        "CREATE UNIQUE INDEX of_pos ON round (pos COLLATE BINARY);"
        "CREATE TABLE line (round integer NOT NULL REFERENCES round (n), text text NOT NULL "
        "PRIMARY KEY);"
        "CREATE TRIGGER below BEFORE DELETE ON round BEGIN DELETE FROM line WHERE round = OLD.n; "
        "END"
    )
    lines = tables("line", order_by="text")
    shape = tables("game", rounds=tables("round", key="pos", order_by="n", lines=lines))
    collection = base.store().collection("Game", At("shop", shape))
    rounds: Any = [
        {"n": n, "pos": pos, "lines": [{"text": pos}]} for n, pos in enumerate(("b", "B"))
    ]
    other = Block("h", {"": {"id": "h", "rounds": [{"n": 2, "pos": "c", "lines": []}]}})
    collection.write([Block("g", {"": {"id": "g", "rounds": rounds}})])
    collection.write([other])
    made = Block("g", {"": {"id": "g", "rounds": rounds[:1]}})
    collection.write([made])
    assert collection.read(["g"]) == [made]
    # A row that comes is looked for below other games, and none but it.
    collection.write([more := Block("g", {"": {"id": "g", "rounds": [
        *rounds, {"n": 3, "pos": "C", "lines": [{"text": "C"}]}]}})])  # fmt: skip
    assert collection.read(["g", "h"]) == [more, other]


def test_what_is_no_plain_field_is_not_amended_as_one(base: Base) -> None:
    """A key, also where no row below keeps it, and a row whose key nothing tells to be taken."""
    base.run(
        "CREATE TABLE game (id text NOT NULL PRIMARY KEY, n integer);"
        "CREATE TABLE round (game text NOT NULL REFERENCES game (id), pos integer NOT NULL, "
        "n integer NOT NULL);"
        "INSERT INTO game VALUES ('g', 1), ('k', 1); INSERT INTO round VALUES ('g', 1, 1)"
    )
    alone = base.store().collection("Game", At("shop", tables("game")))
    assert alone.amend("k", {"id": "h"}, {}) is None
    assert base.rows("SELECT id FROM game ORDER BY id") == [("g",), ("k",)]
    rounds = tables("round", key=("game", "pos"), order_by="n")
    both = base.store().collection("Game", At("shop", tables("game", rounds=rounds)))
    assert both.amend("g", {}, {"rounds": {"pos": 1, "n": 2}}) is None
    assert base.rows("SELECT pos, n FROM round") == [(1, 1)]


def test_an_exchange_wants_what_was_read(base: Base) -> None:
    collection = games(base)
    collection.write([game(1, "a", "b")])
    told(base)
    (held,) = collection.read(["g"])
    assert collection.exchange("g", held, game(1, "a", "b", "c"))
    assert told(base) == [("new", "2")]
    assert not collection.exchange("g", held, game(9))
    assert not collection.exchange("h", game(1, id="h"), game(9, id="h"))
    assert told(base) == []
    (now,) = collection.read(["g"])
    assert now == game(1, "a", "b", "c")
    assert collection.exchange("g", now, Patch("g", {"": game(3, "a").entries[""]}))
    assert collection.read(["g"]) == [game(3, "a")]


def test_what_is_refused_leaves_everything_as_it_was(base: Base) -> None:
    base.run(SCHEMA.format(pos="integer") + "CREATE UNIQUE INDEX of_n ON game (n);")
    collection = base.store().collection("Game", At("shop", GAME))
    collection.write([game(1, "a"), game(2, "b", id="h")])
    told(base)
    (held,) = collection.read(["g"])
    for write in (
        lambda: collection.write([game(2, "x", "y")]),
        lambda: collection.exchange("g", held, game(2, "x", "y")),
    ):
        with pytest.raises(DoesNotFit, match="have the same n, which is unique"):
            write()
    assert told(base) == []
    assert collection.read(["g", "h"]) == [game(1, "a"), game(2, "b", id="h")]
    collection.write([game(4, "a")])  # the connections are as before
    assert collection.read(["g"]) == [game(4, "a")]


def test_an_order_by_texts_is_looked_at_by_reading_back(base: Base) -> None:
    collection = games(base, pos="text COLLATE NOCASE")
    rounds = [{"pos": pos, "spell": None} for pos in ("B", "a")]
    with pytest.raises(DoesNotFit, match="order"):
        collection.write([Block("g", {"": {"id": "g", "n": 1, "score": None, "rounds": rounds}})])
    assert collection.read(["g"]) == [None]


@pytest.mark.parametrize("places", [(1, 0), (0, 0)])
def test_an_order_by_numbers_is_told_without(base: Base, places: tuple[int, int]) -> None:
    collection = games(base)
    rounds = [{"pos": pos, "spell": None} for pos in places]
    with pytest.raises(DoesNotFit):
        collection.write([Block("g", {"": {"id": "g", "n": 1, "score": None, "rounds": rounds}})])
    assert collection.read(["g"]) == [None]


def test_text_that_is_no_utf8_is_read_and_written_over(base: Base) -> None:
    collection = games(base)
    collection.write([game(1, "a", "b")])
    base.run("UPDATE round SET spell = CAST(x'ff' AS TEXT) WHERE pos = 1")
    odd = Opaque("sqlite", "text", b"\xff")
    (found,) = collection.read(["g"])
    assert [one["spell"] for one in found.entries[""]["rounds"]] == ["a", odd]
    collection.write([game(2, "a", "c")])
    assert collection.read(["g"]) == [game(2, "a", "c")]


def test_links_that_compare_by_a_collation_are_followed_by_the_file(base: Base) -> None:
    base.run("CREATE TABLE game (id text NOT NULL PRIMARY KEY COLLATE NOCASE, n integer)")
    base.run(
        "CREATE TABLE round (game text NOT NULL COLLATE NOCASE, pos integer, "
        "PRIMARY KEY (game, pos), FOREIGN KEY (game) REFERENCES game (id))"
    )
    base.run("INSERT INTO game VALUES ('Ab', 1)")
    base.run("INSERT INTO round VALUES ('aB', 0), ('Ab', 1)")
    collection = base.store().collection("Game", At("shop", GAME))
    for found in (*collection.read(["Ab"]), *collection.page(None, None, 10).blocks):
        assert [one["pos"] for one in found.entries[""]["rounds"]] == [0, 1]
    assert collection.read(["AB"]) == [None]


def test_a_forked_child_opens_connections_of_its_own(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = games(base)
    collection.write([game(1, "a")])
    kept = collection.database._kept
    parents = kept.lend()
    kept.give_back(parents)
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    mine = kept.lend()
    assert mine is not parents
    kept.give_back(mine)
    kept.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        mine.execute("SELECT 1")
    monkeypatch.undo()
    assert parents.execute("SELECT n FROM game").fetchall() == [(1,)]
    parents.close()


def test_what_hangs_deeper_is_written_as_on_any_system(base: Base) -> None:
    base.run(
        "CREATE TABLE game (id text NOT NULL PRIMARY KEY);"
        "CREATE TABLE round (id integer PRIMARY KEY, game text NOT NULL REFERENCES game (id));"
        "CREATE TABLE cast (round integer NOT NULL REFERENCES round (id), pos integer, "
        "PRIMARY KEY (round, pos))"
    )
    deep = tables("game", rounds=tables("round", casts=tables("cast", order_by="pos")))
    collection = base.store().collection("Game", At("shop", deep))
    rounds = [{"id": 1, "casts": [{"pos": 0}, {"pos": 1}]}, {"id": 2, "casts": []}]
    made = Block("g", {"": {"id": "g", "rounds": rounds}})
    collection.write([made])
    assert isinstance(collection.writer, SqliteWriter)
    assert collection.writer._parts is None
    assert collection.read(["g"]) == [made]


def test_a_row_whose_key_is_null_is_not_left_beside_what_is_put(base: Base) -> None:
    """SQLite takes NULL in a key that is not said to be without, and no condition finds it."""
    base.run(
        "CREATE TABLE game (id text NOT NULL PRIMARY KEY, n integer NOT NULL, score real);"
        "CREATE TABLE round (game text NOT NULL REFERENCES game (id), pos integer, spell text, "
        "PRIMARY KEY (game, pos))"
    )
    collection = base.store().collection("Game", At("shop", GAME))
    collection.write([game(1, "a")])
    base.run("INSERT INTO round VALUES ('g', NULL, 'theirs')")
    (held,) = collection.read(["g"])
    for write in (
        lambda: collection.write([game(2, "a", "b")]),
        lambda: collection.exchange("g", held, game(2, "a", "b")),
        lambda: collection.delete([Address("g")]),
    ):
        with pytest.raises(DoesNotFit, match="round holds a row whose key"):
            write()
    assert collection.read(["g"]) == [held]

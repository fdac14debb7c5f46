"""What a server or a file can't read any more: told with its table, and never passed over."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migrator import At, commands, tables
from migrator.errors import DamagedBlock, Terminal
from migrator.model.block import Block
from migrator.retry import Retry
from migrator.route import Unread, read_each
from tests.stores.sql_servers import Base
from tests.system.kit import Shop

# What the server says where it reads a page of a table that is damaged, as long as it is.
LIES = """
CREATE TABLE damaged (code text);
INSERT INTO damaged VALUES ('{code}');
CREATE FUNCTION lies(k text, v {kind}) RETURNS {kind} LANGUAGE plpgsql AS 'DECLARE it text; BEGIN
SELECT code INTO it FROM damaged;
IF k = ''b'' AND it IS NOT NULL THEN
RAISE EXCEPTION USING ERRCODE = it, MESSAGE = ''invalid page in block 3''; END IF;
RETURN v; END';
"""
SPEC = tables("game", rounds=tables("round", key=["game", "n"], parent="game", order_by="n"))


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Base]:
    made = Base("postgresql", tmp_path)
    yield made
    made.drop()


def entries(base: Base, code: str) -> Any:
    games = base.store().collection("Game", At("shop", "games"))
    games.create()
    games.write([Block(key, {"": {"id": key}}) for key in ("a", "b", "c")])
    base.run("ALTER TABLE games RENAME TO whole")
    base.run(LIES.format(code=code, kind="json"))
    base.run(
        "CREATE VIEW games AS SELECT block, entry, lies(block, value) AS value, tags FROM whole"
    )
    return games


def test_a_damaged_page_hides_no_other_block_that_is_asked_for(base: Base) -> None:
    games = entries(base, "data_corrupted")
    (a, b, c) = read_each(games, ["a", "b", "c"], Retry(0))
    assert a is not None
    assert c is not None
    assert (a.entries, c.entries) == ({"": {"id": "a"}}, {"": {"id": "c"}})
    assert isinstance(b, Unread)
    assert b.reason == "invalid page in block 3 (a page of table games)"
    with pytest.raises(DamagedBlock, match="its log names it: restore the table"):
        games.read_entries("b", [""])


@pytest.mark.parametrize(
    ("code", "words", "hint"),
    [
        ("data_corrupted", "the pages of table games can't be gone through: invalid page in block",
         "restore the table from a copy"),
        ("index_corrupted", "invalid page in block", "REINDEX"),
        ("io_error", "invalid page in block", "see its log and the disk"),
    ],
)  # fmt: skip
def test_pages_that_can_not_be_read_end_what_goes_through_them(
    base: Base, code: str, words: str, hint: str
) -> None:
    games = entries(base, code)
    for reader in (games, games.observer()):
        with pytest.raises(Terminal, match=words) as told:
            reader.page([None, None], None, 10)
        # One that stands for a single block would be passed over.
        assert not isinstance(told.value, DamagedBlock)
        assert told.value.where == "shop:games"
        assert hint in told.value.hint
        assert "nothing was skipped" in told.value.hint


def test_the_table_is_named_that_lies_below(base: Base) -> None:
    base.run("CREATE TABLE game (id text PRIMARY KEY)")
    base.run("CREATE TABLE round (game text REFERENCES game, n int, PRIMARY KEY (game, n))")
    base.run("INSERT INTO game VALUES ('a'), ('b')")
    base.run("INSERT INTO round VALUES ('a', 1), ('b', 1)")
    games = base.store().collection("Game", At("shop", SPEC))
    assert len(games.page([None, None], None, 10).blocks) == 2
    base.run("ALTER TABLE round RENAME TO whole")
    base.run(LIES.format(code="data_corrupted", kind="int"))
    base.run("CREATE VIEW round AS SELECT game, lies(game, n) AS n FROM whole")
    with pytest.raises(Terminal, match="the pages of table round can't be gone through"):
        games.page([None, None], None, 10)
    (a, b) = read_each(games, ["a", "b"], Retry(0))
    assert a is not None
    assert isinstance(b, Unread)
    assert "invalid page" in b.reason


def test_a_run_ends_at_a_damaged_page_and_goes_on_once_it_is_restored(
    base: Base, tmp_path: Path
) -> None:
    entries(base, "data_corrupted")
    base.run("UPDATE damaged SET code = NULL")
    shop = Shop(tmp_path, {"old": base.url, "new": "embedded:///new.db"})
    shop.script("move = Move('Game', source=At('old', 'games'), target=At('new', 'games'))")
    with shop.open() as project:
        plan = commands.plan(project, "0001")
        terms = commands.Terms(accept=[finding.code for finding in plan.to_accept])
        base.run("UPDATE damaged SET code = 'data_corrupted'")
        with pytest.raises(Terminal, match="the pages of table games can't be gone through"):
            commands.apply(project, plan, terms=terms)
        run = project.control.run("0001")
        assert project.control.quarantined(run.id) == []
        assert run.phase.value == "dual_write"
        base.run("UPDATE damaged SET code = NULL")
        (verified,) = commands.apply(project, plan, terms=terms).verified
        assert (verified.equal, verified.clean) == (3, True)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    base = Base("sqlite", tmp_path)
    base.run("CREATE TABLE game (id text PRIMARY KEY, n text)")
    with closing(sqlite3.connect(base.file)) as plain, plain:
        rows = [(str(n), "x" * 500) for n in range(100)]
        plain.executemany("INSERT INTO game VALUES (?, ?)", rows)
        (size,) = plain.execute("PRAGMA page_size").fetchone()
    whole = os.path.getsize(base.file)
    with base.file.open("r+b") as file:
        file.seek(whole - 4 * size)
        file.write(b"\xff" * 4 * size)
    games = base.store().collection("Game", At("shop", tables("game")))
    with pytest.raises(Terminal, match="malformed") as told:
        games.page([None, None], None, 1_000)
    assert told.value.where == "shop:game"
    assert "PRAGMA integrity_check" in told.value.hint
    base.drop()

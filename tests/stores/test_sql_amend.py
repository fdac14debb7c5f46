"""A field, or a row more, of an aggregate of tables in one message, on PostgreSQL and MariaDB."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from migrator import At, tables
from migrator.errors import DoesNotFit, Transient
from migrator.model.block import Block
from migrator.model.move import Tables
from migrator.model.value import Record
from migrator.stores.sql import amend, pipeline
from migrator.stores.sql.answers_mysql import ask
from tests.ending import joined
from tests.stores.sql_servers import Base
from tests.stores.test_sql_at_once import GAME, WAITING, base, end_others, game, opened

__all__ = ["base"]
COUNTED = tables("game", rounds=tables("round", columns={"pos": "INTEGER POSITION"}))
_LOOK_EVERY = 0.15  # as there


def amender(base: Base, shape: Tables = GAME) -> Any:
    """What amends at once, and nothing else."""
    return opened(base, shape=shape).writer.alone.amender


def more(place: int, spell: str) -> Record:
    return {"rounds": {"pos": place, "spell": spell}}


def test_a_field_and_a_row_more_take_one_message(base: Base, monkeypatch: Any) -> None:
    opened(base).write([game(0, "a")])
    sent: list[int] = []
    send = amend.send

    def counted(raw: Any, dialect: Any, asked: Any) -> Any:
        sent.append(len(asked))
        return send(raw, dialect, asked)

    monkeypatch.setattr(amend, "send", counted)
    collection = opened(base)
    monkeypatch.setattr(collection.writer.alone, "change", None)  # the other way
    assert collection.amend("g", {"n": 1}, {}) == game(1, "a")
    assert collection.amend("g", {"n": 1}, {}) == game(1, "a")
    assert collection.amend("g", {}, more(1, "b")) == game(1, "a", "b")
    assert collection.read(["g"]) == [game(1, "a", "b")]
    assert len(sent) == 3


def test_a_row_more_of_a_list_by_places_gets_the_next_place(base: Base) -> None:
    opened(base).write([game(0)])
    at_once = amender(base, COUNTED)
    assert at_once.amend("g", {}, {"rounds": {"spell": "a"}}) is not None
    after = at_once.amend("g", {}, {"rounds": {"spell": "b"}})
    assert after.entries[""]["rounds"] == [{"spell": "a"}, {"spell": "b"}]
    assert base.rows("SELECT pos, spell FROM round ORDER BY pos") == [(0, "a"), (1, "b")]
    base.run("UPDATE round SET pos = 7 WHERE pos = 1")
    assert at_once.amend("g", {}, {"rounds": {"spell": "c"}}) is None
    assert base.rows("SELECT pos FROM round ORDER BY pos") == [(0,), (7,)]


def test_a_row_more_comes_behind_the_last_and_not_beside_it(base: Base) -> None:
    base.run("CREATE TABLE note (id integer, game varchar(20) NOT NULL, pos integer NOT NULL)")
    shape = tables("game", notes=tables("note", parent="game", order_by="pos"))
    there = [{"id": 2, "pos": 1}]
    opened(base, shape=shape).write([Block("g", {"": {"id": "g", "n": 0, "notes": there}})])
    at_once = amender(base, shape)
    assert at_once.amend("g", {}, {"notes": {"id": 1, "pos": 1}}) is None
    after = at_once.amend("g", {}, {"notes": {"id": 1, "pos": 2}})
    assert after.entries[""]["notes"] == [*there, {"id": 1, "pos": 2}]


@pytest.mark.parametrize("change", [
    pytest.param((("g", {}, more(0, "x"))), id="a place that is taken"),
    pytest.param((("g", {}, more(-1, "x"))), id="not the last"),
    pytest.param((("g", {}, more(2**31 - 1, "x" * 21))), id="too long"),
    pytest.param((("g", {}, {"n": 1})), id="no list"),
    pytest.param((("g", {"n": 1}, more(1, "x"))), id="both"),
    pytest.param((("g", {"n": "x"}, {})), id="of another kind"),
    pytest.param((("g", {"n": None}, {})), id="none"),
    pytest.param((("g", {"id": "h"}, {})), id="the key"),
    pytest.param((("g", {"rounds": []}, {})), id="a list"),
    pytest.param((("g", {"x": 1}, {})), id="no column"),
    pytest.param((("h", {"n": 1}, {})), id="not there, a field"),
    pytest.param((("h", {}, more(0, "x"))), id="not there, a row"),
    pytest.param((("G", {"n": 1}, {})), id="of another case, a field"),
    pytest.param((("G", {}, more(1, "x"))), id="of another case, a row"),
    pytest.param((("g ", {"n": 1}, {})), id="with a blank, a field"),
])  # fmt: skip
def test_what_is_not_so_plain_changes_nothing(base: Base, change: tuple[Any, ...]) -> None:
    opened(base).write([game(0, "a")])
    assert amender(base).amend(*change) is None
    assert base.rows("SELECT id, n FROM game") == [("g", 0)]
    assert base.rows("SELECT game, pos, spell FROM round") == [("g", 0, "a")]


def test_a_key_is_changed_by_nobody(base: Base) -> None:
    opened(base).write([game(0)])
    assert amender(base, tables("game")).amend("g", {"id": "h"}, {}) is None
    assert base.rows("SELECT id, n FROM game") == [("g", 0)]


def test_what_a_server_refuses_changes_nothing_and_holds_nobody_up(base: Base) -> None:
    base.run(
        "ALTER TABLE round ADD CONSTRAINT c CHECK (spell <> 'odd'); "
        "ALTER TABLE game ADD CONSTRAINT d CHECK (n < 9)"
    )
    collection = opened(base)
    collection.write([game(0, "a")])
    assert collection.amend("g", {"n": 9}, {}) is None
    assert collection.amend("g", {}, more(1, "odd")) is None
    base.run("UPDATE game SET n = 5 WHERE id = 'g'")
    assert collection.read(["g"]) == [game(5, "a")]


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_a_key_that_its_collation_folds_is_left_to_who_reads_it(base: Base) -> None:
    base.run(
        "CREATE COLLATION folding (provider = icu, locale = 'und-u-ks-level2', "
        "deterministic = false); CREATE TABLE player (id varchar(9) COLLATE folding PRIMARY KEY, "
        "n integer); INSERT INTO player VALUES ('a', 1)"
    )
    collection = base.store().collection("Player", At("shop", tables("player")))
    assert collection.amend("A", {"n": 2}, {}) is None
    assert collection.amend("a", {"n": 3}, {}) == Block("a", {"": {"id": "a", "n": 3}})
    assert base.rows("SELECT id, n FROM player") == [("a", 3)]


@pytest.mark.parametrize("base", ["mysql"], indirect=True)
def test_a_moment_that_a_change_would_move_by_itself_stays(base: Base) -> None:
    moments = "m timestamp, d datetime NOT NULL DEFAULT '2020-01-01' ON UPDATE current_timestamp()"
    base.run(
        f"ALTER TABLE game ADD ({moments}); "
        "INSERT INTO game (id, n, m) VALUES ('g', 0, '2020-01-01')"
    )
    collection = opened(base)
    (held,) = collection.read(["g"])
    held.entries[""]["n"] = 1
    assert collection.writer.alone.amender.amend("g", {"n": 1}, {}) == held
    assert collection.read(["g"]) == [held]


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_what_is_refused_as_it_is_committed_is_not_told_as_done(base: Base) -> None:
    base.run("ALTER TABLE round ADD UNIQUE (spell) DEFERRABLE INITIALLY DEFERRED")
    collection = opened(base)
    collection.write([game(0, "a")])
    assert collection.amend("g", {}, more(1, "a")) is None
    assert collection.amend("g", {}, more(1, "b")) == game(0, "a", "b")
    assert collection.read(["g"]) == [game(0, "a", "b")]


@pytest.mark.parametrize(
    ("base", "level"),
    [("postgresql", ""), ("postgresql", "repeatable read"), ("mysql", "")],
    indirect=["base"],
)
@pytest.mark.parametrize("change", [({"n": 7}, {}), ({}, more(3, "d"))], ids=["field", "row"])
def test_what_waited_for_another_write_tells_of_that(
    base: Base, change: tuple[Record, Record], level: str
) -> None:
    if level:
        base.run(f"ALTER DATABASE {base.name} SET default_transaction_isolation = '{level}'")
    opened(base).write([game(0, "a")])
    at_once, told = amender(base), []
    thread = threading.Thread(target=lambda: told.append(at_once.amend("g", *change)))
    with base.store().database.writing() as other:
        other.exec_driver_sql("UPDATE game SET n = 1 WHERE id = 'g'")
        thread.start()
        until = time.monotonic() + 30
        while not base.rows(WAITING[base.dialect]):
            assert time.monotonic() < until
            thread.join(_LOOK_EVERY)
        other.exec_driver_sql("INSERT INTO round VALUES ('g', 2, 'c')")
    joined(thread)
    wanted: Block = game(7, "a") if change[0] else game(1, "a")
    wanted.entries[""]["rounds"] += [{"pos": 2, "spell": "c"}, *change[1].values()]  # type: ignore[index, operator]
    assert told == [wanted] == opened(base).read(["g"])


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_a_field_waits_for_nobody_who_puts_a_row_below(base: Base) -> None:
    opened(base).write([game(0, "a")])
    at_once = amender(base)
    with base.store().database.writing() as other:  # would wait for each other if both went on
        other.exec_driver_sql("INSERT INTO round VALUES ('g', 1, 'b')")
        assert at_once.amend("g", {"n": 1}, {}) == game(1, "a")
    assert opened(base).read(["g"]) == [game(1, "a", "b")]


@pytest.mark.parametrize("change", [({"n": 7}, {}), ({}, more(1, "b"))], ids=["field", "row"])
def test_where_the_session_ends_the_outcome_is_unknown(
    base: Base, change: tuple[Record, Record], monkeypatch: Any
) -> None:
    opened(base).write([game(0, "a")])
    at_once, send = amender(base), amend.send

    def ended(*given: Any) -> Any:
        end_others(base)
        return send(*given)

    with monkeypatch.context() as until:
        until.setattr(amend, "send", ended)
        with pytest.raises(Transient) as lost:
            at_once.amend("g", *change)
    assert lost.value.unknown
    assert opened(base).read(["g"]) == [game(0, "a")]
    assert at_once.amend("g", *change) is not None


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_a_session_that_two_processes_share_knows_the_statements_of_both(
    base: Base, monkeypatch: Any
) -> None:
    def another() -> Callable[..., Any]:
        spec = importlib.util.spec_from_file_location("another", pipeline.__file__)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "another", module)
        spec.loader.exec_module(module)
        send: Callable[..., Any] = module.send
        return send

    with base.store().database.sending() as raw:  # as a pooler hands it on
        for send in (another(), another()):
            for number in (1, 2):
                ((rows, _),) = send(raw, [(f"SELECT {number}", None)])
                assert rows == [(number,)]


@pytest.mark.parametrize("base", ["mysql"], indirect=True)
def test_a_row_that_is_too_long_for_a_statement_is_refused_by_its_key(base: Base) -> None:
    base.run("ALTER TABLE round MODIFY spell mediumtext")
    collection = opened(base)
    collection.write([game(0, "a")])
    assert base.rows("SELECT @@max_allowed_packet") == [(collection.database.longest,)]
    collection.database.longest = 1_000_000
    long, other = "'" * 490_000, Block("h", {"": {**game(0).entries[""], "id": "h"}})  # type: ignore[dict-item]
    for write in (
        lambda: collection.size(game(0, "a", long)),  # which a plan asks of every block
        lambda: collection.write([game(0, "a", long)]),
        lambda: collection.write([other, game(0, "a", long)]),
        lambda: collection.exchange("g", game(0, "a"), game(0, "a", long)),
    ):
        with pytest.raises(DoesNotFit, match="a statement of this server 1,000,000") as refused:
            write()
        assert refused.value.key == "g"
    assert collection.amend("g", {}, more(1, long)) is None
    assert collection.read(["g"]) == [game(0, "a")]
    after = collection.amend("g", {}, more(1, long[:400_000]))
    assert after == game(0, "a", long[:400_000])


@pytest.mark.parametrize("base", ["mysql"], indirect=True)
def test_answers_are_read_as_the_driver_reads_them(base: Base) -> None:
    base.run(
        "CREATE TABLE t (a tinyint, b bigint unsigned, c decimal(20, 3), d float, e double, "
        "f date, g datetime(6), h timestamp(3), i time(2), j year, k bit(9), l char(3), "
        "m varchar(300), n mediumtext, o varbinary(300), p mediumblob, q json, r set('x', 'y'), "
        "s enum('x', 'y'), u uuid, v geometry, w varchar(9) CHARACTER SET latin1);"
        "INSERT INTO t (a) VALUES (NULL);"
        "INSERT INTO t VALUES (-1, 18446744073709551615, -1.500, 1.1, 1e300, '2024-02-29', "
        "'2024-02-29 12:00:00.5', '2024-02-29 12:00:00.5', '-99:00:00.25', 2024, 257, 'é', "
        "repeat('ö', 251), repeat('€', 70000), repeat(x'ff00', 126), repeat(x'ff', 70000), "
        "'{\"a\": 1}', 'x,y', 'y', uuid(), point(1, 2), 'é')"
    )
    query = "SELECT t.*, d * 1, sum(a) OVER (), NULL, '' FROM t ORDER BY a"
    with base.store().database.sending() as raw:
        with raw.cursor() as cursor:
            cursor.execute(query)
            wanted = cursor.fetchall()
        empty, none, all_, changed = ask(
            raw,
            f"SELECT a FROM t WHERE a = 9; DO 1; {query}; UPDATE t SET a = -1 WHERE a = -1",
        )
        assert (empty, none) == (([], 0), ((), 0))
        assert (tuple(all_.rows), all_.number) == (wanted, 2)
        assert [*map(type, all_.rows[1])] == [*map(type, wanted[1])]
        assert changed.number == 1  # as found, though it stays
        whole = "SELECT length('')"
        length = 0xFFFFFE - len(whole)  # with the command it fills a packet: an empty one follows
        assert ask(raw, whole.replace("''", f"'{'x' * length}'")) == [([(length,)], 1)]
        # As older drivers put bytes into a text.
        assert ask(raw, "SELECT hex(_binary'\udcff')") == [([("FF",)], 1)]
        large = "SELECT repeat('x', 9000000), repeat('y', 9000000)"  # more than a packet takes
        ((rows, _),) = ask(raw, large)
        assert rows == [("x" * 9_000_000, "y" * 9_000_000)]
        with pytest.raises(Exception, match="nowhere"):
            ask(raw, "SELECT 1; SELECT 1 FROM nowhere; DELETE FROM t")
        assert ask(raw, "SELECT count(*) FROM t") == [([(2,)], 1)]


@pytest.mark.parametrize("base", ["mysql"], indirect=True)
def test_a_link_that_merely_equals_the_key_to_the_server_stays_a_field(base: Base) -> None:
    collection = opened(base)
    collection.write([game(0, "a", "b")])
    base.run("UPDATE round SET game = 'G' WHERE pos = 1")
    rounds = [{"pos": 0, "spell": "a"}, {"game": "G", "pos": 1, "spell": "b"}]
    (found,) = collection.read(["g"])
    assert found.entries[""]["rounds"] == rounds
    assert amender(base).amend("g", {"n": 2}, {}).entries[""] == {
        "id": "g",
        "n": 2,
        "rounds": rounds,
    }

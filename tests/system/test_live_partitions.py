"""Partitioned tables of PostgreSQL, also where a partition is written by its own name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from migrator import commands
from migrator.commands import SwapTerms, Terms
from migrator.errors import MigratorError, Refused
from migrator.model.block import join
from migrator.model.move import At, tables
from migrator.model.phase import Phase
from migrator.ports import StoreSettings
from migrator.stores import sql
from migrator.stores.sql.journal_postgresql import PostgresqlJournal
from migrator.stores.sql.live_postgresql import OfTables
from migrator.stores.sql.outbox_postgresql import OutboxJournal
from migrator.stores.sql.tables import TablesCollection
from migrator.testing.feeds.harness import fresh, until
from tests.system import kit, servers
from tests.system.application import mirroring
from tests.system.kit import Shop, Urls
from tests.system.test_live import at_last
from tests.system.test_live import until as until_

SWAP = SwapTerms(bound=60, lag=20, gateways=True)
# Neither of the partitions' own keys tells of which game a round is.
ROUNDS = "(id int, day date, game varchar(20), PRIMARY KEY (id, day)) PARTITION BY RANGE (day)"


@dataclass
class Games:
    """Games, and rounds in a table that is partitioned by months."""

    url: str
    name: str
    session: psycopg.Connection[Any]

    def do(self, statement: str) -> Any:
        return self.session.execute(statement.replace("@", self.name).encode())

    def month(self, number: int) -> str:
        return f"FOR VALUES FROM ('2026-{number:02}-01') TO ('2026-{number + 1:02}-01')"

    def refused(self, statement: str) -> bool:
        try:
            self.do(statement)
        except psycopg.errors.ReadOnlySqlTransaction:
            return True
        return False


@pytest.fixture
def games(urls: Urls) -> Iterator[Games]:
    url = urls("postgresql", "")
    with closing(servers.connect_postgresql(url)) as session:
        found = Games(url, kit.fresh("parted"), session)
        found.do("CREATE TABLE @ (id varchar(20) PRIMARY KEY)")
        found.do(f"CREATE TABLE @_rounds {ROUNDS}")
        for month in (1, 2):
            found.do(f"CREATE TABLE @_{month} PARTITION OF @_rounds {found.month(month)}")
        found.do("INSERT INTO @ VALUES ('a'), ('b'), ('c'), ('d')")
        found.do("INSERT INTO @_rounds VALUES (1, '2026-01-01', 'a'), (2, '2026-02-01', 'd')")
        yield found
        found.do("DROP TABLE IF EXISTS @, @_rounds, @_1, @_2, @_3 CASCADE")


@pytest.mark.parametrize("kind", [PostgresqlJournal, OutboxJournal])
def test_a_partition_that_is_written_by_its_own_name_is_followed_and_fenced(
    games: Games, kind: type[Any]
) -> None:
    store = sql.open_store(StoreSettings("store", games.url))
    rounds = tables(f"{games.name}_rounds", parent="game")
    collection = store.collection("Game", At("store", tables(games.name, rounds=rounds)))
    assert isinstance(collection, TablesCollection)
    run = fresh("run")
    journal = kind(OfTables(collection), run)
    feed = journal.open(journal.prepare())

    def touched() -> tuple[set[str], bool]:
        journal.mark(mark := fresh("mark"))
        seen = until(feed, mark)
        return set(seen.keys), seen.whole

    games.do("UPDATE @_1 SET game = 'b'")  # both the old game and the new one
    assert touched() == ({"a", "b"}, False)
    games.do("INSERT INTO @_rounds VALUES (3, '2026-02-03', 'c')")
    games.do("UPDATE @_rounds SET day = '2026-02-02' WHERE id = 1")  # into the other partition
    assert touched() == ({"b", "c"}, False)
    games.do("TRUNCATE @_1")
    assert touched()[1]
    fence = collection.fence(run)
    assert fence is not None
    fence.raise_(fresh("fence"), 60)
    assert fence.is_up()
    writes = ["INSERT INTO @_rounds VALUES (9, '2026-01-03', 'c')", "DELETE FROM @_rounds",
              "INSERT INTO @_1 VALUES (9, '2026-01-03', 'c')", "TRUNCATE @_2", "DELETE FROM @_2",
              "SET session_replication_role = replica; DELETE FROM @_2"]  # fmt: skip
    assert [games.refused(each) for each in writes] == [True] * len(writes)
    games.do("ALTER TABLE @_rounds DETACH PARTITION @_2")
    fence.lower()
    games.do("DELETE FROM @_2")  # also where it is none of them any more
    feed.close()
    journal.drop()
    store.close()
    left = games.do(f"SELECT 1 FROM pg_trigger WHERE tgname LIKE '{run}%'").fetchall()
    identities = "SELECT relreplident::text FROM pg_class WHERE relname LIKE '@%' AND relkind = 'r'"
    assert left == []
    assert {identity for (identity,) in games.do(identities)} == {"d"}


def test_a_partition_that_comes_or_goes_is_followed(games: Games, tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"sql": games.url, "docs": "embedded:///docs.db"})
    source = f"tables('{games.name}', rounds=tables('{games.name}_rounds', parent='game'))"
    shop.script(f"move = Move('Game', source=At('sql', {source}), target=At('docs', 'games'))")
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        assert plan.errors == []
        commands.apply(project, plan, until=Phase.SHADOW_READ, terms=Terms(swap=SWAP))
        (route,) = project.routes("0001")

        def rounds(key: str) -> list[Any]:
            (block,) = route.target.read([key])
            assert block is not None
            value: Any = join(block).value
            return [each["id"] for each in value["rounds"]]

        with mirroring(shop):
            games.do("CREATE TABLE @_3 (LIKE @_rounds INCLUDING ALL)")
            games.do("INSERT INTO @_3 VALUES (7, '2026-03-01', 'b')")
            games.do(f"ALTER TABLE @_rounds ATTACH PARTITION @_3 {games.month(3)}")
            games.do("ALTER TABLE @_rounds DETACH PARTITION @_2")
            until_(lambda: rounds("b") == [7] or None)
            games.do("UPDATE @_3 SET game = 'c'")
            at_last(lambda: commands.cutover(project, "0001", swap=SWAP))
            assert [rounds(key) for key in "abcd"] == [[1], [], [7], []]
            assert games.refused("DELETE FROM @_3")
            at_last(lambda: commands.rollback(project, "0001", swap=SWAP))
        commands.abort(project, "0001", drop_target=True)
    games.do("DELETE FROM @_3")


def test_a_move_is_left_though_a_partition_of_another_role_stops_its_mirror(
    games: Games, tmp_path: Path
) -> None:
    games.do("CREATE ROLE @_role LOGIN REPLICATION PASSWORD 'seen'")
    try:
        games.do("GRANT ALL ON SCHEMA public TO @_role")
        database = games.do("SELECT current_database()").fetchone()[0]
        games.do(f'GRANT CREATE ON DATABASE "{database}" TO @_role')
        for table in ("@", "@_rounds", "@_1", "@_2"):
            games.do(f"ALTER TABLE {table} OWNER TO @_role")
        url = f"postgresql://{games.name}_role:seen@{games.url.partition('@')[2]}"
        shop = Shop(tmp_path, {"sql": url, "docs": "embedded:///docs.db"})
        source = f"tables('{games.name}', rounds=tables('{games.name}_rounds', parent='game'))"
        shop.script(f"move = Move('Game', source=At('sql', {source}), target=At('docs', 'games'))")
        with shop.open() as project:
            plan = commands.plan(project, "0001", live=True)
            terms = Terms(swap=SWAP, accept=tuple(f.code for f in plan.to_accept))
            commands.apply(project, plan, until=Phase.DUAL_WRITE, terms=terms)
            games.do(f"CREATE TABLE @_3 PARTITION OF @_rounds {games.month(3)}")
            with pytest.raises(MigratorError, match=f"permission denied for table {games.name}_3"):
                commands.mirror(project, "0001")

            run = commands.abort(project, "0001", drop_target=True)

        assert run.phase is Phase.ABORTED
        slots = "SELECT 1 FROM pg_publication_tables WHERE tablename LIKE '@%'"
        assert games.do(slots).fetchall() == []
    finally:
        games.do("DROP OWNED BY @_role; DROP ROLE @_role")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("ALTER TABLE @_1 SET UNLOGGED", "not-logged"),
        ("CREATE TABLE @_3 (PRIMARY KEY (id)) INHERITS (@)", "inherited"),
    ],
)
def test_tables_that_can_not_be_followed_are_refused(games: Games, made: str, told: str) -> None:
    games.do(made)
    store = sql.open_store(StoreSettings("store", games.url))
    rounds = tables(f"{games.name}_rounds", parent="game")
    collection = store.collection("Game", At("store", tables(games.name, rounds=rounds)))
    assert isinstance(collection, TablesCollection)
    journal = collection.journal(fresh("run"))
    errors = [code for severity, code, _ in journal.findings() if severity == "error"]
    assert errors == [told]
    with pytest.raises(Refused, match=games.name):
        journal.prepare()
    store.close()


def test_rows_that_a_policy_hides_are_refused_and_not_passed_over(games: Games) -> None:
    """Who copies by a role that sees some rows alone would call both sides equal."""
    games.do("ALTER TABLE @ ENABLE ROW LEVEL SECURITY")
    games.do("CREATE POLICY mine ON @ USING (id = 'a')")
    games.do("CREATE ROLE @_role LOGIN PASSWORD 'seen'")
    games.do("GRANT ALL ON ALL TABLES IN SCHEMA public TO @_role")
    where = games.url.partition("@")[2]
    url = f"postgresql://{games.name}_role:seen@{where}"
    store = sql.open_store(StoreSettings("store", url))
    try:
        collection = store.collection("Game", At("store", tables(games.name)))
        with pytest.raises(Exception, match="row-level security"):
            collection.read(["a", "b"])
    finally:
        store.close()
        games.do("DROP OWNED BY @_role; DROP ROLE @_role")

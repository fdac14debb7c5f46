"""The whole life of a live move, under writers that know what was acknowledged to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.errors import Waiting
from migrator.journal import journal_name
from migrator.model.phase import Phase
from tests.system import kit
from tests.system.application import Application, Documents, Hooked, Tables, mirroring
from tests.system.dying import LONG, dies
from tests.system.kit import Shop, Urls

T = TypeVar("T")
OLD = 400


@dataclass
class Game:
    """A live move of games from tables of PostgreSQL to documents of MongoDB, and its writers."""

    shop: Shop
    application: Application
    hooked: Hooked
    tables: Tables

    @property
    def terms(self) -> SwapTerms:
        # The stand-ins of this machine share two cores with the writers, and other tests.
        return SwapTerms(hook=self.hooked.command, bound=60, lag=20)

    def apply(self, until: Phase) -> commands.Applied:
        return come_to(self.shop.config, until, self.terms)

    def cutover(self, terms: SwapTerms | None = None) -> commands.Applied:
        with self.shop.open() as project:
            return commands.cutover(project, "0001", swap=terms or self.terms)

    def rollback(self, terms: SwapTerms | None = None) -> commands.Applied:
        with self.shop.open() as project:
            return commands.rollback(project, "0001", swap=terms or self.terms)

    def there_and_back(self) -> None:
        """Cut over and roll back under the writers: nothing is lost."""
        done = self.apply(Phase.SHADOW_READ)
        assert done.verified[0].clean
        with mirroring(self.shop):
            done = self.cutover()
            assert (done.phase, done.primary) == ("cut_over", "target")
            self.application.go_on_for(0.5)
            done = self.rollback()
            assert (done.phase, done.primary) == ("shadow_read", "source")
            self.application.go_on_for(0.5)
        self.assert_nothing_lost()

    def assert_nothing_lost(self) -> None:
        """With the writers at rest, both sides hold what was acknowledged, and are equal."""
        self.application.go_on_until_each(("put", "append", "delete"), 11, more=False)
        self.application.stop()
        with self.shop.open() as project, mirroring(self.shop):
            (found,) = commands.verify_run(project, "0001")
            events = {event["event"] for event in commands.events(project, "0001")}
        assert "catalogue changed" not in events
        assert found.clean, found.told
        self.application.assert_held("source")
        self.application.assert_held("target")

    def left(self) -> list[object]:
        """What of this move lies on PostgreSQL beside the data."""
        with self.shop.open() as project:
            made = journal_name(project.control.run("0001").id, 0, "source")[:-1] + "%"
        do, here = self.tables.session.execute, self.tables.name + "%"
        found: list[object] = []
        for query, name in (
            ("SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE %s", made),
            ("SELECT pubname FROM pg_publication WHERE pubname LIKE %s", made),
            ("SELECT proname FROM pg_proc WHERE proname LIKE %s", made),
            ("SELECT relname FROM pg_class WHERE relname LIKE %s", made),
            ("SELECT tgname FROM pg_trigger WHERE tgname LIKE %s", made),
            ("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %s "
             "AND relreplident NOT IN ('d', 'n')", here),
        ):  # fmt: skip
            found += do(query, [name]).fetchall()
        return found


def come_to(config: Path, until: Phase, terms: SwapTerms) -> commands.Applied:
    """Apply the move up to a phase."""
    with commands.Project(config, kit.ENV) as project:
        run = commands.unfinished(project, "0001")
        plan = commands.frozen_plan(run) if run else commands.plan(project, "0001", live=True)
        assert plan.errors == []
        return commands.apply(project, plan, until=until, terms=commands.Terms(swap=terms))


def carry_on(config: Path, until: Phase, terms: SwapTerms) -> None:
    """Come to a phase, and mirror what the writers do from there on for a while."""
    at_last(lambda: come_to(config, until, terms))
    stop = threading.Event()
    threading.Timer(LONG, stop.set).start()
    with commands.Project(config, kit.ENV) as project:
        commands.mirror(project, "0001", stop=stop)


def roll_back(config: Path, terms: SwapTerms) -> None:
    """Roll back; again where that has to wait."""
    with commands.Project(config, kit.ENV) as project:
        at_last(lambda: commands.rollback(project, "0001", swap=terms))


@pytest.fixture
def game(tmp_path: Path, urls: Urls) -> Iterator[Game]:
    name = kit.fresh("live")
    sql, docs = urls("postgresql", ""), urls("mongodb", "")
    tables = Tables(sql, name)
    tables.make()
    with tables.session.transaction():
        for number in range(OLD):
            tables.put(f"old-{1000 + number}", number, ["a", "b"])
    shop = Shop(tmp_path, {"sql": sql, "docs": docs})
    shop.script(
        f"move = Move('Game', target=At('docs', '{name}'), source=At('sql', tables('{name}', "
        f"rounds=tables('{name}_round', order_by='pos'))))"
    )
    application = Application(
        {"source": lambda: Tables(sql, name), "target": lambda: Documents(docs, name)}
    )
    with application, Hooked(application, tmp_path) as hooked:
        yield Game(shop, application, hooked, tables)
        application.stop()
    try:
        with shop.open() as project:
            kit.end(project)
    finally:
        tables.session.close()


def test_nothing_is_lost_over_cut_overs_and_rollbacks(game: Game) -> None:
    done = game.apply(Phase.SHADOW_READ)
    assert game.left()
    (found,) = done.verified
    assert found.clean
    assert found.equal >= OLD
    with mirroring(game.shop):
        rehearsed = game.cutover(SwapTerms(**{**to_dict(game.terms), "dry_run": True}))
        assert rehearsed.swap is not None
        assert rehearsed.swap.rehearsed
        assert rehearsed.primary == "source"
        game.application.go_on_for(0.3)
        for _ in range(2):
            done = game.cutover()
            assert (done.phase, done.primary) == ("cut_over", "target")
            game.application.go_on_for(0.5)
            done = game.rollback()
            assert (done.phase, done.primary) == ("shadow_read", "source")
            game.application.go_on_for(0.5)
    game.assert_nothing_lost()
    assert game.hooked.events == ["fence", "undo", *["fence", "release"] * 4]
    with game.shop.open() as project:
        assert foreign(project) == {}
        commands.abort(project, "0001", drop_target=True)
    assert game.left() == []


def to_dict(terms: SwapTerms) -> dict[str, object]:
    return {name: getattr(terms, name) for name in terms.__struct_fields__}


def test_a_write_to_the_mirror_by_somebody_else_is_told_and_undone(game: Game) -> None:
    game.apply(Phase.SHADOW_READ)
    documents = game.application.sides["target"]()
    with mirroring(game.shop), game.shop.open() as project:
        documents.put("old-1000", 999, ["z"])
        documents.put("stranger", 1, [])
        documents.delete("old-1001")
        told = until(lambda: foreign(project) if len(foreign(project)) == 3 else None)
    documents.close()
    assert told.keys() == {"Game:old-1000", "Game:old-1001", "Game:stranger"}
    assert "n: 999 (int32) / 0 (int32)" in told["Game:old-1000"]
    game.assert_nothing_lost()


def foreign(project: commands.Project) -> dict[str, list[str]]:
    """The foreign writes in the record of the run, by key."""
    found: dict[str, list[str]] = {}
    for event in commands.events(project, "0001"):
        detail = event["detail"]
        if event["event"] == "foreign write" and isinstance(detail, dict):
            found[str(detail["key"])] = detail["paths"]
    return found


def until(look: Callable[[], T | None], seconds: float = 120) -> T:
    """What a look gives at last."""
    end = time.monotonic() + seconds
    while (found := look()) is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def at_last(work: Callable[[], T]) -> T:
    """What comes of something that is tried again where it has to wait."""
    end = time.monotonic() + 120
    while True:
        try:
            return work()
        except Waiting:
            if time.monotonic() > end:
                raise


# Where owners die, one after the other: each leaves the move to the next. And the n-th time that
# one comes to the point.
_COPYING = {
    "feed.prepared": 1,
    "page.read": 1,
    "page.written": 1,
    "page.checkpointed": 1,
    "mirror.touched": 3,
    "mirror.written": 2,
    "mirror.applied": 2,
}
_SWAPPING = (
    "swap.armed", "swap.raised", "swap.fenced", "swap.drained", "swap.flipped", "swap.marked",
)  # fmt: skip


def test_nothing_is_lost_where_owners_die_that_copy_and_mirror(game: Game) -> None:
    owner = partial(carry_on, game.shop.config, Phase.SHADOW_READ, game.terms)
    for point, nth in _COPYING.items():
        dies(owner, point, nth)
    assert game.apply(Phase.SHADOW_READ).phase == "shadow_read"
    game.application.go_on_for(0.3)
    game.assert_nothing_lost()


def test_nothing_is_lost_where_owners_die_that_swap(game: Game) -> None:
    game.apply(Phase.SHADOW_READ)
    for point in _SWAPPING:
        dies(partial(carry_on, game.shop.config, Phase.CUT_OVER, game.terms), point)
    assert at_last(lambda: game.apply(Phase.CUT_OVER)).phase == "cut_over"
    game.application.go_on_for(0.3)
    dies(partial(roll_back, game.shop.config, game.terms), "swap.released")
    game.application.go_on_for(0.3)
    game.assert_nothing_lost()

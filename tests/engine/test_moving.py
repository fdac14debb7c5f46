"""Comparing a live move that gathers, while somebody writes: readings of a sensor and day."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from migrator import commands
from migrator.engine import points
from migrator.engine.backfill import quarantined
from migrator.engine.copying import copying
from migrator.engine.moving import Careful
from migrator.engine.shadow import Shadow
from migrator.engine.verify import Verification, verify
from migrator.engine.work import Scene
from migrator.errors import Interrupted
from migrator.grouping import groups
from migrator.model.block import Address, Aggregate, Block, cut, join
from migrator.model.phase import Phase
from migrator.model.value import Record
from migrator.ports import Page
from migrator.retry import Retry
from migrator.route import Route
from tests.engine.regrouping import BUCKET, put, reading, write_project

_MANY = 30
_DAYS = 6  # of three sensors, each two


class Sides:
    """Both sides of a move that is mirrored by hand."""

    def __init__(self, project: commands.Project) -> None:
        made, _ = commands.plan_to_file(project, "0001", live=True)
        self.project, self.plan = project, made
        accept = [finding.code for finding in made.to_accept]
        commands.apply(project, made, until=Phase.SHADOW_READ, terms=commands.Terms(accept=accept))
        self.run = project.control.run("0001")
        (self.gathered,) = project.routes("0001", made)
        self.route: Route = self.gathered.followed

    def put(self, id: str, value: Record, *, mirrored: bool = True) -> None:
        """Write a reading to the source, and perhaps what it leads and led to to the target."""
        before = self.led(id)
        block = cut(Aggregate(id, value), self.route.translation.source)
        self.route.source.write([block])
        if mirrored:
            self.mirror([*before, *self.led(id)])

    def led(self, id: str) -> list[Any]:
        (block,) = self.route.source.read([id])
        return [] if block is None else self.route.leads_to(block)

    def mirror(self, keys: list[Any]) -> None:
        """Make the days of these keys of what the source holds."""
        (page,) = [
            self.route.source.page(range_, None, 1000) for range_ in self.route.source.split(1)
        ]
        for key in keys:
            parts = [join(b) for b in page.blocks if self.route.leads_to(b) == [key]]
            if parts:
                self.route.target.write([self.route.gathered(key, parts)])
            else:
                self.route.target.delete([Address(key)])

    def change_day(self, id: str, how: Callable[[list[Any]], Any]) -> None:
        """Change the list of the day that a reading is in, on the target alone."""
        (day,) = self.route.target.read(self.led(id))
        assert day is not None
        value = join(day).value
        how(cast("list[Any]", value["readings"]))
        self.route.target.write([cut(Aggregate(day.id, value), self.route.representation)])

    def compare(self, settle: Callable[[], None] = lambda: None) -> Verification:
        lease = SimpleNamespace(check=lambda: None)
        scene = Scene(
            self.run, self.plan, [self.gathered], self.project.control, cast("Any", lease), 1,
            settle=settle, stop=threading.Event(),
        )  # fmt: skip
        self.stop = scene.stop
        return verify(scene, self.gathered)

    def set_aside(self, id: str) -> None:
        item = quarantined(self.route, id, "", "for a test")
        self.project.control.set_aside(self.run.id, item)


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    config = write_project(tmp_path, BUCKET)
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        put(route.followed.source, {f"r{n:02}": reading(n) for n in range(_MANY)})
        yield Sides(project)
    points.hook = None


def _after_listing(do: Callable[[], None]) -> None:
    left = [do]

    def hook(where: str) -> None:
        if where == "verify.listed" and left:
            left.pop()()

    points.hook = hook


def _moved(n: int) -> Record:
    """A reading that belongs to the day of another sensor by now."""
    return {**reading(n), "sensor": f"s{(n + 1) % 3}"}


def test_equal_sides_are_clean(sides: Sides) -> None:
    found = sides.compare()

    assert (found.clean, found.equal, found.read, found.rechecked) == (True, _DAYS, _MANY, 0)


@pytest.mark.parametrize(
    "how",
    [lambda list: list.pop(), lambda list: list.reverse(), lambda list: list[0].update(value=7.5)],
    ids=["one missing", "another order", "another value"],
)
def test_a_day_that_differs_is_found(how: Callable[[list[Any]], Any], sides: Sides) -> None:
    sides.change_day("r00", how)

    found = sides.compare()

    assert (found.differ, found.missing, found.extra) == (1, 0, 0)
    assert found.told[0].paths[0].startswith("readings[")


def test_two_comparisons_at_once_both_tell_what_differs(sides: Sides) -> None:
    sides.change_day("r00", lambda list: list.pop())
    beside: list[Verification] = []

    def hook(where: str) -> None:
        if where == "verify.checkpointed":
            points.hook = None
            beside.append(sides.compare())

    points.hook = hook
    found = [sides.compare(), *beside]

    assert [(each.differ, each.equal, each.read) for each in found] == [(1, _DAYS - 1, _MANY)] * 2


def test_what_came_and_went_after_it_was_listed_is_no_difference(sides: Sides) -> None:
    def goes_on() -> None:
        sides.put("r00", _moved(0))
        sides.put("new", reading(1))
        sides.put("of a new day", reading(500))
        days = sides.led("r29")
        sides.route.source.delete([Address("r29")])
        sides.mirror(days)

    _after_listing(goes_on)
    found = sides.compare()

    assert found.clean, found.told


@pytest.mark.parametrize("n", range(3))
def test_a_reading_that_is_lost_on_its_way_to_another_day_is_found(n: int, sides: Sides) -> None:
    def loses() -> None:
        before = sides.led(f"r{n:02}")
        sides.put(f"r{n:02}", _moved(n), mirrored=False)
        sides.mirror(before)

    _after_listing(loses)
    found = sides.compare()

    assert found.differ + found.missing == 1


def _always(sides: Sides) -> Callable[[], None]:
    """What was on its way to a day arrives, and another reading is, whenever it is called."""
    turns = count(1)

    def writes() -> None:
        sides.mirror(sides.led("r00"))
        turn = next(turns)
        n = 3 * (turn % 2)
        sides.put(f"r{n:02}", {**reading(n), "value": turn / 8}, mirrored=False)

    return writes


def test_a_day_of_which_something_is_always_on_its_way_is_clean(sides: Sides) -> None:
    writes = _always(sides)
    writes()
    found = sides.compare(settle=writes)

    assert found.clean, found.told
    assert (found.rechecked, found.equal) == (1, _DAYS)


def test_what_is_lost_in_a_day_that_is_always_written_is_found(sides: Sides) -> None:
    writes = _always(sides)

    def loses() -> None:
        writes()
        sides.change_day("r00", lambda list: list.pop())

    loses()
    found = sides.compare(settle=loses)

    assert (found.differ, found.missing, found.extra) == (1, 0, 0)


def test_a_day_of_nothing_is_extra(sides: Sides) -> None:
    for n in range(0, 24, 3):
        sides.route.source.delete([Address(f"r{n:02}")])

    found = sides.compare()

    assert (found.differ, found.missing, found.extra) == (0, 0, 1)


def test_what_is_in_quarantine_is_part_of_no_day(sides: Sides) -> None:
    sides.put("r00", {**reading(0), "sensor": 1.5}, mirrored=False)
    sides.change_day("r03", lambda list: list.pop(0))
    assert not sides.compare().clean

    sides.set_aside("r00")
    found = sides.compare()

    assert found.clean, found.told
    assert found.quarantined == 1

    sides.change_day("r03", lambda list: list.insert(0, {"id": "r00", "at": reading(0)["at"]}))
    assert not sides.compare().clean


def test_of_what_can_not_be_read_the_last_copy_stays(sides: Sides) -> None:
    sides.route.source.write([Block("r00", {"a.b": 1, "a": 2})])
    assert not sides.compare().clean

    sides.set_aside("r00")
    found = sides.compare()

    assert found.clean, found.told


@pytest.mark.parametrize("primary", ["source", "target"])
def test_shadow_reads_compare_days(primary: str, sides: Sides) -> None:
    def look() -> Any:
        return Shadow(sides.gathered, primary, lambda: None).look(_MANY)

    found = look()
    assert (found.clean, found.keys, found.equal) == (True, _DAYS, _DAYS)

    sides.change_day("r00", lambda list: list.pop())
    found = look()
    assert (found.mismatch, found.equal) == (1, _DAYS - 1)


def test_a_plan_counts_days_and_a_followed_move_readings(sides: Sides) -> None:
    (planned,) = sides.plan.moves
    assert planned.create == _DAYS
    assert sides.route.source.count() == _MANY
    assert replace(sides.route, number=1).followed.source is sides.route.source


def test_a_listing_ends_where_it_is_to_stop(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "PAGE", 5)
    pages = 0
    page = Careful.page

    def stopped(self: Careful, *args: Any) -> Page:
        nonlocal pages
        pages += 1
        sides.stop.set()
        return page(self, *args)

    monkeypatch.setattr(Careful, "page", stopped)
    with pytest.raises(Interrupted):
        sides.compare()

    assert pages == 1  # of six


def test_a_copy_ends_while_it_lists_where_it_is_to_stop(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> None:
        raise Interrupted("stopped", hint="go on")

    reconciler = SimpleNamespace(scene=SimpleNamespace(check=check))
    copies = copying(sides.route, cast("Any", reconciler), Retry())

    with pytest.raises(Interrupted):
        copies.copy([None, None], None, 10)

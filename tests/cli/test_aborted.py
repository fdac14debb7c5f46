"""A live move that is left before anything was made."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest

from migrator import commands
from migrator.commands import live, patience
from migrator.engine import points, settled, telling
from migrator.errors import Interrupted, Refused, Terminal, Transient
from migrator.model.block import Address
from migrator.model.phase import Phase
from migrator.ports import Page
from migrator.state import Lease, LiveState, Run
from migrator.stores.sql.tables import TablesCollection
from tests.cli.kit import PATIENT, SETTINGS, Project, one_line
from tests.ending import joined
from tests.gateway.kit import until


def test_a_run_that_prepared_nothing_is_left_though_the_targets_file_is_not_there(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.root / "migrator.toml").write_text(SETTINGS.replace("embedded:///", "sqlite:///"))
    shop.done("plan", "0001", "--live", "-o", "live.json")

    def stop(point: str) -> None:
        if point == "run.started":
            raise Interrupted("stopped")

    monkeypatch.setattr(points, "hook", stop)
    assert shop("apply", "live.json", "--until", "dual_write").code == 130
    monkeypatch.setattr(points, "hook", None)
    assert not (shop.root / "docs.db").exists()

    assert "aborted" in shop.done("abort", "0001", "--drop-target").out

    assert "0001  Game   aborted" in shop.done("status", "0001").out
    assert shop.done("status").out.startswith("no run, or only aborted ones; see what would be")
    told = one_line(shop("cutover", "0001"), 3, "refused")
    assert "0001 is aborted: there is nothing to cut over" in told
    assert "migrator plan 0001 --live" in told
    assert not (shop.root / "docs.db").exists()


@pytest.mark.parametrize(("file", "nth"), [("shop.db", 1), ("docs.db", 2)])
def test_what_was_made_for_a_feed_goes_also_where_its_place_was_not_noted_yet(
    shop: Project, monkeypatch: pytest.MonkeyPatch, file: str, nth: int
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    prepared = []

    def stop(point: str) -> None:
        prepared.extend([point] * (point == "feed.prepared"))
        if len(prepared) == nth:
            raise Interrupted("stopped")

    monkeypatch.setattr(points, "hook", stop)
    assert shop("apply", "live.json", "--until", "shadow_read").code == 130
    monkeypatch.setattr(points, "hook", None)
    assert _made(shop, file)

    shop.done("abort", "0001", "--keep-target")
    again = one_line(shop("abort", "0001", "--keep-target"), 3, "refused")
    assert "0001 is aborted already: the target was kept" in again

    assert _made(shop, file) == []


@pytest.mark.parametrize(
    ("words", "point"),
    [
        ("abort 0001 --drop-target", "abort.dropped"),
        ("cutover 0001", "mirror.touched"),
    ],
)
def test_an_error_is_told_itself_whatever_the_catalogue_says_that_might_explain_it(
    shop: Project, monkeypatch: pytest.MonkeyPatch, words: str, point: str
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "shadow_read")
    shop.change("UPDATE game SET score = 22 WHERE id = 2")

    def fails(_: TablesCollection) -> None:
        raise Terminal("no right to read the catalogue")

    met = []

    def meets(now: str) -> None:
        if now == point:
            met.append(now)
            if words.startswith("cutover"):  # an abort does not ask for it
                monkeypatch.setattr(TablesCollection, "shape_now", fails)
            raise Terminal("no right to do it")

    monkeypatch.setattr(points, "hook", meets)

    told = one_line(shop(*words.split(), "--log-level", "error"), 1, "failed")
    assert "no right to do it" in told
    assert met == [point]


def test_what_a_silent_mirror_was_asked_for_is_not_done_later(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "prepared")
    monkeypatch.setattr(live, "GONE", 0.1)
    monkeypatch.setattr(live, "RENEW_EVERY", 0.0)
    with commands.Project(shop.root / "migrator.toml", "dev") as project:
        state = LiveState(project.control, project.control.run("0001").id)
        renewed = []
        renew = LiveState.renew

        def renews(self: LiveState, number: int) -> None:
            renew(self, number)
            renewed.append(state.asked())

        monkeypatch.setattr(LiveState, "renew", renews)
        with Lease(project.control, "dev/0001/mirror"):
            told = one_line(shop("abort", "0001", "--leave-target"), 5, "waiting")
            assert "the mirror is running" in told
            told = one_line(shop("cutover", "0001"), 3, "refused")
            assert "both sides were not compared yet" in told
            told = one_line(shop("abort", "0001", "--keep-target"), 5, "waiting")
            assert "said nothing" in told
            assert "taken back" in told
            assert state.asked() is None
            assert renewed[0] is not None
            assert renewed[0].renewed == 1
            stop = threading.Event()
            stop.set()
            with pytest.raises(Interrupted, match="taken back"):
                live.ask(project, "0001", Phase.ABORTED, commands.SwapTerms(), stop=stop)
        assert state.asked() is None
    told = shop.done("abort", "0001", "--leave-target").out
    assert "left as it is: docs:games" in told
    assert "remove there what begins with migrator_" in told
    again = one_line(shop("abort", "0001", "--keep-target"), 3, "refused")
    assert "0001 is aborted already: the target was left as it is" in again


def _refused(
    shop: Project, asks: Callable[[commands.Project], object]
) -> tuple[threading.Thread, list[str]]:
    """Somebody else, to be started, who asks for something; and what he is refused with."""
    said: list[str] = []

    def run() -> None:
        with commands.Project(shop.root / "migrator.toml", "dev") as project:
            try:
                asks(project)
            except Refused as error:
                said.append(error.what)

    return threading.Thread(target=run), said


def test_what_was_asked_for_while_somebody_else_left_the_move_is_over(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "prepared")
    monkeypatch.setattr(live, "_STAND_BY", 0.05)
    waits, said = _refused(
        shop, lambda project: live.ask(project, "0001", Phase.DUAL_WRITE, commands.SwapTerms())
    )
    with commands.Project(shop.root / "migrator.toml", "dev") as project:
        with Lease(project.control, "dev/0001/mirror"):
            run = project.control.run("0001")
            state = LiveState(project.control, run.id)
            waits.start()
            until(lambda: state.asked() is not None)
            project.control.advance(run, Phase.ABORTED)
        joined(waits)
    assert said == ["0001 is aborted already"]


def test_of_two_who_leave_a_move_at_once_the_later_is_told_what_became_of_it(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "prepared")
    monkeypatch.setattr(live, "_STAND_BY", 0.05)
    other, said = _refused(shop, lambda project: commands.abort(project, "0001", drop_target=False))
    with commands.Project(shop.root / "migrator.toml", "dev") as project:
        state = LiveState(project.control, project.control.run("0001").id)

        def meets(point: str) -> None:
            if point == "abort.dropped":
                first = state.asked()
                other.start()
                until(lambda: state.asked() != first)

        monkeypatch.setattr(points, "hook", meets)
        assert "dropped: docs:games" in shop.done("abort", "0001", "--drop-target").out
    joined(other)
    assert said == ["0001 is aborted already: the target was dropped"]


def test_an_abort_that_was_answered_does_not_tell_what_the_mirror_waited_for(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "prepared")
    monkeypatch.setattr(settled, "GONE", 0.0)
    with commands.Project(shop.root / "migrator.toml", "dev") as project:
        state = LiveState(project.control, project.control.run("0001").id)

        def answers(*_: object) -> bool:
            while (request := state.asked()) is None:
                pass
            state.answer(request.number, {})
            return False

        with Lease(project.control, "dev/0001/mirror"):
            state.tell(waits="docs:games: down")
            stop = threading.Event()
            monkeypatch.setattr(stop, "wait", answers)  # right before it looks at the mirror
            live.ask(project, "0001", Phase.ABORTED, commands.SwapTerms(), stop=stop)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_swap_is_given_up_whose_mirror_only_waits_for_a_store(
    shop: Project, monkeypatch: pytest.MonkeyPatch, mirrored: bool
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "shadow_read")
    monkeypatch.setattr(TablesCollection, "keys", _down)
    with commands.Project(shop.root / "migrator.toml", "dev") as project:
        state = LiveState(project.control, project.control.run("0001").id)
        place = state.position(0, "source")
        assert place is not None
        scan = {"side": "primary", "range": None, "position": None}
        state.keep(0, "source", replace(place, scan=scan))
        _given_up(shop, project, monkeypatch, "cutover 0001", mirrored=mirrored)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_finish_is_given_up_whose_mirror_only_waits_for_a_store(
    shop: Project, monkeypatch: pytest.MonkeyPatch, mirrored: bool
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", *PATIENT.split())
    with commands.Project(shop.root / "migrator.toml", "dev") as project:
        (route,) = project.routes("0001")
        route.target.delete([Address(1)])  # by an application: to be mirrored
        monkeypatch.setattr(TablesCollection, "read", _down)
        finish = "finish 0001 --keep-source --yes"
        _given_up(shop, project, monkeypatch, finish, mirrored=mirrored)
        # Nor does what can't be done keep anybody waiting.
        told = one_line(shop("abort", "0001", "--keep-target"), 3, "refused")
        assert "the target holds the only primary copy" in told


def _down(*_: object) -> None:
    raise Transient("no answer", where="shop:game")


def _given_up(
    shop: Project,
    project: commands.Project,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    *,
    mirrored: bool,
) -> None:
    """Ask for what a mirror does not come to, since it waits for a store."""
    for module in (patience, live):
        monkeypatch.setattr(module, "LONG", 0.2)
    monkeypatch.setattr(live, "_STAND_BY", 0.05)
    monkeypatch.setattr(telling, "_ALIVE_EVERY", 0.05)
    stop = threading.Event()

    def works() -> None:
        with suppress(Interrupted):
            commands.mirror(project, "0001", stop=stop)

    other = threading.Thread(target=works)
    if mirrored:
        other.start()
        until(lambda: Lease.is_held(project.control, "dev/0001/mirror"))
    told = one_line(shop(*words.split(), "--log-level", "error"), 5, "waiting")
    assert "the mirror has only waited for shop:game: no answer" in told
    assert "taken back" in told
    assert LiveState(project.control, project.control.run("0001").id).asked() is None
    stop.set()
    if mirrored:
        joined(other)


def test_a_swap_that_has_begun_is_not_given_up(shop: Project) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "shadow_read")
    with commands.Project(shop.root / "migrator.toml", "dev") as project:
        run = project.control.run("0001")
    assert patience.is_next(run)
    assert not patience.is_next(replace(run, fence="armed"))


def test_what_copies_is_not_given_up_where_it_waits_for_a_store(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    monkeypatch.setattr(patience, "LONG", 0.0)
    monkeypatch.setattr(patience, "_LOOK", 0.01)
    page, is_next, judged = TablesCollection.page, patience.is_next, list[Phase]()

    def judges(run: Run) -> bool:
        judged.append(run.phase)
        return is_next(run)

    def late(self: TablesCollection, *args: Any) -> Page:
        if len(judged) < 3:
            raise Transient("no answer", where="shop:game")
        return page(self, *args)

    monkeypatch.setattr(patience, "is_next", judges)
    monkeypatch.setattr(TablesCollection, "page", late)
    shop.done("apply", "live.json", *PATIENT.split())
    assert set(judged[:3]) == {Phase.DUAL_WRITE}


def _made(shop: Project, file: str) -> list[tuple[str]]:
    """The triggers and tables that lie in a file for feeds."""
    query = "SELECT name FROM sqlite_master WHERE type = 'trigger' OR name LIKE '%outbox%'"
    with closing(sqlite3.connect(shop.root / file)) as c:
        return c.execute(query).fetchall()

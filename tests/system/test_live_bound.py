"""A store does not answer while a swap raises its fence or writes its marker: the attempt is undone
within its bound all the same, and what comes of the request later leaves no fence up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator import commands
from migrator.bootstrap import factory
from migrator.commands import SwapTerms
from migrator.commands.project import Project
from migrator.engine import points
from migrator.errors import MigratorError
from migrator.journal import Fence, Fenced, journal_name
from migrator.model.phase import Phase
from migrator.model.url import scheme
from migrator.ports import Collection, StoreSettings
from tests.system import kit
from tests.system.between import between
from tests.system.kit import PLACES, Place, Shop, Urls

BY_NAME = {place.name: place for place in PLACES}
LONG = 120.0
BOUND = 2.0
FENCED = ["entries-postgresql", "entries-mariadb"]


def _until(there: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


@dataclass
class Swapping:
    """A move that is ready for its swap; ``side`` is the source past Migrator's own way to it."""

    shop: Shop
    project: Project
    side: Collection

    @property
    def hook(self) -> str:
        return f'echo "$MIGRATOR_EVENT" >> {self.shop.root}/events'

    @property
    def events(self) -> list[str]:
        """What the hook was told."""
        return (self.shop.root / "events").read_text().split()

    def forget(self) -> None:
        """What the hook was told until now."""
        (self.shop.root / "events").unlink(missing_ok=True)

    @property
    def fence(self) -> Fence | None:
        run = self.project.control.run("0001")
        name = journal_name(run.id, 0, "source")
        return self.side.fence(name) if isinstance(self.side, Fenced) else None

    def swap(self, bound: float) -> str:
        """Cut over; what was said where that was not done."""
        terms = SwapTerms(bound=bound, lag=LONG, hook=self.hook)
        try:
            commands.cutover(self.project, "0001", swap=terms)
        except MigratorError as error:
            return error.what
        return ""

    def undone(self, error: str) -> None:
        """That an attempt was taken back, and leaves nothing that stops a later one."""
        assert f"for more than {BOUND:g} s: undone" in error
        run = self.project.control.run("0001")
        assert (run.phase, run.primary, run.fence) == (Phase.SHADOW_READ, "source", "")
        assert self.fence is None or not self.fence.is_up()
        assert self.events == ["fence", "undo"]
        assert self.swap(LONG) == ""
        (found,) = commands.verify_run(self.project, "0001")
        assert (found.equal, found.clean) == (2, True)


@contextmanager
def _swapping(place: Place, url: str, through: str, root: Path) -> Iterator[Swapping]:
    source = kit.fresh("bound")
    shop = Shop(root, {place.store: through, "new": "embedded:///new.db"})
    shop.script(f"move = Move('Game', source={place.script(source)}, target=At('new', 'games'))")
    with closing(factory(scheme(url))(StoreSettings("plain", url))) as plain:
        side = plain.collection("Game", place.at(source))
        kit.fill(side, [("1", {"id": "1"})])
        with shop.open() as project:
            plan = commands.plan(project, "0001", live=True)
            commands.apply(project, plan, until=Phase.SHADOW_READ)
            yield Swapping(shop, project, side)
            commands.rollback(project, "0001", swap=SwapTerms(bound=LONG, lag=LONG, hook="true"))
            commands.abort(project, "0001", drop_target=True)
        side.drop()


@pytest.mark.parametrize("name", [*FENCED, "mongo-document"])
def test_a_swap_is_undone_within_its_bound_though_a_store_is_cut_off_at_its_fence(
    name: str, urls: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BY_NAME[name]
    url = urls(place.server, place.store)
    said: list[str] = []
    silent = threading.Event()
    with between(url) as (way, through), _swapping(place, url, through, tmp_path) as case:

        def silence(point: str) -> None:
            if point == "swap.raised":
                way.fall_silent()
                silent.set()

        monkeypatch.setattr(points, "hook", silence)
        while not silent.is_set():  # a busy machine may take longer to raise the fence
            said.clear()
            case.forget()
            swap = threading.Thread(target=lambda: said.append(case.swap(BOUND)), daemon=True)
            swap.start()
            _until(lambda: silent.is_set() or said)
        with case.shop.open() as project:
            _until(lambda: project.control.run("0001").fence == "lowering")
        assert case.events == ["fence", "undo"]
        kit.fill(case.side, [("2", {"id": "2"})])  # the applications write again,
        assert not said  # though what the mirror asks for is still under way
        assert way.held
        monkeypatch.setattr(points, "hook", None)
        way.go_on()
        swap.join(LONG)
        case.undone(said[0])


@pytest.mark.parametrize(
    ("name", "under"),
    [("entries-postgresql", b"CREATE OR REPLACE FUNCTION"), ("entries-mariadb", b"INSERT IGNORE")],
)
def test_who_is_cut_off_under_the_locks_of_a_fence_holds_up_no_writer(
    name: str, under: bytes, urls: Urls, tmp_path: Path
) -> None:
    """The server itself ends that session (R6): nobody else could, while it can't be reached."""
    place = BY_NAME[name]
    url = urls(place.server, place.store)
    with (
        between(url) as (way, through),
        _swapping(place, url, through, tmp_path) as case,
        closing(factory(scheme(through))(StoreSettings("cut off", through))) as store,
    ):
        side = store.collection("Game", case.side.at)
        assert isinstance(side, Fenced)
        fence = side.fence("migrator_cut_off")
        assert fence is not None

        def raise_() -> None:
            with suppress(MigratorError):
                fence.raise_("mark", LONG)

        way.silent_at = under
        raising = threading.Thread(target=raise_, daemon=True)
        raising.start()
        _until(lambda: way.held)
        kit.fill(case.side, [("2", {"id": "2"})])
        way.go_on()
        raising.join(LONG)
        fence.lower()
        assert case.swap(LONG) == ""


@pytest.mark.parametrize("name", FENCED)
def test_a_fence_that_is_raised_after_its_attempt_was_undone_is_lowered(
    name: str, urls: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BY_NAME[name]
    url = urls(place.server, place.store)
    raised: list[bool] = []
    with _swapping(place, url, url, tmp_path) as case, case.shop.open() as project:
        assert case.fence is not None
        kind = type(case.fence)
        raise_ = kind.raise_

        def late(self: Fence, mark: str, seconds: float) -> None:
            _until(lambda: project.control.run("0001").fence not in ("raised", "undoing"))
            _until(lambda: all(thread.name != "lower" for thread in threading.enumerate()))
            raise_(self, mark, LONG)  # type: ignore[arg-type]
            raised.append(self.is_up())

        kit.fill(case.side, [("2", {"id": "2"})])
        monkeypatch.setattr(kind, "raise_", late)
        said = case.swap(BOUND)
        assert raised == [True]
        monkeypatch.undo()
        case.undone(said)

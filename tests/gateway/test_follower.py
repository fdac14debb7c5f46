"""What a gateway's lease allows, by a clock of the test's own, and without a thread beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from migrator import commands, retry
from migrator.errors import Refused, Transient
from migrator.gateway import Stopped, follower, noting, sweeping
from migrator.gateway.follower import Follower, Moved, Terms
from migrator.gateway.noting import Noting
from migrator.gateway.sending import Sending
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.ports import Json
from migrator.retry import request
from migrator.state.gateways import (
    SHORT,
    GatewayLease,
    Gateways,
    Standing,
    has_acknowledged,
    is_armed,
    knows,
)
from tests.ending import PATIENCE, joined
from tests.engine.games import make_project, source, target
from tests.gateway.kit import Owner, until

TERMS = Terms(lease=15.0, bound=0.02, request_life=3_600.0)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[commands.Project]:
    """Tests have one run after another in it."""
    with commands.Project(make_project(tmp_path_factory.mktemp("follower")), "test") as project:
        source(project).create()
        target(project).create()
        yield project


class Held:
    """A lease, and the owner of a run of its class. It is renewed where the test says so."""

    def __init__(self, project: commands.Project) -> None:
        self.owner, self.now = Owner(project, Phase.PREPARED), 1_000.0
        self.gateways = self.owner.gateways
        self.renewed, self.warmed = list[Standing](), list[Standing]()
        self.disagrees: Callable[[Standing], bool] = lambda _: False
        self.follows = Follower(
            self.gateways, "Game", TERMS, clock=lambda: self.now, renewed=self.renewed.append,
            warm=self.warmed.append, agrees=self._agrees,
        )  # fmt: skip

    def _agrees(self, standing: Standing) -> None:
        if self.disagrees(standing):
            raise Refused("a store tells of a later reign")

    def row(self) -> GatewayLease:
        (row,) = self.gateways.leases(["Game"])
        return row

    def turn(self) -> None:
        """What its thread does again and again, at the latest after a fifth of its lease."""
        began = self.now
        assert self.follows._turn(float("-inf")) == began

    def knows(self) -> bool:
        self.turn()
        return knows(self.owner.run)(self.row())

    def left(self) -> float:
        return self.follows._until - self.now

    def writing(self) -> AbstractContextManager[Standing]:
        return self.follows.writing(time.monotonic() + PATIENCE)

    def waited_for(self) -> bool:
        """Whether somebody waits until he may write."""
        return bool(self.follows._changed._waiters)  # type: ignore[attr-defined]

    def advance(self, phase: Phase) -> None:
        self.owner.run = self.owner.control.advance(self.owner.run, phase)

    def arm(self) -> None:
        self.owner.run = self.owner.live.arm(self.owner.run)

    def fence(self) -> None:
        self.arm()
        self.owner.run = self.owner.live.raise_fence(self.owner.run)


@pytest.fixture
def held(project: commands.Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setattr(Follower, "_follow", lambda _: None)
    made = Held(project)
    yield made
    made.follows.close()
    made.gateways.leave([each.instance for each in made.gateways.leases(["Game"])])
    run = project.control.run("0001")
    if not run.phase.ended:
        project.control.advance(run, Phase.ABORTED, fence="")


@pytest.fixture
def meets(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has something done behind a call of the control database's, or in its place."""

    def meet(name: str, act: Callable[[], object], *, instead: bool = False) -> None:
        call = getattr(Gateways, name)

        def meeting(*given: Any, **more: Any) -> Any:
            done = None if instead else call(*given, **more)
            monkeypatch.setattr(Gateways, name, call)
            act()
            return done

        monkeypatch.setattr(Gateways, name, meeting)

    return meet


def down() -> None:
    raise Transient("the control database does not answer")


# ---------------------------------------------------------------------- for how long it lasts


@pytest.mark.parametrize("asks", ["enter", "renew", "see"])
def test_a_lease_counts_from_before_it_was_asked_for(
    held: Held, meets: Callable[..., None], asks: str
) -> None:
    """The answer may have been under way for long (R14)."""

    def takes() -> None:
        held.now += 0.5

    if asks == "enter":
        meets("enter", takes)
        held.follows._enter()
    elif asks == "renew":
        meets("renew", takes)
        held.turn()
    else:
        held.arm()
        meets("renew", takes)
        held.follows._look()
    assert held.left() == (SHORT if asks == "see" else TERMS.lease) - 0.5


def test_a_lease_is_short_once_a_swap_was_seen_while_it_was_renewed(
    held: Held, meets: Callable[..., None]
) -> None:
    """An owner waits for no longer than that, though it was asked to last."""
    meets("renew", held.arm)
    held.turn()
    assert held.left() <= SHORT
    assert is_armed(held.owner.run)(held.row())
    held.turn()
    assert held.left() <= SHORT
    assert is_armed(held.owner.run)(held.row())
    meets("renew", lambda: held.owner.live.release(held.owner.run))
    held.turn()
    assert held.left() <= SHORT  # as its row says
    held.turn()
    assert held.left() == TERMS.lease


def test_the_side_to_be_is_opened_ahead_once_a_swap_is_armed(held: Held) -> None:
    held.fence()
    held.turn()
    until(lambda: [each.fence for each in held.warmed] == ["raised"])


def test_who_waits_under_a_fence_goes_on_once_its_end_is_seen(held: Held) -> None:
    """Not once the lease is renewed, which takes a fifth of a second."""
    held.fence()
    held.follows._look()
    went_on = threading.Event()

    def waits() -> None:
        with held.writing():
            went_on.set()

    writer = threading.Thread(target=waits)
    writer.start()
    until(held.waited_for)
    held.owner.release()
    held.follows._look()
    joined(writer)
    assert went_on.is_set()


def test_a_gateway_goes_by_a_run_that_the_store_agrees_with(held: Held) -> None:
    """Looked at again where that was refused: the sides may have been swapped in between (R15)."""
    seen = held.follows.standing
    held.disagrees = lambda standing: standing == seen
    held.advance(Phase.DUAL_WRITE)
    held.follows._agree()
    assert held.follows._may()
    held.disagrees = lambda _: True
    held.turn()
    with pytest.raises(Stopped, match="a store tells of a later reign"):
        held.follows._begin(0.0)
    held.disagrees = lambda _: False
    held.turn()
    assert held.follows._may()
    held.disagrees = lambda _: True
    held.arm()
    held.turn()
    assert held.follows._may()  # whoever armed it has seen to that


def test_a_lease_that_is_taken_while_a_swap_is_armed_is_short(held: Held) -> None:
    held.arm()
    held.follows._enter()
    assert held.left() == SHORT
    other = Follower(held.gateways, "Game", TERMS, clock=lambda: held.now)
    assert other._until == held.now + SHORT
    other.close()


def test_it_is_short_though_nobody_could_be_told(held: Held, meets: Callable[..., None]) -> None:
    held.arm()
    meets("renew", down, instead=True)
    with pytest.raises(Transient):
        held.follows._look()
    assert held.left() == SHORT
    assert held.follows._granted == SHORT  # so that it is soon asked for again
    held.turn()
    assert is_armed(held.owner.run)(held.row())


def test_the_sight_of_a_swap_makes_no_lease_of_one_that_ran_out(held: Held) -> None:
    held.now += TERMS.lease
    held.arm()
    held.gateways.leave([held.follows.instance])
    held.follows._look()
    assert not held.follows._may()


def test_who_lost_a_lease_and_gets_no_other_writes_no_more(
    held: Held, meets: Callable[..., None]
) -> None:
    held.gateways.leave([held.follows.instance])
    meets("enter", down, instead=True)
    held.turn()
    with pytest.raises(Stopped, match=r"ran out: .* \(the control database does not answer\)"):
        held.follows._begin(0.0)


def test_another_lease_is_told_all_that_the_one_before_was(held: Held) -> None:
    held.fence()
    for _ in range(2):
        held.turn()
        assert has_acknowledged(held.owner.run)(held.row())
        assert knows(held.owner.run)(held.row())
        held.gateways.leave([held.follows.instance])  # an owner saw it run out
    held.turn()
    assert has_acknowledged(held.owner.run)(held.row())


def test_a_run_that_begins_after_one_of_a_later_reign_is_followed(
    held: Held, project: commands.Project
) -> None:
    held.owner.run = held.owner.control.advance(held.owner.run, Phase.SHADOW_READ, primary="target")
    held.turn()
    held.owner.run = held.owner.control.advance(held.owner.run, Phase.SHADOW_READ, primary="source")
    held.advance(Phase.ABORTED)
    held.turn()
    assert held.follows.standing.epoch == 3
    held.owner = Owner(project, Phase.PREPARED)
    held.turn()
    assert (held.follows.standing.run, held.follows._may()) == (held.owner.run.id, True)


def test_whatever_goes_wrong_is_told_and_tried_again(
    held: Held, meets: Callable[..., None]
) -> None:
    def breaks() -> None:
        raise ZeroDivisionError("a fault of ours")

    def refuses() -> None:
        raise Refused("it was restored", hint="mend it")

    for act, hint in ((breaks, follower._REACH), (refuses, "mend it"), (down, follower._REACH)):
        told = list(held.renewed)
        held.now += TERMS.lease
        meets("renew", act, instead=True)
        held.turn()
        assert held.renewed == told
        with pytest.raises(Stopped, match="it could not be renewed") as stopped:
            held.follows._begin(0.0)
        assert stopped.value.hint == hint
        held.turn()
        assert held.renewed == [*told, held.follows.standing]
        assert held.follows._may()


def test_the_lease_of_who_ended_without_a_word_goes_once_nothing_of_it_is_alive(
    held: Held,
) -> None:
    for name in ("alive", "killed", "back"):
        held.gateways.enter(name, "Game", 30.0)
    held.turn()
    assert not held.follows._sweep._met  # not as it begins, where many fork
    held.now += sweeping.EVERY
    began = held.now

    def left() -> set[str]:
        held.gateways.renew("alive", 30.0)
        held.turn()
        return {row.instance for row in held.gateways.leases(["Game"])} - {held.follows.instance}

    assert left() == {"alive", "killed", "back"}
    held.now += sweeping.EVERY
    held.gateways.renew("back", 30.0)
    while held.now + sweeping.EVERY < began + TERMS.request_life + 30.0:
        assert left() == {"alive", "killed", "back"}
        held.now += sweeping.EVERY
    assert left() == {"alive", "killed", "back"}
    held.now += sweeping.EVERY
    held.arm()
    assert left() == {"alive", "killed", "back"}  # a swap is not to wait for it
    held.owner.run = held.owner.live.release(held.owner.run)
    assert left() == {"alive", "back"}
    held.now += sweeping.EVERY
    assert left() == {"alive"}


# ---------------------------------------------------------------------- what is under way


def test_a_gateway_knows_of_a_move_once_nothing_that_it_sent_before_is_alive(held: Held) -> None:
    """A write that began when none was followed leaves no touch: the copy waits for it (R9)."""
    with held.writing():
        held.advance(Phase.DUAL_WRITE)
        assert not held.knows()
        held.follows.doubt()  # and what became of it is not known
    with held.writing():  # one that is followed
        assert not held.knows()
        held.now += 3_600.0
        assert held.knows()
        held.follows.doubt()
        held.advance(Phase.BACKFILLED)
        assert held.knows()  # nothing is alive but what this run carries over


def test_nor_while_a_write_is_alive_that_another_run_follows(
    held: Held, project: commands.Project
) -> None:
    """Its bracket is where the run before looks, and nobody looks there any more."""
    held.advance(Phase.DUAL_WRITE)
    held.turn()
    with held.writing():
        held.advance(Phase.ABORTED)
        held.owner = Owner(project, Phase.DUAL_WRITE)
        assert not held.knows()
        held.follows.doubt()
    assert not held.knows()
    held.now += 3_600.0
    assert held.knows()


def test_what_could_not_be_said_is_said_again(held: Held, meets: Callable[..., None]) -> None:
    held.advance(Phase.DUAL_WRITE)
    meets("saw", down, instead=True)
    assert not held.knows()
    assert held.knows()


def test_a_fence_is_acknowledged_once_nothing_is_alive(held: Held) -> None:
    with held.writing():
        held.fence()
        held.turn()
        assert not has_acknowledged(held.owner.run)(held.row())
        held.follows.doubt()
    held.turn()
    assert not has_acknowledged(held.owner.run)(held.row())
    held.now += 3_600.0
    held.turn()
    assert has_acknowledged(held.owner.run)(held.row())


# ---------------------------------------------------------------------- a write that was late


def test_a_write_is_begun_and_sent_again_only_under_the_lease_it_has(held: Held) -> None:
    with held.writing() as standing:
        held.follows.check(standing)
        held.now += TERMS.lease
        for asks in (lambda: held.follows.check(standing), held.follows.check_lease):
            with pytest.raises(Moved):
                asks()
        held.turn()
        held.follows.check(standing)
        held.advance(Phase.DUAL_WRITE)
        held.turn()
        with pytest.raises(Moved):
            held.follows.check(standing)
        held.follows.check_lease()  # a fence waits for it


@pytest.mark.parametrize("renewed", [False, True])
def test_a_write_that_outlasted_its_lease_is_told_as_unknown_where_the_run_went_on(
    held: Held, meets: Callable[..., None], renewed: bool
) -> None:
    with held.writing() as standing:
        lapses = held.follows.check(standing)
        held.now += TERMS.lease
        if renewed:
            held.turn()
        held.follows.assure(standing, lapses, "here")  # no owner did anything meanwhile
        meets("standing", down, instead=True)
        with pytest.raises(Transient, match="ran out while it was written"):
            held.follows.assure(standing, lapses, "here")
        held.arm()
        with pytest.raises(Transient, match="ran out while it was written") as late:
            held.follows.assure(standing, lapses, "here")
    assert (late.value.unknown, late.value.given_up) == (True, True)


def test_a_write_under_a_lease_that_lasts_is_told_as_it_is_whatever_the_run(held: Held) -> None:
    """A fence waits for it, so it is there before the flip."""
    with held.writing() as standing:
        lapses = held.follows.check(standing)
        held.fence()
        held.turn()
        held.follows.assure(standing, lapses, "here")


# ---------------------------------------------------------------------- the end


@pytest.mark.parametrize("alive", ["doubted", "under way", "nothing"])
def test_a_lease_is_given_back_by_who_has_nothing_alive(held: Held, alive: str) -> None:
    if alive == "under way":
        with held.writing() as standing:
            held.follows.close()
            assert held.row()
            # It goes on to its end, under the lease that it has; and is not begun anew.
            held.follows.check_lease()
            held.follows.assure(standing, held.follows._lapses, "here")
            with pytest.raises(Moved):
                held.follows.check(standing)
    elif alive == "doubted":
        with held.writing():
            held.follows.doubt()
        held.follows.close()
        assert held.row()
    else:
        held.follows.close()
        assert held.gateways.leases(["Game"]) == []
    with pytest.raises(Refused, match="closed"), held.writing():
        pass


def test_who_waits_to_write_is_told_of_the_end_and_it_waits_for_who_writes(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held.follows, "terms", replace(TERMS, bound=3_600.0))
    began, told = threading.Event(), list[str]()

    def writes() -> None:
        with held.writing():
            began.set()
            until(lambda: held.follows._closed)

    def waits() -> None:
        with suppress(Refused), held.follows.writing(time.monotonic() + 3_600):
            told.append("written")
        told.append("refused")

    writer, waiter, closer = (
        threading.Thread(target=each, daemon=True) for each in (writes, waits, held.follows.close)
    )
    writer.start()
    assert began.wait(PATIENCE)
    held.fence()
    held.follows._look()
    waiter.start()
    until(held.waited_for)
    closer.start()
    joined(writer, waiter, closer)  # nobody waits for an hour
    assert told == ["refused"]
    assert held.gateways.leases(["Game"]) == []


def test_nothing_is_sent_or_given_back_by_a_forked_child(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held.writing() as standing, monkeypatch.context() as patch:
        patch.setattr(held.follows, "_pid", -1)
        for asks in (lambda: held.follows.check(standing), held.follows.check_lease):
            with pytest.raises(Moved):
                asks()
        with pytest.raises(Refused, match="closed"), held.writing():
            pass
        held.follows.close()
        assert held.row()
    held.follows.check(standing)


# ---------------------------------------------------------------------- how it is sent


class Sides:
    """Where a write goes, as far as an error names it."""

    primary = SimpleNamespace(at="here")


class Store:
    """What a write is sent to: what is said in its place, first things first; then it is done."""

    def __init__(self, *says: Callable[[], object]) -> None:
        self.says, self.asked = list(says), 0

    def __call__(self, _: object) -> object:
        self.asked += 1
        return self.says.pop(0)() if self.says else "done"


def fails(unknown: bool = True) -> NoReturn:
    raise Transient("no answer in time", unknown=unknown)


def repeats() -> object:
    """A request whose outcome is unknown, which the store sends again by itself."""
    return request(Store(fails), None)


class Brackets:
    """Such as live for five seconds; what closed them is kept."""

    life = 5.0

    def __init__(self, opens: Callable[[], object] = lambda: None) -> None:
        self.undone: list[bool] = []
        self._opens = opens

    def open(self, key: Value, *, deleted: bool = False) -> Json:
        self._opens()
        return None

    def close(self, bracket: Json, *, undone: bool = False) -> None:
        retry.check()  # as a store does before it sends anything
        self.undone.append(undone)


def send(
    held: Held,
    store: Store,
    *,
    once: bool = False,
    brackets: Brackets | None = None,
) -> object:
    held.follows._unknown_until = 0.0
    with held.writing() as standing:
        bracket = None if brackets is None else Noting(brackets, "1", deleted=True)
        sending = Sending(held.follows, standing, bracket, once, 60.0)
        try:
            return sending.send(store, cast("Any", Sides))
        finally:
            assert (held.follows._unknown_until > 0) == sending.doubtful


@pytest.mark.parametrize("asks", ["it", "its store"])
@pytest.mark.parametrize("of", ["lease", "bracket"])
def test_nothing_is_sent_again_once_its_time_ran_out(
    held: Held, monkeypatch: pytest.MonkeyPatch, of: str, asks: str
) -> None:
    monkeypatch.setattr(noting, "boot_clock", lambda: held.now)
    brackets = Brackets() if of == "bracket" else None

    def runs_out() -> None:
        held.now += TERMS.lease if of == "lease" else Brackets.life - noting.MARGIN
        fails(unknown=False)

    store = Store(runs_out)
    whole = store if asks == "it" else Store(lambda: request(store, None))
    if brackets is not None and asks == "it":
        assert send(held, whole, brackets=brackets) == "done"  # under another bracket
        assert brackets.undone == [False, False]
        return
    with pytest.raises(Moved):
        send(held, whole, brackets=brackets)
    assert store.asked == 1
    assert not held.follows._unknown_until


def test_a_bracket_that_took_too_long_to_open_is_closed_around_nothing(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noting, "boot_clock", lambda: held.now)

    def takes() -> None:
        held.now += Brackets.life - noting.MARGIN

    brackets, store = Brackets(takes), Store()
    with pytest.raises(Moved):
        send(held, store, brackets=brackets)
    assert (brackets.undone, store.asked) == ([True], 0)


@pytest.mark.parametrize(
    ("store", "undone"),
    [
        (Store(), [False]),
        (Store(lambda: None), [True]),
        (Store(repeats), []),
        (Store(fails), [False]),
    ],
)
def test_a_bracket_is_closed_once_it_is_known_whether_it_was_written(
    held: Held, store: Store, undone: list[bool]
) -> None:
    """One whose write may live on stays open; where that is sent again another is closed."""
    brackets = Brackets()
    send(held, store, brackets=brackets)
    assert brackets.undone == undone


@pytest.mark.parametrize("first", [fails, repeats])
def test_what_may_live_on_behind_its_repetition_is_minded(
    held: Held, first: Callable[[], object]
) -> None:
    assert send(held, Store(first)) == "done"
    assert held.follows._unknown_until == held.now + TERMS.request_life


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_bracket_stays_open_around_what_was_broken_off(
    held: Held, error: type[BaseException]
) -> None:
    """Nobody knows whether the request was sent, nor whether it is alive."""

    def breaks() -> None:
        raise error

    brackets = Brackets()
    with pytest.raises(error):
        send(held, Store(breaks), brackets=brackets)
    assert brackets.undone == []


def test_a_bracket_is_closed_though_the_lease_ran_out_around_its_write(held: Held) -> None:
    """Else what was written would be begun anew, as if it had not been sent."""

    def lasts() -> str:
        held.now += TERMS.lease
        return "written"

    brackets = Brackets()
    assert send(held, Store(lasts), brackets=brackets) == "written"
    assert brackets.undone == [False]


def test_what_is_written_is_told_though_its_bracket_could_not_be_closed(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    brackets = Brackets()
    monkeypatch.setattr(brackets, "close", lambda *_, **__: fails())
    assert send(held, Store(), brackets=brackets) == "done"


def test_what_is_never_sent_twice_is_told_as_unknown(held: Held) -> None:
    store = Store(fails)
    with pytest.raises(Transient) as lost:
        send(held, store, once=True)
    assert (lost.value.unknown, store.asked) == (True, 1)
    assert held.follows._unknown_until == held.now + TERMS.request_life
    assert send(held, Store(lambda: fails(unknown=False)), once=True) == "done"


def test_what_its_store_has_given_up_is_not_sent_again(held: Held) -> None:
    def gives_up() -> None:
        error = Transient("no answer in time", unknown=True)
        error.given_up = True
        raise error

    store = Store(gives_up)
    with pytest.raises(Transient):
        send(held, store)
    assert store.asked == 1
    assert held.follows._unknown_until == held.now + TERMS.request_life


def test_what_was_not_done_after_a_repetition_may_have_been_before_it(held: Held) -> None:
    """Somebody was faster, perhaps itself: to look and add it again might add it twice (R12)."""

    def overtaken() -> None:
        repeats()

    store = Store(overtaken)
    with pytest.raises(Transient) as lost:
        send(held, store, once=True)
    assert (lost.value.unknown, store.asked) == (True, 1)
    assert send(held, Store(overtaken)) is None
    assert send(held, Store(lambda: None), once=True) is None


@pytest.mark.parametrize("opens", [fails, repeats])
def test_a_bracket_that_had_no_answer_leaves_no_doubt_about_its_write(
    held: Held, opens: Callable[[], object]
) -> None:
    """Nothing of the write itself was sent by then: what it is told is all that became of it."""
    for told in ("done", None):
        ways, store = Store(opens), Store(partial(str, told) if told else lambda: None)
        bracket = Noting(Brackets(lambda ways=ways: ways(None)), "1", deleted=False)  # type: ignore[misc]
        with held.writing() as standing:
            sending = Sending(held.follows, standing, bracket, True, 60.0)
            assert sending.send(store, cast("Any", Sides)) == told
        assert not sending.doubtful


def test_what_is_sent_once_is_not_sent_again_behind_a_repetition_that_failed(held: Held) -> None:
    """What its store repeats by itself may have been carried out before (R12)."""

    def moved_away() -> NoReturn:
        raise Transient("its server is no master any more", stale=True)

    store = Store(lambda: request(Store(fails, moved_away), None))
    with pytest.raises(Transient) as lost:
        send(held, store, once=True)
    assert (lost.value.given_up, store.asked) == (True, 1)

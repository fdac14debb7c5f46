"""Shadow reads by a gateway: made beside its reads, reported, and asked by the gate of a swap."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator import commands
from migrator.commands.records import GatewayReads
from migrator.engine import points
from migrator.engine.shadow import _Reader
from migrator.engine.swap import SwapTerms
from migrator.errors import Refused, Waiting
from migrator.gateway import Gateway
from migrator.gateway.shadowing import WAITING, ShadowReading
from migrator.model.block import Address, Aggregate, Block, cut
from migrator.model.phase import Phase
from migrator.model.value import Record, Value
from migrator.route import Route
from migrator.state import ShadowReads
from migrator.state.gateways import Standing
from tests.ending import PATIENCE
from tests.gateway.kit import QUICK, Owner, make_project, until

KEYS = [str(n) for n in range(20)]


class Moved:
    """A move that was compared, whose mirror stands still; the test writes to both sides."""

    def __init__(self, project: commands.Project, owner: Owner) -> None:
        self.project, self.owner = project, owner
        (self.route,) = project.routes("0001")

    def put(self, side: str, key: str, value: Record) -> None:
        new = Aggregate(key, value)
        if side == "source":
            self.route.source.write([cut(new, self.route.translation.source)])
        else:
            self.route.target.write([cut(new, self.route.representation)])

    @property
    def found(self) -> GatewayReads | None:
        (status,) = commands.status(self.project)
        assert status.live is not None
        return status.live.gateways

    @property
    def differed(self) -> list[str]:
        (status,) = commands.status(self.project)
        assert status.live is not None
        return status.live.differed

    def until(self, name: str, number: int) -> GatewayReads:
        """Wait until gateways have reported so many."""
        until(lambda: self.found is not None and getattr(self.found, name) >= number)
        assert self.found is not None
        return self.found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return make_project(tmp_path)


@pytest.fixture
def moved(config: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moved]:
    # As if a mirror had said that it holds what was written: what differs then is a difference.
    monkeypatch.setattr("migrator.engine.settled.settler", lambda *_: lambda: None)
    monkeypatch.setattr("migrator.gateway.shadowing._REPORT", 0.05)
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        route.target.create()
        made = Moved(project, Owner(project))
        for number, key in enumerate(KEYS):
            for side in ("source", "target"):
                made.put(side, key, {"id": key, "n": number})
        yield made


def opened(config: Path, shadow: float | None = None) -> Gateway:
    return Gateway.open("Game", config, "test", terms=QUICK, shadow=shadow)


def test_reads_are_made_on_both_sides_as_large_a_share_as_is_said(
    config: Path, moved: Moved
) -> None:
    with opened(config) as games:
        shadows = games._here.shadows
        assert shadows.share == 0  # the settings say nothing
        commands.shadow_share(moved.project, "0001", 1.0)
        until(lambda: shadows.share == 1)
        for key in KEYS:
            games.get(key)
            games.get_entries(key, ["n"])
        assert games.get("none") is None
        moved.until("agreed", len(KEYS))
        found = moved.until("absent", 1)
        assert (found.mismatch, found.errors, found.lagging) == (0, 0, 0)
        assert (found.agreed, found.absent, found.share) == (len(KEYS), 1, 1.0)
        for side in (found.primary_median, found.mirror_median):
            assert side is not None
            assert side > 0
        commands.shadow_share(moved.project, "0001", 0)
        until(lambda: shadows.share == 0)


def test_what_differs_keeps_a_swap_waiting_until_all_was_compared(
    config: Path, moved: Moved
) -> None:
    moved.put("target", "3", {"id": "3", "n": 33})
    moved.route.target.delete([Address("4")])
    with opened(config, shadow=1.0) as games:
        for key in KEYS:
            games.get(key)
        found = moved.until("reads", len(KEYS))
        assert (found.mismatch, found.equal, found.agreed) == (2, len(KEYS) - 2, len(KEYS) - 2)
        until(lambda: moved.differed == ["Game:3", "Game:4"])
    (event,) = (e for e in commands.events(moved.project, "0001") if "differed" in str(e["event"]))
    told = {item["key"]: item for item in event["detail"]["told"]}  # type: ignore[index]
    assert told["Game:4"]["what"] == "missing"
    assert told["Game:3"]["paths"] == ["n: 3 (int32) / 33 (int32)"]
    kept = ShadowReads(moved.project.control, moved.owner.run.id)
    assert set(kept.open()["Game"]) == {"Game:3", "Game:4"}
    record = moved.project.control.record
    record(moved.owner.run.id, "verified", cls="Game", differ=1, missing=1, extra=0)
    assert moved.differed
    record(moved.owner.run.id, "verified", cls="Game", differ=0, missing=0, extra=0)
    assert moved.differed == []


def test_a_difference_with_a_declared_reason_is_none(config: Path, moved: Moved) -> None:
    with config.open("a") as file:
        file.write(
            "\n[env.test.shadow]\nshare = 1.0\n[[env.test.shadow.explained]]\n"
            'path = "/Game/*/n"\nreason = "counted anew"\n'
        )
    moved.put("target", "3", {"id": "3", "n": 33})
    moved.put("target", "4", {"id": "other", "n": 44})
    with opened(config) as games:
        for key in KEYS[:6]:
            games.get(key)
        found = moved.until("reads", 6)
    assert (found.explained, found.mismatch, found.equal) == (1, 1, 4)
    assert moved.differed == ["Game:4"]


def test_a_side_that_fails_fails_no_read(config: Path, moved: Moved) -> None:
    moved.route.target.drop()
    with opened(config, shadow=1.0) as games:
        for key in KEYS:
            game = games.get(key)
            assert game is not None
        found = moved.until("reads", len(KEYS))
    assert found.equal == found.agreed == 0
    assert found.errors + found.mismatch == len(KEYS)


def test_a_side_that_does_not_answer_holds_up_no_read(
    config: Path, moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()
    read = _Reader.read

    def silent(self: _Reader, keys: Sequence[Value]) -> list[Block | None]:
        asked.set()
        assert answers.wait(PATIENCE)
        return read(self, keys)

    monkeypatch.setattr(_Reader, "read", silent)
    with opened(config, shadow=1.0) as games:
        until(lambda: games.get("1") is not None and asked.is_set())
        for _ in range(WAITING + 7):  # more than wait for it
            assert games.get("2") is not None
        answers.set()
        assert moved.until("dropped", 7).mismatch == 0


def test_what_there_is_no_time_for_is_dropped_and_counted(config: Path, moved: Moved) -> None:
    def route(_: Standing) -> Route:
        raise Refused("nobody reads in this test")

    reading = ShadowReading(moved.project.control, "Game", route, Standing, 1.0, ())
    reading.share = 1.0
    for number in range(WAITING + 7):
        reading.offer(str(number))
    assert reading._dropped == 7
    reading.close()


def test_a_share_is_a_share(config: Path, moved: Moved) -> None:
    with pytest.raises(Refused, match="lies between 0 and 1"):
        opened(config, shadow=1.5)
    moved.owner.control.advance(moved.owner.run, Phase.ABORTED)
    with pytest.raises(Refused, match="no gateway compares it"):
        commands.shadow_share(moved.project, "0001", 0.5)


@pytest.fixture
def live(config: Path) -> Iterator[commands.Project]:
    """The same move, carried out by a real mirror as far as it goes without a swap."""
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        route.source.write(
            [cut(Aggregate(key, {"id": key, "n": 0}), route.translation.source) for key in KEYS]
        )
        plan = commands.plan(project, "0001", live=True)
        terms = commands.Terms(accept=[finding.code for finding in plan.findings])
        commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        yield project


def test_a_gate_asks_for_shadow_reads_and_for_none_that_differed(
    live: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = SwapTerms(gateways=True, shadow_reads=5, bound=60, lag=60)
    with pytest.raises(Waiting, match="found 0 keys of Game the same on both sides, and 5"):
        commands.cutover(live, "0001", swap=few)
    run = live.control.run("0001")
    kept = ShadowReads(live.control, run.id)
    kept.differed("Game", [{"key": "Game:3", "what": "differs", "paths": ["n"]}], 0)
    with pytest.raises(Waiting, match="1 blocks are different on both sides: Game:3"):
        commands.cutover(live, "0001", swap=SwapTerms(gateways=True))
    monkeypatch.setattr("migrator.commands.shadowing.settler", lambda *_: lambda: None)
    commands.shadow(live, "0001", 7)
    accepted = replace(few, accept_keys=("Game:3",), dry_run=True)
    assert commands.cutover(live, "0001", swap=accepted).swap is not None


def test_no_swap_begins_after_a_comparison_that_found_a_difference(
    live: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.commands.comparing.settler", lambda *_: lambda: None)
    (route,) = live.routes("0001")

    def mirrored(key: str, n: int) -> None:
        route.target.write([cut(Aggregate(key, {"id": key, "n": n}), route.representation)])

    mirrored("3", 33)
    route.target.delete([Address("4")])
    (found,) = commands.verify_run(live, "0001")
    assert (found.differ, found.missing) == (1, 1)
    swap = SwapTerms(gateways=True, bound=60, lag=60, dry_run=True)
    with pytest.raises(Waiting, match="2 blocks are different on both sides: Game:3, Game:4"):
        commands.cutover(live, "0001", swap=swap)
    with pytest.raises(Waiting, match="1 blocks are different on both sides: Game:4"):
        commands.cutover(live, "0001", swap=replace(swap, accept_keys=("Game:3",)))
    mirrored("3", 0)
    mirrored("4", 0)
    (found,) = commands.verify_run(live, "0001")
    assert found.clean
    assert commands.cutover(live, "0001", swap=swap).swap is not None
    kept = ShadowReads(live.control, live.control.run("0001").id)

    def meanwhile(point: str) -> None:
        if point == "verify.checkpointed" and not kept.open():
            kept.differed("Game", [{"key": "Game:3", "what": "differs", "paths": ["n"]}], 0)

    monkeypatch.setattr(points, "hook", meanwhile)
    (found,) = commands.verify_run(live, "0001")
    assert found.clean  # its key was compared before that
    with pytest.raises(Waiting, match="1 blocks are different on both sides: Game:3"):
        commands.cutover(live, "0001", swap=swap)
    monkeypatch.setattr(points, "hook", None)
    commands.verify_run(live, "0001")
    assert kept.open() == {}


def test_a_comparison_of_which_only_numbers_are_known_counts_as_well(moved: Moved) -> None:
    kept = ShadowReads(moved.project.control, moved.owner.run.id)
    record = moved.project.control.record
    record(moved.owner.run.id, "verified", cls="Game", differ=1, missing=1, extra=1)
    assert set(kept.open()["Game"]) == {"Game (3 more)"}
    told = {"cls": "Game", "differ": 1, "missing": 0, "extra": 0}
    record(moved.owner.run.id, "verified", **told, keys=["Game:3"])
    assert kept.open() == {"Game": {"Game:3": []}}


def test_what_a_comparison_names_it_looks_at_again(moved: Moved) -> None:
    control, run = moved.project.control, moved.owner.run.id
    kept, since = ShadowReads(control, run), control.newest(run)
    kept.differed("Game", [{"key": f"Game:{n}", "paths": ["n"]} for n in (3, 5)], 0)
    told = {"cls": "Game", "missing": 0, "extra": 0, "since": since}
    control.record(run, "verified", **told, differ=1, keys=["Game:3"])
    assert kept.open() == {"Game": {"Game:3": ["n"], "Game:5": ["n"]}}
    control.record(run, "verified", **told, differ=0, keys=[])
    assert kept.open() == {"Game": {"Game:5": ["n"]}}
    control.record(run, "verified", **(told | {"since": control.newest(run)}), differ=0, keys=[])
    assert kept.open() == {}


def test_writes_and_a_mirror_at_work_are_no_difference(
    config: Path, live: commands.Project
) -> None:
    from tests.gateway.test_live import mirroring

    with mirroring(config), opened(config, shadow=1.0) as games:
        for turn in range(3):
            for key in KEYS:
                games.update(key, {"n": turn})
                games.get(key)

        def reported() -> bool:
            with suppress(AttributeError):
                (status,) = commands.status(live)
                return status.live.gateways.reads >= 5  # type: ignore[union-attr]
            return False

        until(reported)
    (status,) = commands.status(live)
    assert status.live is not None
    assert status.live.gateways is not None
    assert (status.live.gateways.mismatch, status.live.gateways.errors) == (0, 0)

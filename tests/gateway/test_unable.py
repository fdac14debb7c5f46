"""Who can't follow a move is found before the phase that would stop it, and goes on until then."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine.followers import Followers
from migrator.engine.swap import SwapTerms
from migrator.errors import Refused, Waiting
from migrator.following import lack
from migrator.gateway import Gateway
from migrator.gateway.opened import Opened
from migrator.model.follows import KNOWN, Follows
from migrator.model.phase import Phase
from migrator.render.runs import status_lines
from migrator.state.gateways import Gateways, gateway
from tests.engine.games import SETTINGS
from tests.gateway.kit import QUICK, until

SCRIPT = '''"""It moves."""

from migrator import *

revision, down_revision = "{id}", {down}

moves = [{moves}]
'''
FIRST = 'Move("Game", source=At("old", "games"), target=At("new", "games"))'
SHAPED = 'Move("Game", target=At("old", "shaped"), evolve=[Rename("n", "number")])'
PLAIN = 'Move("Game", target=At("old", "plain"))'
GATEWAYS = SwapTerms(gateways=True, bound=60.0, lag=20.0)


def script(root: Path, id: str, down: str | None, *moves: str) -> None:
    (root / "migrations").mkdir(exist_ok=True)
    text = SCRIPT.format(id=id, down=repr(down), moves=", ".join(moves))
    (root / "migrations" / f"{id}_move.py").write_text(text)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Games that an earlier revision has brought to where they are."""
    script(tmp_path, "0001", None, FIRST)
    config = tmp_path / "migrator.toml"
    config.write_text(f"[env.test]\nrequest_life = 0.5\n{SETTINGS}")
    with commands.Project(config, "test") as project:
        project.routes("0001")[0].target.create()
        commands.stamp(project, "0001")
    return config


@pytest.fixture
def games(config: Path) -> Iterator[Gateway]:
    """A gateway that knows of no further revision."""
    with Gateway.open("Game", config, "test", terms=QUICK) as games:
        games.put("1", {"n": 1})
        yield games


def apply(config: Path, until: Phase = Phase.SHADOW_READ) -> None:
    with commands.Project(config, "test") as project:
        plan = commands.plan(project, "0002", live=True)
        terms = commands.Terms(accept=[finding.code for finding in plan.findings], swap=GATEWAYS)
        commands.apply(project, plan, until=until, terms=terms)


def cut_over(config: Path) -> commands.Applied:
    with commands.Project(config, "test") as project:
        return swapped(commands.cutover, project)


def swapped(swap: Callable[..., commands.Applied], project: commands.Project) -> commands.Applied:
    """Swap the sides; again where a busy machine did not let a gateway renew its lease in time."""
    end = time.monotonic() + 120
    while True:
        try:
            return swap(project, "0002", swap=GATEWAYS)
        except Waiting as waiting:
            if "ended without leaving" not in waiting.what or time.monotonic() > end:
                raise


def told(project: commands.Project, **changes: object) -> None:
    """Let all gateways say something else of themselves; None takes a word away."""
    with project.control.transaction() as c:
        for instance, holder in c.execute(
            gateway.select().with_only_columns(gateway.c.instance, gateway.c.holder)
        ).all():
            held = {**json.loads(holder), **changes}
            held = {word: said for word, said in held.items() if said is not None}
            mine = gateway.update().where(gateway.c.instance == instance)
            c.execute(mine.values(holder=json.dumps(held)))


def test_a_gateway_without_a_shape_goes_on_until_a_cut_over_that_waits_for_it(
    config: Path, games: Gateway
) -> None:
    script(config.parent, "0002", "0001", SHAPED)
    apply(config)
    until(lambda: games._here.follower.standing.phase is Phase.SHADOW_READ)
    games.update("1", {"n": 2})
    assert games.get("1").value == {"n": 2}
    with pytest.raises(Waiting, match="can't follow revision 0002 into cut over") as waiting:
        cut_over(config)
    for word in (games._here.follower.instance, platform.node(), f"process {os.getpid()}",
                 "changes its shape"):  # fmt: skip
        assert word in waiting.value.what
    assert 'shape="source"' in waiting.value.hint
    with commands.Project(config, "test") as project:
        (status,) = commands.status(project, "0002")
        assert status.live is not None
        (found,) = status.live.unable
        assert (found.host, found.pid) == (platform.node(), os.getpid())
        assert (found.instance, found.phase) == (games._here.follower.instance, "cut_over")
        lines = "\n".join(line.text for line in status_lines([status], str))
        assert f"process {os.getpid()}" in lines
        assert "can't follow into cut over: revision 0002 changes its shape" in lines
    assert games.update("1", {"n": 3}).value == {"n": 3}
    with pytest.raises(Refused, match="changes its shape"):
        Gateway.open("Game", config, "test")
    games.close()
    with Gateway.open("Game", config, "test", revision="0002", shape="source", terms=QUICK) as able:
        assert cut_over(config).primary == "target"
        assert able.update("1", {"n": 4}).value == {"n": 4}


def test_a_run_does_not_begin_that_a_gateway_of_another_revision_would_refuse(
    config: Path,
) -> None:
    with Gateway.open("Game", config, "test", revision="0001", terms=QUICK) as games:
        script(config.parent, "0002", "0001", PLAIN)
        with pytest.raises(Waiting, match=r"into dual write: .* opened for 0001") as waiting:
            apply(config)
        assert 'Gateway.open("Game", revision="0002")' in waiting.value.hint
        games.put("1", {"n": 1})
        with commands.Project(config, "test") as project:
            assert project.control.runs("0002") == []
    apply(config)


@pytest.mark.parametrize("move", [SHAPED, PLAIN])
def test_a_lease_that_says_nothing_of_its_holder_is_read(
    config: Path, games: Gateway, move: str
) -> None:
    """As those are of versions before gateways said what they can follow."""
    script(config.parent, "0002", "0001", move)
    with commands.Project(config, "test") as project:
        told(project, follows=None, host=None, release=None)
        if move == SHAPED:
            with pytest.raises(Waiting, match="does not say what it can follow"):
                apply(config)
            assert project.control.runs("0002") == []
            return
    apply(config)
    assert cut_over(config).primary == "target"
    games.put("2", {"n": 2})


def test_a_run_that_has_begun_waits_before_its_writes_are_followed(
    config: Path, games: Gateway
) -> None:
    script(config.parent, "0002", "0001", PLAIN)
    apply(config, Phase.PREPARED)
    with commands.Project(config, "test") as project:
        told(project, follows=Follows("0001").told())
        with pytest.raises(Waiting, match="into dual write"):
            apply(config)
        (status,) = commands.status(project, "0002")
        assert status.phase == "prepared"
        assert status.live is not None
        assert [each.phase for each in status.live.unable] == ["dual_write"]
        told(project, follows=Follows().told())
    apply(config)
    games.put("2", {"n": 2})


def test_what_knows_less_than_a_rollback_needs_keeps_it_waiting(
    config: Path, games: Gateway
) -> None:
    script(config.parent, "0002", "0001", PLAIN)
    apply(config)
    cut_over(config)
    with commands.Project(config, "test") as project:
        told(project, version="0001")
        with pytest.raises(Waiting, match=r"back into shadow read: .* another version"):
            swapped(commands.rollback, project)
        games.put("2", {"n": 2})
        (now,) = Gateways(project.control).leases(["Game"])
        assert now.version == "0001"
        games.close()
        assert swapped(commands.rollback, project).primary == "source"


def test_a_gateway_that_is_opened_while_a_run_begins_sees_that_run(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease was not there yet when the run looked for those that can't follow."""
    script(config.parent, "0002", "0001", SHAPED)
    plain = Opened._at_first

    def at_first(self: Opened) -> None:
        plain(self)
        apply(config)

    with monkeypatch.context() as patch:
        patch.setattr(Opened, "_at_first", at_first)
        with pytest.raises(Refused, match="changes its shape"):
            Gateway.open("Game", config, "test")
    assert cut_over(config).primary == "target"  # its lease is gone


def test_a_gateway_that_came_after_the_gate_is_found_before_writes_are_stopped(
    config: Path, games: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(config.parent, "0002", "0001", SHAPED)
    apply(config)
    monkeypatch.setattr(Followers, "gate", lambda *_: None)
    with pytest.raises(Waiting, match="can't follow revision 0002 into cut over"):
        cut_over(config)
    assert games.update("1", {"n": 2}).value == {"n": 2}
    with commands.Project(config, "test") as project:
        events = [event["event"] for event in commands.events(project, "0002")]
        assert events[-2:] == ["armed", "not done"]
        assert project.control.run("0002").fence == ""


def test_a_lease_whose_holder_is_gone_is_outwaited(config: Path) -> None:
    script(config.parent, "0002", "0001", PLAIN)
    with commands.Project(config, "test") as project:
        Gateways(project.control).enter("dead", "Game", 0.3, follows=Follows("0001"))
        told(project, boot="of another host")
        apply(config)
        assert project.control.runs("0002")[-1].phase is Phase.SHADOW_READ


def test_an_application_that_follows_by_its_own_means_is_taken_at_its_word(config: Path) -> None:
    script(config.parent, "0002", "0001", SHAPED)
    with commands.Project(config, "test") as project:
        Gateways(project.control).enter("its own", "Game", 60.0, away=True)
        apply(config)
        (status,) = commands.status(project, "0002")
        assert status.live is not None
        assert status.live.unable == []


SPREAD = 'SplitOut("rounds", back="game", bare=True, order_by="pos", key="{game}-{pos}")'


def moved(cls: str, evolve: str, to: str) -> str:
    """A move of games to another class."""
    at = f'source=At("old", "games"), target=At("new", "{to}")'
    return f'Move("{cls}", of="Game", {at}, evolve=[{evolve}])'


SPREADING = [moved("Game", 'Drop("rounds")', "games"), moved("Round", SPREAD, "rounds")]
SHARDED = moved("Game", "ReKey([Shard(2), Id()])", "games")
WIDE = 'Move("Game", source=At("wide", "games", layout="row"), target=At("new", "games"))'
RENAMED = 'Move("Play", of="Game", source=At("wide", "g", layout="row"), target=At("new", "g"))'
BEGUN, FLIPPED, BACK = Phase.DUAL_WRITE, Phase.CUT_OVER, Phase.SHADOW_READ
KNOWS = Follows("0001", "source")


@pytest.mark.parametrize(
    ("moves", "cls", "follows", "lacks"),
    [
        ([FIRST], "Game", Follows(), {}),
        ([FIRST], "Game", Follows(knows=None), {}),
        ([SHARDED], "Game", KNOWS, {}),
        ([SHARDED], "Game", Follows(), {FLIPPED: "changes its keys"}),
        ([SHARDED], "Game", Follows("0001", "source", KNOWN - {"keys"}),
         {BEGUN: "not know keys", FLIPPED: "not know keys"}),
        (SPREADING, "Game", KNOWS, {FLIPPED: "spreads Game over others"}),
        (SPREADING, "Game", Follows("0001", "target"), {}),
        (SPREADING, "Game", Follows("0001", "source", frozenset({"shape"})),
         {BEGUN: "not know spread", FLIPPED: "not know spread"}),
        (SPREADING, "Round", KNOWS, {BEGUN: "regroups Round"}),
        ([SPREADING[1]], "Game", Follows(),
         {FLIPPED: "makes Round of Game", BACK: "makes Round of Game"}),
        ([WIDE], "Game", Follows(), {}),
        ([WIDE], "Game", Follows(knows=None), {BEGUN: "does not say", BACK: "does not say"}),
        ([RENAMED], "Game", Follows(),
         {BEGUN: "Play of Game", FLIPPED: "Play of Game", BACK: "Play of Game"}),
        ([RENAMED], "Game", Follows(its_own=True), {}),
    ],
)  # fmt: skip
def test_what_a_holder_lacks(
    tmp_path: Path, moves: list[str], cls: str, follows: Follows, lacks: dict[Phase, str]
) -> None:
    script(tmp_path, "0001", None, *moves)
    config = tmp_path / "migrator.toml"
    wide = '\n[env.test.stores.wide]\nurl = "cassandra://127.0.0.1:1/none"\n'
    config.write_text(SETTINGS + wide)
    with commands.Project(config, "test") as project:
        routes = project.routes("0001")
        for to in (BEGUN, FLIPPED, BACK):
            found = lack(follows, cls, "0001", routes, to)
            if to not in lacks:
                assert found is None, to
            else:
                assert found is not None, to
                assert lacks[to] in found.what
                assert found.hint
    assert Follows.heard(json.loads(json.dumps(follows.told()))).shape == follows.shape

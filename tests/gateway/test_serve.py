"""``migrator serve``: a real process, asked over HTTP as an application of any language is."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from starlette.requests import Request
from starlette.types import Message

from migrator import commands
from migrator.cli import main
from migrator.errors import DoesNotFit, Failed, MigratorError, Transient, Waiting
from migrator.gateway import Behind, Gateway
from migrator.gateway.web import _failed, _Service, new_lease
from migrator.model.phase import Phase
from migrator.state import gateways
from migrator.state.gateways import (
    SHORT,
    Gateways,
    Standing,
    Watch,
    has_acknowledged,
    is_armed,
)
from tests.ending import PYTHON, joined, terminated
from tests.engine.games import source, target
from tests.gateway.kit import QUICK, Owner, make_project, until
from tests.gateway.test_shape import NEW, make_shaped

TOKEN = "a-token-of-the-tests-0123456789"


@dataclass
class Served:
    """A service, and what asks it."""

    config: Path
    address: str
    process: subprocess.Popen[str]

    def ask(
        self, method: str, path: str, body: object = None, *, token: str = f"Bearer {TOKEN}"
    ) -> tuple[int, Any, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        data = body if isinstance(body, bytes) else json.dumps(body) if body is not None else None
        connection.request(method, path, data, {"Authorization": token})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        return answer.status, told, answer

    def call(self, name: str, **body: object) -> tuple[int, Any]:
        return self.ask("POST", f"/v1/classes/Game/{name}", body)[:2]


def at(process: subprocess.Popen[str]) -> str:
    """Where a service listens that was started with ``LISTEN``."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=60)[1]
    return urlsplit(json.loads(line)["url"]).netloc


def end(process: subprocess.Popen[str]) -> None:
    terminated(process)
    assert process.returncode == 0


LISTEN = ("--listen", "0", "--format", "json")


def start(config: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PYTHON, "-m", "migrator", "serve", "Game", "--config", str(config),
         "--env", "test", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "MIGRATOR_SERVE_TOKEN": TOKEN},
    )  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = make_project(tmp_path_factory.mktemp("serve"))
    with commands.Project(config, "test") as project:
        source(project).create()
        target(project).create()
    process = start(config, *LISTEN)
    yield Served(config, at(process), process)
    end(process)


@pytest.fixture
def owner(served: Served) -> Iterator[Owner]:
    """A run of the class, taken back at the end, so that the next test finds none."""
    with commands.Project(served.config, "test") as project:
        made = Owner(project)
        yield made
        if made.run.fence:
            made.release()
        made.control.advance(made.run, Phase.ABORTED)


def test_an_aggregate_goes_in_and_comes_out_with_its_kinds(served: Served) -> None:
    value = {
        "id": "1",
        "ref": "Player:mary",
        "big": "9007199254740993",
        "rounds": [{"moves": ["q1"]}],
    }
    tags = {"value.ref": "reference", "value.big": "decimal"}
    status, put = served.call("put", id="1", value=value, expected=None, tags=tags)
    assert (status, put.keys()) == (200, {"version"})
    status, found = served.call("get", id="1")
    assert (status, found["found"], found["version"]) == (200, True, put["version"])
    assert (found["value"], found["tags"]) == (value, tags)
    with Gateway.open("Game", served.config, "test", terms=QUICK) as games:
        there = games.get("1")
        assert there is not None
        assert there.version == put["version"]  # the very same, kinds and all
        assert type(there.value["ref"]).__name__ == "Ref"
    status, after = served.call("append", id="1", path="rounds", item={"moves": ["q2"]})
    assert (status, len(after["value"]["rounds"])) == (200, 2)
    status, after = served.call(
        "update", id="1", set={"other": "Player:ann"}, remove=["big"], expected=after["version"],
        tags={"set.other": "reference"},
    )  # fmt: skip
    assert status == 200
    assert after["tags"] == {"value.ref": "reference", "value.other": "reference"}
    assert served.call("put", id="ends", value={}, expires=1_000, wait=True)[0] == 200
    assert served.call("get", id="ends") == (200, {"found": False})
    status, entries = served.call("get_entries", id="1", paths=["rounds[1].moves", "no"])
    assert (status, entries) == (200, {"found": True, "entries": {"rounds[1].moves": ["q2"]}})
    assert served.call("delete", id="1", expected=after["version"]) == (200, {})
    assert served.call("get", id="1") == (200, {"found": False})
    assert served.call("get_entries", id="1", paths=["a"]) == (200, {"found": False})


def test_a_condition_that_does_not_hold_is_409(served: Served) -> None:
    _, first = served.call("put", id="2", value={"n": 1})
    served.call("put", id="2", value={"n": 2}, expected=first["version"])
    for name, more in (
        ("put", {"value": {}}), ("update", {"set": {"n": 3}}), ("delete", {}),
        ("append", {"path": "n", "item": 1}),
    ):  # fmt: skip
        status, told = served.call(name, id="2", expected=first["version"], **more)
        assert (status, told["error"], told["where"]) == (409, "conflict", "Game:2")
        assert "nothing was written" in told["what"]
    assert served.call("get", id="2")[1]["value"] == {"n": 2}


@pytest.mark.parametrize(
    "token", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer é"]
)
def test_without_the_token_there_is_nothing(served: Served, token: str) -> None:
    for method, path in (("POST", "/v1/classes/Game/get"), ("GET", "/v1/classes/Game")):
        status, told, answer = served.ask(method, path, {"id": "1"}, token=token)
        assert (status, told["error"]) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert "found" not in told


@pytest.mark.parametrize(
    ("name", "body", "status", "told"),
    [
        ("get", b"{", 400, "no JSON"),
        ("get", b"[]", 400, "the body is an object"),
        ("get", b"", 400, "id is missing"),
        ("get", b'{"id": NaN}', 400, "NaN has a tag of its own"),
        ("put", b'{"id": "1", "value": {"n": 1e400}}', 400, "beyond any double"),
        ("get", b"[" * 100_000, 400, "no JSON"),
        ("get", {"id": "1", "key": 1}, 400, "no key 'key'"),
        ("get", {"id": "1", "tags": {"id": 3}}, 400, "tags is an object"),
        ("get", {"id": "1", "tags": {"": "text"}}, 400, "does not fit what is at the whole"),
        ("get", {"id": "1", "tags": {"id": "uuid"}}, 400, "does not fit what is at id"),
        ("put", {"id": "1", "value": {"n": "x"}, "tags": {"value.n": "decimal"}}, 400, "value.n"),
        ("get", {"id": "1", "tags": {"a..b": "decimal"}}, 400, "tags"),
        ("put", {"id": "1"}, 400, "value is missing"),
        ("put", {"id": "1", "value": []}, 400, "value is an object"),
        ("put", {"id": "1", "value": {}, "expected": 3}, 400, "expected is a version"),
        ("put", {"id": "1", "value": {}, "wait": "yes"}, 400, "wait is true or false"),
        ("put", {"id": "1", "value": {}, "expires": "soon"}, 400, "expires is milliseconds"),
        ("update", {"id": "1", "remove": "a"}, 400, "remove is a list"),
        ("update", {"id": "nobody", "set": {"a": 1}}, 422, "there is no such aggregate"),
        ("append", {"id": "nobody", "path": "a..b", "item": 1}, 422, "no access path"),
        ("burn", {"id": "1"}, 404, "there is no call burn"),
        ("get", b'{"id": ' + b"[" * 250 + b"]" * 250 + b"}", 422, "nests deeper than 200"),
        ("leases", {"seconds": 61}, 400, "seconds is a number, at most 60"),
        ("leases", {"seconds": 0}, 400, "seconds is a number, at most 60"),
        ("leases", {"seconds": True}, 400, "seconds is a number, at most 60"),
    ],
)
def test_what_is_no_call(served: Served, name: str, body: Any, status: int, told: str) -> None:
    found, answer, _ = served.ask("POST", f"/v1/classes/Game/{name}", body)
    assert (found, told in answer["what"]) == (status, True), answer


@pytest.mark.parametrize(
    ("error", "status", "word", "unknown", "again"),
    [
        (Transient("no answer", unknown=True), 503, "transient", True, None),
        (Transient("not now"), 503, "transient", False, "1"),
        (Behind("it is written"), 504, "behind", False, None),
        (DoesNotFit("too large", key="1"), 422, "does not fit", False, None),
        (Waiting("not yet"), 503, "waiting", False, "1"),
        (Failed("it is broken"), 500, "failed", False, None),
    ],
)
def test_what_a_caller_is_told_of_an_error(
    error: MigratorError, status: int, word: str, unknown: bool, again: str | None
) -> None:
    """Only what was surely not carried out is to be sent again."""
    answer = _failed(error)
    told = json.loads(bytes(answer.body))
    assert (answer.status_code, told["error"], told["unknown"]) == (status, word, unknown)
    assert (answer.headers.get("Retry-After"), told["what"]) == (again, error.what)


def test_what_is_not_here(served: Served) -> None:
    assert served.address.startswith("127.0.0.1:")  # nobody named a host
    status, told, _ = served.ask("POST", "/v1/classes/Player/get", {"id": "1"})
    assert (status, "known: Game" in told["what"]) == (404, True)
    assert served.ask("GET", "/elsewhere")[0] == 404
    assert served.ask("GET", "/v1/classes/Game/get")[0] == 405
    assert served.ask("GET", "/v1/classes")[1] == {"classes": ["Game"]}


@pytest.mark.parametrize("first", [30, 2], ids=["as it was taken", "as it was renewed"])
def test_a_lease_whose_holder_has_not_heard_that_it_is_short_is_outwaited(
    served: Served, owner: Owner, first: int
) -> None:
    """The answer to its renewal is lost: it writes for as long as it was granted before."""
    at, leases, now = "/v1/classes/Game/leases", Gateways(owner.control), 0.0
    _, lease, _ = served.ask("POST", at, {"seconds": first})
    if first < 30:
        served.ask("PUT", f"{at}/{lease['lease']}", {"seconds": 30})
    owner.run = owner.live.arm(owner.run)
    status, told, _ = served.ask("PUT", f"{at}/{lease['lease']}", {"seconds": 30})
    assert (status, told["seconds"]) == (200, SHORT)
    watch = Watch(clock=lambda: now)

    def lapsed() -> bool:
        _, out = watch.sort(leases.leases(["Game"]), has_acknowledged(owner.run))
        return lease["lease"] in {each.instance for each in out}

    assert not lapsed()
    now = 15.0  # what went by since it was granted is no part of it
    assert not lapsed()
    now = 30.0
    assert lapsed()
    leases.leave([lease["lease"]])


def test_a_long_grant_that_ran_out_is_outwaited_no_more(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases, now = Gateways(owner.control), 1000.0
    monkeypatch.setattr(gateways, "boot_clock", lambda: now)
    leases.enter("away", "Game", 600.0, away=True)

    def lasts(after: float, seconds: float) -> float:
        nonlocal now
        now += after
        assert leases.renew_away("away", seconds)
        return next(x for x in leases.leases(["Game"]) if x.instance == "away").lasts

    assert lasts(100.0, 15.0) == 500.0
    assert lasts(490.0, 1.0) == 10.0
    assert lasts(5.0, 30.0) == 30.0
    assert lasts(29.0, 1.0) == 1.0
    assert lasts(0.0, 600.0) == 600.0
    with owner.control.transaction() as c:  # as a service of an older version renews it
        row = gateways.gateway
        c.execute(row.update().where(row.c.instance == "away").values(counter=row.c.counter + 1))
    assert lasts(590.0, 1.0) == 600.0
    assert lasts(600.0, 1.0) == 1.0
    monkeypatch.setattr(gateways, "_host", lambda: "another")  # nobody's clock is compared
    assert lasts(5000.0, 0.5) == 1.0
    assert lasts(1.0, 0.5) == 0.5
    leases.leave(["away"])


def test_a_renewal_that_had_to_wait_takes_nothing_from_one_that_came_first(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases, now, g = Gateways(owner.control), 1000.0, gateways.gateway
    monkeypatch.setattr(gateways, "boot_clock", lambda: now)
    leases.enter("twice", "Game", 15.0, away=True)
    mine = g.c.instance == "twice"
    late = threading.Thread(target=leases.renew_away, args=("twice", 15.0))
    with owner.control.transaction() as c:
        c.execute(g.update().where(mine).values(counter=1))  # locked from here on
        late.start()
        time.sleep(0.05)
        now += 9.0
        held = json.loads(c.execute(sa.select(g.c.holder).where(mine)).scalar_one())
        held |= gateways._granted(15.0, 1)
        c.execute(g.update().where(mine).values(holder=json.dumps(held)))
    joined(late)
    now += 1.0
    assert leases.renew_away("twice", 1.0)
    (lasts,) = [each.lasts for each in leases.leases(["Game"]) if each.instance == "twice"]
    assert lasts == 14.0
    leases.leave(["twice"])


def test_a_lease_over_http_keeps_the_fence_waiting(served: Served, owner: Owner) -> None:
    at = "/v1/classes/Game"
    assert served.ask("GET", at)[1]["phase"] == "shadow_read"
    status, lease, _ = served.ask("POST", f"{at}/leases", {"seconds": 30})
    assert (status, lease["seconds"], lease["stopped"], lease["primary"]) == (
        201, 30, False, "source",
    )  # fmt: skip
    mine, leases = f"{at}/leases/{lease['lease']}", Gateways(owner.control)

    def held() -> Any:
        return next(x for x in leases.leases(["Game"]) if x.instance == lease["lease"])

    owner.run = owner.live.arm(owner.run)
    assert not is_armed(owner.run)(held())
    assert served.ask("PUT", mine, {"seconds": 30})[1]["seconds"] == 1
    assert is_armed(owner.run)(held())
    assert served.ask("POST", f"{mine}/acknowledge", {"attempt": owner.run.attempt})[0] == 409
    owner.run = owner.live.raise_fence(owner.run)
    status, told, _ = served.ask("PUT", mine)
    assert (status, told["stopped"], told["attempt"]) == (200, True, owner.run.attempt)
    assert not has_acknowledged(owner.run)(held())
    assert served.ask("POST", f"{mine}/acknowledge", {"attempt": 0})[0] == 409
    answer = served.ask("POST", f"{mine}/acknowledge", {"attempt": owner.run.attempt})
    assert answer[:2] == (200, {"acknowledged": owner.run.attempt})
    assert has_acknowledged(owner.run)(held())
    assert served.ask("DELETE", mine)[0] == 200
    assert served.ask("PUT", mine)[0] == 404
    ours = next(x for x in leases.leases(["Game"]) if x.instance != lease["lease"])
    assert served.ask("DELETE", f"{at}/leases/{ours.instance}")[0] == 404  # the service's own
    assert ours.instance in {x.instance for x in leases.leases(["Game"])}


def test_a_lease_that_is_taken_while_a_swap_is_armed_is_short_at_once(
    served: Served, owner: Owner
) -> None:
    owner.arm()
    at, leases = "/v1/classes/Game/leases", Gateways(owner.control)
    status, told, _ = served.ask("POST", at, {"seconds": 30})
    assert (status, told["seconds"]) == (201, SHORT)
    (lease,) = [x for x in leases.leases(["Game"]) if x.instance == told["lease"]]
    assert is_armed(owner.run)(lease)
    assert lease.lasts == SHORT  # a fence outwaits no more, where its holder dies
    leases.leave([lease.instance])


@pytest.mark.parametrize("call", ["enter", "renew"])
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "begins"])
def test_a_lease_lasts_as_long_as_its_holder_is_told_where_a_swap_ends_or_begins_meanwhile(
    owner: Owner, call: str, ends: bool
) -> None:
    class Leases(Gateways):
        def standing(self, cls: str) -> Standing:
            found = super().standing(cls)
            if ends and owner.run.fence:
                owner.release()
            elif not ends and not owner.run.fence:
                owner.run = owner.live.arm(owner.run)
            return found

    asked = 30.0 if ends else SHORT / 2
    leases, id = Leases(owner.control), new_lease("Game")
    if call == "renew":
        leases.enter(id, "Game", min(asked, SHORT), away=True)
    if ends:
        owner.run = owner.live.arm(owner.run)
    there: Any = {"Game": None}
    params = {"cls": "Game", "lease": id}
    scope = {"type": "http", "method": "POST", "headers": [], "path_params": params}

    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps({"seconds": asked}).encode()}

    answer = asyncio.run(getattr(_Service(there, leases, b""), call)(Request(scope, receive)))
    told = json.loads(bytes(answer.body))
    (lease,) = [x for x in leases.leases(["Game"]) if x.instance == told["lease"]]
    leases.leave([lease.instance])
    assert lease.lasts == lease.seconds == told["seconds"] == min(asked, SHORT)


def test_a_lease_of_another_class_is_none_here(served: Served, owner: Owner) -> None:
    lease, leases = new_lease("Player"), Gateways(owner.control)
    leases.enter(lease, "Player", 30, away=True)
    (before,) = leases.leases(["Player"])
    at = f"/v1/classes/Game/leases/{lease}"

    assert served.ask("PUT", at, {"seconds": 30})[0] == 404
    assert served.ask("POST", f"{at}/acknowledge", {"attempt": owner.run.attempt})[0] == 404
    assert served.ask("DELETE", at)[0] == 404

    assert leases.leases(["Player"]) == [before]


def test_a_write_under_the_fence_waits_and_then_says_when_to_try_again(
    served: Served, owner: Owner
) -> None:
    owner.arm()
    owner.fence()
    told: list[Any] = []

    def put() -> None:
        told.append(served.ask("POST", "/v1/classes/Game/put", {"id": "9", "value": {}}))

    writer = threading.Thread(target=put)
    writer.start()
    assert served.call("get", id="9") == (200, {"found": False})  # reads go on
    writer.join(60)
    ((status, stopped, answer),) = told
    assert (status, stopped["error"], answer.headers["Retry-After"]) == (503, "stopped", "1")
    assert "nothing was written" in stopped["what"]
    owner.release()
    until(lambda: served.call("put", id="9", value={})[0] == 200)


def test_many_at_once(served: Served) -> None:
    served.call("put", id="many", value={"rounds": []})
    threads = [
        threading.Thread(target=served.call, args=("append",),
                         kwargs={"id": "many", "path": "rounds", "item": n})
        for n in range(12)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(served.call("get", id="many")[1]["value"]["rounds"]) == list(range(12))


@pytest.mark.parametrize(
    ("token", "words", "told"),
    [
        ("", [], "MIGRATOR_SERVE_TOKEN: there is no token"),
        ("short", [], "MIGRATOR_SERVE_TOKEN: that is no token"),
        (TOKEN, ["--token-file", "nowhere"], "nowhere: it can't be read"),
        (TOKEN, ["--listen", "127.0.0.1:99999"], "is no [HOST:]PORT"),
    ],
)
def test_what_keeps_it_from_serving(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    token: str,
    words: list[str],
    told: str,
) -> None:
    config = make_project(tmp_path)
    monkeypatch.setenv("MIGRATOR_SERVE_TOKEN", token)
    assert main(["serve", "Game", "--config", str(config), *words]) in (3, 64)
    out, error = capsys.readouterr()
    assert (out, told in error, token == "" or token not in error) == ("", True, True), error


def test_a_service_speaks_the_shape_of_one_side(tmp_path: Path) -> None:
    config = make_shaped(tmp_path)
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        refused = start(config, *LISTEN)
        told = refused.communicate(timeout=60)[0]
        assert refused.returncode == 3
        assert "serve Game --revision 0001 --shape source" in told
        process = start(config, *LISTEN, "--revision", "0001", "--shape", "target")
        service = Served(config, at(process), process)
        assert service.call("put", id="1", value=NEW)[0] == 200
        assert service.call("get", id="1")[1]["value"] == NEW
        end(process)
        (held,) = route.source.read(["1"])
        assert held is not None
        assert held.entries[""] == {"firstName": "Ann", "lastName": "Lee", "n": 1}

"""Servers that die while tests run are started again once, told, and never a stranger's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.revival import FOLDER, SCRIPT, Watch, answers
from tests.test_services_script import Sandbox, services

DYING = """
import os, signal
import pytest
from tests import conftest, revival

@pytest.fixture(scope="session")
def place():
    url = conftest.server_url("redis")
    yield url
    kill()  # at the very end, when nobody is left to be tried again
    conftest.tidy("redis", lambda: 1 / revival.answers(url))

def kill():
    pid = int(open(os.environ["HOME_OF_REDIS"] + "/pid").read())
    os.kill(pid, signal.SIGSEGV)
    while revival.answers(os.environ["MIGRATOR_TEST_REDIS"]):
        pass

tries = []

def test_in_flight(place):
    tries.append(1)
    if len(tries) == 1:
        kill()
    assert revival.answers(place)
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Sandbox]:
    """A Redis of this test's own: of all servers it is there again the quickest."""
    sandbox = Sandbox(tmp_path)
    sandbox.running("redis")
    yield sandbox
    sandbox.run("down", "redis")


def _watch(sandbox: Sandbox) -> Watch:
    folder = sandbox.folder / "watch"
    folder.mkdir()
    watch = Watch(folder, {**os.environ, **sandbox.env})
    watch.begin()
    return watch


def _kill(sandbox: Sandbox) -> int:
    seen = sandbox.look("redis")
    os.kill(seen["pid"], signal.SIGSEGV)
    assert services.wait_until(lambda: not answers(seen["url"]), 60)
    return int(seen["pid"])


def test_who_finds_a_server_dead_at_once_has_it_started_once(redis: Sandbox) -> None:
    watch = _watch(redis)
    url = redis.look("redis")["url"]
    for number in (1, 2):
        pid = _kill(redis)

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(lambda _: watch.revive("redis", url), range(3))) == [True] * 3

        assert redis.look("redis")["state"] == "running"
        assert len(watch.deaths()) == number
        death = watch.deaths()[-1]
        assert (death.name, death.pid) == ("redis", pid)
        assert any("crashed by signal: 11" in line for line in death.said)


def test_a_death_that_is_still_being_written_is_none_yet(tmp_path: Path) -> None:
    watch = Watch(tmp_path, os.environ)
    told = json.dumps({"name": "redis", "pid": 1, "said": []})
    (tmp_path / "deaths").write_text(f"{told}\n{told[:20]}")
    assert [death.pid for death in watch.deaths()] == [1]


def test_what_begins_waits_for_a_server_that_is_being_started(tmp_path: Path) -> None:
    watch = Watch(tmp_path, os.environ)
    (tmp_path / "deaths").touch()
    watch.wait()
    (tmp_path / "deaths").write_text(json.dumps({"name": "redis", "pid": 1, "said": []}) + "\n")
    with ThreadPoolExecutor(1) as pool:
        with watch._held("redis"):
            waits = pool.submit(watch.wait)
            with pytest.raises(TimeoutError):
                waits.result(0.1)
        waits.result(60)


def test_only_what_ran_and_is_ours_is_started_again(redis: Sandbox) -> None:
    watch = _watch(redis)
    elsewhere = redis.look("redis")["url"].replace("127.0.0.1", "localhost")
    _kill(redis)

    assert not watch.revive("redis", elsewhere)
    assert not watch.revive("mongodb", redis.look("mongodb")["url"])

    assert watch.deaths() == []
    assert [redis.look(name)["state"] for name in ("redis", "mongodb")] == ["stopped"] * 2


def test_what_does_not_come_up_is_tried_once_and_says_why(redis: Sandbox) -> None:
    watch = _watch(redis)
    url = redis.look("redis")["url"]
    _kill(redis)
    aof = next(Path(redis.look("redis")["home"]).glob("data-*/appendonlydir/*.manifest"))
    aof.write_text("nonsense\n")

    assert not watch.revive("redis", url)
    assert not watch.revive("redis", url)

    assert len(watch.deaths()) == 1
    assert "ended at once" in watch.trouble("redis")


def test_a_run_survives_the_deaths_of_a_server_and_tells_them(
    redis: Sandbox, tmp_path: Path
) -> None:
    seen = redis.look("redis")
    (tmp_path / "test_dying.py").write_text(DYING)
    command = [sys.executable, "-m", "pytest", "-p", "tests.unsteady", "-p", "no:cacheprovider"]
    command += ["--reruns", "1", "-n", "1", "-c", os.devnull, f"--rootdir={tmp_path}"]
    env = {**os.environ, **redis.env, "MIGRATOR_REQUIRE_SERVICES": "1"}
    env |= {"MIGRATOR_TEST_REDIS": seen["url"], "HOME_OF_REDIS": seen["home"]}
    for name in (FOLDER, "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        env.pop(name, None)

    done = subprocess.run(
        [*command, str(tmp_path / "test_dying.py")],
        cwd=SCRIPT.parent.parent, env=env, capture_output=True, text=True,
    )  # fmt: skip

    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert "1 passed, 1 rerun" in said
    assert "while it ran, a server died: redis" in said
    assert said.count("unsteady, to be looked into: redis died") == 2
    assert "crashed by signal: 11" in said

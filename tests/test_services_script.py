"""scripts/services, tried on ports and in a folder of its own."""

import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from tests.conftest import server_url

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "services"
REQUIRED = os.environ.get("MIGRATOR_REQUIRE_SERVICES") == "1"


def load() -> ModuleType:
    """The script as a module: a child process for every look would be slow."""
    loader = SourceFileLoader("services_script", str(SCRIPT))
    spec = spec_from_loader("services_script", loader)
    assert spec
    module = sys.modules["services_script"] = module_from_spec(spec)
    with patch.object(sys, "dont_write_bytecode", True):
        loader.exec_module(module)
    return module


services = load()
# Cassandra takes a gigabyte and its time to start: here it is looked at, and started elsewhere.
NAMES = tuple(name for name in services.SERVICES if name != "cassandra")


class Sandbox:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with ExitStack() as held:
            # All are held until the last is found: no two servers may be given the same.
            self.ports = {name: free_ports(services.SERVICES[name].ports, held) for name in NAMES}
        self.env = {"MIGRATOR_SERVICES_DIR": str(folder)}
        self.env |= {f"MIGRATOR_{n.upper()}_PORT": str(port) for n, port in self.ports.items()}

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), *words]
        env = {**os.environ, **self.env, **env}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)

    def look(self, name: str) -> dict[str, Any]:
        with patch.dict(os.environ, self.env):
            return dict(services.look(self.site(name)))

    def site(self, name: str) -> Any:
        with patch.dict(os.environ, self.env):
            return services.site_of(services.SERVICES[name])

    def running(self, name: str) -> dict[str, Any]:
        seen = self.look(name)
        if seen["state"] == "running":
            return seen
        done = self.run("up", name)
        if "not found" in done.stderr and not REQUIRED:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        return self.look(name)


def free_ports(count: int, held: ExitStack) -> int:
    """The first of so many in a row, where the system gives none to clients; ``held`` has them.
    Another worker of the tests chooses of others."""
    # Below are servers of other tests.
    low = 27_000 + 1_600 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 3)
    while True:
        first = random.randrange(low, low + 1_600)
        with ExitStack() as found:
            try:
                for port in range(first, first + count):
                    found.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            held.enter_context(found.pop_all())
            return first


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    # Not tmp_path: the accounts that run PostgreSQL and MariaDB cannot get in there.
    folder = Path(tempfile.mkdtemp(prefix="services-"))
    folder.chmod(0o755)
    sandbox = Sandbox(folder)
    try:
        sandbox.run("up", *NAMES)  # all at once: together they take as long as the slowest
        yield sandbox
    finally:
        done = sandbox.run("down")
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of a short name, wherever the tests' own lie: the path of a socket has little room."""
    with tempfile.TemporaryDirectory(prefix="s-") as name:
        yield Path(name)


@pytest.fixture
def idle(folder: Path) -> Sandbox:
    """A folder of its own once more, in which nothing has been started."""
    return Sandbox(folder)


@pytest.fixture
def stranger(sandbox: Sandbox) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours, although its command line names our folder."""
    log = sandbox.folder / "stranger.log"
    log.touch()
    process = subprocess.Popen(["tail", "-f", str(log)])
    yield process
    process.kill()
    process.wait()


def test_no_two_servers_are_given_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = (port for first in itertools.count(31_000) for port in (first, first))
    monkeypatch.setattr(random, "randrange", lambda *_: next(twice))
    ports = Sandbox(tmp_path).ports
    taken = [ports[name] + n for name in NAMES for n in range(services.SERVICES[name].ports)]
    assert len(taken) == len(set(taken))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""  # a zombie has none
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("name", NAMES)
def test_status_tells_what_runs_and_where(sandbox: Sandbox, name: str) -> None:
    sandbox.running(name)

    done = sandbox.run("status", name, "--format", "json")
    (seen,) = json.loads(done.stdout)

    assert done.returncode == 0
    assert seen["name"] == name
    assert seen["state"] == "running"
    assert alive(seen["pid"])
    assert f"127.0.0.1:{sandbox.ports[name]}" in seen["url"]
    assert seen["version"]
    assert seen["home"] == str(sandbox.folder / name)
    assert sandbox.run("status", name).stdout.split()[:4] == [
        name,
        "running",
        "pid",
        str(seen["pid"]),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_up_again_leaves_the_running_one_alone(sandbox: Sandbox, name: str) -> None:
    before = sandbox.running(name)

    done = sandbox.run("up", name)

    assert done.returncode == 0
    assert "already running" in done.stdout
    assert sandbox.look(name)["pid"] == before["pid"]


@pytest.mark.parametrize("name", NAMES)
def test_listens_on_the_loopback_address_only(sandbox: Sandbox, name: str) -> None:
    sandbox.running(name)

    first = sandbox.ports[name]
    ports = {f"{port:04X}" for port in range(first, first + services.SERVICES[name].ports)}
    tables = [Path("/proc/net/tcp").read_text(), Path("/proc/net/tcp6").read_text()]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    listening = {row[1] for row in rows if row[3] == "0A" and row[1].split(":")[1] in ports}

    assert listening == {f"0100007F:{port}" for port in ports}


@pytest.mark.parametrize("command", ["down", "kill"])
def test_a_stranger_with_our_old_pid_is_not_ended(
    idle: Sandbox, stranger: subprocess.Popen[bytes], command: str
) -> None:
    pid_file = idle.folder / "mongodb" / "pid"
    pid_file.parent.mkdir()
    pid_file.write_text(f"{stranger.pid}\n")

    done = idle.run(command, "mongodb")

    assert done.returncode == 0, done.stderr
    assert stranger.poll() is None
    assert idle.look("mongodb")["pid"] is None


def test_a_pid_file_that_is_not_one_counts_as_stopped(idle: Sandbox) -> None:
    pid_file = idle.folder / "mongodb" / "pid"
    pid_file.parent.mkdir()
    pid_file.write_text("garbage")

    assert idle.look("mongodb")["pid"] is None
    assert idle.run("down", "mongodb").returncode == 0
    assert not pid_file.exists()


def test_a_port_in_use_is_named_and_not_fought_over(sandbox: Sandbox, idle: Sandbox) -> None:
    sandbox.running("mongodb")

    port = str(sandbox.ports["mongodb"])
    done = idle.run("up", "mongodb", MIGRATOR_MONGODB_PORT=port)

    assert done.returncode == 1
    assert f"port {port} is taken" in done.stderr
    assert "MIGRATOR_MONGODB_PORT" in done.stderr
    assert sandbox.look("mongodb")["state"] == "running"


def test_a_frozen_server_is_not_called_running(sandbox: Sandbox) -> None:
    pid = sandbox.running("mongodb")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = sandbox.run("status", "mongodb")
    finally:
        os.kill(pid, signal.SIGCONT)

    assert done.returncode == 1
    assert "not answering" in done.stdout


def test_a_mariadb_clears_no_folder_of_another_when_it_starts(sandbox: Sandbox) -> None:
    """It removes what others have for their queries, and those that opened it at once die."""
    home = Path(sandbox.running("mariadb")["home"])
    left = home / "#sql-temptable-left-by-a-crash.MAI"
    left.touch()
    sandbox.run("kill", "mariadb")

    sandbox.running("mariadb")

    assert not left.exists()  # so that is the folder which it clears
    answer = services.ask(sandbox.site("mariadb"), "mariadb", "--no-defaults", "-h127.0.0.1",
                          f"-P{sandbox.ports['mariadb']}", "-umigrator", "-pmigrator",
                          "-BNe", "SELECT @@tmpdir")  # fmt: skip
    assert answer == str(home)


@pytest.mark.parametrize("name", ["postgresql", "mariadb"])
def test_a_wrong_password_is_refused(sandbox: Sandbox, name: str) -> None:
    sandbox.running(name)
    site = sandbox.site(name)
    assert site.service.probe(site)

    wrong = "--password=wrong"
    port = f"--port={site.port}"
    refused = {
        "postgresql": ("psql", site.url.replace(":migrator@", ":wrong@"), "-c", "SELECT 1"),
        "mariadb": ("mariadb", "-h127.0.0.1", port, "-umigrator", wrong, "-e", "SELECT 1"),
    }[name]
    assert services.ask(site, *refused) is None


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("postgresql", "apt-get install postgresql"),
        ("mariadb", "apt-get install mariadb-server"),
        ("mongodb", "pip install secantusdb"),
        ("redis", "apt-get install redis-server"),
        ("rediscluster", "apt-get install redis-server"),
        ("dynamodb", "pip install 'moto[server]'"),
        ("dynalite", "apt-get install nodejs npm"),
        ("cassandra", "apt-get install openjdk-17-jre-headless maven"),
    ],
)
def test_a_missing_program_comes_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    name: str,
    advice: str,
) -> None:
    monkeypatch.setenv("MIGRATOR_SERVICES_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(services, "pinned", list)
    monkeypatch.setattr(services, "folders", list)

    assert services.main(["up", name]) == 1

    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert name in said.err
    assert advice in said.err


def test_a_folder_the_servers_account_cannot_reach_is_replaced(sandbox: Sandbox) -> None:
    if os.geteuid() != 0 or sandbox.look("postgresql")["state"] == "missing":
        pytest.skip("only root runs PostgreSQL as somebody else")
    # Root's alone, and short: folders that are too long for a socket are replaced, too.
    with tempfile.TemporaryDirectory() as folder:
        done = sandbox.run("status", "--format=json", MIGRATOR_SERVICES_DIR=f"{folder}/deep")

        homes = {each["name"]: each["home"] for each in json.loads(done.stdout)}
        assert homes["postgresql"].startswith("/var/tmp/migrator-services-")
        assert homes["mongodb"] == f"{folder}/deep/mongodb"


def test_env_prints_what_a_shell_can_take_over(sandbox: Sandbox) -> None:
    exports = sandbox.run("env").stdout

    names = [f"MIGRATOR_TEST_{name.upper()}" for name in services.SERVICES]
    echo = "\n".join(f'echo "${name}"' for name in names)
    done = subprocess.run(["sh", "-euc", exports + echo], capture_output=True, text=True)

    ports = sandbox.ports
    assert done.stdout.splitlines() == [
        f"postgresql://migrator:migrator@127.0.0.1:{ports['postgresql']}/postgres",
        f"mariadb://migrator:migrator@127.0.0.1:{ports['mariadb']}/",
        f"mongodb://127.0.0.1:{ports['mongodb']}/?directConnection=true",
        f"redis://127.0.0.1:{ports['redis']}/0",
        f"rediscluster://127.0.0.1:{ports['rediscluster']}",
        f"dynamodb://127.0.0.1:{ports['dynamodb']}?region=eu-west-1",
        f"dynamodb://127.0.0.1:{ports['dynalite']}?region=eu-west-1",
        sandbox.site("cassandra").url,
    ]


def test_a_cluster_can_move_to_other_ports_and_keeps_what_it_holds(sandbox: Sandbox) -> None:
    sandbox.running("rediscluster")
    client = shutil.which("redis-cli") or ""

    def client_says(port: int, *words: str) -> str:
        command = [client, "-c", "-p", str(port), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()

    first = sandbox.ports["rediscluster"]
    assert [client_says(first, "SET", f"key{n}", str(n)) for n in range(9)] == ["OK"] * 9
    assert sandbox.run("down", "rediscluster").returncode == 0
    with ExitStack() as held:
        elsewhere = free_ports(2 * services.NODES, held)
    sandbox.ports["rediscluster"] = elsewhere
    sandbox.env["MIGRATOR_REDISCLUSTER_PORT"] = str(elsewhere)

    sandbox.running("rediscluster")

    assert [client_says(elsewhere + 1, "GET", f"key{n}") for n in range(9)] == list("012345678")


def test_a_client_that_is_killed_in_a_request_does_not_end_dynalite(sandbox: Sandbox) -> None:
    pid = sandbox.running("dynalite")["pid"]

    with socket.create_connection(("127.0.0.1", sandbox.ports["dynalite"])) as link:
        link.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\nhalf of")

    log = Path(sandbox.look("dynalite")["home"], "log")
    assert services.wait_until(lambda: "aborted" in log.read_text(), 60)
    assert sandbox.look("dynalite")["state"] == "running"
    assert sandbox.look("dynalite")["pid"] == pid


def test_a_running_cassandra_tells_its_version() -> None:
    url = urlsplit(server_url("cassandra"))

    with patch.dict(os.environ, {"MIGRATOR_CASSANDRA_PORT": str(url.port)}):
        site = services.site_of(services.SERVICES["cassandra"])

    assert services.probe_cassandra(site).startswith("Cassandra 5.")


def test_what_was_fetched_is_kept_until_its_recipe_changes(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    recipe, calls = folder / "recipe", folder / "calls"
    script = f"cat recipe > got; echo call >> {calls}"
    monkeypatch.setenv("MIGRATOR_SERVICES_DIR", str(folder))
    monkeypatch.delenv("MIGRATOR_SERVERS_CACHE", raising=False)
    site = services.site_of(services.SERVICES["dynalite"])
    site.home.mkdir()

    recipe.write_text("one")
    first = services.bring(site, [recipe], "sh", "-c", script)
    assert services.bring(site, [recipe], "sh", "-c", script) == first
    recipe.write_text("two")
    second = services.bring(site, [recipe], "sh", "-c", script)

    assert [(first / "got").read_text(), (second / "got").read_text()] == ["one", "two"]
    assert calls.read_text().split() == ["call", "call"]

    recipe.write_text("three")
    with pytest.raises(services.Trouble, match=r"sh failed(.|\n)*no network"):
        services.bring(site, [recipe], "sh", "-c", "echo no network >&2; exit 1")
    left = sorted(path.name for path in site.home.iterdir())
    assert left == sorted([first.name, second.name, "log"])


def test_an_unknown_name_is_a_usage_error(sandbox: Sandbox) -> None:
    done = sandbox.run("up", "oracle")

    assert done.returncode == 2
    assert "oracle" in done.stderr
    assert "postgresql, mariadb, mongodb" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_after_a_kill_it_comes_up_and_goes_down_alone(sandbox: Sandbox, name: str) -> None:
    killed = sandbox.running(name)["pid"]
    processes = services.pids_of(sandbox.site(name))
    processes += [child for pid in processes for child in services.descendants(pid)]
    others = {n: sandbox.look(n)["pid"] for n in NAMES if n != name}

    assert sandbox.run("kill", name).returncode == 0
    assert not any(map(alive, processes))
    assert sandbox.look(name)["state"] == "stopped"

    again = sandbox.running(name)["pid"]
    assert again != killed

    done = sandbox.run("down", name)
    assert done.returncode == 0
    assert str(again) in done.stdout
    assert not alive(again)
    assert sandbox.run("status", name).returncode == 1
    assert {n: sandbox.look(n)["pid"] for n in others} == others
    assert sandbox.run("down", name).returncode == 0


def test_up_goes_past_a_stale_pid_and_a_missing_program(
    sandbox: Sandbox,
    stranger: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = sandbox.running("postgresql")["home"]
    sandbox.run("down", "postgresql", "mariadb")
    Path(home, "pid").write_text(f"{stranger.pid}\n")
    find = services.find
    monkeypatch.setattr(
        services, "find", lambda name, *rest: None if name == "mariadbd" else find(name, *rest)
    )

    with patch.dict(os.environ, sandbox.env):
        assert services.main(["up", "mariadb", "postgresql"]) == 1

    said = capsys.readouterr()
    assert "mariadbd not found" in said.err
    assert "started" in said.out
    assert sandbox.look("postgresql")["state"] == "running"
    assert sandbox.look("postgresql")["pid"] != stranger.pid
    assert stranger.poll() is None

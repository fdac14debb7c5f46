"""scripts/services, tried on ports and in a folder of its own."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "services"
NAMES = ("postgresql", "mariadb", "mongodb")
REQUIRED = os.environ.get("MIGRATOR_REQUIRE_SERVICES") == "1"


class Sandbox:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self.env = {"MIGRATOR_SERVICES_DIR": str(folder)}
        self.env |= {f"MIGRATOR_{n.upper()}_PORT": str(port) for n, port in self.ports.items()}

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), *words]
        env = {**os.environ, **self.env, **env}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    def look(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.run("status", name, "--format", "json").stdout)[0])

    def running(self, name: str) -> dict[str, Any]:
        done = self.run("up", name)
        if "not found" in done.stderr and not REQUIRED:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        return self.look(name)


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    # Not tmp_path: the accounts that run PostgreSQL and MariaDB cannot get in there.
    folder = Path(tempfile.mkdtemp(prefix="services-"))
    folder.chmod(0o755)
    sandbox = Sandbox(folder)
    try:
        sandbox.run("up")  # all at once: together they take as long as the slowest
        yield sandbox
    finally:
        done = sandbox.run("down")
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def idle(tmp_path: Path) -> Sandbox:
    """A folder of its own once more, in which nothing has been started."""
    return Sandbox(tmp_path)


@pytest.fixture
def script(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, for what a child process cannot be made to show."""
    for key, value in sandbox.env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("services_script", str(SCRIPT))
    spec = spec_from_loader("services_script", loader)
    assert spec
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "services_script", module)
    loader.exec_module(module)
    return module


@pytest.fixture
def stranger(sandbox: Sandbox) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours, although its command line names our folder."""
    log = sandbox.folder / "stranger.log"
    log.touch()
    process = subprocess.Popen(["tail", "-f", str(log)])
    yield process
    process.kill()
    process.wait()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""  # a zombie has none
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("name", NAMES)
def test_status_tells_what_runs_and_where(sandbox: Sandbox, name: str) -> None:
    seen = sandbox.running(name)

    assert seen["name"] == name
    assert seen["state"] == "running"
    assert alive(seen["pid"])
    assert f"127.0.0.1:{sandbox.ports[name]}/" in seen["url"]
    assert seen["version"]
    assert seen["home"] == str(sandbox.folder / name)
    done = sandbox.run("status", name)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert seen["url"] in done.stdout


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

    port = f":{sandbox.ports[name]:04X}"
    tables = [Path("/proc/net/tcp").read_text(), Path("/proc/net/tcp6").read_text()]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    listening = {row[1] for row in rows if row[3] == "0A" and row[1].endswith(port)}

    assert listening == {f"0100007F{port}"}


@pytest.mark.parametrize("name", NAMES)
def test_kill_ends_all_its_processes_and_up_recovers(
    sandbox: Sandbox, script: ModuleType, name: str
) -> None:
    before = sandbox.running(name)
    processes = [before["pid"], *script.descendants(before["pid"])]

    done = sandbox.run("kill", name)

    assert done.returncode == 0
    assert not any(map(alive, processes))
    assert sandbox.look(name)["state"] == "stopped"
    after = sandbox.running(name)
    assert after["state"] == "running"
    assert after["pid"] != before["pid"]


@pytest.mark.parametrize("name", NAMES)
def test_down_ends_that_server_and_no_other(sandbox: Sandbox, name: str) -> None:
    pid = sandbox.running(name)["pid"]
    others = {n: sandbox.look(n)["pid"] for n in NAMES if n != name}

    done = sandbox.run("down", name)

    assert done.returncode == 0
    assert str(pid) in done.stdout
    assert not alive(pid)
    assert sandbox.look(name)["state"] == "stopped"
    assert sandbox.run("status", name).returncode == 1
    assert {n: sandbox.look(n)["pid"] for n in others} == others
    assert sandbox.run("down", name).returncode == 0


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


def test_up_replaces_a_stale_pid(sandbox: Sandbox, stranger: subprocess.Popen[bytes]) -> None:
    home = sandbox.running("postgresql")["home"]
    sandbox.run("kill", "postgresql")
    Path(home, "pid").write_text(f"{stranger.pid}\n")

    seen = sandbox.running("postgresql")

    assert seen["state"] == "running"
    assert seen["pid"] != stranger.pid
    assert stranger.poll() is None


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


@pytest.mark.parametrize("name", ["postgresql", "mariadb"])
def test_a_wrong_password_is_refused(sandbox: Sandbox, script: ModuleType, name: str) -> None:
    sandbox.running(name)
    site = script.site_of(script.SERVICES[name])
    assert script.SERVICES[name].probe(site)

    wrong = "--password=wrong"
    port = f"--port={site.port}"
    refused = {
        "postgresql": ("psql", site.url.replace(":migrator@", ":wrong@"), "-c", "SELECT 1"),
        "mariadb": ("mariadb", "-h127.0.0.1", port, "-umigrator", wrong, "-e", "SELECT 1"),
    }[name]
    assert script.ask(site, *refused) is None


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("postgresql", "apt-get install postgresql"),
        ("mariadb", "apt-get install mariadb-server"),
        ("mongodb", "pip install secantusdb"),
    ],
)
def test_a_missing_program_comes_with_the_way_to_get_it(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    name: str,
    advice: str,
) -> None:
    monkeypatch.setenv("MIGRATOR_SERVICES_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(script, "folders", list)

    assert script.main(["up", name]) == 1

    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert name in said.err
    assert advice in said.err


def test_a_missing_program_does_not_keep_the_others_down(
    sandbox: Sandbox,
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sandbox.running("postgresql")
    sandbox.run("down", "postgresql", "mariadb")
    find = script.find
    monkeypatch.setattr(
        script, "find", lambda name, *rest: None if name == "mariadbd" else find(name, *rest)
    )

    assert script.main(["up", "mariadb", "postgresql"]) == 1

    said = capsys.readouterr()
    assert "mariadbd not found" in said.err
    assert "started" in said.out
    assert sandbox.look("postgresql")["state"] == "running"


def test_a_folder_the_servers_account_cannot_reach_is_replaced(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or sandbox.look("postgresql")["state"] == "missing":
        pytest.skip("only root runs PostgreSQL as somebody else")
    tmp_path.chmod(0o700)

    done = sandbox.run("status", "--format=json", MIGRATOR_SERVICES_DIR=str(tmp_path / "deep"))

    homes = {each["name"]: each["home"] for each in json.loads(done.stdout)}
    assert homes["postgresql"].startswith("/var/tmp/migrator-services-")
    assert homes["mongodb"] == str(tmp_path / "deep" / "mongodb")


def test_env_prints_what_a_shell_can_take_over(sandbox: Sandbox) -> None:
    exports = sandbox.run("env").stdout

    names = [f"MIGRATOR_TEST_{name.upper()}" for name in NAMES]
    echo = "\n".join(f'echo "${name}"' for name in names)
    done = subprocess.run(["sh", "-euc", exports + echo], capture_output=True, text=True)

    postgresql, mariadb, mongodb = (sandbox.ports[name] for name in NAMES)
    assert done.stdout.splitlines() == [
        f"postgresql://migrator:migrator@127.0.0.1:{postgresql}/postgres",
        f"mariadb://migrator:migrator@127.0.0.1:{mariadb}/",
        f"mongodb://127.0.0.1:{mongodb}/?directConnection=true",
    ]


def test_an_unknown_name_is_a_usage_error(sandbox: Sandbox) -> None:
    done = sandbox.run("up", "oracle")

    assert done.returncode == 2
    assert "oracle" in done.stderr
    assert "postgresql, mariadb, mongodb" in done.stderr

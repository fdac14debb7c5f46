"""What the house promises about itself: locks, licence, findings and exit codes as documented."""

from __future__ import annotations

import importlib
import inspect
import re
import signal
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

import migrator
from migrator import Move, errors, tables
from migrator.revisions.script import load_script

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")


def _pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", text, re.MULTILINE))


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host_and_hashes_everything(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*--(?!hash=sha256:[0-9a-f]{64})", text, re.MULTILINE)
    for block in re.split(r"\n(?=[a-z0-9])", text):
        if "==" in block:
            assert "--hash=sha256:" in block


def test_the_locks_agree_and_hold_what_is_declared() -> None:
    small, large = map(_pins, LOCKS)
    assert small.items() <= large.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    base = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    extras = project["project"]["optional-dependencies"].values()
    more = [*chain(*extras), *project["dependency-groups"]["dev"]]
    assert {_name(r) for r in base} <= small.keys()
    assert {_name(r) for r in more} <= large.keys()


def test_every_finding_and_no_other_is_documented() -> None:
    code = r"[ENWAT]\d{3}|(?:cassandra|mongodb|dynamodb|redis)-[a-z-]+"
    folders = (ROOT / "migrator" / name for name in ("planning", "stores"))
    source = "".join(p.read_text() for folder in folders for p in folder.rglob("*.py"))
    page = (ROOT / "docs" / "findings.md").read_text()
    documented = set(re.findall(rf"^\| `({code})`", page, re.MULTILINE))
    assert documented == set(re.findall(rf'"({code})"', source))


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    codes = {e.exit_code for e in vars(errors).values() if hasattr(e, "exit_code")}
    codes |= {0, 2, 128 + signal.SIGALRM}
    assert codes == {int(c) for c in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}


@pytest.mark.parametrize("page", ["README.md", "docs/scripts.md", "docs/tutorial.md"])
def test_the_scripts_shown_are_valid(page: str, tmp_path: Path) -> None:
    samples = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    whole = [sample for sample in samples if "down_revision" in sample]
    assert whole
    for sample in whole:
        file = tmp_path / "0001_sample.py"
        file.write_text(sample)
        assert load_script(file).moves


def test_the_words_of_scripts_are_documented() -> None:
    page = (ROOT / "docs" / "scripts.md").read_text()
    arguments = [*inspect.signature(Move).parameters, *inspect.signature(tables).parameters]
    words = {*arguments, *migrator.__all__} - {"cls", "table", "more_children", "Tables", "Kind"}
    assert {word for word in words if not re.search(rf"\b{word}\b", page)} == set()


def test_decisions_are_short_and_listed() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "index.md").read_text()
    pages = list(folder.glob("[0-9]*.md"))
    for page in pages:
        assert len(page.read_text().splitlines()) < 30, page.name
        assert f"({page.name})" in index
    assert len({page.name[:4] for page in pages}) == len(pages), "a number stands for two"


def test_every_hard_case_has_a_test_that_carries_its_number() -> None:
    page = (ROOT / "docs" / "hard-cases.md").read_text()
    told = set(re.findall(r"^\*\*C(\d\d) ", page, re.MULTILINE))
    files = list((ROOT / "tests").rglob("test_*.py"))
    named = " ".join(path.name for path in files)
    named += "".join(path.read_text() for path in files)
    assert told == set(re.findall(r"\btest_c(\d\d)_", named))


def test_the_demo_data_depends_on_its_seed_alone(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        path = tmp_path / name / "shop.db"
        script = ROOT / "scripts" / "demo_data.py"
        subprocess.run([sys.executable, script, path, "--games", "50"], check=True)
        made.append(path.read_bytes())
    assert made[0] == made[1]


def test_the_pages_taken_from_the_code_are_up_to_date() -> None:
    script = ROOT / "scripts" / "references.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_benchmark_can_be_started() -> None:
    """No test runs them, and they share helpers."""
    names = [path.stem for path in (ROOT / "tests" / "benchmarks").glob("[a-z]*.py")]
    assert "live" in names
    for name in names:
        importlib.import_module(f"tests.benchmarks.{name}")

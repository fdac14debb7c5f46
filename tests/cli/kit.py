"""A small shop, and ``migrator`` called in it as a person would."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import pytest

from migrator.cli import main
from tests.ending import PYTHON

SETTINGS = """\
default_env = "dev"

[env.dev.stores.shop]
url = "sqlite:///shop.db"

[env.dev.stores.docs]
url = "embedded:///docs.db"
"""

GAMES = '''\
"""Games and their rounds, out of the shop."""

from migrator import At, Move, tables

revision, down_revision = "0001", None

move = Move(
    "Game",
    source=At("shop", tables("game", rounds=tables("round", order_by="number"))),
    target=At("docs", "games", representation=["/Game/*"]),
)
'''

ROUNDS = '''\
"""Each round an entry of its own, so that adding one rewrites nothing else."""

from migrator import At, Move

revision, down_revision = "0002", "0001"

move = Move(
    "Game",
    target=At("docs", "games_by_round", representation=["/Game/*/rounds[*]", "/Game/*"]),
)
'''

# Processes of the test that runs; what it leaves is ended behind it.
started: list[subprocess.Popen[Any]] = []

# A busy machine takes longer for a swap than users would wait for.
PATIENT = "--bound 60 --lag 60"


@dataclass
class Answer:
    """What a call printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Project:
    """A folder that ``migrator`` is called in."""

    root: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *words: str) -> Answer:
        """Call it here: a process of its own would spend most of its time on imports."""
        out, err = io.StringIO(), io.StringIO()
        handlers = {number: signal.getsignal(number) for number in (SIGINT, SIGTERM)}
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.chdir(self.root),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setattr(sys, "stdin", io.StringIO())
            for name, text in self.env.items():
                patch.setenv(name, text)
            try:
                code = main(words)
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        return Answer(code, out.getvalue(), err.getvalue())

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONIOENCODING": "utf-8", **self.env}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start it as a process of its own."""
        return self.python("-m", "migrator", *words)

    def python(self, *words: str) -> subprocess.Popen[str]:
        """Start Python in this folder, in its environment."""
        process = subprocess.Popen(
            [*PYTHON, *words],
            cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    def on_a_full_disk(self, size: int, *words: str) -> Answer:
        """A call in a process of its own, for which no file may grow beyond so many bytes."""
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        done = subprocess.run(
            [sys.executable, "-m", "migrator", *words],
            cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit)),
        )  # fmt: skip
        return Answer(done.returncode, done.stdout, done.stderr)

    def on_a_read_only_file(self, name: str, *words: str) -> Answer:
        """A call in a process of its own that may not write a file, also where root makes it."""
        plain = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []
        self.root.joinpath(name).chmod(0o444)
        done = subprocess.run(
            [*plain, sys.executable, "-m", "migrator", *words],
            cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip
        self.root.joinpath(name).chmod(0o644)
        return Answer(done.returncode, done.stdout, done.stderr)

    def done(self, *words: str) -> Answer:
        """A call that must succeed."""
        answer = self(*words)
        assert answer.code == 0, answer
        return answer

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, *changes: tuple[str, str]) -> None:
        """Replace texts of a file, all of which must be there."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")

    def convert(self, field: str, oversize: str) -> None:
        """Have the first script make whole numbers of a field."""
        more = f'    evolve=[Convert("{field}", Integer)],\n    oversize="{oversize}",\n'
        self.edit(
            "migrations/0001_games.py",
            ("import At, Move", "import At, Convert, Integer, Move"),
            ("    target=", more + "    target="),
        )

    def change(self, *statements: str) -> None:
        """Change the shop's database."""
        with sqlite3.connect(self.root / "shop.db", timeout=60) as db:
            for statement in statements:
                db.execute(statement)
        db.close()


def fill_shop(file: Path, games: int = 3, rounds: int = 2) -> None:
    """A database of games with rounds."""
    with sqlite3.connect(file) as db:
        db.executescript(
            """
            CREATE TABLE game (id INTEGER PRIMARY KEY, player TEXT NOT NULL, score INTEGER);
            CREATE TABLE round (
                game INTEGER NOT NULL REFERENCES game (id), number INTEGER NOT NULL,
                moves TEXT NOT NULL, PRIMARY KEY (game, number)
            );
            """
        )
        numbers = range(1, games + 1)
        db.executemany("INSERT INTO game VALUES (?, ?, ?)", ((n, f"p{n}", n) for n in numbers))
        db.executemany(
            "INSERT INTO round VALUES (?, ?, ?)",
            ((n, r, f"q{r}") for n in numbers for r in range(1, rounds + 1)),
        )
    db.close()


def new_shop(root: Path, games: int = 3, rounds: int = 2) -> Project:
    """A project with both scripts and a filled shop."""
    root.mkdir(parents=True, exist_ok=True)
    project = Project(root)
    project.write("migrator.toml", SETTINGS)
    project.write("migrations/0001_games.py", GAMES)
    project.write("migrations/0002_rounds.py", ROUNDS)
    fill_shop(root / "shop.db", games, rounds)
    return project


def one_line(answer: Answer, code: int, word: str) -> str:
    """Check that a call failed as people should see it; returns the line that says why."""
    assert answer.code == code, answer
    assert "Traceback" not in answer.err + answer.out
    line, _, hint = answer.err.partition("\n")
    assert line.startswith(f"{word}: "), answer.err
    assert len(hint.splitlines()) <= 3, answer.err
    return answer.err

"""On a terminal: it asks, colours, shows a bar, and takes Ctrl-C for an answer."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.kit import Project, new_shop, started


class Terminal:
    """A call on a pseudo-terminal."""

    def __init__(self, shop: Project, *words: str, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "migrator", *words],
            cwd=shop.root, env={**shop.environment, "TERM": "xterm", "COLUMNS": "120", **env},
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        started.append(self._process)
        os.close(theirs)
        self.text = ""

    def wait_for(self, text: str) -> None:
        """Read until a text shows up."""
        until = time.monotonic() + 60
        while text not in self.text:
            assert time.monotonic() < until, self.text
            assert self._read(), self.text

    def say(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C, once it waits: the question is there before Python waits for the answer."""
        until = time.monotonic() + 60
        stat = Path(f"/proc/{self._process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < until, self.text
            time.sleep(0.01)
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        os.close(self._ours)
        return self._process.wait(60)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 60)[0]:
            return False
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # how Linux tells that the other end was closed
            return False
        self.text += data.decode()
        return bool(data)


def test_a_no_changes_nothing(shop: Project) -> None:
    terminal = Terminal(shop, "apply", "0001")
    terminal.wait_for("Apply this? [y/N]: ")
    assert "+ create" in terminal.text
    terminal.say("n\n")
    assert terminal.end() == 3
    assert "refused: you said no; nothing was changed" in terminal.text
    assert shop.done("status", "--format", "json").json == []


def test_a_yes_carries_it_out_and_finish_says_what_it_drops(shop: Project) -> None:
    terminal = Terminal(shop, "apply", "0001")
    terminal.wait_for("Apply this? [y/N]: ")
    terminal.say("y\n")
    assert terminal.end() == 0
    assert "docs:games is the primary now" in terminal.text

    finish = Terminal(shop, "finish", "0001")
    finish.wait_for(
        "DROP shop:game, shop:round with all that is in it? There is no way back. [y/N]: "
    )
    finish.say("y\n")
    assert finish.end() == 0
    assert "dropped: shop:game, shop:round" in finish.text


def test_abort_asks_what_to_do_with_the_target(shop: Project) -> None:
    shop.done("apply", "0001", "--yes", "--until", "backfilled")
    terminal = Terminal(shop, "abort", "0001")
    terminal.wait_for("Drop or keep what was copied to docs:games? (drop, keep): ")
    terminal.say("perhaps\n")
    terminal.wait_for("is not one of")
    terminal.say("drop\n")
    assert terminal.end() == 0
    assert "dropped: docs:games" in terminal.text


def test_ctrl_c_is_an_answer_too(shop: Project) -> None:
    terminal = Terminal(shop, "apply", "0001")
    terminal.wait_for("[y/N]: ")
    terminal.interrupt()
    assert terminal.end() == 130, terminal.text
    assert "Traceback" not in terminal.text
    assert shop.done("status", "--format", "json").json == []


def test_colours_for_terminals_but_not_where_they_are_unwanted(shop: Project) -> None:
    terminal = Terminal(shop, "plan")
    assert terminal.end() == 0
    assert "\x1b[32m  + create" in terminal.text
    plain = Terminal(shop, "show", "0001", NO_COLOR="1")
    assert plain.end() == 0
    assert "\x1b" not in plain.text


def test_a_bar_shows_blocks_bytes_and_rate(tmp_path: Path) -> None:
    shop = new_shop(tmp_path, games=3_000)
    terminal = Terminal(shop, "apply", "0001", "--yes")
    assert terminal.end() == 0
    assert re.search(r"backfill +Game .*━.* [\d,]+/3,000  [\d.]+ KB  [\d,]+/s", terminal.text)
    # It vanishes, and the cursor is there again.
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")

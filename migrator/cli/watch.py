"""Shows how far the work is: a bar on terminals, else a plain line every few seconds.

Progress goes to stderr and vanishes; what was done stays as a line on stdout.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

from migrator.cli.options import Options
from migrator.cli.output import tell
from migrator.render.runs import step
from migrator.render.text import blocks, duration, shown, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from migrator.model.plan import Plan
    from migrator.state import Run

WINDOW = 30.0
PLAIN_EVERY = 5.0
# A guess from the first moments would only be taken back.
GUESS_AFTER = 3.0


class Meter:
    """Counts one piece of work; its rate is that of the last half minute."""

    def __init__(self, done: int, of: int, now: float) -> None:
        self.began = now
        self.first = self.done = done
        self.of = of
        self.bytes = 0
        self._recent: deque[tuple[float, int]] = deque([(now, done)])

    def advance(self, blocks: int, bytes: int, now: float) -> None:
        self.done += blocks
        self.bytes += bytes
        self._recent.append((now, self.done))
        while len(self._recent) > 2 and now - self._recent[0][0] > WINDOW:
            self._recent.popleft()

    def told(self, now: float) -> str:
        """Blocks, bytes, rate, and the time left once it can be told."""
        since, then = self._recent[0]
        rate = (self.done - then) / (now - since) if now > since else 0.0
        text = f"{self.done:,}/{max(self.of, self.done):,}"
        if self.bytes:
            text += f"  {size(self.bytes)}"
        if rate:
            text += f"  {rate:,.0f}/s"
        if rate and now - self.began > GUESS_AFTER and self.done < self.of:
            text += f"  {duration((self.of - self.done) / rate)} left"
        return text

    def summary(self, now: float) -> str:
        """The same, at the end."""
        seconds = now - self.began
        done = self.done - self.first
        text = blocks(self.done)
        if self.first:
            text += f", {done:,} of them now"
        if self.bytes:
            text += f", {size(self.bytes)}"
        rate = f" ({done / seconds:,.0f}/s)" if seconds > 0.05 and done else ""
        return f"{text} in {duration(seconds)}{rate}"


class Watch:
    """The watcher of a command; use it as a context. For JSON it shows nothing at all."""

    def __init__(self, options: Options, plan: Plan | None = None) -> None:
        self._quiet = options.json
        # Lines for people would break a log for machines.
        self._plain = options.log_format != "json"
        self._plan = plan
        self._lock = threading.Lock()
        self._meter: Meter | None = None
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = 0.0

    def phase(self, run: Run) -> None:
        """Tell of a phase that no piece of work tells of."""
        from migrator.model.phase import Phase

        if self._quiet or self._plan is None or run.phase is not Phase.PREPARED:
            return
        for move in self._plan.moves:
            tell(step("prepared", f"{move.cls}  {move.target}"))

    def begins(self, work: str, cls: str, done: int, of: int) -> None:
        if self._quiet:
            return
        with self._lock:
            self._stop()
            self._last = time.monotonic()
            self._meter = Meter(done, of, self._last)
            if sys.stderr.isatty():
                self._start_bar(f"{work:<13} {shown(cls)}")

    def advances(self, work: str, cls: str, blocks: int, bytes: int) -> None:
        with self._lock:
            meter = self._meter
            if meter is None:
                return
            now = time.monotonic()
            meter.advance(blocks, bytes, now)
            self._show(f"{work:<13} {cls}", meter, now)

    def _show(self, head: str, meter: Meter, now: float) -> None:
        told = meter.told(now)
        if head.startswith("verify") and meter.done >= meter.of:
            told += "  looking for extra blocks"
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=meter.done,
                total=max(meter.of, meter.done),
                told=told,
            )
        elif self._plain and now - self._last >= PLAIN_EVERY:
            self._last = now
            tell(f"{head}  {told}", to_stderr=True)

    def ends(self, work: str, cls: str) -> None:
        with self._lock:
            meter = self._meter
            self._stop()
            if meter is not None and work == "backfill":
                tell(step(work, f"{cls}  {meter.summary(time.monotonic())}"))

    def surveyed(self, cls: str, done: int, of: int) -> None:
        """The progress of a plan, which is told as sums."""
        if self._quiet:
            return
        if self._meter is None or done < self._meter.done:
            self.begins("survey", cls, 0, of)
        with self._lock:
            if self._meter is not None:
                now = time.monotonic()
                self._meter.advance(done - self._meter.done, 0, now)
                self._show(f"{'survey':<13} {cls}", self._meter, now)

    def _start_bar(self, head: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=26),
            TextColumn("{task.fields[told]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        meter = self._meter
        self._task = self._bar.add_task(head, total=meter.of if meter else None, told="")
        self._bar.start()

    def _stop(self) -> None:
        self._meter = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._stop()

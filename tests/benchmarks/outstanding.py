"""Memory of a mirror with many touched keys before it: ``python -m tests.benchmarks.outstanding``.

Games are written between embedded stores while no mirror runs; then one works them off, in a
process of its own. Its peak must not depend on how many there are.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import structlog

from migrator import commands
from migrator.errors import Interrupted
from migrator.model.block import Aggregate, cut
from migrator.model.move import At
from migrator.model.phase import Phase
from migrator.state import LiveState
from tests.benchmarks.data import small
from tests.benchmarks.memory import peak
from tests.benchmarks.project import PAIRS, REVISION, SOURCE, Bench

_BATCH = 5_000
_BEFORE = 1_000


def outstanding(root: Path, keys: int) -> Bench:
    """A live move whose sides were equal before so many keys were written."""
    bench = Bench(PAIRS["embedded"], root)
    bench.fill(_BEFORE, small)
    with bench.open() as project:
        plan = commands.plan(project, REVISION, live=True)
        commands.apply(project, plan, until=Phase.SHADOW_READ)
        source = project.stores.get("old").collection("Game", At("old", SOURCE))
        rules = source.at.rules("Game")
        for start in range(0, keys, _BATCH):
            numbers = range(start, min(start + _BATCH, keys))
            source.write([cut(Aggregate(f"new-{n}", small(n)), rules) for n in numbers])
    return bench


def main() -> None:
    """Print the peaks with few keys and with many, and what lies between them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--few", type=int, default=20_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument(
        "--seconds", type=float, default=60, help="for how long many are worked off"
    )
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    peaks = []
    for keys in (given.few, given.many):
        with tempfile.TemporaryDirectory(prefix="migrator-bench-") as folder:
            outstanding(Path(folder), keys)
            command = [sys.executable, "-m", __spec__.name, folder, str(keys), str(given.seconds)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            touched, at_most = done.stdout.split()
            peaks.append(float(at_most))
            print(
                f"{keys:>9,} keys outstanding: {at_most} MB, {int(touched):,} worked off",
                flush=True,
            )
    print(f"growth: {peaks[1] - peaks[0]:.1f} MB")


def work(folder: str, keys: str, seconds: str) -> None:
    """Be the mirror until all was worked off, or for so long; print how many were, and the peak."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    stop, until = threading.Event(), time.monotonic() + float(seconds)
    touched = 0
    with Bench(PAIRS["embedded"], Path(folder)).open() as project:
        live = LiveState(project.control, project.control.run(REVISION).id)
        live.tell()

        def watch() -> None:
            nonlocal touched
            while touched < int(keys) and time.monotonic() < until:
                time.sleep(0.5)
                touched = int(str(live.told()[1].get("touched", 0)))
            stop.set()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            commands.mirror(project, REVISION, stop=stop)
        except Interrupted:
            thread.join()
    print(touched, round(peak(), 1))


if __name__ == "__main__":
    work(*sys.argv[1:]) if len(sys.argv) == 4 and Path(sys.argv[1]).is_dir() else main()

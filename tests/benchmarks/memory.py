"""Resident memory of plan, backfill and verify, each in a process of its own."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import structlog

from migrator import commands
from migrator.model.phase import Phase
from tests.benchmarks.data import small
from tests.benchmarks.project import PAIRS, REVISION, Bench

STEPS = ("plan", "backfill", "verify")


def growth(sizes: list[int], pair: str) -> dict[str, dict[str, float]]:
    """The peaks in MB by step and number of blocks, printed as a table."""
    print(f"\n{PAIRS[pair].name}, small blocks\nresident memory, MB at the peak{'':9}", end="")
    print("".join(f"{n:>12,}" for n in sizes), end="")
    print("   growth", flush=True)
    peaks: dict[str, dict[str, float]] = {step: {} for step in STEPS}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="migrator-bench-") as folder:
            bench = Bench(PAIRS[pair], Path(folder))
            bench.fill(size, small)
            try:
                for step in STEPS:
                    done = subprocess.run(
                        [sys.executable, "-m", "tests.benchmarks.memory", step, folder, pair],
                        check=True, capture_output=True, text=True,
                    )  # fmt: skip
                    peaks[step][f"{size}"] = float(done.stdout)
            finally:
                bench.remove()
    for step, found in peaks.items():
        values = list(found.values())
        print(f"{step:40}" + "".join(f"{v:12.1f}" for v in values), end="")
        print(f"{values[-1] - values[0]:9.1f}", flush=True)
    return peaks


def peak() -> float:
    """The most memory this process had resident, with its largest child, in MB.

    ``ru_maxrss`` of this process would begin with that of its parent.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return (own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def main(step: str, folder: str, pair: str) -> None:
    """Carry out one step and print the peak."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    bench = Bench(PAIRS[pair], Path(folder))
    with bench.open() as project:
        if step == "plan":
            commands.save_plan(project, commands.plan(project, REVISION, full=True))
        else:
            until = Phase.BACKFILLED if step == "backfill" else Phase.SHADOW_READ
            commands.apply(project, commands.show(project, REVISION), until=until)
    print(peak())


if __name__ == "__main__":
    main(*sys.argv[1:])

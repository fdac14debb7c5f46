"""A drill, as it reads to people: its verdict, and the figures behind it."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.drill.report import Report
from migrator.render.runs import step
from migrator.render.text import Line, columns, duration

_MOST = 10


def drill_lines(report: Report) -> Iterator[Line | str]:
    """What a drill found."""
    rows = [["", "acknowledged", "at least", "refused", "unknown"]]
    for name, each in report.done.items():
        told = (each.acknowledged, each.wanted, each.refused, each.unknown)
        rows.append([name, *(f"{number:,}" for number in told)])
    yield from columns(rows, indent=2)
    if (replay := report.replay) is not None:
        yield step(
            "replayed", f"{replay.replayed:,} lines, at {replay.speed:g} times the rate of "
            f"{replay.lines:,} that were recorded; {replay.made:,} aggregates were put first",
        )  # fmt: skip
        for why, number in replay.left_out.items():
            yield step("left out", f"{number:,} lines: {why}", "yellow")
    for stage in report.stages:
        if stage.pause is not None:
            tries = f", at try {stage.tries}" if stage.tries > 1 else ""
            yield step(stage.name, f"pause at the writers {stage.pause * 1000:,.0f} ms{tries}")
    for kill in report.kills:
        again = duration(kill.again - kill.at)
        yield step("killed", f"{kill.process} at {duration(kill.at)}, at work again after {again}")
    for why, number in list(report.refused.items())[:_MOST]:
        yield step("refused", f"{number:,} times: {why}", "yellow")
    for fault in report.faults[:_MOST]:
        yield Line(f"  {fault.cls}:{fault.key}  {fault.side}  {fault.what}: {fault.text}", "red")
    more = len(report.faults) - _MOST + report.more_faults
    if more > 0:
        yield Line(f"  ... {more:,} more", "dim")
    if report.passed:
        done = sum(each.acknowledged for each in report.done.values())
        text = f"{done:,} acknowledged calls; no write is missing, none is there twice"
        yield step("passed", text, "green")
    for reason in report.reasons:
        yield step("failed", reason, "red")

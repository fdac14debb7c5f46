"""Runs that somebody looks on at: whole on a terminal, one line for each change elsewhere."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence

from migrator.commands.records import RunStatus
from migrator.commands.watching import Outlook, Watched
from migrator.engine.guard import NEAR
from migrator.model.phase import Phase
from migrator.render.runs import run_lines
from migrator.render.text import Line, Style, blocks, duration, some


def watched_lines(found: Sequence[Watched], complete: Callable[[str], str]) -> Iterator[Line]:
    """Where runs stand and lead, on as many lines as it takes."""
    if not found:
        yield Line(complete("no run is under way; see what would be done:  migrator plan"))
    for each in found:
        yield from run_lines(each.status, each.at, complete)
        text, style = _outlook(each.status, each.outlook)
        if text:
            yield Line(f"      {text}", style)


def change_line(each: Watched) -> tuple[str, Line]:
    """One line for one look; the text before it changes where something worth a line did."""
    run, live = each.status, each.status.live
    parts = [run.revision, Phase(run.phase).words, f"primary {run.primary}"]
    if Phase(run.phase).rank < Phase.BACKFILLED.rank and run.planned:
        parts.append(f"{run.read:,}/{run.planned:,} copied")
        parts += ["paused"] if run.paused else []
        parts += [f"at most {run.throttle:,g}/s"] if run.throttle is not None else []
    if live is not None:
        parts.append(f"lag {live.lag:.1f} s" if live.running else "no mirror")
        parts += [f"waits for {live.waits}"] if live.waits else []
        parts += [f"{live.brackets:,} brackets open"] if live.brackets else []
        for feed in live.feeds:
            if feed.share >= NEAR:
                parts.append(f"feed of {feed.cls} on the {feed.side} at {feed.share:.0%}")
        if (reads := live.shadow) is not None:
            parts.append(f"shadow reads {reads.mismatch:,} of {reads.keys:,} differ")
        if live.reads is not None and live.reads.share:
            parts.append(f"the mirror may answer {live.reads.share:.2%} of reads")
        if live.differed:
            parts.append(f"{some(len(live.differed), 'key')} differed on both sides")
        parts += [f"swap {live.fence}"] if live.fence else []
        parts += [f"{blocks(live.ledger)} not written back"] if live.ledger else []
    parts += [f"{blocks(run.quarantined)} in quarantine"] if run.quarantined else []
    text, style = _outlook(run, each.outlook)
    changed = "  ".join([*parts, _verdict(each.outlook)])
    when = dt.datetime.fromtimestamp(each.at, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return changed, Line("  ".join([when, *parts, *([text] if text else [])]), style)


def _verdict(outlook: Outlook) -> str:
    return outlook.why if outlook.converges is None else str(outlook.converges)


def _outlook(run: RunStatus, outlook: Outlook) -> tuple[str, Style]:
    """Whether both sides come together, in words."""
    rate = f" at {outlook.rate:,.0f} blocks/s" if outlook.rate else ""
    if outlook.converges is None:
        return f"can't tell whether it converges: {outlook.why}" if outlook.why else "", "dim"
    if not outlook.converges:
        return f"does not converge: {outlook.why}", "yellow"
    if not outlook.seconds:
        return ("caught up" if run.live else ""), "green"
    return f"converges in {duration(outlook.seconds)}{rate}", "green"

"""A report as one page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape

from migrator.drill.report import Replay, Report, Stage

WIDTH, LEFT, RIGHT = 960, 70, 10
_BAND, _PLOT, _GAP, _NAME = 28, 110, 34, 80
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem;
  color: #1c2330; background: #fff; }
h1 { font-size: 1.4rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { font-weight: 600; padding: .6rem .9rem; border-left: 6px solid; margin: 1rem 0; }
.good { border-color: #1a7f4b; background: #e7f5ed; color: #0f5132; }
.bad { border-color: #b3261e; background: #fbe9e7; color: #7a1a14; }
.verdict ul { font-weight: 400; margin: .3rem 0 0; padding-left: 1.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: left;
  vertical-align: top; border-bottom: 1px solid #d5d9e0; } td.n, th.n { text-align: right; }
td.n { white-space: nowrap; }
svg text { font: 12px system-ui, sans-serif; fill: #1c2330; } svg .dim { fill: #5a6373; }
svg .axis { stroke: #aab2bf; } svg .stage { fill: #d8e4f5; stroke: #fff; }
svg .swap { fill: #f0b35a; stroke: #fff; } svg .calls { fill: #4a7dbd; }
svg .lag { fill: none; stroke: #8a4fb0; stroke-width: 1.5; } svg .kill { stroke: #b3261e; }
svg .killed { fill: #b3261e; }
@media (prefers-color-scheme: dark) {
  body { color: #e3e7ee; background: #14181f; } svg text { fill: #e3e7ee; }
  svg .dim { fill: #9aa4b5; } svg .stage { fill: #2b3d59; stroke: #14181f; }
  svg .swap { fill: #a8712a; stroke: #14181f; } svg .lag { stroke: #c79be6; }
  svg .kill { stroke: #ff8f85; } svg .killed { fill: #ff8f85; } td, th { border-color: #333b48; }
  .good { background: #12301f; color: #b9e6cc; } .bad { background: #3a1512; color: #f5c4bf; } }
"""


def page(report: Report) -> str:
    """The whole page."""
    title = f"Drill of {report.revision} in {report.env}"
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.began))
    body = [
        f"<h1>{_(title)}</h1>",
        f"<p>{_(', '.join(report.classes))}; run {_(report.run)}; began {began}, took "
        f"{report.seconds:,.1f} s; left as {_(report.ending.replace('_', ' '))}</p>",
        _verdict(report),
        "<h2>On a time line</h2>",
        f'<div class="scroll">{_chart(report)}</div>',
        "<h2>Steps</h2>",
        _table(
            [
                "step",
                "#began",
                "#took",
                "#pause at the writers",
                "#stopped by the mirror",
                "#tries",
            ],
            (
                [
                    s.name,
                    f"{s.began:,.2f} s",
                    f"{s.ended - s.began:,.2f} s",
                    _ms(s.pause),
                    _ms(s.stopped),
                    str(s.tries),
                ]
                for s in report.stages
            ),
        ),
        f"<p>The pause is the longest time between two acknowledged writes of one writer, its own "
        f"pace included; over the whole drill it was {_ms(report.longest)}.</p>",
        "<h2>Calls</h2>",
        _table(
            [
                "call",
                "#acknowledged",
                "#at least",
                "#refused",
                "#outcome unknown",
                "#acknowledged at the target",
                "#refused there",
            ],
            (
                [
                    name,
                    *(
                        f"{n:,}"
                        for n in (
                            c.acknowledged,
                            c.wanted,
                            c.refused,
                            c.unknown,
                            c.target_acknowledged,
                            c.target_refused,
                        )
                    ),
                ]
                for name, c in report.done.items()
            ),
        ),
        f"<p>{report.asked.writers:,} writers, {report.asked.rate:,g} calls a second in all, "
        f"{report.keys:,} keys, {_skew(report)}, seed {report.asked.seed}</p>",
    ]
    if report.replay is not None:
        body += _replay(report.replay)
    if report.refused:
        rows = ([why, f"{n:,}"] for why, n in report.refused.items())
        body += ["<h2>Why calls were refused</h2>", _table(["why", "#calls"], rows)]
    body += ["<h2>Killed</h2>", _kills(report), "<h2>Both sides compared</h2>", _sides(report)]
    body += ["<h2>Against what was acknowledged</h2>", _faults(report)]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _(text: str) -> str:
    """Text of the data, which is never markup, and holds nothing that a page may not."""
    return escape("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f} ms"


def _verdict(report: Report) -> str:
    if report.passed:
        done = sum(count.acknowledged for count in report.done.values())
        text = (
            f"Passed: {done:,} acknowledged calls, none of their writes missing, none there twice"
        )
        return f'<div class="verdict good">{text}</div>'
    why = "".join(f"<li>{_(reason)}</li>" for reason in report.reasons)
    return f'<div class="verdict bad">Failed<ul>{why}</ul></div>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the columns whose heads begin with # hold numbers."""
    number = [name.startswith("#") for name in head]

    def row(cells: Sequence[str], tag: str) -> str:
        told = (
            f"<{tag}{' class=n' if n else ''}>{_(cell)}</{tag}>"
            for cell, n in zip(cells, number, strict=True)
        )
        return f"<tr>{''.join(told)}</tr>"

    names = [name.removeprefix("#") for name in head]
    inside = "\n".join([row(names, "th"), *(row(cells, "td") for cells in rows)])
    return f'<div class="scroll"><table>\n{inside}\n</table></div>'


def _skew(report: Report) -> str:
    skew = report.asked.skew
    return "calls and keys as they were recorded" if skew is None else f"skew {skew:g}"


def _replay(replay: Replay) -> list[str]:
    """What was replayed of which recording, and what was not."""
    values = {"kept": "as it was", "synthetic": "made up", "mixed": "in part made up"}
    told = [
        "<h2>Replayed</h2>",
        f"<p>{_(', '.join(replay.files))}: {replay.lines:,} lines of {replay.keys:,} keys in "
        f"{replay.seconds:,.1f} s, replayed at {replay.speed:g} times their rate; what was written "
        f"is {values.get(replay.values, _(replay.values))}.</p>",
        f"<p>{replay.replayed:,} lines were replayed; {replay.made:,} aggregates were put first, "
        "since the recording does not hold how they came to be.</p>",
    ]
    if replay.left_out:
        rows = ([why, f"{n:,}"] for why, n in replay.left_out.items())
        told.append(_table(["lines left out, since", "#lines"], rows))
    return told


def _kills(report: Report) -> str:
    if not report.kills:
        return "<p>Nothing was killed.</p>"
    rows = ([k.process, f"{k.at:,.2f} s", f"{k.again:,.2f} s"] for k in report.kills)
    return _table(["process", "#killed at", "#at work again at"], rows)


def _sides(report: Report) -> str:
    rows = [
        [v.cls, v.source, v.target, f"{v.equal:,}", f"{v.differ:,}", f"{v.missing:,}",
         f"{v.extra:,}"]
        for v in report.verified
    ]  # fmt: skip
    if not rows:
        return "<p>It did not come to that.</p>"
    head = ["class", "source", "target", "#equal", "#differ", "#missing", "#extra"]
    told = [[f"{v.cls}", m.key, m.what, ", ".join(m.paths)]
            for v in report.verified for m in v.told[:50]]  # fmt: skip
    more = _table(["class", "key", "what", "paths"], told) if told else ""
    return _table(head, rows) + more


def _faults(report: Report) -> str:
    if not report.faults:
        return "<p>Nothing is wrong.</p>" if report.passed else "<p>Nothing was found.</p>"
    rows = ([f"{f.cls}:{f.key}", f.side, f.what, f.text] for f in report.faults)
    more = f"<p>and {report.more_faults:,} more</p>" if report.more_faults else ""
    return _table(["key", "side", "what", "how"], rows) + more


# ---------------------------------------------------------------------- the chart


def _chart(report: Report) -> str:
    """Steps, calls and lag above one axis of time."""
    span = max(report.seconds, 0.001)
    scale = (WIDTH - LEFT - RIGHT) / span

    def x(at: float) -> float:
        return round(LEFT + min(max(at, 0.0), span) * scale, 1)

    parts, top = [], 32
    for number, stage in enumerate(report.stages, 1):
        parts.append(_stage(number, stage, x, top))
    calls = top + _BAND + _GAP
    most = max(report.throughput, default=0)
    parts.append(_plot("calls/s", calls, most / report.bucket))
    for i, count in enumerate(report.throughput):
        if count:
            height = round(_PLOT * count / most, 1)
            wide = max(x((i + 1) * report.bucket) - x(i * report.bucket) - 0.5, 0.5)
            parts.append(
                f'<rect class="calls" x="{x(i * report.bucket)}" y="{calls + _PLOT - height}" '
                f'width="{wide:.1f}" height="{height}"/>'
            )
    lag = calls + _PLOT + _GAP
    worst = max((seconds for _at, seconds in report.lag), default=0.0)
    parts.append(_plot("lag, s", lag, worst))
    if report.lag:
        points = " ".join(
            f"{x(at)},{round(lag + _PLOT - _PLOT * seconds / (worst or 1.0), 1)}"
            for at, seconds in report.lag
        )
        parts.append(f'<polyline class="lag" points="{points}"/>')
    bottom = lag + _PLOT
    # Names that would lie upon one another stand in two rows; where both are taken, the line alone.
    ends = [-float(_NAME)] * 2
    for kill in sorted(report.kills, key=lambda kill: kill.at):
        row = next((n for n, end in enumerate(ends) if x(kill.at) - end >= _NAME), None)
        named = ""
        if row is not None:
            ends[row] = x(kill.at)
            named = (
                f'<text class="killed" x="{x(kill.at)}" y="{26 - 14 * row}" text-anchor="middle">'
                f"{_(kill.process)} †</text>"
            )
        parts.append(
            f'<g><title>{_(kill.process)} killed at {kill.at:.2f} s</title><line class="kill" '
            f'x1="{x(kill.at)}" x2="{x(kill.at)}" y1="{top}" y2="{bottom}" stroke-dasharray="3 3"/>'
            f"{named}</g>"
        )
    for tick in _ticks(span):
        parts.append(
            f'<text class="dim" x="{x(tick)}" y="{bottom + 18}" text-anchor="middle">{tick:g} s'
            "</text>"
        )
    legend = "; ".join(f"{n} {s.name}" for n, s in enumerate(report.stages, 1))
    height = bottom + 26
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        "<title>Steps, calls and lag over time</title>" + "\n".join(parts)
        + f'</svg>\n<p class="dim">{_(legend)}; † a process was killed</p>'
    )  # fmt: skip


def _stage(number: int, stage: Stage, x: object, top: int) -> str:
    assert callable(x)
    left, right = x(stage.began), x(stage.ended)
    kind = "stage" if stage.pause is None else "swap"
    wide = max(right - left, 1.0)
    text = (
        f'<text x="{left + wide / 2:.1f}" y="{top + 19}" text-anchor="middle">{number}</text>'
        if wide > 14
        else ""
    )
    return (
        f'<g><title>{_(stage.name)}: {stage.ended - stage.began:.2f} s</title><rect class="{kind}" '
        f'x="{left}" y="{top}" width="{wide:.1f}" height="{_BAND}"/>{text}</g>'
    )


def _plot(name: str, top: int, most: float) -> str:
    """The frame of a plot: its name, its greatest value, its base."""
    return (
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most:,.3g}</text>'
        f'<text class="dim" x="{LEFT - 6}" y="{top + 26}" text-anchor="end">{name}</text>'
        f'<text x="{LEFT - 6}" y="{top + _PLOT}" text-anchor="end">0</text>'
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top + _PLOT}" '
        f'y2="{top + _PLOT}"/>'
    )


def _ticks(span: float) -> list[float]:
    """Round moments, at most ten of them."""
    step = next((s for s in (0.5, 1, 2, 5, 10, 30, 60, 300, 600) if span / s <= 10), 3600)
    return [n * step for n in range(int(span / step) + 1)]

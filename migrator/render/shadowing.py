"""Shadow reads, as they read to people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.engine.shadow import Latency, Shadowed
from migrator.render.runs import step, undecided
from migrator.render.text import Line, columns, some


def shadow_lines(found: Sequence[Shadowed]) -> Iterator[Line]:
    """How many keys are equal, how long both sides took, and what differs."""
    for each in found:
        yield step("shadow reads", _counts(each), "green" if each.clean else "red")
        rows = [
            ("primary", each.primary, _latency(each.primary_latency)),
            ("mirror", each.mirror, _latency(each.mirror_latency)),
        ]
        for text in columns(rows, indent=14):
            yield Line(text)
        for item in each.told:
            yield Line(f"  {item.key}  {item.what}", "" if item.what == "explained" else "red")
            for path in item.paths:
                yield Line(f"      {path}")


def _counts(found: Shadowed) -> str:
    text = f"{found.cls}  {some(found.keys, 'key')}: {found.equal:,} equal"
    lagging = f", {found.lagging:,} lagging" if found.lagging else ""
    return f"{text}{lagging}{undecided(found)}, {found.mismatch:,} differ"


def _latency(found: Latency) -> str:
    if found.median is None or found.p99 is None:
        return "no answer"
    return f"median {found.median * 1000:,.1f} ms   p99 {found.p99 * 1000:,.1f} ms"

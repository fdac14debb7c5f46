"""Revisions and stores, as they read to people."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from migrator.render.text import Line, columns, first_line, size, some

if TYPE_CHECKING:
    from migrator.commands import Current, KindRow, LayoutStatus, StoreStatus
    from migrator.revisions import Checked, HistoryEntry


def history_lines(entries: Sequence[HistoryEntry], done: Collection[str]) -> Iterator[Line]:
    """Revisions with their moves, the first one first."""
    if not entries:
        yield Line("no revision yet; write one:  migrator new MESSAGE")
    for entry in entries:
        after = f"  after {', '.join(entry.down)}" if entry.down else ""
        marks = [word for word, on in (("done", entry.id in done), ("head", entry.head)) if on]
        mark = f"  ({', '.join(marks)})" if marks else ""
        yield Line(
            f"{entry.id}{after}  {entry.message}{mark}", "dim" if "done" in marks else "bold"
        )
        for step in entry.steps:
            yield Line(f"      {step.cls}  {step.source or '?'} -> {step.target}")


def checked_lines(checked: Checked) -> Iterator[Line]:
    """The outcome of a check that found nothing wrong."""
    for remark in checked.remarks:
        yield Line(f"{remark.where}: {remark.what}", "yellow")
    heads = ", ".join(checked.heads) or "none"
    told = f"{some(checked.revisions, 'revision')} with {some(checked.moves, 'move')}"
    yield Line(f"{told} in good order; head: {heads}", "green")


def current_lines(found: Sequence[Current]) -> Iterator[Line]:
    """Where each class is."""
    if not found:
        yield Line("no revision is done yet: each class is where it always was")
    for text in columns([(each.cls, each.at, f"since {each.revision}") for each in found]):
        yield Line(text)


def store_lines(found: Sequence[StoreStatus]) -> Iterator[Line]:
    """What each store answered."""
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        if not each.ok:
            text, _, hint = each.error.partition("\n")
            yield Line(f"{each.name:<{width}}  failed: {first_line(text)}", "red")
            if hint:
                yield Line(f"{'':<{width}}  {first_line(hint)}")
            continue
        feed = f"   feed: {each.feed}" if each.feed else ""
        layouts = f"layouts: {', '.join(each.layouts)}"
        yield Line(f"{each.name:<{width}}  {each.product} {each.version}   {layouts}{feed}")
        can = [(at.layout, _ability(at)) for at in each.capabilities]
        for text in columns(can):
            yield Line(f"{'':<{width}}    {text}", "dim")
        for remark in each.remarks:
            yield Line(f"{'':<{width}}  {remark}", "yellow")


def _ability(at: LayoutStatus) -> str:
    bounds = [
        f"a {what} up to {size(bound)}"
        for what, bound in (("block", at.block_bytes), ("key", at.key_bytes))
        if bound
    ]
    words = [
        "effective" if at.effective else "not effective",
        f"atomic: {at.unit}",
        "entries apart" if at.entries else "entries together",
        *(["expiry"] if at.expiry else []),
        *bounds,
        *([f"{at.nesting} levels"] if at.nesting else []),
    ]
    return "; ".join(words)


def kind_lines(found: Sequence[KindRow]) -> Iterator[Line]:
    """The table of kinds: a row for each kind, a column for each layout of each store."""
    places = list(dict.fromkeys((row.store, row.layout) for row in found))
    held = {(row.kind, row.store, row.layout): row for row in found}
    kinds = list(dict.fromkeys(row.kind for row in found))
    rows = [["kind", *(f"{store} ({layout})" for store, layout in places)]]
    for kind in kinds:
        cells = [held.get((kind, *place)) for place in places]
        rows.append([kind, *(f"{c.how}: {c.type}".rstrip(": ") if c else "" for c in cells)])
    for i, text in enumerate(columns(rows)):
        yield Line(text, "" if i else "bold")

"""A plan, as it reads to people: like a good diff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.model.move import Tables
from migrator.model.plan import (
    Archived,
    BlockDiff,
    Capacity,
    EntryLine,
    Finding,
    MovePlan,
    Place,
    Plan,
    Severity,
)
from migrator.render.text import Line, Style, blocks, duration, shown, size, some

_MOST_CHANGED = 2
_MOST_KINDS = 8
_WIDTH = 90
_SIGNS: dict[str, Style] = {"+": "green", "-": "red", "~": "yellow", "=": "dim"}
_FINDINGS: tuple[tuple[Severity, str, str, Style], ...] = (
    ("error", "error", "the plan can't be applied", "red"),
    ("accept", "finding to accept", "apply needs --accept CODE", "yellow"),
    ("warning", "warning", "", "yellow"),
    ("note", "note", "", "dim"),
)


def plan_lines(plan: Plan) -> Iterator[Line]:
    """The whole plan but where it lies."""
    yield Line(f"{plan.revision}  {plan.message}".rstrip() + f"   [{plan.env}]", "bold")
    if plan.live:
        feeds = "; ".join(dict.fromkeys(plan.feeds)) or "nothing"
        yield Line(f"  live: the applications go on writing, followed by {shown(feeds)}")
    for move in plan.moves:
        yield Line()
        yield from _move(move)
    yield from _findings(plan)
    if not plan.blocks and not plan.errors:
        yield Line()
        yield Line("  nothing to change: the target holds it all already", "green")


def _move(move: MovePlan) -> Iterator[Line]:
    yield Line(f"  {move.cls}    {_place(move.source)}   ->   {_place(move.target)}", "bold")
    for evolution in move.evolutions:
        yield from (Line(f"      {text}") for text in _wrapped(evolution))
    yield Line()
    yield from _counts(move)
    for sample in _examples(move.samples):
        yield Line()
        yield from _example(sample)
    yield Line()
    yield from _facts(move)


def _wrapped(text: str) -> Iterator[str]:
    """A list of many things on several lines."""
    line = ""
    for part in text.split(", "):
        if line and len(line) + len(part) > _WIDTH:
            yield line + ","
            line = "    " + part
        else:
            line = f"{line}, {part}" if line else part
    yield line


def _place(place: Place) -> str:
    return f"{place}  {place.name}, {place.layout}"


def _counts(move: MovePlan) -> Iterator[Line]:
    about = "" if move.exact else "about "
    rows = (
        ("+", "create", move.create),
        ("~", "change", move.change),
        ("-", "delete", move.delete),
        ("=", "leave", move.leave),
    )
    numbers = [f"{about if n else ''}{n:,}" for _, _, n in rows]
    width = max(map(len, numbers))
    for (sign, word, count), number in zip(rows, numbers, strict=True):
        text = f"  {sign} {word:<6}    {number:>{width}}"
        if sign == "+":
            text += " block" + ("" if count == 1 else "s")
            if move.fresh:
                text += f"    {move.entries_added:,} entries    {size(move.bytes)}"
        yield Line(text, _SIGNS[sign] if count else "dim")
    if not move.fresh:
        yield Line(
            f"  entries     +{move.entries_added:,}  ~{move.entries_changed:,}  "
            f"-{move.entries_removed:,}   of {move.entries:,}, {size(move.bytes)} in all"
        )
    if move.bound:
        yield Line(f"  sampled     {move.bound}")


def _examples(samples: Sequence[BlockDiff]) -> list[BlockDiff]:
    """One block that is created, since all of them look alike, and a few that are changed."""
    created = [sample for sample in samples if sample.change == "create"]
    return created[:1] + [s for s in samples if s.change != "create"][:_MOST_CHANGED]


def _example(sample: BlockDiff) -> Iterator[Line]:
    word = "for example" if sample.change == "create" else f"{sample.change}, for example"
    yield Line(f"  {word} {sample.key}")
    paths = [shown(entry.path) or "." for entry in sample.entries]
    wide = max(map(len, paths), default=0)
    sizes = [size(entry.bytes) if entry.bytes else "" for entry in sample.entries]
    long = max(map(len, sizes), default=0)
    for entry, path, told in zip(sample.entries, paths, sizes, strict=True):
        yield from _entry(entry, f"{path:<{wide}}  {told:>{long}}")
    if sample.more:
        yield Line(f"      ... {sample.more:,} more", "dim")


def _entry(entry: EntryLine, head: str) -> Iterator[Line]:
    fields = f"   {', '.join(entry.fields)}" if entry.fields and entry.sign != "~" else ""
    yield Line(f"    {entry.sign} {head}{fields}".rstrip(), _SIGNS[entry.sign])
    for detail in entry.detail:
        yield Line(f"        {detail}", "yellow")


def _facts(move: MovePlan) -> Iterator[Line]:
    if move.tables is not None:
        yield from _tables(move.tables)
    yield from _kinds(move)
    limits = _limits(move)
    if limits:
        yield _fact("limits", limits)
    yield _fact("work", _work(move))
    for side in move.capacity:
        yield _fact("", _capacity(side))
    if move.oversize == "quarantine":
        yield _fact("quarantine", "blocks that can't be written are set aside")
    if move.archive is not None:
        yield _fact("archive", _archive(move.archive))
    if move.rollback:
        for text in move.rollback:
            yield _fact("rollback", text, "yellow")
    else:
        yield _fact("rollback", "lossless, at any time before finish")


def _tables(tables: Tables, word: str = "tables") -> Iterator[Line]:
    """The tables to be made, as the data tell them."""
    if tables.like is not None:
        yield _fact(word, f"{tables.table}, like that of {tables.like}")
    else:
        columns = ", ".join(f"{name} {type_}" for name, type_ in tables.columns.items())
        lines = _wrapped(f"{tables.table} ({columns}), key {', '.join(tables.key)}")
        for i, line in enumerate(lines):
            yield _fact("" if i else word, line)
    for below in tables.children.values():
        yield from _tables(below, "")


def _fact(word: str, text: str, style: Style = "") -> Line:
    return Line(f"  {word:<10} {text}", style)


def _kinds(move: MovePlan) -> Iterator[Line]:
    paths = len({kind.path for kind in move.kinds})
    odd = [kind for kind in move.kinds if kind.how != "native"]
    if not odd:
        yield _fact("kinds", f"{some(paths, 'path')}, all held natively")
        return
    yield _fact("kinds", f"{some(paths, 'path')}; not held natively:")
    for kind in odd[:_MOST_KINDS]:
        how = f"tagged, in {kind.type}" if kind.how == "tagged" and kind.type else kind.how
        style: Style = "red" if kind.how == "refused" else ""
        yield Line(f"             {kind.path or '.'}  {kind.kind}: {how}  ({kind.count:,})", style)
    if len(odd) > _MOST_KINDS:
        yield Line(f"             ... {len(odd) - _MOST_KINDS:,} more", "dim")


def _limits(move: MovePlan) -> str:
    sizes, told = move.sizes, []
    if sizes.block:
        of = f" of {size(sizes.block_limit)}" if sizes.block_limit is not None else ""
        told.append(f"largest block {size(sizes.block)}{of} ({sizes.block_key})")
    if sizes.key:
        of = f" of {size(sizes.key_limit)}" if sizes.key_limit is not None else ""
        told.append(f"longest key {size(sizes.key)}{of}")
    if sizes.name_limit is not None:
        told.append(f"longest name {size(sizes.name)} of {size(sizes.name_limit)}")
    if sizes.nesting_limit is not None:
        told.append(f"{sizes.nesting:,} of {sizes.nesting_limit:,} levels")
    return "; ".join(told)


def _archive(archive: Archived) -> str:
    taken = []
    if archive.blocks:
        taken.append(f"{blocks(archive.blocks)} that the target does not take")
    if archive.parts:
        taken.append(f"what is left out of {blocks(archive.parts)}")
    if not taken:
        return f"nothing to {_place(archive.place)}"
    return f"{' and '.join(taken)} to {_place(archive.place)}, {size(archive.bytes)}"


def _work(move: MovePlan) -> str:
    time = f"; about {duration(move.seconds)}" if move.seconds else ""
    rate = f", {move.rate:,.0f} blocks/s measured" if move.rate else ""
    return (
        f"{blocks(move.read)} to read in {some(move.ranges, 'range')}"
        f"{', in turns by chance' if move.shuffled else ''}; "
        f"{some(move.requests_read, 'range read')}, "
        f"{some(move.requests_write, 'bulk write')}{time}{rate}"
    )


def _capacity(side: Capacity) -> str:
    counts = ((side.write, "write"), (side.read, "read"))
    told = [f"{count:,} {word} units" for count, word in counts if count]
    taken = f" ({side.survey:,} were read for this plan)" if side.survey else ""
    copy = f"{' and '.join(told)} to copy, " if told else ""
    return f"{side.side}: {copy}{side.verify:,} read units to verify{taken}"


def _findings(plan: Plan) -> Iterator[Line]:
    several = len(plan.moves) > 1
    for severity, word, remark, style in _FINDINGS:
        found = [f for f in plan.findings if f.severity == severity]
        if not found:
            continue
        yield Line()
        plural = "" if len(found) == 1 else "s"
        head = word.replace("finding", f"finding{plural}") if "finding" in word else word + plural
        yield Line(f"  {len(found)} {head}" + (f": {remark}" if remark else ""), style)
        for finding in found:
            yield Line(f"  {_finding(finding, with_class=several)}", style)


def _finding(finding: Finding, *, with_class: bool) -> str:
    parts: Sequence[str] = [
        finding.code,
        finding.cls if with_class else "",
        finding.path,
        finding.text,
    ]
    text = "  ".join(part for part in parts if part)
    if not finding.keys:
        return text
    more = " ..." if finding.count > len(finding.keys) else ""
    return f"{text}  ({finding.count:,}: {', '.join(finding.keys)}{more})"

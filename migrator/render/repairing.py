"""What a repair found, as it reads to people: who says what, and the ways on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from migrator.model.phase import Phase
from migrator.render.text import Line, duration, some

if TYPE_CHECKING:
    from migrator.commands import Inspected
    from migrator.commands.repairing import SideFound


def repair_lines(found: Inspected, complete: Callable[[str], str]) -> Iterator[Line]:
    """Everything that was found, then what may be done."""
    yield Line(f"{found.revision}  {found.state}", "bold")
    yield from _control(found)
    width = max(len(side.at) for side in found.sides)
    for side in found.sides:
        style, said = ("red", side.problem) if side.problem else ("", _said(side))
        yield Line(f"  {side.side}  {side.at:<{width}}  {said}", "red" if style else "")
    for holder in found.holders:
        seen = f"epoch {holder.epoch}" if holder.run else "no run"
        yield Line(f"  gateway {holder.instance}  {holder.cls}  has seen {seen}", "dim")
    if found.why:
        yield Line(found.why, "yellow")
    for choice in found.choices:
        yield Line(complete(f"  {choice.command}"), "bold")
        yield Line(f"      {choice.does}")
    if found.settled:
        yield Line("there is nothing to repair", "green")
    elif not found.choices:
        yield Line("look for the control database that knows of it, or for the store that is away")


def _control(found: Inspected) -> Iterator[Line]:
    run = found.control
    if run is None:
        yield Line("  control database: no run is under way")
        return
    fence = run.live.fence if run.live is not None else ""
    yield Line(
        f"  control database  {run.run}  {Phase(run.phase).words}  epoch {run.epoch}  primary "
        f"{run.primary}  swap {found.attempt}" + (f" {fence}" if fence else "")
    )
    if run.live is not None:
        silent = run.live.silent
        said = "never said anything" if silent is None else f"was heard {duration(silent)} ago"
        yield Line(f"  mirror {said}; {some(run.live.ledger, 'key')} not written back, "
                   f"{some(run.quarantined, 'key')} in quarantine")  # fmt: skip
    if found.asked:
        yield Line(f"  asked for and not answered: {Phase(found.asked).words}")


def _said(side: SideFound) -> str:
    if not side.keeps:
        said = "keeps no epoch"
    elif side.epoch is None:
        said = "no epoch is noted"
    else:
        said = f"epoch {side.epoch.number}  primary {side.epoch.primary}  swap {side.epoch.attempt}"
    parts = [said]
    parts += ["writes are denied"] if side.fenced else []
    parts += ["feed prepared"] if side.prepared else []
    parts += ["all keys are being compared"] if side.scanning else []
    return "  ".join(parts)

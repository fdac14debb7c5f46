"""What a live move asks for beyond one at rest: that both sides can be followed, and fenced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from migrator.errors import Refused, Terminal
from migrator.journal import Bracketed, Fenced, Followed, Journal
from migrator.model.evolution import Drop, Keep
from migrator.model.path import escape, parse_path
from migrator.model.plan import Finding, MovePlan, Plan, Severity
from migrator.planning.file import sealed
from migrator.ports import Collection, Stamped
from migrator.route import Route, beside

_NAME = "migrator_look"


def live(made: Plan, opened: Sequence[Route]) -> Plan:
    """The same plan, to be carried out while the applications go on writing."""
    routes = [route.followed for route in opened]
    findings = [finding for route in routes for finding in _findings(route, made)]
    findings += _crossing(routes)
    feeds = [journal.describe() for route in routes if (journal := _journal(route.source))]
    return sealed(
        msgspec.structs.replace(
            made, live=True, feeds=feeds, findings=[*findings, *made.findings], digest=""
        )
    )


def _findings(route: Route, made: Plan) -> Iterator[Finding]:
    def tell(severity: Severity, code: str, text: str) -> Finding:
        return Finding(severity=severity, code=code, text=text, cls=route.cls)

    if route.translation.merged is not None:
        yield tell(
            "error", "E131",
            "it merges a second collection into the first: such a move is carried out at rest",
        )  # fmt: skip
    elif route.changes_key:
        yield tell("note", "N136", _keys_change(route))
    if route.spreads or route.gathers:
        yield from (tell("error", "E131", text) for text in _unheard(route))
    if route.move.archive is not None:
        yield tell("error", "E132", "a move with an archive is carried out at rest")
    if not (planned := made.moves[route.number]).fresh:
        yield _occupied(route, planned)
    for side in (route.source, route.target):
        if isinstance(side, Stamped) and side.write_times is not None:
            yield tell("error", "E137", f"{side.at} carries write times, which is done at rest")
        journal = _journal(side)
        if journal is None:
            yield tell("error", "E130", f"{side.at} has no change feed to follow its writes by")
            continue
        for severity, code, text in _told(side, journal):
            yield tell(severity, code, f"{side.at}: {text}")  # type: ignore[arg-type]
        if not isinstance(side, Fenced) or side.fence(_NAME) is None:
            yield tell(
                "note", "N134",
                f"{side.at}: its store can't deny writes: a swap away needs --hook or --gateways",
            )  # fmt: skip


def _crossing(routes: Sequence[Route]) -> Iterator[Finding]:
    """Moves that would write each other's blocks on the way back."""
    for route in routes:
        regrouping = route.translation.regrouping
        others = [each for each in routes if each is not route and beside(route, each)]
        if not others or regrouping is None:
            continue
        text = ""
        if route.gathers:
            text = "it puts blocks together that another move has for its source as well"
        elif regrouping.back is None:
            text = "its source lives by its parts alone, and another move has the same source"
        elif any(each.changes_key and not each.spreads for each in others):
            text = "another move of the same source changes its keys"
        elif not all(each.spreads or _leaves_out(each, regrouping.path) for each in others):
            text = (
                f"another move of the same source carries {regrouping.path} as well, and each "
                "would write over the other's on the way back (Drop or Keep leaves it out there)"
            )
        if text:
            yield Finding(
                severity="error", code="E131", cls=route.cls,
                text=f"{text}: such moves are carried out at rest",
            )  # fmt: skip


def _leaves_out(route: Route, path: str) -> bool:
    """Whether a field of the source does not come along."""
    top = str(parse_path(path)[0])
    return any(
        (isinstance(step, Drop) and step.path in (path, escape(top)))
        or (isinstance(step, Keep) and top not in step.fields)
        for step in route.translation.chain
    )  # fmt: skip


def _occupied(route: Route, planned: MovePlan) -> Finding:
    """What becomes of the blocks that lie in the target. Nobody knows whose they are, nor what the
    source holds when the move begins: so a person has to agree, also where all are equal now."""
    about, lacks = "", f"{planned.delete:,}"
    if not planned.exact:
        about, lacks = "about ", "and perhaps some"
    return Finding(
        severity="accept", code="A133", cls=route.cls, count=planned.change,
        text=f"{route.move.target} holds blocks already ({about}{planned.leave:,} equal, "
        f"{planned.change:,} that differ, {lacks} that {route.source_at} lacks): when "
        "the move begins it is made equal, whatever they hold then",
        keys=[sample.key for sample in planned.samples if sample.change == "change"],
    )  # fmt: skip


def _unheard(route: Route) -> Iterator[str]:
    for side in (route.source, route.target):
        if isinstance(side, Bracketed):
            yield (
                f"{side.at}: only what gateways write there is followed, and none follows a move "
                f"that {_regroups(route)}: such a move is carried out at rest"
            )


def _regroups(route: Route) -> str:
    return "puts blocks together" if route.gathers else "spreads a block over several"


def _keys_change(route: Route) -> str:
    noted = f"its keys change: a locator beside {route.move.target} notes which go together"
    if route.gathers:
        return (
            f"{noted}; each write to either side reads and writes all that lies in one block of "
            f"{route.move.target}, so blocks of many elements are mirrored slowly"
        )
    if route.spreads or route.translation.key_alone:
        return noted
    return (
        f"{noted}; they follow what aggregates hold, so a gateway answers calls by the keys of one "
        "side, and only while that is the primary"
    )


def _told(side: Collection, journal: Journal) -> list[tuple[str, str, str]]:
    """What a feed tells; of a target that is still to be made what the server alone says."""
    found = []
    try:
        for told in journal.findings():
            found.append(told)
    except (Refused, Terminal):
        if side.exists():
            raise
    return found


def _journal(side: Collection) -> Journal | None:
    return side.journal(_NAME) if isinstance(side, Followed) else None

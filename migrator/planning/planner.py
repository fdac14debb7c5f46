"""Location, capabilities and a survey become a plan."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec

from migrator.model.move import At, Tables
from migrator.model.plan import Archived, Finding, KindCount, MovePlan, Place, Plan, Side
from migrator.model.value import Kind
from migrator.planning.differences import Sink
from migrator.planning.file import sealed
from migrator.planning.inference import inferred
from migrator.planning.metering import tell_of_long
from migrator.planning.regrouped import regrouping_findings
from migrator.planning.survey import PAGE, Survey, Surveyor
from migrator.planning.tally import Issues
from migrator.ports import AsTarget, Collection, Crowded, How, Json, Limits, Stamped, Store
from migrator.retry import Retry
from migrator.route import Route, is_empty

RANGE_BLOCKS = 25_000
MOST_RANGES = 64
GATES = [
    "findings accepted",
    "verification clean",
    "quarantine empty, or its keys accepted by name",
]

Progress = Callable[[str, int, int], None]
Told: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True)
class Subject:
    """The revision that is planned, in the words of a plan."""

    revision: str
    message: str
    env: str
    declared: Json
    settings: Json


def make_plan(
    subject: Subject,
    routes: Sequence[Route],
    referred: dict[str, Collection],
    *,
    full: bool,
    workers: int,
    progress: Progress,
    sink: Sink,
) -> Plan:
    """Survey every move and write down what would happen; with ``full`` every difference of a
    block that is changed or deleted goes to ``sink``. Raises Terminal for a missing source."""
    moves: list[MovePlan] = []
    findings: list[Finding] = []
    retry = Retry()
    for bare in routes:
        tell = partial(progress, bare.cls)
        route = inferred(bare, retry, tell)
        survey = Surveyor(
            route, retry, full=full, referred=referred, progress=tell, sink=partial(sink, bare.cls)
        ).run()
        location_findings(route, survey, retry)
        regrouping_findings(route, routes, survey.issues, retry)
        made = _move_plan(route, survey, workers)
        tell_of_long(made.capacity, _places(route), survey.issues)
        if route is not bare:
            made = msgspec.structs.replace(made, tables=route.move.target.tables)
        moves.append(made)
        findings += survey.issues.findings(route.cls)
    return sealed(
        Plan(
            revision=subject.revision,
            message=subject.message,
            env=subject.env,
            made=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            declared=declaration(subject),
            fingerprint=fingerprint(subject, routes, [move.tables for move in moves], retry),
            targets=target_fingerprint(routes, retry),
            full=full,
            moves=moves,
            findings=sorted(findings, key=lambda f: (_ORDER[f.severity], f.code, f.cls, f.path)),
            gates=GATES,
        )
    )


_ORDER = {"error": 0, "accept": 1, "warning": 2, "note": 3}


def declaration(subject: Subject) -> str:
    """What a run may never do without: its script, and where its stores lie."""
    return _digest([subject.declared, subject.settings])


def fingerprint(
    subject: Subject, routes: Sequence[Route], tables: Sequence[Tables | None], retry: Retry
) -> str:
    """What a run stands and falls with, to its end: script, settings, the sources' schema, and
    the tables that a plan told from the data."""
    sources = [[str(r.source_at), retry(r.source.schema)] for r in routes]
    told = [msgspec.to_builtins(each) for each in tables if each is not None]
    return _digest([subject.declared, subject.settings, sources, *told])


def target_fingerprint(routes: Sequence[Route], retry: Retry) -> str:
    """The targets' schema; a plan is stale where it changed before the run began."""
    archives = [r.archive for r in routes if r.archive is not None]
    return _digest(
        [[str(r.move.target), retry(r.target.schema)] for r in routes]
        + [[str(each.at), retry(each.collection.schema)] for each in archives]
    )


def _digest(parts: Json) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def location_findings(route: Route, survey: Survey, retry: Retry) -> None:
    """Findings that come from where the move leads, not from single blocks."""
    issues = survey.issues
    told: list[Told] = []
    # Listed where they are asked for: a store may look at its server between one and the next.
    for collection in (route.source, route.target):
        told += retry(lambda at: list(at.findings()), collection)
    told += _written_to(route.target, survey.create + survey.change, survey.bytes, retry)
    told += _of_archive(route, survey, retry)
    told += _write_times(route)
    for severity, code, text in told:
        issues.add(severity, code, text)  # type: ignore[arg-type]
    at = route.move.target
    facts = route.target_store.capabilities.layouts[layout_of(route.target_store, at)]
    if not facts.effective:
        text = f"in {at} a block is not one unit of distribution and atomicity ({facts.unit})"
        issues.add("warning", "W110", text)
    laws = route.translation.laws()
    if laws.returns.broken:
        issues.add("warning", "W111", f"not everything comes back: {laws.returns.broken}")
    if laws.survives.broken:
        issues.add("warning", "W112", f"a rollback loses: {laws.survives.broken}")
    if laws.remark:
        issues.add("note", "N113", laws.remark)
    _mixed_kinds(survey, issues)
    if survey.kinds is not None and survey.kinds.overflow:
        issues.add("note", "N115", "there are too many different paths to count kinds for each")


def _written_to(target: Collection, blocks: int, size: int, retry: Retry) -> list[Told]:
    if not isinstance(target, AsTarget):
        return []
    return retry(lambda: list(target.target_findings(blocks, size)))


def _write_times(route: Route) -> list[Told]:
    """That the order of writes is lost, where both sides know one (C22)."""
    sides = (route.source, route.target)
    if not all(isinstance(side, Stamped) for side in sides):
        return []
    if all(isinstance(side, Stamped) and side.write_times is not None for side in sides):
        return []
    text = (
        "when single fields were written stays behind: they are stamped as they are copied; "
        "where that counts, name a field for it on both sides (write_times=)"
    )
    return [("note", "N123", text)]


def _of_archive(route: Route, survey: Survey, retry: Retry) -> list[Told]:
    """What the place of an archive tells; it must be empty, so that all in it is of one run."""
    archive, found = route.archive, survey.archiving
    if archive is None or found is None:
        return []
    told = retry(lambda at: list(at.findings()), archive.collection)
    told += _written_to(archive.collection, found.blocks + found.parts, found.bytes, retry)
    if not is_empty(archive.collection, retry):
        text = f"the archive {archive.at} holds blocks already: empty it, or name another place"
        told.append(("error", "E119", text))
    return told


_NUMBERS = {Kind.INT32, Kind.INT64}


def _mixed_kinds(survey: Survey, issues: Issues) -> None:
    """Paths whose values are of several kinds (C24): kept as they are, but worth knowing."""
    if survey.kinds is None:
        return
    for path, kinds in survey.kinds.by_path().items():
        real = {k: n for k, n in kinds.items() if k is not Kind.NULL}
        if len(real) > 1 and not real.keys() <= _NUMBERS:
            told = ", ".join(f"{k} in {n:,}" for k, n in sorted(real.items(), key=lambda x: -x[1]))
            issues.add("warning", "W114", f"{told}: each is kept as it is", path=path)


def layout_of(store: Store, at: At) -> str:
    """The name of the layout at a location."""
    return at.layout.name if at.layout is not None else store.capabilities.default_layout


def place(store: Store, at: At, cls: str) -> Place:
    """A location in the words of a plan."""
    rules = at.rules(cls)
    return Place(
        store=at.store, collection=at.collection, representation=rules.texts, name=rules.name,
        layout=layout_of(store, at),
    )  # fmt: skip


def _places(route: Route) -> dict[Side, str]:
    archive = "" if route.archive is None else str(route.archive.at)
    return {"source": str(route.source_at), "target": str(route.move.target), "archive": archive}


def _move_plan(route: Route, survey: Survey, workers: int) -> MovePlan:
    writes = survey.create + survey.change
    read = writes + survey.leave
    rate = survey.read / survey.seconds if survey.seconds else 0.0
    shuffled = isinstance(route.target, Crowded) and route.target.crowded(writes)
    blocks = PAGE if shuffled else RANGE_BLOCKS
    ranges = max(1, min(MOST_RANGES, -(-read // blocks)), min(workers, -(-read // PAGE)))
    target = route.move.target
    facts = route.target_store.capabilities.layouts[layout_of(route.target_store, target)]
    laws = route.translation.laws()
    capabilities = route.target_store.capabilities.at(target.layout)
    limits = capabilities.limits
    capacity = (
        [] if survey.metering is None else survey.metering.result(survey.bytes, fresh=survey.fresh)
    )
    return MovePlan(
        cls=route.cls,
        source=place(route.source_store, route.source_at, route.move.source_cls),
        target=place(route.target_store, target, route.cls),
        evolutions=[step.describe() for step in route.translation.chain],
        create=survey.create,
        change=survey.change,
        delete=survey.delete,
        leave=survey.leave,
        entries=survey.entries,
        bytes=survey.bytes,
        entries_added=survey.added,
        entries_changed=survey.changed,
        entries_removed=survey.removed,
        exact=survey.exact,
        bound=survey.bound,
        fresh=survey.fresh,
        read=survey.read,
        samples=survey.samples,
        kinds=_kind_counts(survey),
        sizes=survey.sizes(capabilities),
        ranges=ranges,
        page=PAGE,
        requests_read=-(-read // PAGE) if survey.fresh else 2 * -(-read // PAGE),
        requests_write=_requests(writes, survey.bytes * writes // max(1, read), limits)
        + _requests(survey.delete, 0, limits)
        + _archive_requests(route, survey),
        # A block is read, cut and written; the probe measured the first two at ``rate``.
        seconds=round(max([2 * read / rate if rate else 0.0, *(c.seconds for c in capacity)]), 1),
        rate=round(rate, 1),
        rollback=[text for text in (laws.returns.broken, laws.survives.broken) if text],
        effective=facts.effective,
        oversize=route.move.oversize,
        archive=_archived(route, survey),
        capacity=capacity,
        shuffled=shuffled,
    )


def _archived(route: Route, survey: Survey) -> Archived | None:
    archive, found = route.archive, survey.archiving
    if archive is None or found is None:
        return None
    return Archived(
        place=place(archive.store, archive.at, route.move.source_cls),
        blocks=found.blocks, parts=found.parts, bytes=found.bytes,
    )  # fmt: skip


def _archive_requests(route: Route, survey: Survey) -> int:
    archive, found = route.archive, survey.archiving
    if archive is None or found is None:
        return 0
    limits = archive.store.capabilities.at(archive.at.layout).limits
    return _requests(found.blocks + found.parts, found.bytes, limits)


def _requests(blocks: int, size: int, limits: Limits) -> int:
    """How many bulk requests so many blocks take, of so many bytes in all."""
    by_count = -(-blocks // min(PAGE, limits.batch_blocks or PAGE))
    return max(by_count, -(-size // limits.batch_bytes) if limits.batch_bytes else 0)


def _kind_counts(survey: Survey) -> list[KindCount]:
    if survey.kinds is None:
        return []
    order = {How.REFUSED: 0, How.TAGGED: 1, How.NATIVE: 2}
    return [
        KindCount(path=path, kind=kind.value, how=held.how.value, type=held.type, count=count)
        for path, kind, held, count in sorted(
            survey.kinds.counted(), key=lambda row: (order[row[2].how], row[0], row[1])
        )
    ]

"""Runs, as they read to people: status, verification, log, quarantine."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from migrator.model.phase import Phase
from migrator.render.feeds import feed_lines
from migrator.render.text import Line, Style, blocks, columns, duration, first_line, places, some

if TYPE_CHECKING:
    from migrator.commands import Applied, RunStatus
    from migrator.commands.followers import UnableHolder
    from migrator.commands.records import (
        GatewayAnswers,
        GatewayReads,
        LiveStatus,
        ShadowStatus,
    )
    from migrator.engine.shadow import Shadowed
    from migrator.engine.verify import Verification
    from migrator.state import Quarantined

_WORD = 13


def step(word: str, text: str, style: Style = "") -> Line:
    """One line of a run's course: ``verified      100,000 blocks equal ...``."""
    return Line(f"{word:<{_WORD}} {text}", style)


def verification_lines(found: Sequence[Verification], *, all_keys: bool) -> Iterator[Line]:
    """What a verification found; with ``all_keys`` every key that it names."""
    for each in found:
        yield step("verified" if each.clean else "mismatch", _verified(each), _style(each))
        told = each.told if all_keys else each.told[:5]
        for item in told:
            yield Line(f"  {item.key}  {item.what}", "red")
            for path in item.paths:
                yield Line(f"      {path}")
        differ = each.differ + each.missing + each.extra
        if differ > len(told):
            yield Line(f"  ... {differ - len(told):,} more", "dim")


def _style(found: Verification) -> Style:
    return "green" if found.clean else "red"


def _verified(found: Verification) -> str:
    text = f"{found.cls}  {blocks(found.equal)} equal on both sides, {found.differ:,} differ"
    for count, word in (
        (found.missing, f"missing in {found.target}"),
        (found.extra, f"extra in {found.target}"),
        (found.quarantined, "in quarantine"),
        (found.archived, "in the archive"),
        (found.parts, "with a part in the archive"),
        (found.rechecked, "rechecked"),
        (found.mended, "reconciled"),
    ):
        if count:
            text += f", {count:,} {word}"
    return text


def applied_lines(
    applied: Applied,
    primary: Sequence[str],
    complete: Callable[[str], str],
    stop: str = "",
    *,
    live: bool = False,
) -> Iterator[Line]:
    """How far an apply came, and what can be done from there; ``stop`` as in swapped_lines."""
    phase, revision = Phase(applied.phase), applied.revision
    if live and applied.swap is not None:
        yield from swapped_lines(applied, primary, complete, stop)
    elif phase is Phase.CUT_OVER:
        yield step("cut over", f"{places(primary, 'is', 'are')} the primary now", "bold")
        yield from after_cut_over(revision, complete, stop)
    else:
        yield step(phase.words, f"{places(primary, 'stays', 'stay')} the primary", "bold")
        if live:
            yield _goes_on(revision, complete)
        ready = live and phase is Phase.SHADOW_READ
        then = f"cutover {revision}{stop}" if ready else f"apply {revision}"
        yield Line(complete(f"go on with:  migrator {then}"))


def swapped_lines(
    applied: Applied, primary: Sequence[str], complete: Callable[[str], str], stop: str = ""
) -> Iterator[Line]:
    """A swap of the sides of a live move, or the rehearsal of one; ``stop`` is what the next one
    has to be given so that writes stop."""
    swap, revision = applied.swap, applied.revision
    pause = "" if swap is None else f"; writes were stopped for {swap.pause * 1000:,.0f} ms"
    if swap is not None and swap.rehearsed:
        text = f"{places(primary, 'stays', 'stay')} the primary{pause}"
        yield step("rehearsed", text, "bold")
        yield Line(complete(f"do it with:  migrator cutover {revision}{stop}"))
    elif applied.phase == Phase.CUT_OVER.value:
        yield step("cut over", f"{places(primary, 'is', 'are')} the primary now{pause}", "bold")
        yield _goes_on(revision, complete)
        yield from after_cut_over(revision, complete)
    else:
        text = f"{places(primary, 'is', 'are')} the primary again{pause}"
        yield step("rolled back", f"{text}; every write since the cut-over is kept", "bold")
        yield _goes_on(revision, complete)
        again = f"migrator cutover {revision}{stop}"
        ways = f"{again}    or leave the move:  migrator abort {revision}"
        yield Line(complete(f"cut over again:  {ways}"))


def _goes_on(revision: str, complete: Callable[[str], str]) -> Line:
    return Line(complete(f"the mirror has to go on:  migrator mirror {revision}"))


def after_cut_over(revision: str, complete: Callable[[str], str], stop: str = "") -> Iterator[Line]:
    """The two ways out of a move that is cut over; ``stop`` is what the way back has to be given
    so that writes stop."""
    ways = f"migrator finish {revision}    or take it back:  migrator rollback {revision}{stop}"
    yield Line(complete(f"end it with:  {ways}"))


def status_lines(found: Sequence[RunStatus], complete: Callable[[str], str]) -> Iterator[Line]:
    """Where every run stands; ``complete`` adds the call's options to a command."""
    if not found:
        yield Line(complete("no run, or only aborted ones; see what would be done:  migrator plan"))
    now = time.time()
    for run in found:
        yield from run_lines(run, now, complete)


def run_lines(run: RunStatus, now: float, complete: Callable[[str], str]) -> Iterator[Line]:
    """Where one run stands, and what comes next."""
    phase = Phase(run.phase)
    since = f"{phase.words} {duration(now - run.changed)} ago"
    sides = f"at {run.primary}" if phase.ended else f"primary {run.primary}   mirror {run.mirror}"
    style: Style = "dim" if phase.ended else "bold"
    yield Line(f"{run.revision}  {', '.join(run.classes)}   {since}   {sides}", style)
    if phase.rank < Phase.BACKFILLED.rank and run.planned:
        done = f"{run.read:,} of {blocks(run.planned)} copied"
        yield Line(f"      {done} ({min(run.read / run.planned, 1):.0%}){_pace(run)}")
        if run.paused:
            go_on = complete(f"migrator resume {run.revision}")
            yield Line(f"      the copy is paused; let it go on:  {go_on}", "yellow")
    if run.quarantined:
        yield Line(
            f"      {blocks(run.quarantined)} in quarantine:  "
            + complete(f"migrator quarantine list {run.revision}"),
            "yellow",
        )
    if run.live is not None:
        yield from _mirror(run, run.live, complete)
    if run.stopped:
        yield from _stopped(run, complete)
    if run.ending:
        yield Line("      a finish has begun to drop the source: there is no way back", "red")
    if run.next:
        yield Line(f"      next:  {complete(run.next)}")


def _stopped(run: RunStatus, complete: Callable[[str], str]) -> Iterator[Line]:
    """That gateways write nothing, and until when."""
    if run.phase == Phase.CUT_OVER.value:
        yield Line("      gateways write nothing: a rollback has not come to its end", "yellow")
        stay = complete(f"migrator apply {run.revision}")
        yield Line(f"        begin it again, or let them go on where they were:  {stay}", "yellow")
    else:
        yield Line("      gateways write nothing until it is cut over, or aborted")


def _pace(run: RunStatus) -> str:
    return "" if run.throttle is None else f", at most {run.throttle:,g} blocks/s"


def _mirror(run: RunStatus, live: LiveStatus, complete: Callable[[str], str]) -> Iterator[Line]:
    """Whether the mirror of a live run works, how far behind it is, and what a rollback loses."""
    start = complete(f"migrator mirror {run.revision}")
    if live.silent is None:
        yield Line(f"      no mirror has run yet; start it:  {start}", "yellow")
    elif not live.running:
        since = f"for {duration(live.silent)}"
        yield Line(f"      no mirror is running {since}; start it:  {start}", "yellow")
    else:
        scanning = ", compares both sides' keys anew" if live.scanning else ""
        if live.scanning:
            scanning += " (paused)" if run.paused else _pace(run)
        yield Line(f"      mirror running, lag {live.lag:.1f} s{scanning}")
        if live.mending:
            yield Line(f"      it has {live.mending} to reconcile, which differed")
        if live.waits:
            yield Line(f"      it waits for {live.waits}", "yellow")
        if live.holders:
            yield Line(f"      what was asked for waits for {live.holders}", "yellow")
        if live.brackets:
            begun = f"{live.brackets:,} writes of gateways have begun and not ended"
            yield Line(f"      {begun}; a swap waits for them")
    yield from feed_lines(live.feeds, running=live.running)
    for holder in live.unable:
        yield from _unable(holder)
    if (reads := live.shadow) is not None:
        when = f"{duration(time.time() - reads.at)} ago"
        bad: Style = "red" if reads.mismatch or reads.errors else ""
        text = f"{some(reads.keys, 'key')}, {_shadowed(reads)}"
        yield Line(f"      shadow reads {when}: {text}", bad)
    if (served := live.gateways) is not None:
        yield from _gateways(served)
    if (answered := live.reads) is not None:
        yield from (Line(f"      {text}") for text in answer_lines(answered))
    if live.differed:
        named = ", ".join(live.differed[:5]) + (" ..." if len(live.differed) > 5 else "")
        yield Line(f"      both sides differed at {named}; no swap until all is equal:", "red")
        yield Line("        " + complete(f"migrator verify {run.revision} --mend"), "red")
    if live.fence:
        yield Line(f"      a swap of the sides is not done ({live.fence})", "yellow")
    if live.ledger:
        yield Line(f"      a rollback would lose {blocks(live.ledger)}, not written back", "red")
    elif run.phase == Phase.CUT_OVER.value and not run.ending:
        but = "the lag" if live.running else "what a mirror has yet to carry over"
        yield Line(f"      rollback is safe: every write is on both sides, but for {but}")


def _unable(holder: UnableHolder) -> Iterator[Line]:
    """Who holds a lease and can't follow, why, and what to do."""
    pid = f", process {holder.pid}" if holder.pid else ""
    version = f", Migrator {holder.version}" if holder.version else ""
    who = f"{holder.cls} on {holder.host or 'an unknown host'}{pid}{version}"
    phase = Phase(holder.phase).words
    yield Line(f"      a gateway of {who} can't follow into {phase}: {holder.lacks}", "yellow")
    yield Line(f"        {holder.hint}", "yellow")


def answer_lines(found: GatewayAnswers) -> Iterator[str]:
    """What came of the reads that the mirror may answer, why the primary did, and how long both
    took."""
    text = f"the mirror may answer {found.share:.2%} of gateways' reads"
    if not found.reads:
        yield text
        return
    why = ", ".join(
        f"{count:,} {word}"
        for count, word in (
            (found.written, "written or given newer just before"),
            (found.behind, "not known to be held in time"),
            (found.lagging, "lagging"),
            (found.absent, "absent"),
            (found.aside, "in quarantine"),
            (found.failed, "failed"),
            (found.slow, "too slow"),
            (found.resting, "resting after that"),
            (found.shape, "in another shape"),
        )
        if count
    )
    yield f"{text}: {found.served:,} of {some(found.reads, 'read')} answered" + (
        f"; by the primary {why}" if why else ""
    )
    if sides := _both(found):
        yield f"  {sides}"


def _both(found: GatewayReads | GatewayAnswers) -> str:
    """How long each side took, where it did anything."""
    return ",  ".join(
        f"{side} {median * 1000:,.1f} ms (p99 {last * 1000:,.1f} ms)"
        for side, median, last in (
            ("primary", found.primary_median, found.primary_p99),
            ("mirror", found.mirror_median, found.mirror_p99),
        )
        if median is not None and last is not None
    )


def _gateways(served: GatewayReads) -> Iterator[Line]:
    """What gateways found by reading both sides, and how long both took."""
    share = "" if served.share is None else f" ({served.share:.2%} of reads)"
    text = f"{some(served.reads, 'read')} of {some(served.agreed, 'key')}"
    counts = _shadowed(served) + (f", {served.dropped:,} dropped" if served.dropped else "")
    bad: Style = "red" if served.mismatch or served.errors else ""
    yield Line(f"      gateways{share}: {text}: {counts}", bad)
    if sides := _both(served):
        yield Line(f"        {sides}")


def _shadowed(found: ShadowStatus | GatewayReads) -> str:
    """What became of shadow reads: all of them, so that the counts are their number."""
    counts = f"{found.equal:,} equal, {found.lagging:,} lagging, {found.mismatch:,} differ"
    return counts + undecided(found)


def undecided(found: ShadowStatus | GatewayReads | Shadowed) -> str:
    """The rest of the counts of shadow reads, as far as there are any: neither equal nor not."""
    counts = (
        (found.explained, "explained"),
        (found.moving, "written all the while"),
        (found.quarantined, "in quarantine"),
        (found.errors, "could not be read"),
    )
    return "".join(f", {count:,} {word}" for count, word in counts if count)


def event_lines(events: Sequence[Mapping[str, object]]) -> Iterator[Line]:
    """The log of a run: when, who, where, what."""
    rows = []
    for event in events:
        at = dt.datetime.fromtimestamp(_number(event["at"]), dt.UTC)
        job = f" ({event['job']})" if event["job"] else ""
        who = f"{event['who']}@{event['host']}{job}"
        when = at.isoformat(" ", "seconds").removesuffix("+00:00") + "Z"
        rows.append((when, who, str(event["event"]).replace("_", " "), _detail(event["detail"])))
    for text in columns(rows):
        yield Line(text)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _detail(detail: object) -> str:
    if not isinstance(detail, Mapping):
        return str(detail)
    return "  ".join(f"{key}={_value(item)}" for key, item in detail.items())


def _value(item: object) -> str:
    if isinstance(item, list | tuple):
        return ",".join(map(str, item))
    return f"{item:,}" if isinstance(item, int) and not isinstance(item, bool) else str(item)


def quarantine_lines(
    found: Sequence[Quarantined], revision: str, complete: Callable[[str], str]
) -> Iterator[Line]:
    """The blocks in quarantine, and what to do with them."""
    if not found:
        yield Line("nothing is in quarantine", "green")
        return
    for item in found:
        path = f"  path {item.path}" if item.path else ""
        yield Line(f"{item.shown}{path}  {first_line(item.reason)}", "yellow")
    yield Line(
        complete(f"mend them and run:  migrator quarantine retry {revision}    ")
        + complete(f"or accept each by name:  migrator apply {revision} --accept-key KEY")
    )

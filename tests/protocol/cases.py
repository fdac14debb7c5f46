"""The bounded worlds that are explored, and in which of them each rule is missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.protocol import cutover, mirror, writing
from tests.protocol.checker import Found, Machine, explore
from tests.protocol.cutover import Cutover
from tests.protocol.mirror import Mirror
from tests.protocol.writing import Brackets, Stamps

_MOVES = mirror.Bounds(start=(0, 1), homes=((0, 1, -1), (0, 1, -1)), equal=True)
_ONE_KEY = mirror.Bounds(start=(0,), homes=((0, -1),))
_FLIPS = cutover.Bounds(writes=1, flips=2)
_NOTING = writing.NotingBounds

Bounds = mirror.Bounds | cutover.Bounds | writing.NotingBounds | writing.StampBounds

WORLDS: Mapping[str, Bounds] = {
    # One key while it is copied: updates, deletes and re-inserts, a crash, a lost answer.
    "page": _ONE_KEY._replace(pages=(1,), crashes=1, unknowns=1),
    # Two rows that move between two mirror keys; the feed carries old values, or it does not.
    "moves": _MOVES._replace(crashes=1, unknowns=1),
    "looked up": _MOVES._replace(crashes=1, unknowns=1, images=False),
    # A row that moves while both keys are copied, into blocks that hold copies of their rows.
    "copies": mirror.Bounds((0, 1), ((0, 1, -1), ()), (3,), images=False, tables=False),
    # A feed that loses its place, and events without keys.
    "lost feed": mirror.Bounds(
        (0, 1), ((0, -1), (1, -1)), (3,), crashes=1, losses=1, equal=True, truncates=True
    ),
    # A feed that shows commits before they can be read.
    "early feed": _ONE_KEY._replace(late=True, equal=True),
    # Touches that are brackets: a gateway dies, sleeps, or has no answer; and a copy begins.
    "brackets": _NOTING(),
    "brackets, crash": _NOTING(faults=("gateway.crash",)),
    "brackets, no answer": _NOTING(faults=("gateway.unknown", "call.partly")),
    "brackets, sleep": _NOTING(faults=("gateway.sleeps",)),
    "brackets, copied": _NOTING(faults=("gateway.crash",), copies=True),
    # A store where the later stamp wins, and appends.
    "owner's clock ahead": writing.StampBounds(clocks=(3, 0)),
    "gateway's clock ahead": writing.StampBounds(clocks=(0, 3)),
    "appends": writing.StampBounds(writes=1, appends=True, faults=("append.unknown",)),
    # Cut-over and rollback; then with one thing that goes wrong, or two.
    "there and back": cutover.Bounds(flips=2),
    "two gateways": cutover.Bounds(gateways=2),
    "no answer": _FLIPS._replace(faults=("gateway.unknown",)),
    "lapse": _FLIPS._replace(faults=("gateway.lapse",)),
    "fork": cutover.Bounds(gateways=2, writes=1, faults=("gateway.fork",)),
    "foreign": cutover.Bounds(faults=("foreign.write",)),
    "owner dies": cutover.Bounds(faults=("mirror.crash",)),
    "two coordinators": _FLIPS._replace(faults=("cutover.replaced",)),
    "control lost": cutover.Bounds(writes=1, faults=("control.lost",)),
    "control old": cutover.Bounds(faults=("control.restored",)),
    # Those above have both orders of start and stamps; with more faults they are many states.
    "control lost, lapse": cutover.Bounds(
        writes=1, faults=("gateway.lapse", "control.lost"), beside=False
    ),
    "control lost, old": cutover.Bounds(
        writes=1, faults=("control.restored", "control.lost"), beside=False
    ),
}

MISSED_IN: Mapping[str, str] = {
    "R1": "moves",
    "R2.gateway": "moves",
    "R2.lease": "moves",
    "R3.lock": "moves",
    "R3.closed": "looked up",
    "R3.keys": "moves",
    "R3.rows": "copies",
    "R3.refuses": "copies",
    "R3.queued": "page",
    "R4.let_go": "page",
    "R4.rows": "copies",
    "R4.bound": "copies",
    "R4.durable": "page",
    "R5.lowest": "moves",
    "R5.durable": "moves",
    "R5.identity": "lost feed",
    "R5.union": "lost feed",
    "R5.keyless": "lost feed",
    "R6.let_go": "page",
    "R6.retry": "page",
    "R7": "early feed",
    "R2.former": "owner dies",
    "R11": "foreign",
    "R11.kept": "foreign",
    "R11.drained": "foreign",
    "R13.attempt": "two coordinators",
    "R13.acknowledged": "there and back",
    "R13.grant": "there and back",
    "R13.marker": "there and back",
    "R14.fork": "fork",
    "R15.order": "control lost",
    "R15.refuse": "control old",
    "R15.attempt": "control lost, lapse",
    "R15.raise": "control lost, old",
    "R16.held": "there and back",
    "R16.flight": "there and back",
    "R16.end": "lapse",
    "cutover.marker": "there and back",
    "cutover.idle": "foreign",
    "cutover.start": "there and back",
    "R8.age": "brackets, crash",
    "R8.closing": "brackets, sleep",
    "R8.life": "brackets, crash",
    "R8.settle": "brackets, no answer",
    "R8.window": "brackets",
    "R9.knows": "brackets, copied",
    "R9.life": "brackets, copied",
    "R10.stamp": "owner's clock ahead",
    "R10.tombstone": "owner's clock ahead",
    "R12": "appends",
}


def machine(world: str, without: Iterable[str] = ()) -> Machine[Any]:
    """The machine of a world, without some of its rules."""
    bounds = WORLDS[world]
    if isinstance(bounds, mirror.Bounds):
        return Mirror(bounds, without)
    if isinstance(bounds, writing.NotingBounds):
        return Brackets(bounds, without)
    if isinstance(bounds, writing.StampBounds):
        return Stamps(bounds, without)
    return Cutover(bounds, without)


def without(rule: str) -> Found:
    """What is found where a rule is taken away."""
    return explore(machine(MISSED_IN[rule], [rule]))


def told(trace: Iterable[str]) -> str:
    """A trace as docs/protocol.md tells it: steps behind one another, in lines."""
    lines = [""]
    for step in trace:
        if lines[-1] and len(lines[-1]) + len(step) > 96:
            lines.append("")
        lines[-1] += f"{step}; "
    return "\n".join(line.strip() for line in lines).rstrip(";")

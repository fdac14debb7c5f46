"""Cut-over and rollback: leases, fence, marker, flip, epoch, release (R11 to R16).

One value stands for all data: the number of the write it came from. The owner is one step of
reading and one of writing, because what lies between is the mirror's model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

from tests.protocol.checker import Action, Machine

NONE = -1
QUIET, FENCED, FLIPPED, ABSENT = range(4)  # the control row
IDLE, BEGUN, HELD, MARKED, DRAINED, TURNED, STAMPED, STARTED = range(8)  # a coordinator
OPEN, LANDED, ASTRAY = range(3)  # a call: under way, carried out, carried out beside the primary
FOREIGN = 99  # the value of somebody who takes no part
WRITE = 0  # in a feed; a marker is the number of its attempt, negative for the reverse journal

Stamp = tuple[int, int]


class Control(NamedTuple):
    state: int = QUIET
    primary: int = 0
    epoch: int = 1
    attempt: int = 0


class Gateway(NamedTuple):
    lease: int = 0  # the primary it may write, or NONE
    epoch: int = 1
    known: bool = True  # the control row holds a lease of it
    call: tuple[int, ...] = ()  # phase, store, value
    sent: int = 0  # the attempt of an acknowledgement under way
    asked: tuple[int, ...] = ()  # without R13.grant: the row it read


class Coordinator(NamedTuple):
    at: int = IDLE
    attempt: int = 0
    stamp: Stamp = (1, 0)  # epoch and primary, as of its flip
    read: tuple[Stamp, Stamp] = ((1, 0), (1, 0))  # what the stores held then


class State(NamedTuple):
    gateways: tuple[Gateway, ...]
    writes: int
    flips: int
    faults: tuple[str, ...]  # what may yet happen, each once
    control: Control = Control()
    values: tuple[int, int] = (0, 0)
    feeds: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    stamps: tuple[Stamp, Stamp] = ((1, 0), (1, 0))
    coordinator: Coordinator = Coordinator()
    stale: Coordinator = Coordinator()  # one that was replaced and does not know
    owner: tuple[int, ...] = ()  # value read, store to write
    former: tuple[int, ...] = ()  # the same, of an owner that is no more
    alive: bool = True  # the owner
    late: tuple[tuple[int, int], ...] = ()  # store, value: calls that nobody had an answer to
    seen: tuple[int, int] = (0, 0)  # the newest marker the owner has seen in each feed
    last: int = 0  # the value that the primary took last
    attempts: int = 0
    lost: int = 0  # an acknowledged write that landed beside the primary
    foreign: int = 0  # one landed during a fence (1), was reported (2), or both
    repaired: bool = True
    truth: int = 0  # whose writes count: no part of the protocol, but of its judgement


class Bounds(NamedTuple):
    gateways: int = 1
    writes: int = 2
    flips: int = 1
    faults: tuple[str, ...] = ()
    beside: bool = True  # the start goes beside the stamps, and does not wait for them


class Cutover(Machine[State]):
    """The control row and those who act on it."""

    WORDS: ClassVar[dict[str, str]] = {
        "gateway.lease": "a gateway takes a lease with the primary's name, unless a fence is up",
        "gateway.asks": "a gateway reads the row, and is granted a lease later",
        "gateway.granted": "a lease is granted by what was read before",
        "gateway.begin": "a gateway with a lease sends a write to its primary",
        "gateway.lands": "the write is carried out, with its touch",
        "gateway.answer": "the write is acknowledged to the application",
        "gateway.unknown": "the write has no answer in time; it may still be carried out",
        "gateway.hold": "a gateway sees the fence, gives up its lease, sends its acknowledgement",
        "gateway.acknowledge": "the acknowledgement arrives at the control row",
        "gateway.lapse": "a lease runs out; what was sent under it may still be carried out",
        "gateway.expire": "a lease that no control row renews runs out",
        "gateway.end": "the sessions of a lapsed holder are ended and seen gone",
        "gateway.fork": "a child process goes on with its parent's lease",
        "call.lands": "a call without an answer is carried out",
        "call.dies": "a call without an answer can no longer be carried out",
        "foreign.write": "somebody who takes no part writes to a store",
        "mirror.read": "the owner reads the primary for a touch, or for a foreign write",
        "mirror.write": "the owner writes the mirror",
        "mirror.mark": "the owner sees a marker",
        "mirror.crash": "the owner dies; its write may still be carried out",
        "mirror.lands": "the former owner's write is carried out",
        "mirror.dies": "the former owner's write can no longer be carried out",
        "mirror.start": "a successor owns the mirror",
        "cutover.fence": "an attempt begins: its number and the fence are in the control row",
        "cutover.held": "every holder has acknowledged this attempt, or its sessions are ended",
        "cutover.mark": "a marker of this attempt is committed on the primary",
        "cutover.drained": "the marker was seen in the feed, and the owner is idle",
        "cutover.flip": "the primary is the other side, and the epoch the next",
        "cutover.stamp": "epoch and primary are durable in both stores",
        "cutover.start": "the reverse journal starts here",
        "cutover.release": "gateways may take leases again",
        "cutover.undo": "the attempt is given up before its flip",
        "cutover.replaced": "another coordinator takes the run over; the first does not know",
        "control.lost": "the control database is gone",
        "control.restored": "an old copy takes the place of the control database",
        "control.repair": "the control row is rebuilt from what both stores hold",
    }
    WORLD = frozenset(
        (
            "gateway.begin",
            "gateway.unknown",
            "gateway.lapse",
            "gateway.fork",
            "gateway.asks",
            "foreign.write",
            "mirror.crash",
            "cutover.fence",
            "cutover.replaced",
            "control.lost",
            "control.restored",
        )
    )
    RULES: ClassVar[dict[str, str]] = {
        "R2.former": "the owner counts as idle while a former owner's write may be carried out",
        "R11": "the mirror's feed is not read",
        "R11.kept": "what the mirror's feed showed before the reverse journal is thrown away",
        "R11.drained": "drained looks at the primary's feed alone, not at the mirror's",
        "R13.attempt": "a coordinator's steps do not carry the attempt's number",
        "R13.acknowledged": "an acknowledgement does not carry the attempt's number",
        "R13.grant": "granting a lease does not lock the row that the fence writes",
        "R13.marker": "any marker in the feed counts as this attempt's",
        "R14.fork": "a forked child goes on with its parent's lease",
        "R15.order": "the epoch is written to the stores after the release",
        "R15.refuse": "gateways and owners follow a control row older than the stores' epoch",
        "R15.attempt": "repair uses an attempt's number again",
        "R15.raise": "repair keeps the epoch it found, and stamps are written unconditionally",
        "R16.held": "the flip does not wait for the holders",
        "R16.flight": "a gateway acknowledges with a call in flight or of unknown outcome",
        "R16.end": "a lease that ran out counts as acknowledged, its sessions live on",
        "cutover.marker": "drained is what the owner has seen, without a marker",
        "cutover.idle": "the flip does not wait for the owner's write",
        "cutover.start": "the reverse journal starts after the release",
    }

    def __init__(self, bounds: Bounds, without: Iterable[str] = ()) -> None:
        super().__init__(without)
        self.bounds = bounds

    def initial(self) -> State:
        b = self.bounds
        return State((Gateway(),) * b.gateways, b.writes, b.flips, b.faults)

    # ------------------------------------------------------------------------------- gateways

    def gateway_lease(self, s: State, g: int) -> State | None:
        who = s.gateways[g]
        if s.control.state != QUIET or who.lease != NONE or not self.holds("R13.grant"):
            return None
        return self._granted(s, g, s.control.primary, s.control.epoch)

    def gateway_asks(self, s: State, g: int) -> State | None:
        who = s.gateways[g]
        if s.control.state != QUIET or who.lease != NONE or who.asked or self.holds("R13.grant"):
            return None
        return _gateway(s, g, asked=(s.control.primary, s.control.epoch))

    def gateway_granted(self, s: State, g: int) -> State | None:
        asked = s.gateways[g].asked
        return self._granted(s, g, *asked) if asked else None

    def _granted(self, s: State, g: int, primary: int, epoch: int) -> State | None:
        if self._overtaken(s, epoch):
            return None
        return _gateway(s, g, lease=primary, epoch=epoch, known=True, asked=())

    def gateway_begin(self, s: State, g: int) -> State | None:
        who = s.gateways[g]
        if not s.writes or who.lease == NONE or who.call:
            return None
        call = (OPEN, who.lease, self.bounds.writes - s.writes + 1)
        return _gateway(s._replace(writes=s.writes - 1), g, call=call)

    def gateway_lands(self, s: State, g: int) -> State | None:
        call = s.gateways[g].call
        if not call or call[0] != OPEN:
            return None
        right = call[1] == s.truth
        s = self._put(s, call[1], call[2])
        return _gateway(s, g, call=(LANDED if right else ASTRAY, *call[1:]))

    def gateway_answer(self, s: State, g: int) -> State | None:
        call = s.gateways[g].call
        if not call or call[0] == OPEN:
            return None
        lost = call[2] if call[0] == ASTRAY else s.lost
        return _gateway(s._replace(lost=lost), g, call=())

    def gateway_unknown(self, s: State, g: int) -> State | None:
        call = s.gateways[g].call
        if not call or call[0] != OPEN or "gateway.unknown" not in s.faults:
            return None
        late = (*s.late, (call[1], call[2]))
        return _gateway(_spent(s, "gateway.unknown")._replace(late=late), g, call=())

    def gateway_hold(self, s: State, g: int) -> State | None:
        who = s.gateways[g]
        open_call = who.call or s.late
        if s.control.state != FENCED or who.lease == NONE:
            return None
        if open_call and self.holds("R16.flight"):
            return None
        return _gateway(s, g, lease=NONE, sent=s.control.attempt)

    def gateway_acknowledge(self, s: State, g: int) -> State | None:
        who = s.gateways[g]
        if not who.sent:
            return None
        expected = (s.control.state, s.control.attempt) == (FENCED, who.sent)
        if not expected and self.holds("R13.acknowledged"):
            return _gateway(s, g, sent=0)
        return _gateway(s, g, sent=0, known=False)

    def gateway_lapse(self, s: State, g: int) -> State | None:
        if s.gateways[g].lease == NONE or "gateway.lapse" not in s.faults:
            return None
        return _gateway(_spent(s, "gateway.lapse"), g, lease=NONE)

    def gateway_expire(self, s: State, g: int) -> State | None:
        if s.gateways[g].lease == NONE or s.repaired:
            return None
        return _gateway(s, g, lease=NONE)

    def gateway_end(self, s: State, g: int) -> State | None:
        who = s.gateways[g]
        if who.lease != NONE or not who.known or s.control.state != FENCED:
            return None
        if not self.holds("R16.end"):
            return _gateway(s, g, known=False)
        return _gateway(s._replace(late=()), g, known=False, call=())

    def gateway_fork(self, s: State, g: int) -> State | None:
        child = 1 - g
        if self.holds("R14.fork") or s.gateways[g].lease == NONE or len(s.gateways) < 2:
            return None
        if s.gateways[child].lease != NONE or "gateway.fork" not in s.faults:
            return None
        lease, epoch = s.gateways[g].lease, s.gateways[g].epoch
        return _gateway(_spent(s, "gateway.fork"), child, lease=lease, epoch=epoch)

    def call_lands(self, s: State, n: int) -> State | None:
        after = self.call_dies(s, n)
        return after and self._put(after, *s.late[n])

    def call_dies(self, s: State, n: int) -> State | None:
        return s._replace(late=s.late[:n] + s.late[n + 1 :]) if n < len(s.late) else None

    def _put(self, s: State, store: int, value: int) -> State:
        """Somebody's write, with its touch; not the owner's, whose writes are marked."""
        feed = s.feeds[store]
        if feed[-1:] != (WRITE,):
            feed = (*feed, WRITE)
        counts = store == s.truth and value != FOREIGN
        return s._replace(
            values=_put(s.values, store, value),
            feeds=_put(s.feeds, store, feed),
            last=value if counts else s.last,
        )

    def foreign_write(self, s: State, store: int) -> State | None:
        if store == s.control.primary or "foreign.write" not in s.faults:
            return None
        s = self._put(_spent(s, "foreign.write"), store, FOREIGN)
        return s._replace(foreign=int(s.control.state != QUIET))

    # ---------------------------------------------------------------------------------- owner

    def _overtaken(self, s: State, epoch: int) -> bool:
        """Whether the stores tell that an epoch is over."""
        return self.holds("R15.refuse") and epoch < max(s.stamps)[0]

    def mirror_read(self, s: State, store: int) -> State | None:
        if s.owner or not s.alive or s.feeds[store][:1] != (WRITE,):
            return None
        if s.control.state == ABSENT or self._overtaken(s, s.control.epoch):
            return None
        primary, rest = s.control.primary, s.feeds[store][1:]
        foreign = store != primary or s.control.state == FLIPPED or any(n < 0 for n in rest)
        s = s._replace(feeds=_put(s.feeds, store, rest))
        if foreign and not self.holds("R11"):
            return s
        return s._replace(owner=(s.values[primary], 1 - primary), foreign=s.foreign | 2 * foreign)

    def mirror_write(self, s: State, _: object) -> State | None:
        if not s.owner:
            return None
        value, store = s.owner
        return s._replace(values=_put(s.values, store, value), owner=())

    def mirror_mark(self, s: State, store: int) -> State | None:
        if not s.feeds[store] or s.feeds[store][0] == WRITE or s.owner or not s.alive:
            return None
        n, *rest = s.feeds[store]
        seen = _put(s.seen, store, n) if n > 0 else s.seen
        return s._replace(seen=seen, feeds=_put(s.feeds, store, tuple(rest)))

    def mirror_crash(self, s: State, _: object) -> State | None:
        """The touch is in the feed again: its position was not acknowledged."""
        if not s.owner or "mirror.crash" not in s.faults:
            return None
        source = 1 - s.owner[1]
        feeds = _put(s.feeds, source, (WRITE, *s.feeds[source]))
        return _spent(s, "mirror.crash")._replace(
            owner=(), former=s.owner, alive=False, feeds=feeds
        )

    def mirror_lands(self, s: State, _: object) -> State | None:
        if not s.former:
            return None
        value, store = s.former
        return s._replace(values=_put(s.values, store, value), former=())

    def mirror_dies(self, s: State, _: object) -> State | None:
        return s._replace(former=()) if s.former else None

    def mirror_start(self, s: State, _: object) -> State | None:
        if s.alive or (s.former and self.holds("R2.former")):
            return None
        return s._replace(alive=True)

    # ----------------------------------------------------------------------------- coordinators

    def _who(self, s: State, who: str, at: int, control: int | None) -> Coordinator | None:
        """The coordinator, where it stands at a step and its compare-and-set would hold."""
        c: Coordinator = getattr(s, who)
        if c.at != at:
            return None
        if control is not None:
            if s.control.state != control:
                return None
            if s.control.attempt != c.attempt and self.holds("R13.attempt"):
                return None
        return c

    def cutover_fence(self, s: State, _: object) -> State | None:
        if s.control.state != QUIET or s.coordinator.at != IDLE or not s.flips or not s.repaired:
            return None
        n = s.attempts + 1
        control = s.control._replace(state=FENCED, attempt=n)
        return s._replace(
            control=control, attempts=n, flips=s.flips - 1, coordinator=Coordinator(BEGUN, n)
        )

    def cutover_held(self, s: State, who: str) -> State | None:
        if self._who(s, who, BEGUN, FENCED) is None:
            return None
        if self.holds("R16.held") and any(g.known for g in s.gateways):
            return None
        return _at(s, who, HELD)

    def cutover_mark(self, s: State, who: str) -> State | None:
        c = self._who(s, who, HELD, None)
        if c is None:
            return None
        if not self.holds("cutover.marker"):
            return _at(s, who, MARKED)
        feeds = (*s.feeds[0], c.attempt), (*s.feeds[1], c.attempt)
        return _at(s._replace(feeds=feeds), who, MARKED)

    def _busy(self, s: State) -> bool:
        """Whether the owner, or one before it, may still write the mirror."""
        return not s.alive or (bool(s.owner) and self.holds("cutover.idle"))

    def cutover_drained(self, s: State, who: str) -> State | None:
        c = self._who(s, who, MARKED, None)
        if c is None or self._busy(s):
            return None
        both = (0, 1) if self.holds("R11.drained") else (s.control.primary,)
        seen = [s.seen[store] for store in both]
        good = all(seen) and (set(seen) == {c.attempt} or not self.holds("R13.marker"))
        if self.holds("cutover.marker") and not good:
            return None
        return _at(s, who, DRAINED)

    def cutover_flip(self, s: State, who: str) -> State | None:
        c = self._who(s, who, DRAINED, FENCED)
        if c is None or self._busy(s):
            return None
        stamp = (s.control.epoch + 1, 1 - s.control.primary)
        control = Control(FLIPPED, stamp[1], stamp[0], s.control.attempt)
        s = s._replace(control=control, truth=stamp[1])
        turned = c._replace(at=TURNED, stamp=stamp, read=s.stamps)
        return _acting(s, who, turned)

    def cutover_stamp(self, s: State, who: str, store: int) -> State | None:
        c = self._who(s, who, STARTED, None)
        if c is None and self.holds("R15.order"):
            c = self._who(s, who, TURNED, None)
        if c is None or s.stamps[store] == c.stamp:
            return None
        if s.stamps[store] != c.read[store] and self.holds("R15.raise"):
            return None
        s = s._replace(stamps=_put(s.stamps, store, c.stamp))
        late = not self.holds("R15.order") and set(s.stamps) == {c.stamp}
        return _at(s, who, IDLE) if late else s

    def cutover_start(self, s: State, who: str) -> State | None:
        """What the new primary's feed shows before this is foreign; the owner's own is dropped."""
        late = not self.holds("cutover.start")
        c = self._who(s, who, STAMPED if late else TURNED, None)
        if c is None or (not self.bounds.beside and set(s.stamps) != {c.stamp}):
            return None
        feed = s.feeds[c.stamp[1]] if not late and self.holds("R11.kept") else ()
        s = s._replace(feeds=_put(s.feeds, c.stamp[1], (*feed, -c.attempt)))
        return _at(s, who, IDLE if late else STARTED)

    def cutover_release(self, s: State, who: str) -> State | None:
        late = not self.holds("cutover.start")
        c = self._who(s, who, TURNED if late else STARTED, FLIPPED)
        if c is None or (self.holds("R15.order") and set(s.stamps) != {c.stamp}):
            return None
        s = s._replace(control=s.control._replace(state=QUIET))
        if late or not self.holds("R15.order"):
            return _at(s, who, STAMPED if late else STARTED)
        return _at(s, who, IDLE)

    def cutover_undo(self, s: State, who: str) -> State | None:
        c: Coordinator = getattr(s, who)
        if not BEGUN <= c.at <= DRAINED or self._who(s, who, c.at, FENCED) is None:
            return None
        return _at(s._replace(control=s.control._replace(state=QUIET)), who, IDLE)

    def cutover_replaced(self, s: State, _: object) -> State | None:
        c = s.coordinator
        if c.at == IDLE or s.control.state == QUIET or "cutover.replaced" not in s.faults:
            return None
        n = s.attempts + 1
        at = TURNED if s.control.state == FLIPPED else BEGUN
        stamp = (s.control.epoch, s.control.primary)
        s = _spent(s, "cutover.replaced")._replace(
            coordinator=Coordinator(at, n, stamp, s.stamps), stale=c, attempts=n
        )
        return s._replace(control=s.control._replace(attempt=n))

    # --------------------------------------------------------------------------- control database

    def control_lost(self, s: State, _: object) -> State | None:
        if "control.lost" not in s.faults:
            return None
        return _spent(s, "control.lost")._replace(control=Control(ABSENT), repaired=False)

    def control_restored(self, s: State, _: object) -> State | None:
        """Between flip and stamps nobody could tell; see the limits in docs/protocol.md."""
        if "control.restored" not in s.faults or min(s.stamps)[0] == 1:
            return None
        return _spent(s, "control.restored")._replace(control=Control(), repaired=False)

    def control_repair(self, s: State, _: object) -> State | None:
        """After every lease has run out: the highest epoch decides, and all goes forward."""
        c = s.coordinator
        met = any(n not in (r, c.stamp) for n, r in zip(s.stamps, c.read, strict=True))
        overtaken = c.at in (TURNED, STARTED) and met and s.control.attempt == c.attempt
        if s.late or any(g.lease != NONE or g.call for g in s.gateways):
            return None
        if s.repaired and not (overtaken and self.holds("R15.raise")):
            return None
        n = (s.attempts if self.holds("R15.attempt") else s.control.attempt) + 1
        epoch, primary = max(s.stamps)
        stamp = (epoch + self.holds("R15.raise"), primary)
        return s._replace(
            control=Control(FLIPPED, primary, stamp[0], n),
            coordinator=Coordinator(TURNED, n, stamp, s.stamps),
            stale=s.stale if s.repaired else c,
            attempts=max(n, s.attempts),
            repaired=True,
            truth=primary,
        )

    # ------------------------------------------------------------------------------- exploration

    def choices(self, s: State) -> Iterator[Action]:
        for g, who in enumerate(s.gateways):
            yield from self._of_gateway(s, g, who)
        for n in range(len(s.late)):
            yield Action("call.lands", n)
            yield Action("call.dies", n)
        for store in (0, 1):
            if s.feeds[store]:
                yield Action("mirror.read", store)
                yield Action("mirror.mark", store)
            if "foreign.write" in s.faults:
                yield Action("foreign.write", store)
        for name in ("write", "crash") if s.owner else ():
            yield Action(f"mirror.{name}")
        for name in ("lands", "dies") if s.former else ():
            yield Action(f"mirror.{name}")
        if not s.alive:
            yield Action("mirror.start")
        yield Action("cutover.fence")
        yield Action("cutover.replaced")
        for who_ in ("coordinator", "stale"):
            at = getattr(s, who_).at
            for name in _STEPS[at]:
                yield Action(f"cutover.{name}", who_)
            if at >= TURNED:
                yield Action("cutover.stamp", who_, (0,))
                yield Action("cutover.stamp", who_, (1,))
        if s.faults:
            yield Action("control.lost")
            yield Action("control.restored")
        yield Action("control.repair")

    def _of_gateway(self, s: State, g: int, who: Gateway) -> Iterator[Action]:
        if who.lease == NONE:
            yield Action("gateway.lease", g)
            yield Action("gateway.end", g)
        else:
            yield Action("gateway.begin", g)
            yield Action("gateway.hold", g)
            yield Action("gateway.expire", g)
            if s.faults:
                yield Action("gateway.fork", g)
                yield Action("gateway.lapse", g)
        if who.call:
            yield Action("gateway.lands", g)
            yield Action("gateway.answer", g)
            yield Action("gateway.unknown", g)
        if who.sent:
            yield Action("gateway.acknowledge", g)
        if not self.holds("R13.grant"):
            yield Action("gateway.asks", g)
            yield Action("gateway.granted", g)

    def canonical(self, s: State) -> State:
        gateways = tuple(sorted(s.gateways))
        return s if gateways == s.gateways else s._replace(gateways=gateways)

    def broken(self, s: State) -> str | None:
        if s.lost:
            return f"write {s.lost} was acknowledged, and landed beside the primary"
        leases = {who.lease for who in s.gateways} - {NONE}
        if len(leases) > 1:
            return "two primaries: two gateways may write, each to another store"
        return None

    def quiet(self, s: State) -> bool:
        if s.control.state != QUIET or s.coordinator.at != IDLE or not s.repaired:
            return False
        if s.owner or s.former or not s.alive or s.late or any(s.feeds):
            return False
        return not any(who.call for who in s.gateways)

    def unequal(self, s: State) -> str | None:
        here, there = s.values[s.control.primary], s.values[1 - s.control.primary]
        if here != there:
            return f"all is quiet, the primary holds {here} and the mirror {there}"
        if here != s.last and not (here == FOREIGN and s.foreign == 3):
            return f"all is quiet, both sides hold {here}, and the last write was {s.last}"
        return None


_STEPS: tuple[tuple[str, ...], ...] = (
    (),  # IDLE
    ("held", "undo"),  # BEGUN, and so on
    ("mark", "undo"),
    ("drained", "undo"),
    ("flip", "undo"),
    ("start", "release"),
    ("start",),
    ("release",),
)


def _put(values: tuple[Any, ...], n: int, value: Any) -> tuple[Any, ...]:
    return (*values[:n], value, *values[n + 1 :])


def _gateway(s: State, g: int, **changes: Any) -> State:
    return s._replace(gateways=_put(s.gateways, g, s.gateways[g]._replace(**changes)))


def _spent(s: State, fault: str) -> State:
    n = s.faults.index(fault)
    return s._replace(faults=s.faults[:n] + s.faults[n + 1 :])


def _at(s: State, who: str, at: int) -> State:
    return _acting(s, who, getattr(s, who)._replace(at=at))


def _acting(s: State, who: str, c: Coordinator) -> State:
    return s._replace(coordinator=c) if who == "coordinator" else s._replace(stale=c)

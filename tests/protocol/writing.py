"""What a gateway does around a write, where its store does nothing by itself (R8, R9, R10, R12).

`Brackets` is a store without atomic touches: a bracket is opened before a write and closed after
it, one that stays open is reaped, and pages are copied while gateways come to know of the move.
`Stamps` is a store where the later stamp wins, whatever came first, with writers whose clocks
differ; and appends, which are no longer the same when they are carried out twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

from tests.protocol.checker import Action, Machine

NONE = -1
IDLE, OPENING, OPENED, CHECKED, SENT, LANDED = range(6)  # a gateway
COMING, OPEN, CLOSED, REAPED = range(4)  # a bracket
TODO, LISTED, DONE = range(3)  # the page
PAGE = -2  # what the owner has in hand, where that is no bracket


class Bracket(NamedTuple):
    name: int
    at: int = COMING
    aged: bool = False  # its life is over
    passed: bool = False  # the reader does not look there any more


class Writer(NamedTuple):
    at: int = IDLE
    knows: bool = True  # that writes are to be noted
    bracket: int = NONE
    version: int = 0
    slept: bool = False  # between its look at the bracket's age and its write


class Request(NamedTuple):
    """A write that nobody had an answer to."""

    version: int
    bracket: int  # it was sent under, or NONE


class Noted(NamedTuple):
    """A key, and what is noted of its writes."""

    writes: int
    faults: tuple[str, ...]
    writer: Writer
    page: int
    value: int = 1
    mirror: int = 0
    partial: int = 0  # a version on few replicas: a read may show it, or not
    brackets: tuple[Bracket, ...] = ()
    late: tuple[Request, ...] = ()
    owner: tuple[int, ...] = ()  # a value read, and for which bracket
    noting: bool = True  # the phase: whether writes are to be noted
    names: int = 0


class NotingBounds(NamedTuple):
    writes: int = 2
    faults: tuple[str, ...] = ()
    copies: bool = False  # the move begins, and a page is to be copied


class Brackets(Machine[Noted]):
    """One gateway, or its successor; the owner, who reads brackets; one page."""

    WORDS: ClassVar[dict[str, str]] = {
        "gateway.open": "a gateway sends a bracket for what it is about to write",
        "gateway.opened": "the bracket is there, and the gateway has the answer",
        "gateway.check": "the gateway sees that its bracket is young enough",
        "gateway.leave": "it is too old: nothing is written, and the bracket stays open",
        "gateway.send": "the write is sent; without a bracket, where the gateway knows of no move",
        "gateway.lands": "the write is carried out, and acknowledged",
        "gateway.close": "the bracket is closed: after the write, or because there is none",
        "gateway.unknown": "the write has no answer, and may still be carried out",
        "gateway.crash": "the gateway dies; another one begins, which knows the phase",
        "gateway.learn": "the gateway sees that writes are to be noted",
        "call.lands": "a write without an answer is carried out",
        "call.partly": "a write without an answer is carried out on few replicas",
        "call.dies": "a write without an answer can no longer be carried out",
        "replica.heals": "what lies on few replicas comes to lie on all",
        "bracket.lands": "a bracket of a gateway that died is there after all",
        "bracket.dies": "a bracket of a gateway that died never comes",
        "bracket.ages": "a bracket is as old as it may be before its write is sent",
        "reader.passes": "the reader looks no more at the time in which a bracket was sent",
        "reader.reaps": "a bracket that stays open is taken for written; its key is settled",
        "owner.reads": "the primary is read for a bracket, closed or reaped",
        "owner.unsure": "the primary is read, and shows what lies on few replicas",
        "owner.writes": "the mirror is written, and the bracket acted on",
        "phase.begins": "from here on writes are to be noted",
        "page.lists": "the page is listed",
        "page.writes": "the page is written",
    }
    WORLD = frozenset(
        (
            "gateway.open",
            "gateway.unknown",
            "gateway.crash",
            "call.partly",
            "reader.passes",
        )
    )
    RULES: ClassVar[dict[str, str]] = {
        "R8.age": "a gateway does not look how old its bracket is",
        "R8.closing": "closing a bracket that was reaped adds no touch",
        "R8.life": "a bracket is reaped while its write may be carried out",
        "R8.settle": "a reaped key is read as any other, and not settled",
        "R8.window": "the reader looks once at each time in which brackets are sent",
        "R9.knows": "the copy begins while a gateway does not know of the move",
        "R9.life": "the copy begins while a write of a gateway that did not know is alive",
    }

    def __init__(self, bounds: NotingBounds, without: Iterable[str] = ()) -> None:
        super().__init__(without)
        self.bounds = bounds

    def initial(self) -> Noted:
        b = self.bounds
        if b.copies:
            return Noted(b.writes, b.faults, Writer(knows=False), TODO, noting=False)
        return Noted(b.writes, b.faults, Writer(), DONE, mirror=1)

    # -------------------------------------------------------------------------------- the gateway

    def gateway_open(self, s: Noted, _: object) -> Noted | None:
        if s.writer.at != IDLE or not s.writer.knows or not s.writes:
            return None
        s = s._replace(
            writes=s.writes - 1, names=s.names + 1, brackets=(*s.brackets, Bracket(s.names))
        )
        return _writer(s, at=OPENING, bracket=s.names - 1, slept=False)

    def gateway_opened(self, s: Noted, _: object) -> Noted | None:
        if s.writer.at != OPENING:
            return None
        return _writer(_lands(s, s.writer.bracket), at=OPENED)

    def gateway_check(self, s: Noted, _: object) -> Noted | None:
        bracket = _bracket(s, s.writer.bracket)
        if s.writer.at != OPENED:
            return None
        if self.holds("R8.age") and (bracket is None or bracket.aged):
            return None
        return _writer(s, at=CHECKED)

    def gateway_leave(self, s: Noted, _: object) -> Noted | None:
        bracket = _bracket(s, s.writer.bracket)
        if s.writer.at != OPENED or not (bracket is None or bracket.aged):
            return None
        if bracket is not None and bracket.passed:
            s = _gone(s, bracket.name)
        return _writer(s, at=IDLE, bracket=NONE)

    def gateway_send(self, s: Noted, _: object) -> Noted | None:
        unnoted = s.writer.at == IDLE and not s.writer.knows
        if s.writer.at != CHECKED and not (unnoted and s.writes):
            return None
        if unnoted:
            s = s._replace(writes=s.writes - 1)
        version = self.bounds.writes - s.writes + 1
        return _writer(s, at=SENT, version=version)

    def gateway_lands(self, s: Noted, _: object) -> Noted | None:
        if s.writer.at != SENT:
            return None
        s = _carried_out(s, s.writer.version)
        return _writer(s, at=IDLE if s.writer.bracket == NONE else LANDED)

    def gateway_close(self, s: Noted, _: object) -> Noted | None:
        name = s.writer.bracket
        bracket = _bracket(s, name)
        unwritten = s.writer.at == OPENED and (bracket is None or bracket.aged)
        if s.writer.at != LANDED and not unwritten:
            return None
        late = bracket is None or bracket.at != OPEN or (bracket.passed and bracket.aged)
        if bracket is not None and bracket.passed:
            s = _gone(s, name)
        elif bracket is not None and bracket.at == OPEN:
            s = _changed(s, name, at=CLOSED)
        if late and self.holds("R8.closing"):
            new = Bracket(s.names, CLOSED)
            s = s._replace(brackets=(*s.brackets, new), names=s.names + 1)
        return _writer(s, at=IDLE, bracket=NONE)

    def gateway_unknown(self, s: Noted, _: object) -> Noted | None:
        if s.writer.at != SENT or "gateway.unknown" not in s.faults:
            return None
        s = _spent(s, "gateway.unknown")
        late = (*s.late, Request(s.writer.version, s.writer.bracket))
        return _writer(s._replace(late=late), at=IDLE, bracket=NONE)

    def gateway_crash(self, s: Noted, _: object) -> Noted | None:
        if s.writer.at == IDLE or "gateway.crash" not in s.faults:
            return None
        s = _spent(s, "gateway.crash")
        if s.writer.at == SENT:
            late = (*s.late, Request(s.writer.version, s.writer.bracket))
            s = s._replace(late=late)
        bracket = _bracket(s, s.writer.bracket)
        if bracket is not None and bracket.passed and bracket.at == OPEN:
            s = _gone(s, bracket.name)
        return s._replace(writer=Writer(knows=s.noting))

    def gateway_learn(self, s: Noted, _: object) -> Noted | None:
        if s.writer.at != IDLE or s.writer.knows or not s.noting:
            return None
        return _writer(s, knows=True)

    # ---------------------------------------------------------------------- what was sent and lost

    def call_lands(self, s: Noted, n: int) -> Noted | None:
        after = self.call_dies(s, n)
        return after and _carried_out(after, s.late[n].version)

    def call_partly(self, s: Noted, n: int) -> Noted | None:
        after = self.call_dies(s, n)
        if after is None or "call.partly" not in s.faults or s.late[n].version < s.value:
            return None
        spent: Noted = _spent(after, "call.partly")
        return spent._replace(partial=s.late[n].version)

    def call_dies(self, s: Noted, n: int) -> Noted | None:
        return s._replace(late=s.late[:n] + s.late[n + 1 :]) if n < len(s.late) else None

    def replica_heals(self, s: Noted, _: object) -> Noted | None:
        return _carried_out(s, s.partial) if s.partial else None

    def bracket_lands(self, s: Noted, name: int) -> Noted | None:
        bracket = _bracket(s, name)
        if bracket is None or not self._abandoned(s, name):
            return None
        return _gone(s, name) if bracket.passed else _lands(s, name)

    def bracket_dies(self, s: Noted, name: int) -> Noted | None:
        return _gone(s, name) if self._abandoned(s, name) else None

    def _abandoned(self, s: Noted, name: int) -> bool:
        bracket = _bracket(s, name)
        return bracket is not None and bracket.at == COMING and s.writer.bracket != name

    # -------------------------------------------------------------------------------- the reader

    def bracket_ages(self, s: Noted, name: int) -> Noted | None:
        """What was checked is sent within the margin, unless the gateway sleeps in between."""
        bracket = _bracket(s, name)
        if bracket is None or bracket.aged:
            return None
        if s.writer.bracket == name and s.writer.at == CHECKED:
            if "gateway.sleeps" not in s.faults:
                return None
            s = _writer(_spent(s, "gateway.sleeps"), slept=True)
        return _changed(s, name, aged=True)

    def reader_passes(self, s: Noted, _: object) -> Noted | None:
        """With the rule only what came too late for a write, of which nothing is sent any more."""
        always = not self.holds("R8.window")
        passed = [
            b._replace(passed=b.passed or (b.at == COMING and (b.aged or always)))
            for b in s.brackets
        ]
        after = s._replace(brackets=tuple(passed))
        return after if after != s else None

    def reader_reaps(self, s: Noted, name: int) -> Noted | None:
        bracket = _bracket(s, name)
        if bracket is None or bracket.at != OPEN or not bracket.aged or bracket.passed:
            return None
        alive = any(request.bracket == name for request in s.late)
        sent = s.writer.bracket == name and s.writer.at == SENT
        alive = alive or (sent and not s.writer.slept)  # nobody can tell of who slept
        if alive and self.holds("R8.life"):
            return None
        if s.partial and self.holds("R8.settle"):
            s = _carried_out(s, s.partial)
        return _changed(s, name, at=REAPED)

    def owner_reads(self, s: Noted, name: int) -> Noted | None:
        bracket = _bracket(s, name)
        if s.owner or bracket is None or bracket.at < CLOSED or bracket.passed:
            return None
        return s._replace(owner=(s.value, name))

    def owner_unsure(self, s: Noted, name: int) -> Noted | None:
        after = self.owner_reads(s, name)
        return after._replace(owner=(s.partial, name)) if after and s.partial else None

    def owner_writes(self, s: Noted, _: object) -> Noted | None:
        if not s.owner or s.owner[1] == PAGE:
            return None
        return _gone(s._replace(mirror=s.owner[0], owner=()), s.owner[1])

    # ---------------------------------------------------------------------------------- the copy

    def phase_begins(self, s: Noted, _: object) -> Noted | None:
        return None if s.noting else s._replace(noting=True)

    def page_lists(self, s: Noted, _: object) -> Noted | None:
        if s.page != TODO or not s.noting or s.owner:
            return None
        if not s.writer.knows and self.holds("R9.knows"):
            return None
        if any(request.bracket == NONE for request in s.late) and self.holds("R9.life"):
            return None
        return s._replace(page=LISTED, owner=(s.value, PAGE))

    def page_writes(self, s: Noted, _: object) -> Noted | None:
        if s.page != LISTED:
            return None
        return s._replace(page=DONE, mirror=s.owner[0], owner=())

    # ------------------------------------------------------------------------------- exploration

    def choices(self, s: Noted) -> Iterator[Action]:
        for name in self.WORDS:
            if name.startswith("gateway.") or name in _ALWAYS:
                yield Action(name)
        for n in range(len(s.late)):
            yield Action("call.lands", n)
            yield Action("call.partly", n)
            yield Action("call.dies", n)
        for bracket in s.brackets:
            for name in _OF_BRACKETS:
                yield Action(name, bracket.name)

    def canonical(self, s: Noted) -> Noted:
        """Names of brackets count from 0, in the order in which they were sent."""
        known = [bracket.name for bracket in s.brackets]
        if s.writer.bracket not in (NONE, *known):
            known.append(s.writer.bracket)
        known += [r.bracket for r in s.late if r.bracket not in (NONE, *known)]
        new = {name: n for n, name in enumerate(sorted(known))}
        new |= {NONE: NONE, PAGE: PAGE}
        if all(old == now for old, now in new.items()) and s.names == len(known):
            return s
        return s._replace(
            names=len(known),
            brackets=tuple(b._replace(name=new[b.name]) for b in s.brackets),
            writer=s.writer._replace(bracket=new[s.writer.bracket]),
            late=tuple(r._replace(bracket=new[r.bracket]) for r in s.late),
            owner=s.owner and (s.owner[0], new[s.owner[1]]),
        )

    def quiet(self, s: Noted) -> bool:
        if s.brackets or s.late or s.owner or s.partial or s.page != DONE:
            return False
        return s.writer.at == IDLE and s.writer.knows

    def unequal(self, s: Noted) -> str | None:
        if s.value != s.mirror:
            return f"all is quiet, the primary holds version {s.value} and the mirror {s.mirror}"
        return None


_ALWAYS = ("replica.heals", "reader.passes", "owner.writes", "phase.begins", "page.lists",
           "page.writes")  # fmt: skip
_OF_BRACKETS = ("bracket.lands", "bracket.dies", "bracket.ages", "reader.reaps", "owner.reads",
                "owner.unsure")  # fmt: skip


def _writer(s: Noted, **changes: Any) -> Noted:
    return s._replace(writer=s.writer._replace(**changes))


def _bracket(s: Noted, name: int) -> Bracket | None:
    return next((bracket for bracket in s.brackets if bracket.name == name), None)


def _changed(s: Noted, name: int, **changes: Any) -> Noted:
    brackets = [b._replace(**changes) if b.name == name else b for b in s.brackets]
    return s._replace(brackets=tuple(brackets))


def _gone(s: Noted, name: int) -> Noted:
    return s._replace(brackets=tuple(b for b in s.brackets if b.name != name))


def _lands(s: Noted, name: int) -> Noted:
    """A bracket is written; where the reader is past its time, nobody ever sees it."""
    return _changed(s, name, at=OPEN)


def _carried_out(s: Noted, version: int) -> Noted:
    """Of two writes the later one stays, in whichever order they arrive (R10)."""
    value = max(s.value, version)
    return s._replace(value=value, partial=0 if s.partial <= value else s.partial)


def _spent(s: Any, fault: str) -> Any:
    n = s.faults.index(fault)
    return s._replace(faults=s.faults[:n] + s.faults[n + 1 :])


# ------------------------------------------------------------------------------- stamps, appends


class Cell(NamedTuple):
    """What a store holds under a key: of all that came, the one with the latest stamp."""

    stamp: int = 0
    version: int = 0  # 0: deleted


class Stamped(NamedTuple):
    writes: int
    faults: tuple[str, ...]
    time: int = 1
    cell: Cell = Cell()
    turn: int = 0  # who writes: first the owner, then gateways, then the owner again
    sent: tuple[int, ...] = ()  # an append under way, and how many requests of it are
    rounds: int = 0  # how often the append is in the store
    told: int = 0  # and how often the application was told so
    last: int = 0  # the version that was acknowledged last


class StampBounds(NamedTuple):
    clocks: tuple[int, int] = (0, 0)  # by how much the owner's and the gateways' are ahead
    writes: int = 3
    appends: bool = False
    faults: tuple[str, ...] = ()


class Stamps(Machine[Stamped]):
    """The owner writes a key of the mirror; the sides are swapped, and gateways do; and back."""

    WORDS: ClassVar[dict[str, str]] = {
        "owner.puts": "the owner writes the key, by its own clock",
        "owner.deletes": "the owner deletes it",
        "sides.swap": "the mirror becomes the primary, or the mirror again",
        "gateway.puts": "a gateway writes the key, by its own clock, and has the answer",
        "gateway.deletes": "a gateway deletes it, and has the answer",
        "gateway.appends": "a gateway sends a round that is to be appended",
        "append.lands": "the round is appended",
        "append.unknown": "the append has no answer, and may still be carried out",
        "append.again": "the append without an answer is sent again",
        "append.told": "the application is told that its round is there",
        "append.left": "the application is told that nobody knows",
        "append.dies": "a request without an answer can no longer be carried out",
    }
    WORLD = frozenset(
        (
            "owner.puts",
            "owner.deletes",
            "gateway.puts",
            "gateway.deletes",
            "gateway.appends",
            "append.unknown",
        )
    )
    RULES: ClassVar[dict[str, str]] = {
        "R10.stamp": "a write is stamped by its writer's own clock, whatever is there",
        "R10.tombstone": "a write is stamped later than what lives there, deletes passed over",
        "R12": "an append without an answer is sent again, and carries no request id",
    }

    def __init__(self, bounds: StampBounds, without: Iterable[str] = ()) -> None:
        super().__init__(without)
        self.bounds = bounds

    def initial(self) -> Stamped:
        return Stamped(self.bounds.writes, self.bounds.faults)

    def _write(self, s: Stamped, who: int, version: int) -> Stamped | None:
        if not s.writes or s.turn % 2 != who or self.bounds.appends:
            return None
        looks = self.holds("R10.stamp") and (s.cell.version or self.holds("R10.tombstone"))
        clock = s.time + self.bounds.clocks[who]
        stamp = max(clock, s.cell.stamp + 1) if looks else clock
        cell = Cell(stamp, version) if stamp > s.cell.stamp else s.cell
        return s._replace(writes=s.writes - 1, time=s.time + 1, cell=cell, last=version)

    def owner_puts(self, s: Stamped, _: object) -> Stamped | None:
        return self._write(s, 0, self.bounds.writes - s.writes + 1)

    def owner_deletes(self, s: Stamped, _: object) -> Stamped | None:
        return self._write(s, 0, 0)

    def sides_swap(self, s: Stamped, _: object) -> Stamped | None:
        return s._replace(turn=s.turn + 1) if s.turn < 2 and not s.sent else None

    def gateway_puts(self, s: Stamped, _: object) -> Stamped | None:
        return self._write(s, 1, self.bounds.writes - s.writes + 1)

    def gateway_deletes(self, s: Stamped, _: object) -> Stamped | None:
        return self._write(s, 1, 0)

    # ------------------------------------------------------------------------------------ appends

    def gateway_appends(self, s: Stamped, _: object) -> Stamped | None:
        """``sent``: requests that are answered when carried out, and such as are not."""
        if not self.bounds.appends or s.sent or not s.writes or s.turn != 1:
            return None
        return s._replace(sent=(1, 0), writes=0)

    def _landed(self, s: Stamped) -> int:
        """With a request id an append that is there already is left as it is."""
        return max(s.rounds, 1) if self.holds("R12") else s.rounds + 1

    def append_lands(self, s: Stamped, answered: int) -> Stamped | None:
        if not s.sent or not s.sent[1 - answered]:
            return None
        rounds = self._landed(s)
        if answered:
            return s._replace(rounds=rounds, told=1, sent=(0, s.sent[1]))
        return s._replace(rounds=rounds, sent=(s.sent[0], 0))

    def append_unknown(self, s: Stamped, _: object) -> Stamped | None:
        if not s.sent or not s.sent[0] or "append.unknown" not in s.faults:
            return None
        spent: Stamped = _spent(s, "append.unknown")
        return spent._replace(sent=(0, 1))

    def append_again(self, s: Stamped, _: object) -> Stamped | None:
        if not s.sent or s.sent[0] or s.told or s.sent[1] == 0:
            return None
        return s._replace(sent=(1, s.sent[1]))

    def append_left(self, s: Stamped, _: object) -> Stamped | None:
        if not s.sent or s.sent[0] or s.told or s.sent[1]:
            return None
        return s._replace(sent=())

    def append_told(self, s: Stamped, _: object) -> Stamped | None:
        return s._replace(sent=()) if s.sent == (0, 0) and s.told else None

    def append_dies(self, s: Stamped, _: object) -> Stamped | None:
        return s._replace(sent=(s.sent[0], 0)) if s.sent and s.sent[1] else None

    # ------------------------------------------------------------------------------- exploration

    def choices(self, s: Stamped) -> Iterator[Action]:
        for name in self.WORDS:
            if name == "append.lands":
                yield Action(name, 1)
                yield Action(name, 0)
            else:
                yield Action(name)

    def broken(self, s: Stamped) -> str | None:
        if s.rounds > 1:
            return "a round that was appended once is there twice"
        return None

    def quiet(self, s: Stamped) -> bool:
        return not s.sent

    def unequal(self, s: Stamped) -> str | None:
        if s.told and not s.rounds:
            return "all is quiet, and an acknowledged append is missing"
        if s.cell.version != s.last:
            return (
                f"all is quiet, the store holds {s.cell.version}, and the last write was {s.last}"
            )
        return None

"""What a live move keeps in the control database, beside its run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import sqlalchemy as sa

from migrator.errors import Refused
from migrator.ports import Json
from migrator.state import tables as t
from migrator.state.control import Control, Run, append, compare_and_set
from migrator.state.quarantine import Quarantined
from migrator.state.reads import MirrorReads, Share

# So many answers are kept, for who asked while others did, too.
_ANSWERS = 8
_EARLIER = "earlier"
_RENEWED = "renewed"


@dataclass(frozen=True)
class Position:
    """Where a side's feed is read on, and where a re-scan stands that is not done yet."""

    feed: Json
    scan: Json = None


@dataclass(frozen=True)
class Request:
    """What somebody asked of the mirror: ``number`` grows, ``terms`` are the answers given.
    ``renewed``: how often who waits for it has said so, None where nobody has to."""

    number: int
    wanted: str
    terms: dict[str, object]
    renewed: int | None = None


class LiveState:
    """The part of the control database that belongs to one live run."""

    def __init__(self, control: Control, run: str) -> None:
        self._control = control
        self._run = run

    # ------------------------------------------------------------------ positions

    def position(self, move: int, side: str) -> Position | None:
        """Where a feed stands; None where it was never prepared."""
        f = t.feed.c
        query = sa.select(f.position, f.scan).where(
            f.run == self._run, f.move == move, f.side == side
        )
        with self._control.transaction() as c:
            row = c.execute(query).first()
        if row is None:
            return None
        return Position(
            json.loads(row.position), None if row.scan is None else json.loads(row.scan)
        )

    def keep(self, move: int, side: str, position: Position) -> None:
        """Note where a feed stands. Call it only after the mirror holds everything before (R5)."""
        values = {
            "position": json.dumps(position.feed),
            "scan": None if position.scan is None else json.dumps(position.scan),
        }
        with self._control.transaction() as c:
            t.keep(c, t.feed, {"run": self._run, "move": move, "side": side}, values)

    # ------------------------------------------------------------------ the swap of the sides

    def arm(self, run: Run) -> Run:
        """Begin an attempt to swap the sides."""
        return self._fence(run, "armed", attempt=run.attempt + 1)

    def raise_fence(self, run: Run) -> Run:
        """Note, before it is done, that writes are being stopped."""
        return self._fence(run, "raised")

    def undoing(self, run: Run) -> Run:
        """Note that the attempt is taken back: a flip of it can't be carried out any more."""
        return self._fence(run, "undoing")

    def lowering(self, run: Run) -> Run:
        """Note that writes go on where they were, but that a fence may still have to be lowered."""
        return self._fence(run, "lowering")

    def marked(self, run: Run) -> Run:
        """Note that the new primary's journal has its start: all behind it is to be mirrored."""
        return self._fence(run, "marked")

    def release(self, run: Run) -> Run:
        """Note that the attempt is over: writes go on, on the primary."""
        return self._fence(run, "")

    def _fence(self, run: Run, fence: str, attempt: int | None = None) -> Run:
        """A compare-and-set that carries the attempt's number (R13)."""
        new = replace(run, fence=fence, attempt=run.attempt if attempt is None else attempt)
        with self._control.transaction() as c:
            done = compare_and_set(c, run, fence=new.fence, attempt=new.attempt)
        if not done:
            raise Refused(
                f"run {run.id} was moved by somebody else",
                hint="look at it again: migrator status",
            )
        return new

    # ------------------------------------------------------------------ the reverse ledger

    def enter(self, item: Quarantined) -> None:
        """A key that could not be written back; once more is the same as once."""
        with self._control.transaction() as c:
            c.execute(self._ledger_of(item.move, item.key))
            c.execute(t.ledger.insert().values(run=self._run, **item.__dict__))

    def strike(self, move: int, keys: Iterable[str]) -> None:
        """Keys that have been written back after all."""
        with self._control.transaction() as c:
            for key in keys:
                c.execute(self._ledger_of(move, key))

    def ledger(self) -> list[Quarantined]:
        """The keys that a rollback would lose, oldest first."""
        query = sa.select(t.ledger).where(t.ledger.c.run == self._run)
        with self._control.transaction() as c:
            rows = c.execute(query.order_by(t.ledger.c.at, t.ledger.c.key)).mappings()
            return [Quarantined(**{k: v for k, v in row.items() if k != "run"}) for row in rows]

    def _ledger_of(self, move: int, key: str) -> sa.Delete:
        ledger = t.ledger.c
        return t.ledger.delete().where(
            ledger.run == self._run, ledger.move == move, ledger.key == key
        )

    # ------------------------------------------------------------------ asking the mirror

    def ask(self, wanted: str, terms: dict[str, object], *, renewed: bool = False) -> int:
        """Ask the mirror for a phase; the number of the request. ``renewed``: it is to be done only
        as long as somebody renews it."""
        text = json.dumps({"wanted": wanted, "terms": terms} | ({_RENEWED: 0} if renewed else {}))
        m = t.mirror
        with self._control.transaction() as c:
            self._there(c)
            c.execute(
                m.update().where(m.c.run == self._run).values(wanted=text, asked=m.c.asked + 1)
            )
            return int(c.execute(sa.select(m.c.asked).where(m.c.run == self._run)).scalar_one())

    def asked(self) -> Request | None:
        """The last request that was not answered yet."""
        with self._control.transaction() as c:
            row = self._row(c)
        if row is None or row.answered >= row.asked:
            return None
        text = json.loads(row.wanted)
        return Request(row.asked, text["wanted"], text["terms"], text.get(_RENEWED))

    def renew(self, number: int) -> None:
        """Say that somebody still waits for a request, unless that is over."""
        m = t.mirror
        with self._control.transaction() as c:
            row = self._row(c)
            if row is None or not row.answered < number == row.asked:
                return
            text = json.loads(row.wanted)
            text[_RENEWED] = text.get(_RENEWED, 0) + 1
            mine = m.c.run == self._run, m.c.asked == number
            c.execute(m.update().where(*mine).values(wanted=json.dumps(text)))

    def answer(
        self, number: int, answer: dict[str, object], undone: Mapping[str, object] | None = None
    ) -> None:
        """What became of a request; who asked for the ones before may not have looked yet.
        ``undone``: what was wanted and why it is not done, for the run's record."""
        with self._control.transaction() as c:
            self._answer(c, number, answer)
            if undone is not None:
                append(c, self._run, "not done", undone)

    def withdraw(self, number: int) -> None:
        """Take a request back that was not answered yet: its mirror has not done it."""
        with self._control.transaction() as c:
            row = self._row(c)
            if row is not None and row.answered < number == row.asked:
                self._answer(c, number, {})

    def answered(self, number: int) -> dict[str, object] | None:
        """What became of a request, None as long as that is open. Raises Refused where another
        one took its place."""
        with self._control.transaction() as c:
            row = self._row(c)
        if row is None or row.answered < number:
            return None
        if (found := _answers(row).get(number)) is None:
            raise Refused(
                "somebody else asked the mirror for something else before this was done",
                hint="see where it stands: migrator status",
            )
        return found

    def _answer(self, c: sa.Connection, number: int, answer: dict[str, object]) -> None:
        if (row := self._row(c)) is None:
            return
        answers = _answers(row) | {number: answer}
        # The last one as ever, so that a command of an older version reads it.
        last, *earlier = sorted(answers, reverse=True)[:_ANSWERS]
        text = {**answers[last], _EARLIER: {str(each): answers[each] for each in earlier}}
        values = {"answered": last, "answer": json.dumps(text)}
        c.execute(t.mirror.update().where(t.mirror.c.run == self._run).values(**values))

    def _row(self, c: sa.Connection) -> sa.Row[Any] | None:
        return c.execute(sa.select(t.mirror).where(t.mirror.c.run == self._run)).first()

    def tell(self, **state: object) -> None:
        """What the mirror says of itself: for people, and for who waits for it."""
        values = {"state": json.dumps(state), "at": time.time()}
        with self._control.transaction() as c:
            self._there(c)
            c.execute(t.mirror.update().where(t.mirror.c.run == self._run).values(**values))

    def told(self) -> tuple[float, dict[str, object]]:
        """What the mirror said last, and when (seconds since 1970; 0 for never)."""
        with self._control.transaction() as c:
            row = self._row(c)
        if row is None:
            return 0.0, {}
        return row.at, cast("dict[str, object]", json.loads(row.state))

    # ------------------------------------------------------------------ what it is read for

    def read_share(self) -> Share:
        """How large a share of their reads gateways may have the mirror answer."""
        return MirrorReads(self._control, self._run).share()

    def _there(self, c: sa.Connection) -> None:
        if self._row(c) is None:
            empty = {"wanted": "", "asked": 0, "answered": 0, "answer": "{}", "state": "{}"}
            t.make(c, t.mirror, {"run": self._run, **empty, "at": 0.0})


def _answers(row: sa.Row[Any]) -> dict[int, dict[str, object]]:
    """What became of the last requests, by their numbers."""
    last = json.loads(row.answer)
    earlier = {int(number): answer for number, answer in last.pop(_EARLIER, {}).items()}
    return {**earlier, row.answered: last}

"""The control database: runs, their ranges of work, what is in quarantine, and the log.

Everything here is written in short transactions of its own. Changes of a run's phase are
compare-and-sets, so that two processes never both believe that they made one (R13).
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, RowMapping

from migrator.errors import Refused, Terminal
from migrator.model.phase import Phase
from migrator.ports import StoreSettings
from migrator.state import tables as t
from migrator.state.database import open_database, transaction
from migrator.state.quarantine import Quarantined

PLACE = "place "
"""Begins what stands for a table or collection by where it lies; no name of a store has a space."""


@dataclass(frozen=True)
class Run:
    """One execution of a plan. ``primary`` is ``source`` or ``target``.

    Of a live one ``attempt`` numbers its swaps of the sides, and ``fence`` says how far one is:
    ``armed``, ``raised`` (writes are being stopped), ``undoing`` (to be let go on the old side),
    ``lowering`` (let go, but a store's fence may still have to be lowered), ``flipped``,
    ``marked`` (to be let go on the new side).
    """

    id: str
    env: str
    revision: str
    fingerprint: str
    plan: str
    phase: Phase
    primary: str
    epoch: int
    started: float
    changed: float
    live: bool = False
    attempt: int = 0
    fence: str = ""


@dataclass(frozen=True)
class Task:
    """One range of work with its checkpoint: all before ``position`` is durable in the target.

    ``intent`` are the counts of the page being written; a resumed run takes them over, since
    what was new before the crash looks like an old block afterwards.
    """

    move: int
    work: str
    number: int
    range: object
    position: object = None
    done: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    intent: Mapping[str, int] | None = None


# By when they started only after that: the clocks of two hosts are not compared (R14).
_IN_ORDER = (
    t.run.c.phase.not_in([phase.value for phase in Phase if phase.ended]),
    t.run.c.started,
    t.run.c.id,
)


class Control:
    """An open control database."""

    def __init__(self, engine: Engine, env: str) -> None:
        self.engine = engine
        self.env = env

    def close(self) -> None:
        self.engine.dispose()

    def transaction(self) -> AbstractContextManager[Connection]:
        """A short transaction; driver errors come out translated."""
        return transaction(self.engine)

    # ------------------------------------------------------------------ runs

    def start(
        self,
        revision: str,
        fingerprint: str,
        plan: str,
        moves: Sequence[tuple[str, str, str]],
        live: bool = False,
    ) -> Run:
        """Register a run with its moves (class, source, target), all or nothing.

        Raises Refused where a class has an unfinished move already.
        """
        now = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        run = Run(
            f"{revision}-{stamp}-{secrets.token_hex(2)}", self.env, revision, fingerprint, plan,
            Phase.PLANNED, "source", 1, now, now, live,
        )  # fmt: skip
        self.register(run, moves, "started", revision=revision)
        return run

    def register(
        self, run: Run, moves: Sequence[tuple[str, str, str]], event: str, **detail: object
    ) -> None:
        """Make the row of a run with its moves, as ``start``, and note the event in its log."""
        with self.transaction() as c:
            if c.dialect.name == "sqlite":
                c.exec_driver_sql("DELETE FROM migrator_move WHERE run = ''")  # take the lock now
            else:
                c.execute(sa.text("LOCK TABLE migrator_move IN EXCLUSIVE MODE"))
            for cls, *sides in moves:
                self._refuse_second(c, cls, sides)
            c.execute(t.run.insert().values(**_run_row(run)))
            c.execute(
                t.move.insert(),
                [
                    {"run": run.id, "number": i, "cls": cls, "source": s, "target": g, "open": True}
                    for i, (cls, s, g) in enumerate(moves)
                ],
            )
            append(c, run.id, event, detail)

    def _refuse_second(self, c: Connection, cls: str, sides: Sequence[str]) -> None:
        at, ours = t.move.c, t.run.c.env == self.env
        # Names are those of an environment; where something lies is the same in all.
        places = [side for side in sides if side.startswith(PLACE)]
        same = (at.cls == cls) | at.source.in_(sides) | at.target.in_(sides)
        found = c.execute(
            sa.select(at.cls, t.run.c.revision, t.run.c.env)
            .join(t.run, t.run.c.id == at.run)
            .where(at.open, (ours & same) | at.source.in_(places))
        ).first()
        if found is None:
            return
        move = f"{found.cls} is in an unfinished move (revision {found.revision}"
        if found.env != self.env:
            raise Refused(
                f"{move} of environment {found.env})", hint="finish or abort it there first"
            )
        raise Refused(
            f"{move})",
            hint=f"finish it first: migrator finish {found.revision}, "
            f"or leave it: migrator abort {found.revision}",
        )

    def runs(self, revision: str | None = None) -> list[Run]:
        """The runs of this environment, oldest first, behind them those that have not ended."""
        query = sa.select(t.run).where(t.run.c.env == self.env).order_by(*_IN_ORDER)
        if revision is not None:
            query = query.where(t.run.c.revision == revision)
        with self.transaction() as c:
            return [_run(row) for row in c.execute(query).mappings()]

    def run(self, name: str) -> Run:
        """The run of a revision that has not ended, else its latest, or the run of this id. Raises
        Refused for none."""
        with self.transaction() as c:
            row = (
                c.execute(
                    sa.select(t.run)
                    .where(t.run.c.env == self.env)
                    .where((t.run.c.id == name) | (t.run.c.revision == name))
                    .order_by(*(column.desc() for column in _IN_ORDER))
                )
                .mappings()
                .first()
            )
        if row is None:
            raise Refused(
                f"there is no run of {name} in environment {self.env}",
                hint="see what there is: migrator status",
            )
        return _run(row)

    def advance(
        self, run: Run, phase: Phase, *, primary: str | None = None, fence: str | None = None,
        **detail: object,
    ) -> Run:  # fmt: skip
        """Take a run to another phase: a compare-and-set (R13).

        A change of primary raises the epoch; ``detail`` is for the run's log. Raises Refused where
        somebody else moved the run.
        """
        side = primary or run.primary
        epoch = run.epoch + (side != run.primary)
        new = replace(
            run, phase=phase, primary=side, epoch=epoch, changed=time.time(),
            fence=run.fence if fence is None else fence,
        )  # fmt: skip
        with self.transaction() as c:
            if not compare_and_set(
                c, run, phase=phase.value, primary_side=side, epoch=epoch, fence=new.fence
            ):
                raise Refused(
                    f"run {run.id} is no longer {run.phase.words}: somebody else moved it",
                    hint="look at it again: migrator status",
                )
            if phase.ended:
                c.execute(t.move.update().where(t.move.c.run == run.id).values(open=False))
            append(c, run.id, phase.value, {"primary": side, "epoch": epoch, **detail})
        return new

    # ------------------------------------------------------------------ tasks

    def tasks(self, run: str, move: int, work: str) -> list[Task]:
        """The tasks of a piece of work; none where the list was never written whole (C18)."""
        with self.transaction() as c:
            rows = list(
                c.execute(
                    sa.select(t.task)
                    .where(t.task.c.run == run, t.task.c.move == move, t.task.c.work == work)
                    .order_by(t.task.c.number)
                ).mappings()
            )
        if rows and len(rows) != rows[0]["of"]:
            raise Terminal(
                f"the list of ranges of {run} holds {len(rows)} of {rows[0]['of']}",
                hint="the control database was damaged: restore it, or abort the run",
            )
        return [_task(row) for row in rows]

    def plan_tasks(self, run: str, move: int, work: str, ranges: Sequence[object]) -> list[Task]:
        """Write the list of ranges, whole or not at all, in place of an older one."""
        with self.transaction() as c:
            c.execute(
                t.task.delete().where(
                    t.task.c.run == run, t.task.c.move == move, t.task.c.work == work
                )
            )
            c.execute(
                t.task.insert(),
                [
                    {
                        "run": run, "move": move, "work": work, "number": i, "of": len(ranges),
                        "range": json.dumps(range_), "position": "null", "done": False,
                        "counts": "{}", "intent": None,
                    }
                    for i, range_ in enumerate(ranges)
                ],
            )  # fmt: skip
        return self.tasks(run, move, work)

    def forget_tasks(self, run: str, move: int, works: Sequence[str]) -> None:
        """Remove the lists of some work: done with, or no longer true."""
        c_ = t.task.c
        with self.transaction() as c:
            c.execute(
                t.task.delete().where(c_.run == run, c_.move == move, c_.work.in_(list(works)))
            )

    def checkpoint(self, run: str, task: Task) -> None:
        """Note how far a task is. Call it only after the target holds everything before."""
        self._save_task(
            run,
            task,
            position=json.dumps(task.position),
            done=task.done,
            counts=json.dumps(dict(task.counts)),
            intent=None,
        )

    def intend(self, run: str, task: Task, counts: Mapping[str, int]) -> None:
        """Note what the page about to be written will do."""
        self._save_task(run, task, intent=json.dumps(dict(counts)))

    def _save_task(self, run: str, task: Task, **values: object) -> None:
        with self.transaction() as c:
            c.execute(
                t.task.update()
                .where(
                    t.task.c.run == run,
                    t.task.c.move == task.move,
                    t.task.c.work == task.work,
                    t.task.c.number == task.number,
                )
                .values(**values)
            )

    # ------------------------------------------------------------------ quarantine

    def set_aside(self, run: str, item: Quarantined) -> None:
        """Put a block into quarantine; once more is the same as once."""
        with self.transaction() as c:
            key = item.key
            c.execute(_quarantine_of(run, item.move, key))
            c.execute(t.quarantine.insert().values(run=run, **item.__dict__))

    def take_up(self, run: str, move: int, key: str) -> None:
        """Take a block out of quarantine."""
        with self.transaction() as c:
            c.execute(_quarantine_of(run, move, key))

    def quarantined(self, run: str) -> list[Quarantined]:
        """The blocks in quarantine, oldest first."""
        query = sa.select(t.quarantine).where(t.quarantine.c.run == run)
        with self.transaction() as c:
            rows = c.execute(query.order_by(t.quarantine.c.at, t.quarantine.c.key)).mappings()
            return [Quarantined(**{k: v for k, v in row.items() if k != "run"}) for row in rows]

    def is_aside(self, run: str, move: int, key: str) -> bool:
        """Whether a key, as ``quarantine_key`` gives it, is in quarantine."""
        q = t.quarantine.c
        query = sa.select(q.key).where(q.run == run, q.move == move, q.key == key)
        with self.transaction() as c:
            return c.execute(query).first() is not None

    def keys_aside(self, run: str, move: int) -> frozenset[str]:
        """The keys of a move that are in quarantine, as ``quarantine_key`` gives them."""
        return frozenset(item.key for item in self.quarantined(run) if item.move == move)

    # ------------------------------------------------------------------ log and stamps

    def record(self, run: str, event: str, **detail: object) -> None:
        """Append to the log of a run: who, on which host, in which job, what."""
        with self.transaction() as c:
            append(c, run, event, detail)

    def record_accepted(self, run: str, event: str, why: str, **detail: object) -> None:
        """As ``record``, of what somebody accepted, and why where that was said."""
        self.record(run, event, **detail, **({"why": why} if why else {}))

    def events(
        self, run: str, event: str | None = None, last: int | None = None
    ) -> list[dict[str, object]]:
        """The log of a run, oldest first; of one kind of event, and the last so many, if asked."""
        query = sa.select(t.log).where(t.log.c.run == run).order_by(t.log.c.id.desc()).limit(last)
        if event is not None:
            query = query.where(t.log.c.event == event)
        with self.transaction() as c:
            rows = c.execute(query).mappings().all()
        return [{**row, "detail": json.loads(row["detail"])} for row in reversed(rows)]

    def newest(self, run: str) -> int:
        """The number of the last event in the log of a run; 0 for none."""
        with self.transaction() as c:
            found = c.execute(sa.select(sa.func.max(t.log.c.id)).where(t.log.c.run == run)).scalar()
        return int(found or 0)

    def stamps(self) -> set[str]:
        """Revisions whose data was moved by hand."""
        with self.transaction() as c:
            query = sa.select(t.stamp.c.revision).where(t.stamp.c.env == self.env)
            return set(c.execute(query).scalars())

    def stamp(self, revision: str) -> None:
        """Note that a revision's data was moved by hand; once more is the same as once."""
        with self.transaction() as c:
            t.make(c, t.stamp, {"env": self.env, "revision": revision, "at": time.time()})


_JOBS = ("MIGRATOR_JOB", "GITHUB_RUN_ID", "CI_JOB_ID", "BUILD_ID")


def append(c: Connection, run: str, event: str, detail: Mapping[str, object]) -> None:
    """Add to the record of a run, within a transaction."""
    job = next((os.environ[name] for name in _JOBS if os.environ.get(name)), "")
    c.execute(
        t.log.insert().values(
            run=run, at=time.time(), who=_user(), host=platform.node(), job=job[:200],
            event=event, detail=json.dumps(detail, default=str),
        )
    )  # fmt: skip


def compare_and_set(c: Connection, run: Run, **values: object) -> bool:
    """Change a run's row: a compare-and-set on all that tells who is the primary (R13); whether
    it was still as it stands here."""
    r = t.run.c
    before = {"phase": run.phase.value, "primary_side": run.primary}
    if any(values.get(name, was) != was for name, was in before.items()):
        values["changed"] = time.time()
    changed = c.execute(
        t.run.update()
        .where(
            r.id == run.id, r.phase == run.phase.value, r.primary_side == run.primary,
            r.epoch == run.epoch, r.attempt == run.attempt, r.fence == run.fence,
        )
        .values(**values)
    ).rowcount  # fmt: skip
    return changed == 1


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def _quarantine_of(run: str, move: int, key: str) -> sa.Delete:
    q = t.quarantine
    return q.delete().where(q.c.run == run, q.c.move == move, q.c.key == key)


def _run_row(run: Run) -> dict[str, object]:
    row = dict(run.__dict__)
    row["primary_side"] = row.pop("primary")
    return row


def _run(row: RowMapping) -> Run:
    values = dict(row)
    values["primary"] = values.pop("primary_side")
    values["phase"] = Phase(values["phase"])
    return Run(**values)


def _task(row: RowMapping) -> Task:
    return Task(
        row["move"],
        row["work"],
        row["number"],
        json.loads(row["range"]),
        json.loads(row["position"]),
        row["done"],
        json.loads(row["counts"]),
        None if row["intent"] is None else json.loads(row["intent"]),
    )


def open_control(settings: StoreSettings, env: str) -> Control:
    """Open the control database of an environment. Raises as ``open_database``."""
    return Control(open_database(settings), env)

"""The leases of gateways, as both sides of them see it.

A gateway announces itself and looks at the run after that; an owner changes the run and reads the
leases after that. So a gateway whose lease the owner does not see has seen the change (R13).
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import sqlalchemy as sa

from migrator.model.follows import PLAIN, Follows
from migrator.model.phase import Phase
from migrator.state import tables as t
from migrator.state.control import Control, Run
from migrator.state.database import HEAD
from migrator.state.lease import _host, _is_gone, _me, boot_clock

gateway = sa.Table(
    "migrator_gateway",
    t.metadata,
    sa.Column("instance", sa.String(32), primary_key=True),
    sa.Column("env", sa.Text, nullable=False),
    sa.Column("cls", sa.Text, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("counter", sa.Integer, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("phase", sa.String(20), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("acknowledged", sa.Integer, nullable=False),
)
SHORT = 1.0
"""Seconds of a lease while a swap is armed."""


@dataclass(frozen=True)
class Standing:
    """Where the run of a class stands; without a run, the class lies where the scripts say."""

    run: str = ""
    revision: str = ""
    phase: Phase = Phase.PLANNED
    primary: str = "source"
    epoch: int = 0
    attempt: int = 0
    fence: str = ""
    live: bool = True

    # What follows is told once for a standing: every write asks for it.

    @cached_property
    def stopped(self) -> bool:
        """Whether writes are to wait."""
        return self.fence in ("raised", "undoing", "flipped", "marked")

    @cached_property
    def carries(self) -> str:
        """The run that carries writes over to its mirror; empty where none does."""
        begun = bool(self.run) and self.live and not self.phase.ended
        return self.run if begun and self.phase.rank >= Phase.DUAL_WRITE.rank else ""

    @cached_property
    def at_rest(self) -> bool:
        """Whether a move at rest is under way: what is written now might not be copied. After a
        rollback writes go on, at the source."""
        begun = Phase.PREPARED.rank <= self.phase.rank < Phase.CUT_OVER.rank
        back = self.phase is Phase.SHADOW_READ and self.epoch > 1
        return bool(self.run) and not self.live and begun and not back

    @property
    def said(self) -> tuple[str, Phase, int, int]:
        """What a gateway that acts by it says beside its lease: nothing of the fence."""
        return self.run, self.phase, self.epoch, self.attempt

    @cached_property
    def open(self) -> bool:
        """Whether a gateway that holds a lease may write."""
        return not self.stopped and not self.at_rest


@dataclass(frozen=True)
class GatewayLease:
    """The row of one gateway."""

    instance: str
    cls: str
    holder: str
    counter: int
    seconds: float
    run: str
    phase: Phase
    epoch: int
    attempt: int
    acknowledged: int

    @property
    def lasts(self) -> float:
        """Seconds for which its holder may go by it after its last renewal, at most: one away may
        not have heard that it was shortened, where the answer was lost."""
        return max(self.seconds, float(str(self._holder.get("granted", 0.0))))

    @property
    def version(self) -> str:
        """That of the control database as the gateway knows it; empty where it did not say."""
        return str(self._holder.get("version", ""))

    @property
    def follows(self) -> Follows:
        """What the gateway says that it can follow."""
        return Follows.heard(self._holder.get("follows"))

    @property
    def told(self) -> str:
        """How it is named to people: its class, host, process and version, as far as it says."""
        kind = "lease" if self.follows.its_own else "gateway"
        at = f" on {self.host}" if self.host else ""
        pid = f", process {self.pid}" if self.pid else ""
        release = f", Migrator {self.release}" if self.release else ""
        return f"{kind} {self.instance} of {self.cls}{at}{pid}{release}"

    @property
    def host(self) -> str:
        """Where its holder runs, or the service that announced it; empty where it did not say."""
        return str(self._holder.get("host", ""))

    @property
    def pid(self) -> int:
        """The process that holds it; 0 where it is not one of that host."""
        pid = self._holder.get("pid")
        return pid if isinstance(pid, int) else 0

    @property
    def release(self) -> str:
        """The version of Migrator that its holder runs; empty where it did not say."""
        return str(self._holder.get("release", ""))

    @property
    def gone(self) -> bool:
        """Whether its holder is a process of this host that has ended."""
        return _is_gone(self.holder)

    @cached_property
    def _holder(self) -> dict[str, object]:
        held: dict[str, object] = json.loads(self.holder)
        return held


def _release() -> str:
    """The version of this Migrator; empty where it was not installed as a package."""
    try:
        return version("migrator")
    except PackageNotFoundError:
        return ""


def _granted(seconds: float, counter: int) -> dict[str, object]:
    """That a holder may go by its lease for so long from now on, by the clock of this boot, since
    the renewal of that number."""
    return {"granted": seconds, "at": boot_clock(), "clock": _host(), "renewal": counter}


def _left(held: dict[str, Any], counter: int) -> float:
    """What is left of that before the renewal of a number; all of it where another clock told from
    when on, or where none did, as a service of an older version."""
    known = held.get("clock") == _host() and held.get("renewal") == counter - 1
    since = max(0.0, boot_clock() - held["at"]) if known else 0.0
    return float(held.get("granted", 0.0)) - since


class Gateways:
    """The gateways of an environment, in its control database."""

    def __init__(self, control: Control) -> None:
        self._control = control

    # ------------------------------------------------------------------ a gateway's side

    def standing(self, cls: str) -> Standing:
        """Where the run of a class stands: the one unfinished, else the last."""
        r = t.run.c
        query = (
            sa.select(
                r.id, r.revision, r.phase, r.primary_side, r.epoch, r.attempt, r.fence, r.live
            )
            .join(t.move, t.move.c.run == r.id)
            .where(r.env == self._control.env, t.move.c.cls == cls)
            .order_by(t.move.c.open.desc(), r.started.desc(), r.id.desc())
            .limit(1)
        )
        with self._control.transaction() as c:
            row = c.execute(query).first()
        if row is None:
            return Standing()
        return Standing(row[0], row[1], Phase(row[2]), *row[3:])

    def enter(
        self,
        instance: str,
        cls: str,
        seconds: float,
        *,
        follows: Follows = PLAIN,
        away: bool = False,
    ) -> None:
        """Announce a gateway that has seen nothing yet. Look at the standing only after that.

        ``away``: who holds the lease is no process that this host could look for, and follows by
        means of its own.
        """
        who = {"boot": "", "pid": 0, "started": ""} if away else json.loads(_me())
        # What this process knows: another version may not hold to what this one does.
        told = replace(follows, its_own=True).told() if away else follows.told()
        granted = _granted(seconds, 0) if away else {}
        holder = json.dumps(
            {**who, "version": HEAD, "release": _release(), "host": platform.node(),
             "follows": told, **granted}
        )  # fmt: skip
        with self._control.transaction() as c:
            c.execute(
                gateway.insert().values(
                    instance=instance, env=self._control.env, cls=cls, holder=holder, counter=0,
                    seconds=seconds, run="", phase=Phase.PLANNED.value, epoch=0, attempt=0,
                    acknowledged=0,
                )
            )  # fmt: skip

    def renew(self, instance: str, seconds: float) -> bool:
        """Renew a lease, whose holder counts from before this call; False where it is gone."""
        g = gateway.c
        with self._control.transaction() as c:
            done = c.execute(
                gateway.update()
                .where(g.instance == instance)
                .values(counter=g.counter + 1, seconds=seconds)
            )
            return bool(done.rowcount)

    def renew_away(self, instance: str, seconds: float) -> bool:
        """As ``renew``, for a holder whose answer may be lost: what is left of longer grants before
        is kept beside."""
        g = gateway.c
        mine = g.instance == instance
        with self._control.transaction() as c:
            # The row is locked first: two renewals of one lease take their turns, and so do the
            # times that they note.
            done = c.execute(
                gateway.update().where(mine).values(counter=g.counter + 1, seconds=seconds)
            )
            row = c.execute(sa.select(g.holder, g.counter).where(mine)).first()
            if row is not None:
                held = json.loads(row.holder)
                held |= _granted(max(seconds, _left(held, row.counter)), row.counter)
                c.execute(gateway.update().where(mine).values(holder=json.dumps(held)))
            return bool(done.rowcount)

    def saw(self, instance: str, seen: Standing) -> None:
        """Note what a gateway has seen, and acts by from here on."""
        with self._control.transaction() as c:
            c.execute(
                gateway.update()
                .where(gateway.c.instance == instance)
                .values(
                    run=seen.run, phase=seen.phase.value, epoch=seen.epoch, attempt=seen.attempt
                )
            )

    def acknowledge(self, instance: str, seen: Standing) -> bool:
        """Say that nothing of a gateway's is in flight, and nothing will be until the release.

        A compare-and-set that carries the attempt's number (R13): False where that is over.
        """
        g, r = gateway.c, t.run.c
        raised = sa.exists().where(
            r.id == seen.run, r.epoch == seen.epoch, r.attempt == seen.attempt, r.fence == "raised"
        )
        with self._control.transaction() as c:
            done = c.execute(
                gateway.update()
                .where(g.instance == instance, g.run == seen.run, raised)
                .values(acknowledged=seen.attempt)
            )
            return bool(done.rowcount)

    def leave(self, instances: Iterable[str]) -> None:
        """Remove leases, as their holder."""
        with self._control.transaction() as c:
            c.execute(gateway.delete().where(gateway.c.instance.in_(list(instances))))

    # ------------------------------------------------------------------ an owner's side

    def forget(self, lapsed: Iterable[GatewayLease]) -> None:
        """Remove leases that ran out; not one that was renewed since: its holder goes by it, and
        has to be waited for."""
        g = gateway.c
        with self._control.transaction() as c:
            for lease in lapsed:
                mine = g.instance == lease.instance, g.counter == lease.counter
                c.execute(gateway.delete().where(*mine))

    def leases(self, classes: Iterable[str]) -> list[GatewayLease]:
        """The leases on some classes. Read them only after the change they are to see."""
        g = gateway.c
        query = sa.select(gateway).where(g.env == self._control.env, g.cls.in_(list(classes)))
        with self._control.transaction() as c:
            rows = c.execute(query.order_by(g.instance)).mappings().all()
        return [
            GatewayLease(**{k: v for k, v in row.items() if k not in ("env", "phase")},
                         phase=Phase(row["phase"]))
            for row in rows
        ]  # fmt: skip


Content = Callable[[GatewayLease], bool]


def knows(run: Run) -> Content:
    """Whether a gateway has seen a run's phase: what backfill waits for (R9)."""
    return lambda lease: lease.run == run.id and lease.phase.rank >= run.phase.rank


def is_armed(run: Run) -> Content:
    """Whether a gateway holds a short lease, and looks often: what the fence waits for."""
    return lambda lease: (
        lease.run == run.id and lease.attempt == run.attempt and lease.seconds <= SHORT
    )


def has_acknowledged(run: Run) -> Content:
    """Whether a gateway writes no more until the release: what the flip waits for (R16)."""
    return lambda lease: lease.run == run.id and lease.acknowledged == run.attempt


@dataclass
class Watch:
    """What an owner sees of the leases, on its own clock.

    Make one anew for each change that is waited for, after it is durable: only from there on a
    counter that stands still says anything (R14).
    """

    clock: Callable[[], float] = boot_clock
    is_gone: Callable[[str], bool] = _is_gone
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def sort(
        self, leases: Sequence[GatewayLease], content: Content
    ) -> tuple[list[GatewayLease], list[GatewayLease]]:
        """Of the leases not content yet those still to wait for, and those that ran out.

        One that ran out writes no more of its own, but a request that it sent may still be alive
        on a server: its sessions must be ended, or a request's life be waited for (R6, R16).
        """
        now = self.clock()
        waiting: list[GatewayLease] = []
        lapsed: list[GatewayLease] = []
        for lease in leases:
            if content(lease):
                continue
            counter, since = self._seen.get(lease.instance, (None, now))
            if counter != lease.counter:
                since = now
            self._seen[lease.instance] = (lease.counter, since)
            out = now - since >= lease.lasts or self.is_gone(lease.holder)
            (lapsed if out else waiting).append(lease)
        return waiting, lapsed


def wait_for(
    gateways: Gateways,
    classes: Sequence[str],
    content: Content,
    *,
    until: float,
    check: Callable[[Sequence[GatewayLease]], None] = lambda waiting: None,
    pause: float = 0.002,
) -> tuple[list[GatewayLease], list[GatewayLease]]:
    """Wait until every gateway is content or its lease ran out; those still to wait for at
    ``until`` (monotonic), and those that ran out. ``check`` is called before each look, with
    those to wait for at the one before."""
    watch = Watch()
    waiting: list[GatewayLease] = []
    while True:
        check(waiting)
        waiting, lapsed = watch.sort(gateways.leases(classes), content)
        if not waiting or time.monotonic() >= until:
            return waiting, lapsed
        time.sleep(pause)


def alive(gateways: Gateways, classes: Sequence[str], *, pause: float = 0.02) -> list[GatewayLease]:
    """Some that go on renewing their leases, as soon as one is seen to; none where all have run
    out, which is outwaited."""
    watch, first = Watch(), dict[str, int]()
    while True:
        waiting, _ = watch.sort(gateways.leases(classes), lambda _: False)
        renewed = [
            lease
            for lease in waiting
            if lease.counter != first.setdefault(lease.instance, lease.counter)
        ]
        if renewed or not waiting:
            return renewed
        time.sleep(pause)

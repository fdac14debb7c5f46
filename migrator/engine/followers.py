"""Who holds a lease and can't follow a run's next step: found before that is taken.

A gateway that can't follow a phase would refuse each call of its application from there on. What
a lease says of its holder tells that ahead, so the step is not taken until the application was
brought up to date, or stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.errors import Waiting
from migrator.following import Lack, lack
from migrator.model.phase import Phase
from migrator.route import Route
from migrator.state.database import HEAD
from migrator.state.gateways import GatewayLease, Gateways, Watch

# So many of them are named in an error; status names all.
_NAMED = 3
_PAUSE = 0.02


@dataclass(frozen=True)
class Unable:
    """The holder of a lease, and what keeps it from following."""

    lease: GatewayLease
    lack: Lack

    @property
    def words(self) -> str:
        """Who it is, and what it lacks."""
        return f"{self.lease.told} ({self.lack.what})"


class Followers:
    """All that hold leases on the classes of one revision."""

    def __init__(self, gateways: Gateways, revision: str, routes: Sequence[Route]) -> None:
        self._gateways = gateways
        self._revision = revision
        self._routes = routes
        self.classes = sorted({c for r in routes for c in (r.cls, r.move.source_cls)})

    def unable(self, to: Phase) -> list[Unable]:
        """Those that can't go on in a phase; whether they are alive is not known."""
        leases = self._gateways.leases(self.classes)
        return [Unable(lease, why) for lease in leases if (why := self._lack(lease, to))]

    def gate(self, to: Phase, turn: Callable[[], None] = lambda: None) -> None:
        """Raise Waiting for those that can't go on in a phase, and live. One that is gone is
        outwaited: that takes as long as its lease (R14). ``turn`` is called meanwhile."""
        watch, first = Watch(), dict[str, int]()
        while found := self.unable(to):
            leases = {each.lease.instance: each.lease for each in found}
            waiting, _ = watch.sort(list(leases.values()), lambda _: False)
            left = {lease.instance for lease in waiting}
            seen = {name: first.setdefault(name, lease.counter) for name, lease in leases.items()}
            alive = {name for name in left if leases[name].counter != seen[name]}
            if alive == left:
                self.refuse([each for each in found if each.lease.instance in alive], to)
                return
            turn()
            time.sleep(_PAUSE)

    def refuse(self, unable: Sequence[Unable], to: Phase) -> None:
        """Raise Waiting where there are any."""
        if not unable:
            return
        named = "; ".join(each.words for each in unable[:_NAMED])
        more = f"; and {len(unable) - _NAMED} more" if len(unable) > _NAMED else ""
        who = "a lease holder" if len(unable) == 1 else f"{len(unable)} lease holders"
        back = "back " if to is Phase.SHADOW_READ else ""
        ways = "; ".join(dict.fromkeys(each.lack.hint for each in unable[:_NAMED]))
        raise Waiting(
            f"{who} can't follow revision {self._revision} {back}into {to.words}: {named}{more}",
            hint=f"{ways}; or stop what can't, and try again",
        )

    def _lack(self, lease: GatewayLease, to: Phase) -> Lack | None:
        if lease.version != HEAD and to is not Phase.DUAL_WRITE:
            return Lack(
                "it is of another version of Migrator: its control database is "
                f"{lease.version or 'older'}, this one's {HEAD}",
                "let that application run this version; until then it goes on writing",
            )
        return lack(lease.follows, lease.cls, self._revision, self._routes, to)


__all__ = ["Followers", "Unable"]

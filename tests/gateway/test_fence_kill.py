"""Gateways that are killed as a swap meets them: it waits for none longer than for its lease."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migrator import commands
from migrator.errors import Waiting
from migrator.state import gateways
from migrator.state.gateways import Gateways
from tests.gateway.kit import until
from tests.gateway.test_live import (
    assert_held,
    begin,
    embedded,
    ends,
    held,
    mirroring,
    more,
    swapped,
)
from tests.system.dying import Mortal

__all__ = ["embedded"]


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _renewed() -> None:
    """It has renewed its lease for as long as the swap is armed, from where nobody sees its end."""
    renew, standing, armed = Gateways.renew, Gateways.standing, list[str]()

    def looked(self: Gateways, cls: str) -> gateways.Standing:
        found = standing(self, cls)
        armed.extend([found.fence] if found.fence else [])
        return found

    def renewed(self: Gateways, instance: str, seconds: float) -> bool:
        done = renew(self, instance, seconds)
        if armed:
            _die()
        return done

    replaced: Any = Gateways
    replaced.standing, replaced.renew = looked, renewed
    gateways._me = lambda: '{"boot": "of another host", "pid": 1, "started": "1"}'


def _met() -> None:
    """It has seen the fence, its writers wait, and it has not said so."""
    replaced: Any = Gateways
    replaced.acknowledge = _die


def _acknowledged() -> None:
    """Its word is there that it writes no more, and its writers wait."""
    acknowledge = Gateways.acknowledge

    def acknowledged(self: Gateways, instance: str, seen: gateways.Standing) -> bool:
        done = acknowledge(self, instance, seen)
        _die()
        return done

    replaced: Any = Gateways
    replaced.acknowledge = acknowledged


_STEPS: dict[str, Callable[[], None]] = {
    "renewed": _renewed, "met": _met, "acknowledged": _acknowledged
}  # fmt: skip


class Doomed(Mortal):
    """A writer that is killed at the step of a swap that its name tells."""

    def live(self) -> None:
        _STEPS[self.name]()
        super().live()


def test_gateways_that_die_as_a_swap_meets_them_keep_it_no_longer_than_a_lease(
    embedded: Path,
) -> None:
    with commands.Project(embedded, "test") as project:
        begin(project)
    doomed = [Doomed(embedded, step).start() for step in _STEPS]
    writers = [Mortal(embedded, "a").start(), *doomed]
    undone = list[str]()

    def cutover(*args: Any, **options: Any) -> None:
        try:
            commands.cutover(*args, **options)
        except Waiting as error:
            undone.append(error.what)
            raise

    try:
        more(writers)  # type: ignore[arg-type]
        with commands.Project(embedded, "test") as project:
            swapped(cutover, project)
            # Whoever is not given up when its lease has run out is waited for in vain.
            assert not [why for why in undone if " did not " in why], undone
            # The store denies what they may have sent, so none of them undoes an attempt.
            assert not [why for why in undone if "ended without leaving" in why], undone
            assert [each.join() for each in doomed] == 3 * [-signal.SIGKILL]
            more(writers[:1])  # type: ignore[arg-type]
            writers[0].stop()
            old, new = ends(project)
            with mirroring(embedded):
                until(lambda: held(old) == held(new))
            assert_held(new, writers)  # type: ignore[arg-type]
            assert held(new).keys() <= {key for writer in writers for key in writer.begun()}
    finally:
        for writer in writers:
            if not writer.waited:
                writer.kill()

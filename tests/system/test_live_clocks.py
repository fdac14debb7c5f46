"""Wall clocks that jump by an hour and back: the owner's and all gateways', on real feeds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.dying import Stubborn, own
from tests.system.test_live_deaths import config, living

__all__ = ["config"]
_HOUR = 3600


def leaping(now: Callable[[], int], hour: int) -> Callable[[], int]:
    """A clock that is right, an hour ahead, and an hour behind, in turn at each look."""
    off = itertools.cycle((0, hour, -hour))
    return lambda: now() + next(off)


class Leaping(Stubborn):
    """A writer whose wall clock jumps. It says where it could not write, and goes on."""

    def live(self) -> None:
        leap(setattr)
        super().live()


def leap(replace: Callable[[object, str, object], None]) -> None:
    """Let the wall clock of this process jump."""
    replace(time, "time", leaping(time.time, _HOUR))  # type: ignore[arg-type]
    replace(time, "time_ns", leaping(time.time_ns, _HOUR * 10**9))


@pytest.mark.parametrize(
    "config",
    [("postgresql", "mongodb"), ("mariadb", "embedded")],
    indirect=True,
    ids="-".join,
)
def test_nothing_is_lost_where_clocks_jump(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with living(config, Leaping) as life:
        with monkeypatch.context() as patch:
            leap(patch.setattr)
            own(config, "apply")
            own(config, "cutover")
        life.write()
        life.assert_nothing_lost()
        with monkeypatch.context() as patch:
            leap(patch.setattr)
            own(config, "rollback")
        life.write()
        life.assert_nothing_lost()

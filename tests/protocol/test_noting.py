"""Brackets as they are, in drawn schedules, replayed in the model: every step is one it allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from migrator.errors import Refused, Terminal
from migrator.gateway.errors import Conflict
from migrator.gateway.noting import Noting
from migrator.model.value import Value
from migrator.ports import Json
from migrator.stores.cassandra.journal import CassandraBrackets, CassandraFeed
from tests.protocol.noting import NotAllowed, noted

SCHEDULES, SHARD = 1_000, 250
Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("first", range(0, SCHEDULES, SHARD))
def test_no_write_is_lost_under_brackets_and_the_model_allows_each_step(first: int) -> None:
    told: set[str] = set()
    for seed in range(first, first + SHARD):
        with pytest.MonkeyPatch.context() as patch:
            told.update(step.partition("(")[0] for step in noted(seed, patch).told)

    # What makes it hard has happened.
    assert told >= {"reader.reaps", "reader.passes", "gateway.leave", "gateway.crash", "call.lands"}


def _never_looks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Noting, "check", lambda self: None)


def _closes_alone(patch: pytest.MonkeyPatch) -> None:
    def close(self: CassandraBrackets, bracket: list[object], *, undone: bool) -> None:
        bucket, id = bracket[:2]
        assert isinstance(bucket, int)
        self._table.close(bucket, bytes.fromhex(str(id)), deleted=bool(bracket[3]) and not undone)

    patch.setattr(CassandraBrackets, "close", close)


def _with(**changes: float) -> Plant:
    """A reader whose waits are others."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        begin = CassandraFeed.__init__

        def __init__(self: CassandraFeed, *args: object) -> None:
            begin(self, *args)  # type: ignore[arg-type]
            self.__dict__.update(changes)

        patch.setattr(CassandraFeed, "__init__", __init__)

    return plant


def _settles_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("migrator.stores.cassandra.journal.request", lambda *_: None)


# By rule: what is planted, and what the model says to it, or to what the sides hold in the end.
PLANTS: Mapping[str, tuple[Plant, str]] = {
    "R8.age": (_never_looks, "refuses gateway.check"),
    "R8.closing": (_closes_alone, "the primary holds"),
    "R8.life": (_with(_dead_after=1.0), "refuses reader.reaps"),
    "R8.settle": (_settles_nothing, "refuses owner.reads"),
    "R8.window": (_with(_window=0.0), "refuses reader.passes"),
}


@pytest.mark.parametrize("rule", PLANTS)
def test_a_rule_broken_in_the_code_is_refused(rule: str) -> None:
    plant, refused = PLANTS[rule]

    def is_refused(seed: int) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            try:
                noted(seed, patch)
            except NotAllowed as error:
                return refused in str(error)
        return False

    assert any(is_refused(seed) for seed in range(SHARD))


class _Closed:
    """Brackets that keep whether what they were around took place."""

    life = 5.0

    def __init__(self) -> None:
        self.undone: list[bool] = []

    def open(self, key: Value, *, deleted: bool = False) -> Json:
        assert deleted
        return None

    def close(self, bracket: Json, *, undone: bool = False) -> None:
        self.undone.append(undone)


@pytest.mark.parametrize(
    ("error", "undone"),
    [(Conflict("written since"), True), (Refused("not on condition"), True),
     (Terminal("denied"), False)],
)  # fmt: skip
def test_a_delete_that_was_refused_is_no_delete(error: Exception, undone: bool) -> None:
    """Else what lies there would pass for deleted and put anew, and inherit nothing."""
    brackets = _Closed()
    with pytest.raises(type(error)), Noting(brackets, "1", True):
        raise error
    assert brackets.undone == [undone]

"""Cassandra's lines of the contract for blocks of entries: layouts ``row`` and ``partition``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from migrator.model.layouts import cassandra_row
from migrator.model.move import At, Layout
from migrator.ports import Store
from migrator.testing.contract import ContractCase
from tests.contract import meters, servers


def cases(
    open_: Callable[[Path], Store], break_copier: Callable[[pytest.MonkeyPatch], None]
) -> list[ContractCase]:
    """Both layouts, ``row`` with some entries in columns of their own."""

    row = cassandra_row(columns=["firstPlayer", "rounds[0]", "v", "rounds[11].moves"])

    def case(layout: Layout) -> ContractCase:
        def at(name: str, rules: Sequence[str]) -> At:
            return At("store", name, rules, layout)

        return ContractCase(
            "cassandra",
            layout.name,
            open_,
            at,
            break_copier,
            module="cassandra",
            exclusions=servers.tried_on("layout partition") if layout is row else {},
            empty=servers.empty_cassandra,
            meter=meters.CASSANDRA,
        )

    return [case(row), case(Layout("partition"))]

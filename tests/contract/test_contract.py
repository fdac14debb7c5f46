"""Every store keeps every promise of the ports."""

from __future__ import annotations

import pkgutil

import pytest

import migrator.stores
from migrator.ports import Store
from migrator.testing.contract import ContractCase, StoreContract
from tests.contract.cases import CASES


class TestStores(StoreContract):
    @pytest.fixture(scope="class", params=CASES, ids=str)
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> ContractCase:
        case: ContractCase = request.param
        return case

    def test_every_layout_has_a_case(self, case: ContractCase, store: Store) -> None:
        # What stands behind a comma tells two cases of one layout apart.
        system = case.name.partition(",")[0]
        layouts = {c.layout for c in CASES if c.name.partition(",")[0] == system}
        assert layouts == set(store.capabilities.layouts)


def test_every_store_has_a_case() -> None:
    modules = {module.name for module in pkgutil.iter_modules(migrator.stores.__path__)}
    missing = modules - {case.module for case in CASES}
    assert not missing, f"no line in tests/contract/cases.py for migrator.stores.{missing}"
    assert len(set(map(str, CASES))) == len(CASES), "two cases have one name and layout"

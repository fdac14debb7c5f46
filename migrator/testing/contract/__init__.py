"""The contract suite: every promise of ``migrator.ports`` as a test, to be inherited.

An adapter, also one outside this package, is held to all of them by one subclass:

    class TestMyStore(StoreContract):
        @pytest.fixture(scope="class", params=[ContractCase(...)], ids=str)
        @classmethod
        def case(cls, request):
            return request.param

and, in its ``conftest.py``, ``pytest.register_assert_rewrite("migrator.testing.contract")``
with the hooks of ``migrator.testing.matrix``, which print promise x store and fail any skip
that follows neither from the store's capabilities nor from a reason declared in the case.
"""

from migrator.testing.contract.case import (
    CLS,
    REPRESENTATIONS,
    ContractCase,
    FixedSchema,
    Meter,
    Traffic,
    game,
)
from migrator.testing.contract.costing import CostPromises
from migrator.testing.contract.exchanging import ExchangePromises
from migrator.testing.contract.holding import ObserverPromises, ValuePromises
from migrator.testing.contract.reading import KeyPromises, LifePromises, PagePromises
from migrator.testing.contract.together import StatedPromises, TogetherPromises
from migrator.testing.contract.writing import (
    DeletePromises,
    ExpiryPromises,
    PatchPromises,
    WritePromises,
)


class StoreContract(
    LifePromises,
    PagePromises,
    KeyPromises,
    WritePromises,
    PatchPromises,
    ExchangePromises,
    DeletePromises,
    ExpiryPromises,
    ValuePromises,
    ObserverPromises,
    TogetherPromises,
    StatedPromises,
    CostPromises,
):
    """All promises. A subclass gives the fixture ``case``, of class scope."""


__all__ = [
    "CLS",
    "REPRESENTATIONS",
    "ContractCase",
    "FixedSchema",
    "Meter",
    "StoreContract",
    "Traffic",
    "game",
]

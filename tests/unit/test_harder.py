"""Values that are harder than their kind, as every store tells of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.bootstrap import factory
from migrator.model.canonical import encode
from migrator.model.url import scheme
from migrator.planning.harder import VALUES, harder
from migrator.ports import How, StoreSettings
from migrator.testing.values import ODD_VALUES

URLS = [
    "embedded:///a.db", "sqlite:///a.db", "postgresql://host/a", "mariadb://host/a",
    "mongodb://host/a", "redis://host/0", "dynamodb:///?region=eu-west-1", "cassandra://host/a",
]  # fmt: skip


def test_each_is_tried_on_the_servers() -> None:
    # The contract suite writes each odd value, and wants it back or refused as it is told here.
    tried = {encode(value) for values in ODD_VALUES.values() for value in values}
    assert [name for name, value in VALUES.items() if encode(value) not in tried] == []


@pytest.mark.parametrize("url", URLS)
def test_every_layout_without_declared_types_tells_of_them(url: str, tmp_path: Path) -> None:
    store = factory(scheme(url))(StoreSettings("store", url, root=str(tmp_path)))
    layouts = store.capabilities.layouts
    found = harder(store)
    store.close()
    assert found.keys() == {name for name, facts in layouts.items() if not facts.typed}
    assert all(each.keys() == VALUES.keys() for each in found.values())
    for held in (held for each in found.values() for held in each.values()):
        assert held.type or held.how is not How.TAGGED

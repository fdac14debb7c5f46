"""One line for each layout of each store: what is held to the contract."""

from __future__ import annotations

import pytest

from migrator.model.move import At
from migrator.ports import StoreSettings
from migrator.stores import sqlite
from migrator.testing.contract import ContractCase


def _break_embedded(patch: pytest.MonkeyPatch) -> None:
    from migrator.stores.sqlite import codec

    encode, decode = codec.encode, codec.decode
    patch.setattr(codec, "encode", lambda value: encode(value).replace(b"kept", b"KEPT"))
    patch.setattr(codec, "decode", lambda data: decode(data.replace(b"KEPT", b"kept")))


CASES = [
    ContractCase(
        "embedded",
        "entries",
        open=lambda folder: sqlite.open_store(
            StoreSettings("embedded", "embedded:///contract.db", root=str(folder))
        ),
        at=lambda name, rules: At("embedded", name, rules),
        break_copier=_break_embedded,
        module="sqlite",
    ),
]

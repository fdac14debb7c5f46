"""A command outlives its client: why a request without an answer counts as alive (R6, R16)."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import redis

from migrator.errors import Transient
from migrator.model.block import Block
from migrator.model.move import At
from migrator.ports import StoreSettings
from migrator.stores.redis import open_store
from tests.contract.own_redis import Own, warmed


def test_a_command_is_carried_out_when_its_client_is_long_gone(tmp_path: Path) -> None:
    own = Own(tmp_path)
    try:
        store = open_store(StoreSettings("store", own.url, {"socketTimeoutMS": 200}))
        place = store.collection("Game", At("store", "Game", ["/Game/*"]))
        warmed(lambda: place.write([Block("a", {"": {"n": 1}})]))
        with redis.Redis(port=own.port) as plain:
            before = plain.dbsize()
            own.freeze()
            with pytest.raises(Transient) as caught:
                place.write([Block("b", {"": {"n": 2}})])
            store.close()
            own.process.send_signal(signal.SIGCONT)

            # Nobody is there any more who could have sent it.
            end = time.monotonic() + 60
            while plain.dbsize() == before and time.monotonic() < end:
                time.sleep(0.01)
            assert plain.dbsize() > before
        assert caught.value.unknown
    finally:
        own.process.send_signal(signal.SIGCONT)
        own.stop()

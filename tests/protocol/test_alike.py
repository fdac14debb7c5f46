"""The real engine where the mirror takes keys for one, in schedules drawn from seeds (R3)."""

from __future__ import annotations

import os

import pytest

from tests.protocol.alike import filled, life

SCHEDULES = int(os.environ.get("MIGRATOR_SCHEDULES", "200")) // 8


@pytest.mark.parametrize("loose", [True, False], ids=["loose", "strict"])
@pytest.mark.parametrize("kind", range(4), ids=["kept", "rekeyed", "spread", "gathered"])
@pytest.mark.parametrize("side", ["target", "source"])
def test_keys_that_the_mirror_takes_for_one_lose_no_write(
    side: str, kind: int, loose: bool
) -> None:
    for seed in range(SCHEDULES):
        with pytest.MonkeyPatch.context() as patch:
            life(filled(seed, patch, side, kind, loose=loose), side)

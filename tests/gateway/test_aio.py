"""The gateway for asyncio."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Refused
from migrator.gateway import AsyncGateway, Conflict
from tests.ending import waited
from tests.engine.games import source
from tests.gateway.kit import QUICK, make_project


def test_many_appends_at_once(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        source(project).create()

    async def run() -> None:
        async with await AsyncGateway.open("Game", config, "test", terms=QUICK, threads=4) as games:
            first = await games.put("1", {"rounds": []})
            await asyncio.gather(*(games.append("1", "rounds", n) for n in range(12)))
            found = await games.get("1")
            assert found is not None
            assert sorted(found.value["rounds"]) == list(range(12))  # type: ignore[call-overload]
            with pytest.raises(Conflict):
                await games.update("1", {"n": 1}, expected=first.version)
            assert await games.get_entries("1", ["n"]) == {}
            await games.delete("1")
            assert await games.get("1") is None

    asyncio.run(run())


def test_a_forked_child_goes_on_and_what_is_closed_says_so(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        source(project).create()

    async def opened() -> AsyncGateway:
        games = await AsyncGateway.open("Game", config, "test", terms=QUICK)
        await games.put("1", {"n": 1})
        return games

    async def looks() -> bool:
        return await asyncio.wait_for(games.get("1"), 60) is not None

    games = asyncio.run(opened())
    if not (child := os.fork()):
        code = 1
        try:
            code = 0 if asyncio.run(looks()) else 2
        finally:
            os._exit(code)
    assert waited(child) == 0
    assert asyncio.run(looks())
    asyncio.run(games.close())
    with pytest.raises(Refused, match="closed"):
        asyncio.run(looks())

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Project, new_shop, started


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """A test that fails leaves no process behind: the next ones need the machine."""
    yield
    while started:
        with started.pop() as process:
            process.kill()


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    """A project with two scripts and three games."""
    return new_shop(tmp_path / "project")

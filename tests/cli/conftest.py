from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import Project, new_shop


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    """A project with two scripts and three games."""
    return new_shop(tmp_path / "project")

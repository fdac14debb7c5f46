"""Databases of these tests' own, and a project over all that a test names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hard_cases.bench import Bench
from tests.system.conftest import database_url, urls
from tests.system.kit import Urls

__all__ = ["bench", "database_url", "urls"]


@pytest.fixture
def bench(tmp_path: Path, urls: Urls) -> Bench:
    """Stores ``pg``, ``maria`` and ``docs`` on servers, ``lite`` and ``emb`` in files."""
    return Bench(tmp_path, urls)

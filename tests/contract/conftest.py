"""The matrix of promises is printed after the contract tests; unexplained skips fail."""

import pytest

pytest.register_assert_rewrite("migrator.testing.contract")

from migrator.testing.matrix import (  # noqa: E402
    pytest_runtest_makereport,
    pytest_terminal_summary,
)

__all__ = ["pytest_runtest_makereport", "pytest_terminal_summary"]

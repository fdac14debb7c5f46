"""Databases of these tests' own, as those of the whole system have."""

from tests.system.conftest import database_url

__all__ = ["database_url"]

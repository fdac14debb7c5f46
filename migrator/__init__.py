"""Migrator moves data between representations of aggregates and between stores, and back.

What a migration script imports lies here: ``Move``, ``At``, ``tables`` and the evolutions.
"""

from migrator.model.move import At, Layout, Move, Tables, tables
from migrator.model.value import Kind, Ref

__all__ = ["At", "Kind", "Layout", "Move", "Ref", "Tables", "tables"]

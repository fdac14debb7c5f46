"""Aggregates seen in groups: which parts belong to which whole, and the wholes as a collection."""

from migrator.grouping.gathered import Gathered, Reader, gathered, group_of
from migrator.grouping.groups import MOST_PARTS, Group, Groups, Side
from migrator.grouping.index import Index

__all__ = [
    "MOST_PARTS", "Gathered", "Group", "Groups", "Index", "Reader", "Side", "gathered", "group_of",
]  # fmt: skip

"""Aggregates seen in groups: which parts belong to which whole, and the wholes as a collection."""

from migrator.grouping.gathered import Gathered, gathered
from migrator.grouping.groups import Group, Groups, Side

__all__ = ["Gathered", "Group", "Groups", "Side", "gathered"]

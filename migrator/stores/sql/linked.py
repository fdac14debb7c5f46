"""The tables of an aggregate as those who follow rows up to their root see them."""

from __future__ import annotations

from migrator.outbox import Link, Table
from migrator.stores.sql.shape import Node


def linked(node: Node, root: Node) -> Table:
    """A table with its links up to the root."""
    links = []
    at = node
    while at.up is not None:
        links.append(Link(at.parent, at.up.info.name, at.refs))
        at = at.up
    return Table(node.info.name, root.key, links)

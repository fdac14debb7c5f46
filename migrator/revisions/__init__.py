"""Migration scripts: loading, graph, new-script template."""

from migrator.revisions.graph import Graph, load
from migrator.revisions.script import Revision

__all__ = ["Graph", "Revision", "load"]

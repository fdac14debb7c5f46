"""Migration scripts: loading, graph, new scripts.

``load`` a folder of scripts into a ``Graph``; ask it for the ``moves`` of a revision.
"""

from migrator.revisions.declared import all_tables
from migrator.revisions.graph import Graph, load
from migrator.revisions.new import FromSql, NewScript, new
from migrator.revisions.report import Checked, HistoryEntry, Remark, Step, check, heads, history
from migrator.revisions.script import Revision

__all__ = [
    "Checked",
    "FromSql",
    "Graph",
    "HistoryEntry",
    "NewScript",
    "Remark",
    "Revision",
    "Step",
    "all_tables",
    "check",
    "heads",
    "history",
    "load",
    "new",
]

"""The outbox of a SQLite file: triggers write the keys of touched blocks beside the data, in the
transaction that touches them (R1). Both stores that lie in such files share it.

What is special about SQLite: there is one writer at a time, so the numbers of the outbox have the
order of the commits, and TRUNCATE does not exist; but OR REPLACE deletes rows without a word.
"""

from migrator.outbox.fence import OutboxFence, let_pass, passing
from migrator.outbox.journal import File, OutboxJournal, Watched
from migrator.outbox.note import FileNote
from migrator.outbox.triggers import Link, Table

__all__ = [
    "File",
    "FileNote",
    "Link",
    "OutboxFence",
    "OutboxJournal",
    "Table",
    "Watched",
    "let_pass",
    "passing",
]

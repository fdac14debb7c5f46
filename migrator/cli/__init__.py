"""The command line: it reads words, calls ``migrator.commands`` and shows what they return.

Start at ``entry.main``. Whatever loads slowly is imported inside the commands.
"""

from migrator.cli.entry import main

__all__ = ["main"]

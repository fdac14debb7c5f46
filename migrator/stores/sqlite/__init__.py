"""The embedded store: blocks as entries in one SQLite file, no server. The default.

[env.NAME.stores.docs]
url = "embedded:///docs.db"        # relative to migrator.toml; four slashes: absolute
"""

from migrator.stores.sqlite.store import CAPABILITIES, open_store

__all__ = ["CAPABILITIES", "open_store"]

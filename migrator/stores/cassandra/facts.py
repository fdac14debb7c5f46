"""What Cassandra can do and hold, as data; each layout adds its own."""

from __future__ import annotations

from migrator.ports import Capabilities
from migrator.stores.cassandra import entries_facts, table_facts

DEFAULT_LAYOUT = "table"
LAYOUTS = {"table": table_facts.FACTS, **entries_facts.LAYOUTS}
CAPABILITIES = Capabilities(
    layouts=LAYOUTS,
    default_layout=DEFAULT_LAYOUT,
    kinds=table_facts.KINDS,
    key_kinds=table_facts.KEY_KINDS,
    key_order="the tokens of the partition key, then the clustering columns",
    limits=table_facts.FACTS.limits,  # type: ignore[arg-type]
    expiry=True,
)

"""Where the figures were measured."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks import clients
from tests.benchmarks.sides import Side
from tests.system.servers import connect_mongodb, connect_postgresql

_PACKAGES = ("msgpack", "msgspec", "psycopg", "pymongo", "sqlalchemy")


def describe(sides: set[Side]) -> dict[str, str]:
    """Cores, processor, memory, versions, and what else the machine was doing."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {
        "machine": f"{os.cpu_count()} cores, {model or platform.machine()}, {memory:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        "load": f"{os.getloadavg()[0]:.1f} when it began",
    }
    for side in sides:
        if side.store != "embedded":
            found[side.store] = _server(side)
    return found


def _server(side: Side) -> str:
    if side.store in ("redis", "cassandra", "dynalite"):
        return clients.version(side)
    if side.store == "mongodb":
        with connect_mongodb(side.server) as client:
            build = client.server_info()
        return f"says {build['version']} (on this machine)"
    with connect_postgresql(side.server) as connection:
        return f"{connection.info.server_version // 10_000} (on this machine)"

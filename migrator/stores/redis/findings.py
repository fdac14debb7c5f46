"""What an expert would say of a Redis that data is to live in, out of what it says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from migrator.errors import Terminal
from migrator.stores.redis.settings import Address
from migrator.stores.redis.wire import Unit, Wire

Finding = tuple[str, str, str]
Info = Mapping[str, str]
# Redis' own records of a key, its expiry and its place in the tables.
KEY_OVERHEAD = 100


def info(wire: Wire, master: Address) -> dict[str, str]:
    """What INFO answers; of the settings, those that this user may see."""
    held = lines(wire.ask(master, ("INFO", "everything")))
    for name in ("save", "appendfsync"):
        try:
            answer = wire.ask(master, ("CONFIG", "GET", name))
        except Terminal:
            continue  # managed services forbid it
        if answer:
            held[f"config {name}"] = answer[1].decode()
    return held


def lines(answer: bytes) -> dict[str, str]:
    """What an answer to INFO says, by name."""
    told = answer.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in told if ":" in line and line[:1] != "#")


def remarks(servers: Sequence[Info]) -> Iterator[str]:
    """What these servers can't promise (R7)."""
    if any(each.get("role") != "master" for each in servers):
        yield "a replica: it takes no writes, and what it shows may be old"
    if any(_number(each, "aof_enabled") == 0 for each in servers):
        yield "without AOF: what was written since the last snapshot is lost with the process"
    elif any(each.get("config appendfsync") != "always" for each in servers):
        yield "AOF is synced once a second: a crash may lose the last second"
    if any(map(_replicas, servers)):
        yield "replicas are behind: a failover may lose the last writes"
    if not _has_field_expiry(servers[0]):
        yield "no deadlines of single hash fields before Redis 7.4 and Valkey 9"
    else:
        yield "deadlines of single hash fields are carried where layout native has them as a part"


def _has_field_expiry(server: Info) -> bool:
    numbers = [int(part) for part in version(server).split(".")[:2] if part.isdigit()]
    return numbers >= ([9, 0] if product(server) == "Valkey" else [7, 4])


def of_both_sides(servers: Sequence[Info]) -> Iterator[Finding]:
    """Severity, code and text, for a source as well as for a target."""
    if any(each.get("role") != "master" for each in servers):
        yield "error", "redis-replica", "it is a replica: it takes no writes and may show old data"


def field_deadlines(servers: Sequence[Info], database: int) -> Iterator[Finding]:
    """Deadlines of single fields, for a layout that leaves them behind."""
    fields = sum(_subexpiry(each.get(f"db{database}", "")) for each in servers)
    if fields:
        yield (
            "accept",
            "redis-field-expiry",
            f"{fields:,} hashes have fields with deadlines of their own, which are carried only "
            "where layout native has them as a part (redis_native, type deadlines)",
        )


def without_field_deadlines(servers: Sequence[Info]) -> Iterator[Finding]:
    """For a layout with such deadlines, where the server has none."""
    old = sorted(
        {f"{product(each)} {version(each)}" for each in servers if not _has_field_expiry(each)}
    )
    if old:
        yield (
            "error",
            "redis-no-field-expiry",
            f"the layout has deadlines of single fields, and {', '.join(old)} has none: it takes "
            "Redis 7.4 or Valkey 9",
        )


def product(server: Info) -> str:
    """Who a server is; Valkey also says which Redis it stands for."""
    return "Valkey" if "valkey_version" in server else "Redis"


def version(server: Info) -> str:
    """Its own version."""
    return server.get("valkey_version") or server.get("redis_version", "?")


def _subexpiry(keyspace: str) -> int:
    pairs = dict(part.split("=", 1) for part in keyspace.split(",") if "=" in part)
    return int(pairs.get("subexpiry", pairs.get("keys_with_volatile_items", 0)))


def of_target(servers: Sequence[Info], replicas: int, blocks: int, size: int) -> Iterator[Finding]:
    """As ``of_both_sides``, for a place where so many blocks and bytes are to be written."""
    if any(_number(each, "aof_enabled") == 0 for each in servers):
        snapshots = all(each.get("config save", "unknown") for each in servers)
        yield (
            "accept",
            "redis-persistence",
            "it has no AOF: " + ("a crash loses all since the last snapshot" if snapshots else
            "and no snapshots either, so a restart loses everything"),
        )  # fmt: skip
    elif any(each.get("config appendfsync") == "no" for each in servers):
        yield "warning", "redis-fsync", "it leaves syncing its AOF to the system (appendfsync no)"
    for policy in sorted({each.get("maxmemory_policy", "noeviction") for each in servers}):
        if policy != "noeviction" and any(_number(each, "maxmemory") for each in servers):
            yield "accept", "redis-eviction", f"it evicts keys when memory is short ({policy})"
    if any(map(_replicas, servers)) and not replicas:
        yield (
            "warning",
            "redis-replicas",
            "it has replicas, and a write counts before they have it: a failover may lose it "
            "(set the store's option replicas)",
        )
    yield from _memory(servers, size + KEY_OVERHEAD * blocks)


def _memory(servers: Sequence[Info], needed: int) -> Iterator[Finding]:
    bounded = all(_number(each, "maxmemory") for each in servers)
    bound = "maxmemory" if bounded else "total_system_memory"
    room = sum(_number(each, bound) - _number(each, "used_memory") for each in servers)
    if needed > room > 0 or (bounded and needed > room):
        yield (
            "error" if bounded else "warning",
            "redis-memory",
            f"about {needed:,} bytes are to be written and {max(room, 0):,} are free "
            f"({'maxmemory' if bounded else 'of the machine'})",
        )


def _replicas(server: Info) -> int:
    """How many replicas hold its data; what only reads its stream listens nowhere."""
    readers = (told for name, told in server.items() if name.startswith("slave"))
    return _number(server, "connected_slaves") - sum(",port=0," in told for told in readers)


def _number(server: Info, name: str) -> int:
    text = server.get(name, "0")
    return int(text) if text.isdigit() else 0


def moving_slots(wire: Wire) -> Iterator[Finding]:
    """Slots of a cluster on their way: SCAN may pass their keys by."""
    if not wire.servers.cluster:
        return
    nodes: bytes = wire.ask(wire.masters()[0], ("CLUSTER", "NODES"))
    if b"->-" in nodes or b"-<-" in nodes:
        yield (
            "error",
            "redis-slots",
            "slots of the cluster are being moved, and a scan may pass their keys by: wait for it",
        )


def nested(name: str, others: Iterable[str]) -> Iterator[Finding]:
    """Collections whose keys are keys of this one, or the other way round."""
    for other in sorted(others):
        if other != name and f"{max(name, other, key=len)}".startswith(
            f"{min(name, other, key=len)}:"
        ):
            yield (
                "error",
                "redis-nested",
                f"the keys of {max(name, other, key=len)} are keys of {min(name, other, key=len)}, "
                "too: choose another name",
            )


def other_types(wire: Wire, keys: Sequence[bytes], type_: str) -> Iterator[Finding]:
    """Keys of the collection's name that hold something else."""
    units = [Unit(key, [("TYPE", key)]) for key in keys]
    found = []
    for key, (held,) in zip(keys, wire.run(units), strict=True):
        if isinstance(held, Exception):
            raise wire.refusal(held)
        if held not in (type_.encode(), b"none"):
            found.append(key)
    if found:
        shown = ", ".join(key.decode("utf-8", "backslashreplace") for key in found[:3])
        yield (
            "warning",
            "redis-types",
            f"keys of this name that are no {type_} are no blocks and are left alone: {shown}",
        )

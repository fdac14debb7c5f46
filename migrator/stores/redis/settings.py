"""Settings of a Redis store: the URL, the checked options, and connections made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import hiredis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.credentials import CredentialProvider
from redis.retry import Retry

from migrator.errors import Refused
from migrator.options import checked
from migrator.ports import Secret, StoreSettings

PORT = 6379
Arg: TypeAlias = bytes | str | int
_FILES = {
    "tlsCAFile": "ssl_ca_certs",
    "tlsCertFile": "ssl_certfile",
    "tlsKeyFile": "ssl_keyfile",
}
FEEDS = ("replication", "tracking")
_KNOWN: dict[str, type] = {
    **dict.fromkeys(_FILES, str),
    "tls": bool,
    "tlsAllowInvalidCertificates": bool,
    "username": str,
    "database": int,
    "feed": str,
    "connectTimeoutMS": int,
    "socketTimeoutMS": int,
    "maxPoolSize": int,
    "replicas": int,
    "replicasTimeoutMS": int,
}


@dataclass(frozen=True)
class Address:
    """Where one server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Servers:
    """How to reach a store: the servers named in its URL, and how to connect to any of them.

    ``replicas`` is how many replicas must have a write before it counts as durable, within
    ``replicas_ms``. ``feed`` says how writes are followed.
    """

    seeds: tuple[Address, ...]
    cluster: bool
    connection: type[Connection]
    options: dict[str, Any]
    pool: int
    replicas: int
    replicas_ms: int
    feed: str


def servers(settings: StoreSettings) -> Servers:
    """Read URL and options. Raises Refused for what is unknown or ill-typed."""
    where = f"store {settings.name}"
    options = checked(settings, "Redis", _KNOWN, _FILES, least=0)
    parts = urlsplit(settings.url)
    cluster = parts.scheme.lower() == "rediscluster"
    if parts.query or parts.fragment:
        raise Refused(f"{where}: the url has a query", hint="put it into the store's options")
    feed = options.get("feed", FEEDS[0])
    if feed not in FEEDS:
        raise Refused(f"{where}: feed is {feed!r}", hint=f"one of: {', '.join(FEEDS)}")
    seeds = tuple(_address(text, where) for text in parts.netloc.rpartition("@")[2].split(","))
    tls = parts.scheme.lower() == "rediss" or options.get("tls", False)
    user = options.get("username") or unquote(parts.username or "")
    made: dict[str, Any] = {
        "db": _database(parts.path, options, cluster, where),
        "protocol": 2,
        "socket_connect_timeout": options.get("connectTimeoutMS", 10_000) / 1000,
        "socket_timeout": options.get("socketTimeoutMS", 60_000) / 1000,
        "socket_keepalive": True,
        "client_name": "migrator",
        # The engine repeats, in one place; a driver that does so by itself hides what happened.
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "command_packer": _Packer(),
    }
    if settings.secret is not None or user:
        made["credential_provider"] = _Credentials(user, settings.secret)
    if tls:
        if options.get("tlsAllowInvalidCertificates"):
            made |= {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
        for name, driver in _FILES.items():
            if name in options:
                made[driver] = options[name]
    return Servers(
        seeds,
        cluster,
        SSLConnection if tls else Connection,
        made,
        options.get("maxPoolSize", 64),
        options.get("replicas", 0),
        options.get("replicasTimeoutMS", 10_000),
        feed,
    )


class _Packer:
    """As the driver packs with hiredis, without a look in Python at the type of each argument."""

    def pack(self, *args: Arg) -> list[bytes]:
        name = args[0]
        words = name.split() if isinstance(name, str) and " " in name else [name]
        return [hiredis.pack_command((*words, *args[1:]))]


class _Credentials(CredentialProvider):
    """Fetches the password anew for every connection."""

    def __init__(self, user: str, secret: Secret | None) -> None:
        self._user = user
        self._secret = secret

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._secret() if self._secret else ""
        return (self._user, password) if self._user else (password,)


def _address(text: str, where: str) -> Address:
    parts = urlsplit(f"//{text}")
    try:
        port = parts.port or PORT
    except ValueError:
        raise Refused(f"{where}: {text} has no port number") from None
    if not parts.hostname:
        raise Refused(f"{where}: the url names no host", hint="redis://host:6379/0")
    return Address(parts.hostname, port)


def _database(path: str, options: dict[str, Any], cluster: bool, where: str) -> int:
    text = path.strip("/")
    if text and not text.isdigit():
        raise Refused(f"{where}: {text!r} is no number of a database", hint="redis://host:6379/0")
    number = int(options.get("database", text or 0))
    if cluster and number:
        raise Refused(f"{where}: a cluster has only database 0")
    return number

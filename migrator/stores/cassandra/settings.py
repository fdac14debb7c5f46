"""Settings of a Cassandra store: the URL and the checked options, as the driver wants them."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from cassandra import ConsistencyLevel
from cassandra.auth import AuthProvider, PlainTextAuthenticator
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import tuple_factory

from migrator.errors import Refused
from migrator.options import checked
from migrator.ports import Secret, StoreSettings

PORT = 9042
# Whatever is weaker reads a past that was already acknowledged as gone (R7).
_CONSISTENCIES = (
    "LOCAL_QUORUM",
    "QUORUM",
    "EACH_QUORUM",
    "ALL",
    "LOCAL_ONE",
    "ONE",
    "TWO",
    "THREE",
)
_FILES = ("tlsCAFile", "tlsCertFile", "tlsKeyFile")
_KNOWN: dict[str, type] = {
    **dict.fromkeys(_FILES, str),
    "tls": bool,
    "tlsAllowInvalidCertificates": bool,
    "username": str,
    "consistency": str,
    "localDatacenter": str,
    "connectTimeoutMS": int,
    "requestTimeoutMS": int,
    "replication": dict,
}
_KEYSPACE = re.compile(r"\w{1,48}", re.ASCII)


@dataclass(frozen=True)
class Contact:
    """How to reach a store: the keyspace, and arguments for the driver's Cluster.

    ``replication`` is what a keyspace that is not there yet is made with; empty to make none.
    """

    keyspace: str
    consistency: str
    replication: Mapping[str, str]
    cluster: Mapping[str, Any] = field(repr=False)


def contact(settings: StoreSettings) -> Contact:
    """Read URL and options. Raises Refused for what is unknown or ill-typed."""
    where = f"store {settings.name}"
    options = checked(settings, "Cassandra", _KNOWN, _FILES, least=1)
    parts = urlsplit(settings.url)
    if parts.query or parts.fragment:
        raise Refused(f"{where}: the url has a query", hint="put it into the store's options")
    hosts, port = _hosts(parts.netloc.rpartition("@")[2], where)
    keyspace = unquote(parts.path.strip("/"))
    if not _KEYSPACE.fullmatch(keyspace):
        raise Refused(
            f"{where}: the url names no keyspace" if not keyspace else
            f"{where}: {keyspace!r} can't be the name of a keyspace",
            hint="cassandra://host:9042/keyspace",
        )  # fmt: skip
    consistency = str(options.get("consistency", "LOCAL_QUORUM")).upper()
    if consistency not in _CONSISTENCIES:
        raise Refused(
            f"{where}: there is no consistency {consistency!r}",
            hint=f"choose one of: {', '.join(_CONSISTENCIES)}",
        )
    user = str(options.get("username") or unquote(parts.username or ""))
    auth = _Auth(user, settings.secret) if user or settings.secret is not None else None
    made: dict[str, Any] = {
        "contact_points": hosts,
        "port": port,
        "auth_provider": auth,
        "ssl_context": _tls(options),
        "connect_timeout": options.get("connectTimeoutMS", 10_000) / 1000,
        "control_connection_timeout": options.get("connectTimeoutMS", 10_000) / 1000,
        "execution_profiles": {EXEC_PROFILE_DEFAULT: _profile(options, consistency)},
        # The driver leaves Nagle's delay on, and then waits 40 ms for each answer.
        "sockopts": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    }
    replication = {str(k): str(x) for k, x in dict(options.get("replication", {})).items()}
    if replication and "class" not in replication:
        raise Refused(
            f"{where}: option replication lacks its class",
            hint='{ class = "NetworkTopologyStrategy", dc1 = 3 }',
        )
    return Contact(keyspace, consistency, replication, made)


def _profile(options: Mapping[str, Any], consistency: str) -> ExecutionProfile:
    dc = options.get("localDatacenter")
    balancing = DCAwareRoundRobinPolicy(dc) if dc else RoundRobinPolicy()
    return ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(balancing),
        # The engine repeats, in one place; a driver that does so by itself hides what happened.
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=getattr(ConsistencyLevel, consistency),
        request_timeout=options.get("requestTimeoutMS", 30_000) / 1000,
        row_factory=tuple_factory,
    )


class _Auth(AuthProvider):  # type: ignore[misc]
    """Fetches the password anew for every connection."""

    def __init__(self, user: str, secret: Secret | None) -> None:
        self._user = user
        self._secret = secret

    def new_authenticator(self, host: str) -> PlainTextAuthenticator:
        return PlainTextAuthenticator(self._user, self._secret() if self._secret else "")


def _tls(options: Mapping[str, Any]) -> ssl.SSLContext | None:
    if not options.get("tls") and not any(name in options for name in _FILES):
        return None
    made = ssl.create_default_context(cafile=options.get("tlsCAFile"))
    if options.get("tlsAllowInvalidCertificates"):
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if "tlsCertFile" in options:
        made.load_cert_chain(options["tlsCertFile"], options.get("tlsKeyFile"))
    return made


def _hosts(text: str, where: str) -> tuple[list[str], int]:
    """The hosts of a URL and their one port."""
    hosts: list[str] = []
    ports: set[int] = set()
    for each in text.split(","):
        parts = urlsplit(f"//{each}")
        try:
            ports.add(parts.port or PORT)
        except ValueError:
            raise Refused(f"{where}: {each} has no port number") from None
        if not parts.hostname:
            raise Refused(f"{where}: the url names no host", hint="cassandra://host:9042/keyspace")
        hosts.append(parts.hostname)
    if len(ports) > 1:
        raise Refused(f"{where}: all nodes of a cluster listen on one port")
    return hosts, ports.pop()

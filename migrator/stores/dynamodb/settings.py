"""Settings of a DynamoDB store: the URL, the checked options, and a client made of them."""

from __future__ import annotations

import os
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader

from migrator.errors import Refused, Terminal
from migrator.model.url import decoded
from migrator.ports import StoreSettings
from migrator.stores.dynamodb.wire import Wire

_KNOWN: dict[str, type] = {
    "region": str,
    "profile": str,
    "access_key_id": str,
    "session_token": str,
    "tls": bool,
    "ca_bundle": str,
    "max_connections": int,
    "connect_timeout": int,
    "read_timeout": int,
    "write_units": int,
    "read_units": int,
}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def checked(settings: StoreSettings) -> dict[str, Any]:
    """The options of settings and URL. Raises Refused for an unknown or ill-typed one."""
    in_url = dict(parse_qsl(urlsplit(settings.url).query))
    options: dict[str, Any] = {**in_url, **settings.options}
    for name, value in options.items():
        wanted = _KNOWN.get(name)
        if wanted is None:
            raise Refused(
                f"store {settings.name}: DynamoDB has no option {name!r}",
                hint=f"options: {', '.join(sorted(_KNOWN))}",
            )
        options[name] = _typed(settings.name, name, value, wanted, name in settings.options)
    bundle = options.get("ca_bundle")
    if bundle is not None:
        path = os.path.join(settings.root, bundle)
        if not os.path.isfile(path):
            raise Refused(f"store {settings.name}: ca_bundle: there is no file {path}")
        options["ca_bundle"] = path
    return options


def _typed(store: str, name: str, value: Any, wanted: type[Any], given: bool) -> Any:
    if not given:
        # From the URL everything comes as text.
        if wanted is bool and value in ("true", "false"):
            return value == "true"
        if wanted is int and value.isdecimal():
            return int(value)
    # A secret may have been given where another option was meant: its value is not shown.
    if type(value) is not wanted or (wanted is int and value < 1):
        raise Refused(f"store {store}: option {name} wants {wanted.__name__}")
    return value


def connect(settings: StoreSettings) -> Wire:
    """A client, which repeats nothing by itself (R6). Raises Terminal where it refuses.

    ``dynamodb://HOST:PORT`` names an endpoint, ``dynamodb:///`` is AWS itself.
    """
    options = checked(settings)
    url = urlsplit(settings.url)
    try:
        host, port = url.hostname, url.port
    except ValueError:
        raise Refused(f"store {settings.name}: the URL has no such port") from None
    try:
        session = _session(options.get("profile"))
        if not (options.get("region") or session.region_name):
            raise Refused(
                f"store {settings.name}: no region is named",
                hint="dynamodb:///?region=eu-west-1, or AWS_REGION in the environment",
            )
        credentials = _credentials(settings, options, decoded(url.username or ""), host)

        def made(service: str) -> Any:
            return session.client(
                service,
                region_name=options.get("region"),
                endpoint_url=_endpoint(host, port, options.get("tls")),
                verify=options.get("ca_bundle"),
                config=_config(options),
                **credentials,
            )

        client = made("dynamodb")
    except (BotoCoreError, ValueError) as error:
        raise Terminal(
            f"the driver refuses the settings: {error}",
            where=settings.name,
            hint="mend the store's url or options",
        ) from None
    return Wire(
        client,
        options.get("write_units"),
        options.get("read_units"),
        streams=lambda: made("dynamodbstreams"),
    )


def _session(profile: str | None) -> Any:
    """A session which shares what is read of the driver's own files: that takes a quarter of a
    second, and each session does it for itself."""
    core = botocore.session.Session(profile=profile)
    loader = _loader(core.get_config_variable("data_path"))
    core.register_component("data_loader", loader)
    session = boto3.session.Session(botocore_session=core)
    # Each has added its own folder, which is always the same.
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)
    return session


@cache
def _loader(path: str | None) -> Loader:
    return create_loader(path)


def _endpoint(host: str | None, port: int | None, tls: bool | None) -> str | None:
    if host is None:
        return None
    scheme = "http" if tls is False or (tls is None and host in _LOOPBACK) else "https"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}" if port else f"{scheme}://{shown}"


def _config(options: dict[str, Any]) -> Config:
    return Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Requests are written by ``wire``; there is nothing for the driver to check.
        parameter_validation=False,
        max_pool_connections=options.get("max_connections", 50),
        connect_timeout=options.get("connect_timeout", 10),
        read_timeout=options.get("read_timeout", 30),
        tcp_keepalive=True,
        user_agent_extra="migrator",
    )


def _credentials(
    settings: StoreSettings, options: dict[str, Any], user: str, host: str | None
) -> dict[str, str]:
    """Keys that were given outright; none for the driver's usual chain."""
    key = options.get("access_key_id") or user
    if settings.secret is not None:
        if not key:
            raise Refused(
                f"store {settings.name}: a password (the secret key) without an access_key_id"
            )
        found = {"aws_access_key_id": key, "aws_secret_access_key": settings.secret()}
        if options.get("session_token"):
            found["aws_session_token"] = options["session_token"]
        return found
    if host in _LOOPBACK and "profile" not in options:
        # An emulator takes any; looking for real ones asks the cloud's metadata service.
        return {"aws_access_key_id": key or "local", "aws_secret_access_key": "local"}
    return {}

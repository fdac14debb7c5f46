"""Settings of a MongoDB store: the URL, the checked options, and clients made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from migrator.errors import Refused, Terminal
from migrator.options import checked
from migrator.ports import StoreSettings
from migrator.stores.mongo.edge import edge
from migrator.stores.mongo.renewing import renew

_FILES = {"tlsCAFile", "tlsCertificateKeyFile", "tlsCRLFile"}
_KNOWN: dict[str, type] = {
    **dict.fromkeys(_FILES, str),
    "tls": bool,
    "tlsAllowInvalidCertificates": bool,
    "tlsAllowInvalidHostnames": bool,
    "username": str,
    "authSource": str,
    "authMechanism": str,
    "replicaSet": str,
    "directConnection": bool,
    "appName": str,
    "compressors": str,
    "maxPoolSize": int,
    "minPoolSize": int,
    "connectTimeoutMS": int,
    "socketTimeoutMS": int,
    "serverSelectionTimeoutMS": int,
    "timeoutMS": int,
}
_DEFAULTS = {
    "appName": "migrator",
    "connectTimeoutMS": 10_000,
    "serverSelectionTimeoutMS": 10_000,
    # Writes are bounded more tightly, and by the server itself: see edge.py.
    "socketTimeoutMS": 600_000,
}


def database_name(settings: StoreSettings) -> str:
    """The database, from the option or the URL's path. Raises Refused without one."""
    given = settings.options.get("database") or urlsplit(settings.url).path.lstrip("/")
    if not given:
        raise Refused(
            f"store {settings.name}: no database is named",
            hint="put it at the end of the url (mongodb://host/shop), or in options.database",
        )
    return str(given)


def connect(settings: StoreSettings) -> Database[RawBSONDocument]:
    """A client with the store's guarantees, opened on its database.

    Reads go to the primary at majority, writes are acknowledged by a majority's journal (R7).
    The driver repeats nothing by itself (R6).
    """
    options: Mapping[str, Any] = checked(settings, "MongoDB", _KNOWN, _FILES, apart=("database",))
    name = database_name(settings)
    if settings.secret is not None:
        options = {**options, "password": settings.secret()}
    # What is given to the driver by name goes before the URL: a default must not.
    in_url = {name.lower() for name, _ in parse_qsl(urlsplit(settings.url).query)}
    defaults = {k: x for k, x in _DEFAULTS.items() if k.lower() not in in_url}
    if "socketTimeoutMS" in options or "sockettimeoutms" in in_url:
        defaults.pop("timeoutMS", None)
    chosen = {**defaults, **options}
    with edge(settings.name):
        try:
            client: MongoClient[RawBSONDocument] = MongoClient(
                settings.url, retryWrites=False, retryReads=False, tz_aware=True, **chosen
            )
        except (ValueError, TypeError, OSError) as error:
            raise Terminal(
                f"the driver refuses the settings: {error}",
                where=settings.name,
                hint="mend the store's url or options",
            ) from None
        if settings.secret is not None:
            renew(client, settings.secret, settings.name)
        return client.get_database(
            name,
            codec_options=CodecOptions(document_class=RawBSONDocument),
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True),
        )

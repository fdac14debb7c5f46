"""A database of the contract tests' own on each server, made anew for each run."""

from __future__ import annotations

import os
from functools import cache
from urllib.parse import urlsplit

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from tests.conftest import server_url

_DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}


@cache
def database(server: str) -> str:
    """The URL of a fresh database; skips or fails without its server, as ``server_url`` does."""
    url = make_url(server_url(server))
    name = "migrator_contract_" + os.environ.get("PYTEST_XDIST_WORKER", "main")
    engine = create_engine(
        url.set(drivername=_DRIVERS[server], query={}), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return url.set(database=name).render_as_string(hide_password=False)


@cache
def mongodb() -> str:
    """The URL of a database of the tests' own on the MongoDB server."""
    parts = urlsplit(server_url("mongodb"))
    name = "migrator_contract_" + os.environ.get("PYTEST_XDIST_WORKER", "main")
    return parts._replace(path=f"/{name}").geturl()

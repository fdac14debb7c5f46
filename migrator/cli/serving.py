"""serve: the gateway over HTTP."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import threading
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from migrator.cli.options import Options, address, global_options, pass_options
from migrator.cli.output import tell, tell_json
from migrator.cli.signals import stoppable
from migrator.errors import Failed, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrator.commands import Project

TOKEN = "MIGRATOR_SERVE_TOKEN"  # noqa: S105 - the name of the variable
SHORTEST = 16
SHAPES = ("source", "target")
# A revision, and whose shape of it is spoken.
Speaks: TypeAlias = tuple[str | None, Literal["source", "target"] | None]
_LOOK = 0.1


@click.command("serve")
@click.argument("classes", metavar="CLASS...", nargs=-1, required=True)
@click.option("--listen", callback=address, default="8765", show_default=True,
              metavar="[HOST:]PORT",
              help="Where; without HOST on loopback, and port 0 is any that is free.")  # fmt: skip
@click.option("--token-file", type=click.Path(dir_okay=False, path_type=Path),
              help=f"Holds the token that requests must bring; else it is in {TOKEN}.")  # fmt: skip
@click.option("--revision", metavar="REVISION", help="Follow this revision, and no other.")
@click.option("--shape", type=click.Choice(SHAPES),
              help="Whose shape applications speak, where the revision changes it.")  # fmt: skip
@global_options
@pass_options
def serve_command(
    options: Options, classes: tuple[str, ...], listen: tuple[str, int], token_file: Path | None,
    revision: str | None, shape: Literal["source", "target"] | None,
) -> None:  # fmt: skip
    """Offer the gateway of CLASS... over HTTP, to applications in any language.

    Reads, writes and conditions on aggregates as JSON, the phase of the class's move, and leases
    with which an application that writes by itself acknowledges the fence. It is not encrypted:
    where it is not on loopback, put something before it that is.
    """
    token = _token(token_file)
    with options.project() as project, stoppable() as stop, _listening(*listen) as sock:
        try:
            served = list(dict.fromkeys(classes))
            asyncio.run(_serve(options, project, served, (revision, shape), sock, token, stop))
        except ImportError:
            raise Refused(
                "serving needs the packages starlette and uvicorn",
                hint="pip install migrator[serve]",
            ) from None


def _token(file: Path | None) -> str:
    """The secret that requests must bring; never from the words of the command, which all see."""
    if file is None:
        text, where = os.environ.get(TOKEN, ""), TOKEN
    else:
        try:
            text, where = file.read_text("utf-8"), str(file)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise Refused(f"it can't be read: {why}", where=str(file)) from None
    token = text.strip()
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        what = "there is no token" if not token else "that is no token"
        raise Refused(
            what, where=where,
            hint=f"at least {SHORTEST} letters, digits or signs, such as of:  openssl rand -hex 32",
        )  # fmt: skip
    return token


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise Failed(
            f"nothing can listen there: {error.strerror or error}", where=f"{host}:{port}",
            hint="name another address:  --listen [HOST:]PORT",
        ) from None  # fmt: skip
    with sock:
        yield sock


async def _serve(
    options: Options, project: Project, classes: list[str], speaks: Speaks, sock: socket.socket,
    token: str, stop: threading.Event,
) -> None:  # fmt: skip
    import uvicorn

    from migrator.gateway import AsyncGateway
    from migrator.gateway.web import application
    from migrator.state.gateways import Gateways

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # they are the command's

    revision, shape = speaks
    async with AsyncExitStack() as stack:
        gateways = {
            cls: await stack.enter_async_context(
                await AsyncGateway.open(
                    cls,
                    project.settings.file,
                    project.settings.env,
                    revision=revision,
                    shape=shape,
                )
            )
            for cls in classes
        }
        app = application(gateways, Gateways(project.control), token)
        server = Server(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", server_header=False,
                timeout_graceful_shutdown=30,
            )
        )  # fmt: skip
        serving = asyncio.create_task(server.serve([sock]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        _tell(options, classes, sock)
        while not (stop.is_set() or serving.done()):
            await asyncio.sleep(_LOOK)
        server.should_exit = True
        await serving


def _tell(options: Options, classes: list[str], sock: socket.socket) -> None:
    from migrator.cli.results import Served

    host, port = sock.getsockname()[:2]
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if options.json:
        tell_json(Served(url=f"http://{at}", classes=classes), one_line=True)
        return
    tell(f"{', '.join(classes)} at http://{at}/v1")
    if not ipaddress.ip_address(host).is_loopback:
        tell("it is not encrypted: put something before it that is", to_stderr=True)

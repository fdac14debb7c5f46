"""The user's hook: a command, or an address, that stops the applications' writes and lets them go
on.

It is told what happens, and has so many seconds to do it. What it could not do in time is not done,
whatever it does later.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from migrator.errors import Refused, Transient, Waiting

# A secret that the address is called with; it is read where the mirror runs, and kept nowhere.
TOKEN = "MIGRATOR_HOOK_TOKEN"  # noqa: S105 - the name of a variable
_SAID = 200


def is_address(hook: str) -> bool:
    """Whether a hook is called by HTTP and is no command."""
    return hook.startswith(("http://", "https://"))


def refuse_wrong(hook: str) -> None:
    """Raise Refused for an address that can't be called, or that holds a secret: what a swap was
    asked for stands in the log of its run."""
    if not is_address(hook):
        return
    try:
        parts = urlsplit(hook)
        # HTTP carries no others; said here, it does not come up when writes are to be stopped.
        plain = hook.isascii() and hook.isprintable() and " " not in hook
        there = plain and parts.hostname and parts.port != 0
    except ValueError:
        there = None
    if not there:
        raise Refused(
            "the hook is no address that can be called",
            hint="write it as http://HOST:PORT/PATH or https://..., in ASCII and without spaces",
        )
    if parts.username is not None or parts.password is not None:
        raise Refused(
            "the hook's address holds a password, and it would stand in the log of the run",
            hint=f"leave it out, and set {TOKEN} where the mirror runs",
        )


def call(hook: str, event: str, facts: Mapping[str, str], seconds: float) -> None:
    """Tell the hook. Raises Waiting where it takes too long, Transient where it says no."""
    if is_address(hook):
        _post(hook, event, facts, seconds)
    else:
        _run(hook, event, facts, seconds)


def _late(event: str, seconds: float) -> Waiting:
    return Waiting(f"the hook did not end within {seconds:g} s at {event}", hint="make it quicker")


def _run(command: str, event: str, facts: Mapping[str, str], seconds: float) -> None:
    """Run a command, with what happens in its environment."""
    told = {f"MIGRATOR_{name.upper()}": text for name, text in facts.items()}
    # The command is the operator's own, as in a crontab.
    with subprocess.Popen(  # noqa: S602
        command, shell=True, env={**os.environ, **told, "MIGRATOR_EVENT": event},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _, said = process.communicate(timeout=seconds)
        except BaseException as error:
            # With all that it started: a part of it that goes on might stop writes once more.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise _late(event, seconds) from None
            raise
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        raise Transient(
            f"the hook ended with {process.returncode} at {event}"
            + (f": {lines[-1][:_SAID]}" if lines else "")
        )


def _post(address: str, event: str, facts: Mapping[str, str], seconds: float) -> None:
    """Post what happens as JSON; an answer of 2xx says that it is done. No redirect is followed."""
    parts = urlsplit(address)
    body = json.dumps({"event": event, **facts}).encode()
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get(TOKEN, "").strip():  # a secret's file often ends with a new line
        headers["Authorization"] = f"Bearer {token}"
    found: list[tuple[int, str] | BaseException] = []

    def ask() -> None:
        try:
            found.append(_ask(parts, body, headers, seconds))
        except (OSError, http.client.HTTPException) as error:
            found.append(error)
        except ValueError:  # it quotes the secret
            found.append(Refused(f"HTTP can't carry its address, or what {TOKEN} holds"))

    # By a thread, for the driver's limit is one of each look at its socket, not of the whole.
    asking = threading.Thread(target=ask, name="hook", daemon=True)
    asking.start()
    asking.join(seconds)
    if not found or isinstance(found[0], TimeoutError):
        raise _late(event, seconds)
    if isinstance(found[0], BaseException):
        raise Transient(f"the hook can't be asked at {event}: {found[0]}", where=_where(parts))
    status, said = found[0]
    if not 200 <= status < 300:
        told = f"the hook answered {status} at {event}" + (f": {said}" if said else "")
        raise Transient(told, where=_where(parts))


def _where(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _ask(
    parts: SplitResult, body: bytes, headers: dict[str, str], seconds: float
) -> tuple[int, str]:
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(
            host, parts.port, timeout=seconds, context=ssl.create_default_context()
        )
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=seconds)
    )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, body, headers)
        answer = connection.getresponse()
        lines = answer.read(4096).decode(errors="replace").strip().splitlines()
        return answer.status, lines[0][:_SAID] if lines else ""
    finally:
        connection.close()


__all__ = ["TOKEN", "call", "is_address", "refuse_wrong"]

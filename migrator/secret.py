"""Secrets of the settings: where a value comes from, fetched when it is used and never kept.

A text may hold ``${NAME}``, which stands for an environment variable; ``$${`` is a plain
``${``. A password may also come from a file or a command. No message holds a value.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from migrator.errors import Refused, Terminal
from migrator.model.url import decoded, mask, without_password
from migrator.ports import Secret

COMMAND_SECONDS = 30
_VARIABLE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")


def fill(text: str, where: str, encode: Callable[[str], str] = str) -> str:
    """The text with its variables filled in; ``encode`` treats what stands between them.

    Raises Terminal, naming the store and the variable, where one is not set.
    """
    pieces: list[str] = []
    at = 0
    for found in _VARIABLE.finditer(text):
        pieces.append(encode(text[at : found.start()]))
        at = found.end()
        pieces.append(found[1] if found[1] else _variable(found[2], where))
    pieces.append(encode(text[at:]))
    return "".join(pieces)


def fill_all(value: object, where: str) -> object:
    """A setting with every text in it filled in."""
    if isinstance(value, str):
        return fill(value, where)
    if isinstance(value, Mapping):
        return {name: fill_all(item, f"{where}.{name}") for name, item in value.items()}
    if isinstance(value, list):
        return [fill_all(item, where) for item in value]
    return value


def _variable(name: str, where: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise Terminal(
            f"the environment variable {name} is not set",
            where=where,
            hint=f"set {name}, or change migrator.toml",
        )
    return value


def from_file(path: Path, where: str) -> str:
    """A password from a file, without the line end. Raises Terminal where it can't be read."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise Terminal(f"the password file {path} is no UTF-8 text", where=where) from None
    except OSError as error:
        raise Terminal(
            f"the password file {path} can't be read: {error.strerror}", where=where
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def from_command(command: str, root: Path, where: str) -> str:
    """What a command prints, without the line end; it has 30 seconds.

    Raises Terminal where it fails; what it printed may be a secret and is not shown.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        raise Terminal("a quote of the password command is not closed", where=where) from None
    program = words[0] if words else ""
    hint = "run the command by hand to see why"
    try:
        done = subprocess.run(  # noqa: S603  (the command is the user's own, from his settings)
            words, cwd=root, capture_output=True, timeout=COMMAND_SECONDS, check=False
        )
        text = done.stdout.decode("utf-8")
    except (OSError, IndexError) as error:
        why = getattr(error, "strerror", None) or "it is empty"
        raise Terminal(
            f"the password command {program!r} does not run: {why}", where=where
        ) from None
    except subprocess.TimeoutExpired:
        raise Terminal(
            f"the password command {program!r} took over {COMMAND_SECONDS} s",
            where=where,
            hint=hint,
        ) from None
    except UnicodeDecodeError:
        raise Terminal(f"the password command {program!r} prints no text", where=where) from None
    if done.returncode:
        raise Terminal(
            f"the password command {program!r} failed with exit code {done.returncode}",
            where=where,
            hint=hint,
        )
    return text.removesuffix("\n").removesuffix("\r")


def open_url(text: str, where: str) -> tuple[str, Secret | None]:
    """A URL with its variables filled in and its password taken out, as a function.

    A variable that stands for the password is taken as it is; a password written out, or one
    inside a variable that holds a whole URL, is percent-encoded as usual. Raises Refused where
    the password's end can't be told or the query holds a secret, Terminal as ``fill`` does.
    """
    try:
        bare, password = without_password(text)
        filled, inner = without_password(fill(bare, where))
    except ValueError as error:
        raise Refused(str(error), where=where, hint="write it apart: password = ...") from None
    if mask(filled) != filled:
        hint = "write it apart: password = ... or options = ..."
        raise Refused("the query of the URL holds a secret", where=where, hint=hint)
    if password is not None:
        template = password
        return filled, lambda: fill(template, where, decoded)
    if inner is not None:
        return filled, lambda: decoded(without_password(fill(bare, where))[1] or "")
    return filled, None

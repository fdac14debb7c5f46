"""The text of a script together with that of the project's own modules which it imports.

What a function does may stand in a module beside the scripts: to change it there changes the
move as much as to change the script. Modules of Python, of Migrator and of installed packages do
not count; versions of those are the lock file's matter.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

_PYTHON = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
_INSTALLED = {"site-packages", "dist-packages"}


def text_digest(source: bytes, tree: ast.Module) -> str:
    """The SHA-256 of a script's text and its helpers', in the order of their names."""
    digest = hashlib.sha256(source)
    for name, text in sorted(_helpers(tree).items()):
        digest.update(f"\0{name}\0".encode())
        digest.update(text)
    return digest.hexdigest()


def _helpers(tree: ast.Module) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    waiting = [(tree, "")]
    while waiting:
        importing, package = waiting.pop()
        for name in _imported(importing, package):
            file = _file(name) if name not in found else None
            if file is None:
                continue
            try:
                text = file.read_bytes()
                parsed = ast.parse(text)
            except (OSError, SyntaxError, ValueError):
                continue  # it did run, or the script would not have: it is no source any more
            found[name] = text
            inner = name if file.name == "__init__.py" else name.rpartition(".")[0]
            waiting.append((parsed, inner))
    return found


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """The modules that some source may import: ``from a import b`` may mean ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                try:
                    base = importlib.util.resolve_name("." * node.level + base, package)
                except ImportError:
                    continue
            yield from _with_parents(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    """A package runs before a module in it."""
    parts = name.split(".")
    yield from (".".join(parts[: i + 1]) for i in range(len(parts)))


def _file(name: str) -> Path | None:
    """The source of a module of the project's own; None for any other, or for no module.

    Found by its name and not among the modules that happen to be loaded: some are imported
    only when a function runs.
    """
    top = name.partition(".")[0]
    spec = _spec(top)
    if spec is None or top == "migrator" or (spec.origin is not None and not _own(spec.origin)):
        return None
    spec = spec if name == top else _spec(name)
    return Path(spec.origin) if spec is not None and spec.origin and _own(spec.origin) else None


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None


def _own(origin: str) -> bool:
    file = Path(origin).resolve()
    installed = _INSTALLED.intersection(file.parts)
    return file.suffix == ".py" and not installed and not any(map(file.is_relative_to, _PYTHON))


__all__ = ["text_digest"]

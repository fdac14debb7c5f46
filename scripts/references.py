#!/usr/bin/env python3
"""Write the pages that are taken from the code, so that they can't drift from it.

scripts/references.py            # write them
scripts/references.py --check    # say which are out of date, and fail
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import click
import msgspec

from migrator.bootstrap import factory
from migrator.cli.entry import cli
from migrator.cli.results import Error, results
from migrator.model.move import Layout
from migrator.model.url import scheme
from migrator.model.value import Kind
from migrator.planning.file import plan_schema
from migrator.planning.harder import VALUES, harder
from migrator.ports import Capabilities, Held, How, Limits, Store, StoreSettings

T = TypeVar("T")
DOCS = Path(__file__).parent.parent / "docs"
# Opening a store connects to nothing; what it can do is known before.
STORES = {
    "embedded": "embedded:///a.db",
    "SQLite": "sqlite:///a.db",
    "PostgreSQL": "postgresql://host/a",
    "MariaDB, MySQL": "mariadb://host/a",
    "MongoDB": "mongodb://host/a",
    "Redis": "redis://host/0",
    "DynamoDB": "dynamodb:///?region=eu-west-1",
    "Cassandra": "cassandra://host/a",
}
HEAD = "<!-- made by scripts/references.py from the code; don't edit it -->\n\n"


def of_stores(ask: Callable[[Store], T]) -> dict[str, T]:
    """What every store says, by its name in the documentation."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, url in STORES.items():
            store = factory(scheme(url))(StoreSettings("store", url, root=folder))
            found[name] = ask(store)
            store.close()
    return found


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def layouts(stores: Mapping[str, Capabilities]) -> str:
    """What is true of each layout, and what the operations cost there."""
    text = HEAD + "# Layouts, costs and limits\n\n"
    text += (
        "What each store states of itself. Costs are of one block, from the cheapest case to\n"
        "the dearest one; the contract suite counts at the driver's edge that both are met.\n"
    )
    for store, capabilities in stores.items():
        text += f"\n## {store}\n\nOrder of keys: {capabilities.key_order}.\n"
        for name in capabilities.layouts:
            default = " (default)" if name == capabilities.default_layout else ""
            facts = _facts(name, capabilities)
            text += f"\n### {name}{default} {{ #{_anchor(store)}-{name} }}\n\n{facts}"
    return text


def _anchor(store: str) -> str:
    return store.partition(",")[0].lower()


def _kinds(kinds: frozenset[Kind]) -> str:
    missing = [kind.value for kind in Kind if kind not in kinds]
    return f"all but {', '.join(missing)}" if missing else "all"


def _facts(name: str, capabilities: Capabilities) -> str:
    facts, here = capabilities.layouts[name], capabilities.at(Layout(name))
    rows = [
        ["effective", "yes" if facts.effective else "no"],
        ["unit of atomicity", facts.unit],
        ["version for conditional writes", facts.version],
        ["read by its key alone", "yes" if facts.by_key else "no"],
        ["entries written apart", "yes" if facts.entries else "no"],
        ["expiry", "yes" if here.expiry else "no"],
        ["kinds of keys", _kinds(here.key_kinds)],
        ["limits", _limits(here.limits)],
    ]
    costs = [[name, cost.shown(), cost.sends] for name, cost in facts.costs.items()]
    return table(["", ""], rows) + "\n" + table(["operation", "requests", "sends"], costs)


def _limits(limits: Limits) -> str:
    bounds = {
        "bytes for a block": limits.block_bytes,
        "bytes for an entry": limits.entry_bytes,
        "bytes for a key": limits.key_bytes,
        "bytes for a name": limits.name_bytes,
        "levels of nesting": limits.nesting,
    }
    return "; ".join(f"{bound:,} {of}" for of, bound in bounds.items() if bound) or "none"


def kinds(
    stores: Mapping[str, Capabilities], hard: Mapping[str, dict[str, dict[str, Held]]]
) -> str:
    """How every layout of every store holds every kind of value, and what is harder than that."""
    text = HEAD + "# Kinds of values\n\nHow each store holds each kind: by a type of its own, "
    text += "*tagged* (carried by that type, its kind noted aside), or not at all (—).\n\n"
    text += "A single value may be harder than its kind. The second table of a store tells of "
    text += "such values; the plan looks at each that it meets. It leaves out layouts where a "
    text += "script declares types: what does not come back exactly from a declared type is noted "
    text += "aside (Cassandra) or refused. What is absent is nowhere held: there is no entry.\n"
    for store, capabilities in stores.items():
        held = {name: capabilities.at(Layout(name)).kinds for name in capabilities.layouts}
        if all(each == capabilities.kinds for each in held.values()):
            held = {"every layout": capabilities.kinds}
        rows = [[kind.value, *(_held(each[kind]) for each in held.values())] for kind in Kind]
        text += f"\n## {store}\n\n{table(['kind', *held], rows)}"
        says = hard[store]
        if all(each == next(iter(says.values())) for each in says.values()):
            says = {" ".join(f"`{name}`" for name in says): next(iter(says.values()))}
        rows = [[name, *(_held(each[name]) for each in says.values())] for name in VALUES]
        text += f"\n{table(['value', *says], rows)}"
    return text


def _held(held: Held) -> str:
    if held.how is How.REFUSED:
        return "—"
    return f"*tagged* {held.type}".strip() if held.how is How.TAGGED else held.type or "yes"


def commands() -> str:
    """Every command with its options."""
    text = HEAD + "# Every command\n\n```\n" + _context(cli).get_help() + "\n```\n"
    shared = {tuple(p.opts) for p in cli.params}
    for name, command in _walk("migrator", cli):
        context = _context(command, name)
        text += f"\n## {name.removeprefix('migrator ')}\n\n"
        text += f"    {command.get_usage(context).removeprefix('Usage: ')}\n\n"
        text += (inspect.cleandoc(command.help or "")) + "\n\n"
        options = [p for p in command.params if isinstance(p, click.Option)]
        own = [p for p in options if tuple(p.opts) not in shared]
        records = [found for p in own if (found := p.get_help_record(context)) is not None]
        if records:
            text += table(["option", ""], [[f"`{_cell(o)}`", _cell(h)] for o, h in records])
    return text


def _walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for below in command.list_commands(_context(command)):
        found = command.get_command(_context(command), below)
        if found is not None:
            yield from _walk(f"{name} {below}", found)


def _context(command: click.Command, name: str = "migrator") -> click.Context:
    return click.Context(command, info_name=name, terminal_width=100, **cli.context_settings)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def json_results() -> str:
    """The keys of what ``--format json`` prints, by command."""
    text = HEAD + "# Results as JSON\n\n`--format json` prints one value on standard output. These "
    text += "keys stay; others may be added. `plan` and `show` print the plan, whose schema is "
    text += "`docs/plan.schema.json`. `plan` and `apply` print null where there is nothing to do.\n"
    text += (
        "\nA command that fails prints an Error instead, also on standard output. What it found "
    )
    text += (
        "it prints as ever: `verify`, `shadow` and `drill` with exit code 4 (`shadow` also with "
    )
    text += "1), `stores` with 1, `plan --detailed-exitcode` with 2 or 3, `repair` and "
    text += "`quarantine retry` with 5.\n\n"
    types = {name: kind for name, kind in results().items() if name not in ("plan", "show")}
    rows = [[f"`{name}`", f"{_kind_name(kind)}"] for name, kind in types.items()]
    text += table(["command", "prints"], rows)
    _, components = msgspec.json.schema_components([*types.values(), Error])
    for name, schema in sorted(components.items()):
        if "properties" in schema:
            described = " ".join(schema.get("description", "").replace("``", "`").split())
            fields = [[f"`{key}`", _json_kind(item)] for key, item in schema["properties"].items()]
            text += f"\n## {name}\n\n{described}\n\n" + table(["key", "is"], fields)
    return text


def _kind_name(kind: object) -> str:
    arguments = [a for a in get_args(kind) if a is not type(None)]
    if get_origin(kind) is list:
        return f"a list of {_kind_name(arguments[0])}"
    if arguments:
        return f"{_kind_name(arguments[0])}, or null"
    return str(getattr(kind, "__name__", kind))


def _json_kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_json_kind, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"a list of {_json_kind(schema['items'])}"
    return {"string": "text", "array": "a list"}.get(schema.get("type", ""), schema.get("type", ""))


def pages() -> dict[Path, bytes]:
    """Every generated file with what belongs in it."""
    stores = of_stores(lambda store: store.capabilities)
    made: dict[str, Callable[[], bytes]] = {
        "reference/layouts.md": lambda: layouts(stores).encode(),
        "reference/kinds.md": lambda: kinds(stores, of_stores(harder)).encode(),
        "reference/commands.md": lambda: commands().encode(),
        "reference/json.md": lambda: json_results().encode(),
        "plan.schema.json": plan_schema,
    }
    return {DOCS / name: make() for name, make in made.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [
        path for path, text in pages().items() if not path.exists() or path.read_bytes() != text
    ]
    for path in stale:
        print(f"{path.relative_to(DOCS.parent)} {'is out of date' if check else 'written'}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pages()[path])
    if check and stale:
        print("write them again:  make references", file=sys.stderr)
    return bool(check and stale)


if __name__ == "__main__":
    sys.exit(main())

"""The stores of an environment: who answers, and how they hold each kind of value."""

from __future__ import annotations

import msgspec

from migrator.commands.project import Project
from migrator.errors import MigratorError
from migrator.model.move import Layout
from migrator.planning.harder import harder
from migrator.ports import Capabilities, Held


class LayoutStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a layout of a store can do. ``effective``: a block is one unit of distribution and
    atomicity; ``entries``: one can be written without the others; limits are in bytes and in
    levels of nesting, null for none."""

    layout: str
    default: bool
    effective: bool
    unit: str
    entries: bool
    expiry: bool
    block_bytes: int | None
    key_bytes: int | None
    nesting: int | None


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a store answered to a ping, or why it did not; and what it can do."""

    name: str
    ok: bool
    product: str = ""
    version: str = ""
    layouts: list[str] = []
    capabilities: list[LayoutStatus] = []
    feed: str | None = None
    remarks: list[str] = []
    error: str = ""


def stores(project: Project) -> list[StoreStatus]:
    """Ping every store of the environment."""
    return [_ping(project, name) for name in sorted(project.settings.stores)]


def _ping(project: Project, name: str) -> StoreStatus:
    try:
        store = project.stores.get(name)
        info = store.ping()
    except MigratorError as error:
        return StoreStatus(name=name, ok=False, error=str(error))
    capabilities = store.capabilities
    return StoreStatus(
        name=name,
        ok=True,
        product=info.product,
        version=info.version,
        layouts=list(capabilities.layouts),
        capabilities=[_layout(capabilities, name) for name in capabilities.layouts],
        feed=capabilities.feed,
        remarks=list(info.remarks),
    )


def _layout(capabilities: Capabilities, name: str) -> LayoutStatus:
    facts, here = capabilities.layouts[name], capabilities.at(Layout(name))
    return LayoutStatus(
        layout=name,
        default=name == capabilities.default_layout,
        effective=facts.effective,
        unit=facts.unit,
        entries=facts.entries,
        expiry=here.expiry,
        block_bytes=here.limits.block_bytes,
        key_bytes=here.limits.key_bytes,
        nesting=here.limits.nesting,
    )


class KindRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of value, or a value that is harder than its kind, is held by one layout of a
    store."""

    kind: str
    store: str
    layout: str
    how: str
    type: str


def kinds(project: Project) -> list[KindRow]:
    """The table of kinds: every kind in every layout of the environment's stores, then values that
    are harder than their kind."""
    rows: list[KindRow] = []
    harder_rows: list[KindRow] = []

    def row(store: str, layout: str, kind: str, held: Held) -> KindRow:
        return KindRow(kind=kind, store=store, layout=layout, how=held.how.value, type=held.type)

    for name in sorted(project.settings.stores):
        store = project.stores.get(name)
        for layout in store.capabilities.layouts:
            kinds = store.capabilities.at(Layout(layout)).kinds
            rows += [row(name, layout, kind.value, held) for kind, held in kinds.items()]
        for layout, values in harder(store).items():
            harder_rows += [row(name, layout, text, held) for text, held in values.items()]
    return rows + harder_rows

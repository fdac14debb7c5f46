"""What whole-system tests share: places to move to, projects of a few scripts, odd games."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from migrator import commands
from migrator.engine.verify import Verification
from migrator.errors import DoesNotFit
from migrator.model import value as v
from migrator.model.block import Aggregate, Block, cut, join
from migrator.model.canonical import encode, equal
from migrator.model.layouts import cassandra_table, redis_native
from migrator.model.move import At, Layout
from migrator.model.phase import Phase
from migrator.model.plan import MovePlan
from migrator.model.rules import Representation
from migrator.model.value import Kind, Record, Ref, Value
from migrator.ports import Collection, Store
from migrator.testing.contract.harness import is_held
from migrator.testing.values import ODD_NAMES, ODD_VALUES, odd_keys
from tests.contract.servers import namespace

EAO = ("/Game/*",)
ROUNDS = ("/Game/*/rounds[*]", "/Game/*")
ETF = ("/Game/*/*",)
EAV = ("/Game/*/**",)
ENV = "test"


def _nothing(collection: str) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True)
class Place:
    """A store with a layout; ``options`` are those of the layout, for a collection.

    A ``whole`` one holds blocks of one entry alone.
    """

    name: str
    server: str | None
    layout: str | None
    options: Callable[[str], Mapping[str, object]] = _nothing
    whole: bool = False

    @property
    def store(self) -> str:
        """Its name in ``migrator.toml``."""
        return self.name.replace("-", "_")

    @property
    def rules(self) -> Sequence[str]:
        """Rules that cut a game into several entries, where the place takes several."""
        return EAO if self.whole else ROUNDS

    def at(self, collection: str, rules: Sequence[str] = ()) -> At:
        layout = Layout(self.layout, self.options(collection)) if self.layout else None
        return At(self.store, collection, rules, layout)

    def script(self, collection: str, rules: Sequence[str] = ()) -> str:
        """The location in the words of a script."""
        layout = f", layout={self.at(collection).layout!r}" if self.layout else ""
        return f"At({self.store!r}, {collection!r}, {list(rules)!r}{layout})"

    def __str__(self) -> str:
        return self.name


def _table(collection: str) -> Mapping[str, object]:
    """A table of Cassandra that takes any game: what has no column lies in ``more``."""
    return cassandra_table(
        key="key",
        derived={"key": "block key"},
        columns={"key": "text", "kind": "text", "n": "int", "rounds": "json"},
        rest="more",
    ).options


def _expires(collection: str) -> Mapping[str, object]:
    """Deadlines need a field, or an attribute, that the layout names."""
    return {"expires": "_ends"}


def _native(collection: str) -> Mapping[str, object]:
    """A game as plain JSON in a string of Redis, without anything beside it."""
    return redis_native(f"{collection}:{{id}}", "json").options


PLACES = (
    Place("embedded", None, None),
    Place("mongo-document", "mongodb", "document", _expires),
    Place("mongo-flat", "mongodb", "flat", _expires),
    Place("entries-sqlite", None, "entries"),
    Place("entries-postgresql", "postgresql", "entries"),
    Place("entries-mariadb", "mariadb", "entries"),
    Place("redis-hash", "redis", "hash"),
    Place("redis-keys", "redis", "keys"),
    Place("redis-string", "redis", "string", whole=True),
    Place("redis-native", "redis", "native", _native, whole=True),
    Place("dynamodb-item", "dynalite", "item", _expires),
    Place(
        "dynamodb-collection",
        "dynalite",
        "item-collection",
        lambda name: {"pk": "GAME#{id}", **_expires(name)},
    ),
    # Of most games with rounds some are large here.
    Place(
        "dynamodb-split",
        "dynalite",
        "item-split",
        lambda name: {"most": 500, **_expires(name)},
    ),
    Place("cassandra-partition", "cassandra", "partition"),
    Place("cassandra-row", "cassandra", "row"),
    Place("cassandra-table", "cassandra", "table", _table),
)

Game = tuple[Value, Record]
Urls = Callable[[str | None, str], str]
_numbers = itertools.count(1)


def fresh(prefix: str) -> str:
    """A collection name that no other test has, of whatever process."""
    return f"{namespace()}{prefix}_{next(_numbers)}"


def end(project: commands.Project) -> None:
    """End a run that is under way: nothing of its feeds stays on servers that others share."""
    run = commands.unfinished(project, "0001")
    if run is None:
        return
    if run.phase is Phase.CUT_OVER:
        commands.finish(project, "0001", keep_source=True)
    else:
        commands.abort(project, "0001", drop_target=True)


@dataclass
class Shop:
    """A project in a folder: stores by name and URL, and scripts one after another."""

    root: Path
    stores: Mapping[str, str]
    revisions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.root / "migrations").mkdir(parents=True, exist_ok=True)
        # Servers on this very host carry out what a dead process sent at once, or never.
        lines = [f"[env.{ENV}]\nrequest_life = 0.5"]
        lines += [f'[env.{ENV}.stores.{name}]\nurl = "{url}"' for name, url in self.stores.items()]
        self.config.write_text("\n".join(lines) + "\n")

    @property
    def config(self) -> Path:
        return self.root / "migrator.toml"

    def script(self, body: str) -> str:
        """Add a script with ``move`` or ``moves``; returns its revision."""
        down = repr(self.revisions[-1]) if self.revisions else None
        revision = f"{len(self.revisions) + 1:04}"
        self.revisions.append(revision)
        (self.root / "migrations" / f"{revision}_step.py").write_text(
            f'"""Step {revision}."""\n\nfrom migrator import *\n\n'
            f"revision, down_revision = {revision!r}, {down}\n\n{body}\n"
        )
        return revision

    def open(self) -> commands.Project:
        return commands.Project(self.config, ENV)


def move(cls: str, source: str, target: str, **options: object) -> str:
    """The text of a ``Move``; what stands in ``options`` is shown by ``repr``."""
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"Move({cls!r}, source={source}, target={target}{more})"


def carry(
    shop: Shop, revision: str, *, accept: Iterable[str] = (), keep_source: bool = True
) -> list[Verification]:
    """Plan, apply, verify and finish one revision; done counts must be the planned ones."""
    with shop.open() as project:
        plan = commands.plan(project, revision)
        assert plan.errors == [], plan.errors
        applied = commands.apply(project, plan, terms=commands.Terms(accept=list(accept)))
        assert len(applied.verified) == len(plan.moves)
        for each in applied.verified:
            assert each.clean, each.told
            assert each.quarantined == 0
        assert_as_planned(project, revision)
        run = commands.finish(project, revision, keep_source=keep_source)
        assert run.phase is Phase.FINISHED
        return applied.verified


def assert_as_planned(project: commands.Project, revision: str) -> None:
    """What was done is what the plan said, and read = written + left + set aside."""
    run = project.control.runs(revision)[-1]
    events = commands.events(project, revision)
    assert "not as planned" not in [event["event"] for event in events]
    planned = commands.frozen_plan(run).moves
    done = [event["detail"] for event in events if event["event"] == "copied"]
    for made, counts in zip(planned, done[-len(planned) :], strict=True):
        assert isinstance(counts, dict)
        assert of_plan(made) == {name: counts[name] for name in of_plan(made)}
        assert counts["read"] == sum(
            counts[n] for n in ("create", "change", "leave", "quarantined")
        )


def of_plan(made: MovePlan) -> dict[str, int]:
    return {n: getattr(made, n) for n in ("create", "change", "delete", "leave")}


# ---------------------------------------------------------------- contents


def _no(_: Value) -> None:
    return None


def block(id: Value, value: Record, rules: Representation) -> Block:
    return cut(Aggregate(id, value), rules)


def fill(
    collection: Collection, aggregates: Iterable[Game], expires: Callable[[Value], int | None] = _no
) -> None:
    """Create the collection and put aggregates into it, with deadlines by their keys."""
    collection.create()
    rules = collection.at.rules(collection.cls)
    batch = [replace(block(id, value, rules), expires=expires(id)) for id, value in aggregates]
    for start in range(0, len(batch), 200):
        collection.write(batch[start : start + 200])


Contents = dict[bytes, Game]


def blocks(collection: Collection) -> Iterator[Block]:
    """All blocks, as the observer reads them."""
    reader = collection.observer()
    for range_ in collection.split(3):
        position = None
        while True:
            page = reader.page(range_, position, 300)
            assert not page.damaged, page.damaged
            yield from page.blocks
            position = page.next
            if position is None:
                break


def contents(collection: Collection) -> Contents:
    """All aggregates by the canonical form of their key, as the observer reads them."""
    found: Contents = {}
    for each in blocks(collection):
        form = encode(each.id)
        assert form not in found, f"{each.id!r} twice"
        found[form] = each.id, join(each).value
    return found


def deadlines(collection: Collection) -> dict[bytes, int | None]:
    """The deadline of each block by the canonical form of its key, as the observer reads it."""
    return {encode(each.id): each.expires for each in blocks(collection)}


def by_key(aggregates: Iterable[Game]) -> Contents:
    return {encode(id): (id, value) for id, value in aggregates}


def assert_equal(left: Contents, right: Contents) -> None:
    """Both hold the same keys with equal values, in canonical form."""
    missing = [right[k][0] for k in right.keys() - left.keys()]
    extra = [left[k][0] for k in left.keys() - right.keys()]
    assert (missing, extra) == ([], [])
    assert [left[k][0] for k in left if not equal(left[k][1], right[k][1])] == []


# ---------------------------------------------------------------- odd games


@dataclass(frozen=True)
class Odd:
    """Odd games, without values and keys that a server can't hold through no fault of ours."""

    no_value: Callable[[Value], bool] = lambda value: False
    no_key: Callable[[Value], bool] = lambda key: False

    def held_by(self, *ends: tuple[Store, Collection]) -> Odd:
        """The same without what one of these ends says it can't hold."""

        def refused(value: Value) -> bool:
            return not all(
                is_held(store.capabilities.at(end.at.layout), end, value)
                and takes(end, "value", {"value": value})
                for store, end in ends
            )

        return replace(self, no_value=lambda value: self.no_value(value) or refused(value))

    def values(self) -> int:
        """How many of the odd values are left."""
        return sum(not self.no_value(value) for kind in Kind for value in ODD_VALUES[kind])

    def games(self) -> list[Game]:
        """A game for each kind of value with all its odd ones, and one with every odd name."""
        games: list[Game] = []
        for kind in Kind:
            values = [value for value in ODD_VALUES[kind] if not self.no_value(value)]
            rounds: list[Value] = [{"spell": value, "cast": [value]} for value in values]
            games.append((f"kind-{kind.value}", {"kind": kind.value, "rounds": rounds, "n": None}))
            top: Record = {f"v{i}": value for i, value in enumerate(values)}
            games.append((f"top-{kind.value}", top))
        games.append(("names", {**{name: i for i, name in enumerate(ODD_NAMES)}, "rounds": []}))
        deep: Record = {name: {name: [{name: name}]} for name in ODD_NAMES}
        games.append(("deep names", {"rounds": [deep, {}, [], None], "in": deep}))
        games.append(("empty", {}))
        games.append(("no rounds", {"rounds": {}, "score": {"ann": v.Int64(1), "bob": 1.0}}))
        games.append(("mixed rounds", {"rounds": [[], [[1], {}], "x", None, {"rounds": [1]}]}))
        return [(id, game) for id, game in games if not self.no_value(game)]

    def keyed(self, *ends: tuple[Store, Collection]) -> list[Game]:
        """Games under odd keys of every kind that all these ends take and tell apart."""
        chosen: dict[bytes, Game] = {}
        taken: list[set[bytes]] = [set() for _ in ends]
        kinds = [store.capabilities.at(end.at.layout).key_kinds for store, end in ends]
        for kind in (kind for kind in Kind if all(kind in each for each in kinds)):
            for key in odd_keys(kind):
                folded = [encode(collection.same_key(key)) for _, collection in ends]
                seen = any(f in t for f, t in zip(folded, taken, strict=True))
                if seen or encode(key) in chosen or self.no_value(key) or self.no_key(key):
                    continue
                game: Record = {"id": key, "rounds": [{"of": Ref("Game", 1)}]}
                if not all(takes(collection, key, game) for _, collection in ends):
                    continue
                chosen[encode(key)] = key, game
                for form, each in zip(folded, taken, strict=True):
                    each.add(form)
        return list(chosen.values())


def takes(collection: Collection, key: Value, value: Record) -> bool:
    """Whether a collection says that it can hold a block under this key."""
    try:
        collection.size(cut(Aggregate(key, value), collection.at.rules(collection.cls)))
    except DoesNotFit:
        return False
    return True

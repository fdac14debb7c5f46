"""Tables that nobody described: their columns are told from all the blocks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from migrator import At, tables
from migrator.errors import DoesNotFit, Refused
from migrator.model.block import Block
from migrator.model.canonical import equal
from migrator.model.move import Tables
from migrator.model.value import Int64
from migrator.ports import Collection, Infers
from migrator.referring import referring
from tests.stores.sql_servers import Base

DIALECTS = ["sqlite", "postgresql", "mysql"]
GAME = tables("game", rounds=tables("round", moves=tables("move", value="move")))


@pytest.fixture(params=DIALECTS)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made = Base(request.param, tmp_path)
    yield made
    made.drop()


def block(key: Any, /, **fields: Any) -> Block:
    return Block(key, {"": fields})


def told(base: Base, spec: Tables, blocks: Sequence[Block]) -> At:
    collection = base.store().collection("Game", At("shop", spec))
    assert isinstance(collection, Infers)
    watching = collection.inference()
    assert watching is not None
    for each in blocks:
        watching.add(each)
    return watching.result()


def kept(collection: Collection, blocks: Sequence[Block]) -> None:
    for reader in (collection, collection.observer()):
        read = reader.read([b.id for b in blocks])
        for back, given in zip(read, blocks, strict=True):
            assert back is not None, given.id
            assert equal(back.entries, given.entries), (back.entries, given.entries)


def round_trip(base: Base, spec: Tables, blocks: Sequence[Block]) -> Tables:
    """Write by the told tables; what only names the tables must read the same."""
    at = told(base, spec, blocks)
    games = base.store().collection("Game", at)
    for each in blocks:
        assert games.size(each) > 0
    games.create()
    games.create()
    games.write(blocks)
    games.settle()
    kept(games, blocks)
    kept(base.store().collection("Game", At("shop", spec)), blocks)
    assert at.tables is not None
    return at.tables


def test_nested_lists_keep_their_order_and_what_is_empty(base: Base) -> None:
    rounds = [{"score": 9 - i, "moves": ["q", "a", "q"][:i]} for i in range(4)]
    blocks = [
        block("b", id="b", name="Ann", rounds=rounds),
        block("a", id="a", name=None, rounds=[]),
        block("c", id="c", name="", rounds=rounds[::-1]),
    ]
    spec = round_trip(base, GAME, blocks)
    assert spec.key == ("id",)
    below = spec.children["rounds"]
    assert (below.parent, below.key) == (("game_id",), ("game_id", "position"))
    assert len(base.rows("SELECT * FROM move")) == 12


def test_each_kind_has_a_column_of_its_own(base: Base) -> None:
    values: dict[str, Any] = {
        "small": 1, "wide": Int64(2), "part": 0.5, "text": "é", "data": b"\0x", "yes": True,
        "day": dt.date(2024, 2, 29), "hour": dt.time(1, 2, 3),
        "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "local": dt.datetime(2024, 1, 1, 1, 2),
        "price": Decimal("1.50"), "list": [1, [2], {}], "deep": {"a": None, "b": [0.5]},
        "uuid": UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    }  # fmt: skip
    if base.dialect != "mysql":
        values["big"] = 2**70
    blocks = [block(n, id=n, **values) for n in range(3)]
    blocks.append(block(3, id=3, **dict.fromkeys(values)))
    for name in ("list", "deep"):
        blocks[3].entries[""][name] = [] if name == "list" else {}  # type: ignore[index]
    spec = round_trip(base, tables("thing"), blocks)
    assert set(spec.columns) == {"id", *values}


def test_c24_rare_null_and_absent_fields_have_a_column(base: Base) -> None:
    blocks = [block(n, id=n, end=None) for n in range(50)]
    blocks += [block(50, id=50, end=dt.date(2024, 1, 1)), block(51, id=51, end=None, vip=True)]
    spec = tables("thing", nulls="absent")
    present = [block(b.id, **{k: x for k, x in b.entries[""].items() if x is not None})  # type: ignore[union-attr]
               for b in blocks]  # fmt: skip
    assert set(round_trip(base, spec, present).columns) == {"id", "end", "vip"}


def test_a_field_that_is_always_null_becomes_text(base: Base) -> None:
    columns = round_trip(base, tables("thing"), [block(1, id=1, x=None)]).columns
    assert columns["x"].lower() in ("text", "longtext")


def test_c24_mixed_kinds_take_the_column_of_the_most(base: Base) -> None:
    blocks = [block(n, id=n, code="x" if n else 7) for n in range(3)]
    games = base.store().collection("Game", told(base, tables("thing"), blocks))
    with pytest.raises(DoesNotFit) as unfit:
        games.size(blocks[0])
    assert (unfit.value.key, unfit.value.path) == (0, "code")
    assert all(games.size(each) > 0 for each in blocks[1:])


def test_a_field_first_met_later_does_not_fit(base: Base) -> None:
    first = [block(1, id=1, a=1, rounds=[])]
    games = base.store().collection("Game", told(base, tables("thing"), first))
    games.create()
    for late, path in ((block(2, id=2, a=1, rounds=[], vip=True), "vip"),
                       (block(3, id=3, a="x", rounds=[]), "a")):  # fmt: skip
        if base.dialect == "sqlite" and path == "a":
            continue  # a column of numbers takes texts that are none
        with pytest.raises(DoesNotFit) as unfit:
            games.write([late])
        assert (unfit.value.key, unfit.value.path) == (late.id, path)


def test_a_key_that_no_field_repeats_has_a_column_of_its_own(base: Base) -> None:
    blocks = [block(f"g{n}", name="x", rounds=[{"n": 1}] * n) for n in range(3)]
    spec = round_trip(base, tables("game", rounds=tables("round")), blocks)
    assert spec.columns["id"].endswith("BLOCK KEY")
    assert {row[0] for row in base.rows("SELECT id FROM game")} == {"g0", "g1", "g2"}


def test_a_field_named_as_a_column_of_ours_is_kept(base: Base) -> None:
    rounds = [{"position": 7, "game_id": 1, "game_id_": None}, {"position": 8, "game_id": 2,
              "game_id_": None}]  # fmt: skip
    blocks = [block(1, id="other", rounds=rounds), block(2, id="another", rounds=[])]
    spec = round_trip(base, tables("game", rounds=tables("round")), blocks)
    assert spec.key == ("id_",)
    assert spec.children["rounds"].parent == ("game_id__",)


def test_composite_keys_and_what_is_one(base: Base) -> None:
    blocks = [
        block([1, "x"], year=1, title="x", prize={"sum": 5}, crew=[{"n": 1}, {"n": 2}]),
        block([1, "y"], year=1, title="y", prize=None, crew=[]),
    ]
    spec = tables("film", prize=tables("prize", one=True), crew=tables("crew"))
    made = round_trip(base, spec, blocks)
    assert made.key == ("year", "title")
    assert made.children["prize"].key == ("film_year", "film_title")


def test_what_orders_may_be_named(base: Base) -> None:
    blocks = [block(1, id=1, rounds=[{"n": 1, "s": "b"}, {"n": 2, "s": "a"}])]
    spec = tables("game", rounds=tables("round", order_by="n"))
    made = round_trip(base, spec, blocks)
    assert made.children["rounds"].key == ("game_id", "n")
    base.run("DROP TABLE round; DROP TABLE game")
    spec = tables("game", rounds=tables("round", order_by="place"))
    made = round_trip(base, spec, blocks)
    assert made.children["rounds"].columns["place"] == "integer POSITION"


def test_c10_a_name_that_no_column_can_have_does_not_fit(base: Base) -> None:
    blocks = [block(1, id=1, a=1), block(2, **{"id": 2, "a": 1, "": 1}),
              block(3, **{"id": 3, "a": 1, "x" * 300: 1})]  # fmt: skip
    games = base.store().collection("Game", told(base, tables("thing"), blocks))
    assert games.size(blocks[0]) > 0
    for each in blocks[1:]:
        with pytest.raises(DoesNotFit, match="no column"):
            games.size(each)
    odd = block(4, **{"id": 4, "a b": 1, 'q"`': 2, "%s": 3, "ünï": 4, "order": 5})
    round_trip(base, tables("odd"), [odd])


def test_without_blocks_nothing_is_told(base: Base) -> None:
    with pytest.raises(Refused, match="there is no block to tell its columns from"):
        told(base, tables("thing"), [])
    with pytest.raises(Refused, match="several shapes"):
        told(base, tables("thing"), [block(1, id=1), block([1, 2], id=1)])


def test_what_is_described_or_there_is_not_told(base: Base) -> None:
    described = tables("game", key="id", columns={"id": "integer"})
    for spec in (described, tables("game", like="other")):
        at = At("shop", spec)
        collection = referring(base.store().collection("Game", at))
        assert isinstance(collection, Infers)
        assert collection.inference() is None
    base.store().collection("Game", At("shop", described)).create()
    there = base.store().collection("Game", At("shop", tables("game")))
    assert isinstance(there, Infers)
    assert there.inference() is None


def test_a_described_root_keeps_its_columns(base: Base) -> None:
    described = tables(
        "game", key="id", columns={"id": "integer", "n": "bigint"}, rounds=tables("round")
    )
    blocks = [block(1, id=1, n=Int64(1), rounds=[{"s": "a"}, {"s": "b"}])]
    made = round_trip(base, described, blocks)
    assert made.columns == {"id": "integer", "n": "bigint"}

"""Keys and values of a drill: of the kinds that lie there, and told from one another."""

from __future__ import annotations

import uuid

import pytest

from migrator.drill.making import Maker, Shape, maker, shape
from migrator.errors import Refused
from migrator.gateway.changes import appended, updated
from migrator.model.block import Aggregate
from migrator.model.value import Int64, Record, Ref, Value, kind_of


def make(id: Value) -> Maker:
    return maker(id, "0000002a", 42, "Game")


def made_of(*values: Record) -> Shape:
    found = [Aggregate(str(number), value) for number, value in enumerate(values)]
    return shape("Game", found, make)


@pytest.mark.parametrize("like", ["17", 17, Int64(17), b"17", uuid.UUID(int=17)])
def test_keys_are_of_the_kind_that_lies_there_and_all_others(like: Value) -> None:
    names = [f"{writer}.{place}.{part}" for writer in (0, 1, 63) for place in (0, 1, 9999)
             for part in (0, 99)]  # fmt: skip
    keys = [make(like).id(name) for name in names]
    assert {kind_of(key) for key in keys} <= {kind_of(like)}
    assert len(set(keys)) == len(keys)
    if isinstance(like, int):
        assert all(isinstance(key, int) and 10**9 <= key < 2**31 for key in keys)


@pytest.mark.parametrize("like", [1.5, True, None, Ref("Game", "1")])
def test_other_keys_are_refused(like: Value) -> None:
    with pytest.raises(Refused, match="no keys of a drill's own"):
        make(like)


def test_a_value_is_a_sample_with_another_key_and_mark() -> None:
    rounds: list[Value] = [{"number": 3, "moves": "a"}, {"number": 5, "moves": "b"}]
    value: Record = {"id": "0", "player": "mary", "of": Ref("Player", "mary"), "rounds": rounds}
    found = made_of(value)
    assert (found.mark, found.items, found.item_mark, found.ordinals) == (
        "player", "rounds", "moves", ("number",),
    )  # fmt: skip
    assert found.value("1.2.0", 0, 77) == {
        "id": "drill-0000002a-1.2.0", "player": "77", "of": Ref("Player", "mary"),
        "rounds": rounds,
    }  # fmt: skip
    assert found.element(value, 78) == {"number": 6, "moves": "78"}


def test_a_mark_is_of_the_kind_of_what_lies_there() -> None:
    whole = made_of({"score": Int64(3), "tags": [1, 2]})
    assert whole.mark == "score"
    value = whole.value("0.0.0", 0, 9)
    assert type(value["score"]) is Int64
    assert whole.element(value, 10) == 10


def test_what_lacks_the_mark_or_the_list_is_no_sample() -> None:
    found = made_of(
        {"a": "x", "l": ["y"]}, {"b": None}, {"a": "x", "l": []}, {"a": "z", "l": ["q"]}
    )
    assert [value["l"] for value in found.samples] == [["y"], [], ["q"]]
    assert found.element({"a": "x", "l": []}, 7) == "7"


def test_a_class_without_lists_is_written_without_appends() -> None:
    assert made_of({"a": "x", "moves": [{"deep": []}]}).items == ""


@pytest.mark.parametrize(
    ("values", "told"), [([], "nothing lies there"), ([{"a": None, "b": True}], "it has no field")]
)
def test_nothing_can_be_made_like_nothing(values: list[Record], told: str) -> None:
    with pytest.raises(Refused, match=told):
        made_of(*values)


def test_each_write_makes_another_state() -> None:
    found = made_of({"player": "mary", "rounds": [{"moves": "a"}]})
    value = found.value("0.0.0", 0, 1)
    states = [
        found.state(each)
        for each in (
            None,
            value,
            updated(value, {found.mark_path: "2"}, (), ""),
            appended(value, found.items_path, found.element(value, 3), ""),
        )
    ]
    assert len(set(states)) == len(states)
    assert states[3] is not None
    assert states[3].items == ("a", "3")

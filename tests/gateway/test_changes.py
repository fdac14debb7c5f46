"""What changes make of an aggregate, and what travels, against a plain dict."""

from __future__ import annotations

import copy

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from migrator.errors import Refused
from migrator.exchange import made_of
from migrator.gateway import changes
from migrator.model.block import Aggregate, Block, Patch, cut, join
from migrator.model.canonical import equal
from migrator.model.path import Steps, format_path, lookup
from migrator.model.rules import Representation, representation
from migrator.model.value import Record, Value
from migrator.testing.strategies import records, values

RULES = [
    representation("Game", texts)
    for texts in (
        ["/Game/*"], ["/Game/*/*"], ["/Game/*/**"], ["/Game/*/a[*]", "/Game/*"],
        ["/Game/*/a[*].b[*]", "/Game/*/a.*", "/Game/*/*"],
    )
]  # fmt: skip


def places(value: Value, at: Steps = ()) -> list[Steps]:
    """All places of a value, and a new one in each record of it."""
    found: list[Steps] = [at] if at else []
    if type(value) is dict:
        found.append((*at, "new"))
        for name, item in value.items():
            found += places(item, (*at, name))
    elif type(value) is list:
        for i, item in enumerate(value):
            found += places(item, (*at, i))
    return found


def at(record: Record, steps: Steps) -> dict[object, Value]:
    """What holds the last of these steps."""
    value: object = record
    for step in steps[:-1]:
        value = value[step]  # type: ignore[index]
    return value  # type: ignore[return-value]


def parts(value: Record, rules: Representation) -> Block:
    try:
        return cut(Aggregate("1", value), rules)
    except Refused:
        assume(False)  # the elements of a set have no index
        raise


@st.composite
def changed(draw: st.DrawFn) -> tuple[Record, Record, Record]:
    """An aggregate, what a change of ours makes of it, and what a plain dict becomes by it."""
    old = draw(records(6))
    model = copy.deepcopy(old)
    steps = draw(st.sampled_from(places(old)))
    path, kind = format_path(steps), draw(st.sampled_from(["set", "remove", "append"]))
    holder, item = at(model, steps), draw(values(4))
    if kind == "set":
        holder[steps[-1]] = item
        return old, changes.updated(old, {path: item}, (), "here"), model
    if kind == "remove":
        assume(steps[-1] != "new")
        del holder[steps[-1]]
        return old, changes.updated(old, {}, [path], "here"), model
    assume(steps[-1] != "new")
    there = holder[steps[-1]]
    assume(type(there) is list)
    there.append(item)  # type: ignore[attr-defined]
    return old, changes.appended(old, path, item, "here"), model


@settings(max_examples=60)
@given(changed(), st.sampled_from(RULES))
def test_a_change_is_that_of_a_plain_dict(
    given_: tuple[Record, Record, Record], rules: Representation
) -> None:
    old, new, model = given_
    assert equal(new, model)
    held, wanted = parts(old, rules), parts(new, rules)
    for apart in (True, False):
        change = changes.change_of(held, wanted, apart=apart)
        made = made_of(held, change) if isinstance(change, (Patch, Block)) else None
        assert made is not None
        # What lies there is the cut of the aggregate, as if it had been put whole.
        assert made.entries.keys() == wanted.entries.keys()
        assert equal(join(made).value, model)
        if changes.is_same(held, change):
            assert equal(old, model)
        if isinstance(change, Patch):
            assert all(not equal(held.entries.get(p, ...), x) for p, x in change.set.items()
                       if p in held.entries)  # fmt: skip


@settings(max_examples=60)
@given(records(6), st.sampled_from(RULES), st.data())
def test_the_entry_that_holds_a_place_is_told_by_the_rules(
    value: Record, rules: Representation, data: st.DataObject
) -> None:
    steps = data.draw(st.sampled_from(places(value)))
    entry = changes.entry_of(rules, format_path(steps), "here")
    assume(entry is not None)
    entries = parts(value, rules).entries
    depth = len(changes.steps_of(entry, "here")) if entry else 0
    try:
        there = lookup(value, steps)
    except KeyError:
        there = None
    if there is None:
        return
    assert equal(lookup(entries[entry or ""], steps[depth:]), there)


def test_an_append_sends_the_element_alone() -> None:
    rules = representation("Game", ["/Game/*/rounds[*]", "/Game/*"])
    old: Record = {"id": "1", "rounds": [{"n": 1}, {"n": 2}]}
    new = changes.appended(old, "rounds", {"n": 3}, "here")
    assert old["rounds"] == [{"n": 1}, {"n": 2}]
    held, wanted = (cut(Aggregate("1", value), rules) for value in (old, new))
    assert changes.change_of(held, wanted, apart=True) == Patch("1", {"rounds[2]": {"n": 3}})


@pytest.mark.parametrize(
    ("set_", "told"),
    [
        ({"": 1}, "the empty path is the whole aggregate"),
        ({"a.b": 1}, "a.b: there is no place"),
        ({"a[0]": 1}, r"a\[0\]: there is no place"),
        ({"rounds[2]": 1}, r"rounds\[2\]: there is no place"),
        ({"rounds.x": 1}, "rounds.x: there is no place"),
        ({"a..b": 1}, "no access path"),
    ],
)
def test_places_that_are_none(set_: dict[str, Value], told: str) -> None:
    old: Record = {"a": 1, "rounds": [1, 2]}
    with pytest.raises(Refused, match=told) as refused:
        changes.updated(old, set_, (), "Game:1")
    assert refused.value.where == "Game:1"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), "object is no kind of value"),
        ({"a": [1, {"b": (1,)}]}, r"a\[1\].b: tuple is no kind"),
        ({"a": {1: 2}}, "a: the name 1 is no text"),
        ({"a": {3}}, "a: set is no kind"),
    ],
)
def test_what_is_no_value(value: Value, told: str) -> None:
    with pytest.raises(Refused, match=told):
        changes.refuse_odd(value, "Game:1")
    endless: list[Value] = []
    endless.append(endless)
    with pytest.raises(Refused, match="nests deeper"):
        changes.refuse_odd(endless, "Game:1")

"""Representations: cutting and joining lose nothing, and bad lists of rules are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.errors import Refused
from migrator.model.canonical import encode
from migrator.model.path import child, parse_path
from migrator.model.rules import (
    CorruptBlock,
    Entries,
    Representation,
    assemble,
    general_path,
    parse_pattern,
    pattern_matches,
    representation,
)
from migrator.model.value import Record, Set, Value
from migrator.testing import strategies


def cut(rules: list[str], aggregate: Record) -> Entries:
    return representation("X", [f"/X/*{rule}" for rule in rules]).partition(aggregate)


def cut_or_nothing(rules: Representation, aggregate: Record) -> Entries | None:
    try:
        return rules.partition(aggregate)
    except Refused:
        return None  # a rule met a set where it takes elements


def leaves(value: Value, path: str, found: dict[str, Value]) -> None:
    if type(value) is dict and value:
        for name, item in value.items():
            leaves(item, child(path, name), found)
    elif type(value) is list and value:
        for i, item in enumerate(value):
            leaves(item, f"{path}[{i}]", found)
    else:
        assert path not in found, f"{path} is held twice"
        found[path] = value


def above(path: str) -> set[tuple[object, ...]]:
    steps = parse_path(path)
    return {steps[:i] for i in range(len(steps))}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_is_cut_comes_together_again(data: st.DataObject) -> None:
    aggregate = data.draw(strategies.records())
    rules = data.draw(strategies.representations(given=aggregate))
    before = encode(aggregate)
    entries = cut_or_nothing(rules, aggregate)
    if entries is None:
        return
    assert entries
    shuffled = dict(data.draw(st.permutations(list(entries.items()))))
    assert encode(assemble(entries)) == before
    assert encode(assemble(shuffled)) == before
    assert encode(aggregate) == before


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_entries_cover_the_aggregate_and_never_overlap(data: st.DataObject) -> None:
    aggregate = data.draw(strategies.records())
    rules = data.draw(strategies.representations(given=aggregate))
    entries = cut_or_nothing(rules, aggregate)
    if entries is None:
        return
    held: dict[str, Value] = {}
    for path, value in entries.items():
        leaves(value, path, held)
    inner = set().union(*map(above, held))
    # An empty container that only holds the place of what was taken out of it is no leaf.
    real = {path: value for path, value in held.items() if parse_path(path) not in inner}
    assert all(held[path] in ({}, []) for path in held.keys() - real.keys())
    wanted: dict[str, Value] = {}
    leaves(aggregate, "", wanted)
    assert {p: encode(v) for p, v in real.items()} == {p: encode(v) for p, v in wanted.items()}


@pytest.mark.parametrize(
    ("rules", "aggregate", "entries"),
    [
        ([""], {}, {"": {}}),
        (["/*"], {}, {"": {}}),
        (["/**"], {}, {"": {}}),
        (["/**"], {"a": [], "b": {}, "c": Set()}, {"a": [], "b": {}, "c": Set()}),
        (["/lines[*]", ""], {"lines": []}, {"": {"lines": []}}),
        (["/lines[*]", ""], {"lines": [1], "n": None}, {"lines[0]": 1, "": {"n": None}}),
        (["/lines[*]", ""], {"lines": {"a": 1}}, {"": {"lines": {"a": 1}}}),
        (["/a.*", ""], {"a": {"b": 1}}, {"a.b": 1}),
        (["/a.**", ""], {"a": {"b": {"c": [1, {}]}}}, {"a.b.c[0]": 1, "a.b.c[1]": {}}),
        (["/**"], {"a.b": 1, "": {"[0]": 2}}, {r"a\.b": 1, r"\e.\[0\]": 2}),
        (["/*[*]", "/*"], {"a": [1], "b": 2}, {"a[0]": 1, "b": 2}),
        (
            ["/l[*].t[*]", ""],
            {"l": [{"t": [1]}, {"t": []}, 3]},
            {"l[0].t[0]": 1, "": {"l": [{}, {"t": []}, 3]}},
        ),
    ],
)
def test_entries_are_these(rules: list[str], aggregate: Record, entries: Entries) -> None:
    assert cut(rules, aggregate) == entries
    assert assemble(entries) == aggregate


def test_rules_of_other_classes_are_ignored() -> None:
    rules = ["/Player/*/*", "/Game/*/rounds[*]", "/Game/*"]
    assert representation("Player", rules).texts == ["/Player/*/*"]
    assert representation("Game", rules).texts == ["/Game/*/rounds[*]", "/Game/*"]


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (["/X/*"], "EAO"),
        (["/X/*/*"], "ETF"),
        (["/X/*/**"], "EAV"),
        (["/X/*/rounds[*]", "/X/*"], "ROUNDS"),
        (["/X/*/rounds[*]", "/X/*/*"], "ROUNDS+ETF"),
    ],
)
def test_a_representation_has_the_name_of_the_literature(rules: list[str], name: str) -> None:
    assert representation("X", rules).name == name


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["/X/*/a[*]", "/X/*/a[*]", "/X/*"], ["/X/*/a[*] is ambiguous", "takes the same"]),
        (["/X/*", "/*/*"], ["/*/* is ambiguous", "the same as /X/*"]),
        (["/X/*", "/X/*/a"], ["/X/*/a can never match", "/X/*, before it"]),
        (["/X/*/a", "/X/*/a[*]", "/X/*"], ["/X/*/a[*] can never match"]),
        (["/X/*/*", "/X/*/**"], ["/X/*/** can never match"]),
        (["/X/*/**", "/X/*/*"], ["/X/*/* can never match"]),
        (["/X/*/*.b", "/X/*/a.b", "/X/*"], ["/X/*/a.b can never match"]),
        (["/X/*/a.**", "/X/*/a[*].b", "/X/*"], ["/X/*/a[*].b can never match"]),
        (["/X/*/a.*", "/X/*/a[*]", "/X/*/a.**", "/X/*"], ["/X/*/a.** can never match"]),
        (["/X/*/a[*]"], ["leave something over", "all fields that /X/*/a[*] do not take"]),
        (["/X/*/a.**"], ["leave something over"]),
        (["/Y/*"], ["leave something over", "no rule is for it"]),
        ([], ["leave something over", "no rule is for it"]),
        (["X/*"], ["'X/*'", "must begin with"]),
        (["/X/1"], ["identifier must be *"]),
        (["/X/*/"], ["ends with a slash"]),
        (["/X/*/a..b", "/X/*"], ["field name is empty"]),
        (["/X/*/a.", "/X/*"], ["ends with a dot"]),
        (["/X/*/[*]", "/X/*"], ["has no elements"]),
        (["/X/*/a[0]", "/X/*"], ["names one element"]),
        (["/X/*/a[*", "/X/*"], ["not closed"]),
        (["/X/*/a[*]b", "/X/*"], ["after ] comes"]),
        (["/X/*/**.a", "/X/*"], ["only stand at the end"]),
        (["/X/*/a*", "/X/*"], ["no field name"]),
        (["/X/*/a\\", "/X/*"], ["no"]),
    ],
)
def test_a_bad_list_of_rules_is_refused_with_rule_and_reason(
    rules: list[str], words: list[str]
) -> None:
    with pytest.raises(Refused) as error:
        representation("X", rules)
    for word in words:
        assert word in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize(
    "rules",
    [
        ["/X/*/a.**", "/X/*/a", "/X/*"],
        ["/X/*/a.*", "/X/*/a.**", "/X/*"],
        ["/X/*/a[*]", "/X/*/a.*", "/X/*/**"],
    ],
)
def test_rules_that_can_still_match_are_accepted(rules: list[str]) -> None:
    assert representation("X", rules).texts == rules


def test_elements_of_a_set_are_refused_with_rule_and_path() -> None:
    with pytest.raises(Refused, match=r"rule /X/\*/tags\[\*\] takes elements of tags, .* a set"):
        cut(["/tags[*]", ""], {"tags": Set([1])})


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"": 1},
        {"": []},
        {"[0]": 1},
        {"a": 1, "a.b": 2},
        {"a": {"b": 0}, "a.b": 7},
        {"": {"a": 0}, "a": 0},
        {"": {"a": []}, "a": []},
        {"a": [0], "a[0]": 0},
        {"a": {}, "a[0]": 1},
        {"a": [], "a.b": 1},
        {"a[1]": 1},
        {"a[0]": 1, "a[2]": 1},
        {"a[0]": 1, "a.b": 1},
        {"a[0]": 1, "a": [1]},
        {"a..b": 1},
        {"a[01]": 1},
        {"a[0][1]": 1},
    ],
)
def test_entries_that_are_no_cut_are_refused(entries: Entries) -> None:
    with pytest.raises(CorruptBlock):
        assemble(entries)


def test_values_nested_200_deep_are_cut_and_joined() -> None:
    value: Value = 1
    for i in range(200):
        value = [value] if i % 2 else {"a": value}
    aggregate: Record = {"a": value, "b": 2}
    for last in ("", "/*", "/**"):
        assert assemble(cut([last], aggregate)) == aggregate
    deep = "/a" + "[*].a" * 100
    assert assemble(cut([deep, "/**"], aggregate)) == aggregate


def test_patterns_match_paths_of_their_length() -> None:
    pattern = parse_pattern("games[*].*")
    assert pattern_matches(pattern, parse_path("games[3].opponent"))
    assert not pattern_matches(pattern, parse_path("games[3]"))
    assert not pattern_matches(pattern, parse_path("games.a.opponent"))
    assert general_path(r"games[3].a\.b[0]") == r"games[*].a\.b[*]"
    assert general_path("") == ""

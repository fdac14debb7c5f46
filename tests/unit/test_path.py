"""Access paths: every name has a text, and every text at most one meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.model.path import child, escape, format_path, lookup, parse_path, unescape
from migrator.testing import strategies

STEPS = st.lists(st.one_of(strategies.names(), st.integers(0, 10**6))).map(tuple)


@given(STEPS)
def test_steps_come_back_from_their_text(steps: tuple[str | int, ...]) -> None:
    assert parse_path(format_path(steps)) == steps


@given(st.text("ab.[]\\*e0\0", max_size=8))
def test_a_text_that_is_a_path_is_the_text_of_its_steps(text: str) -> None:
    try:
        steps = parse_path(text)
    except ValueError:
        return
    assert format_path(steps) == text


@given(strategies.names())
def test_names_come_back_from_their_escaped_form(name: str) -> None:
    assert unescape(escape(name)) == name
    assert "\0" not in escape(name)
    assert parse_path(child("x", name)) == ("x", name)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", ()),
        ("a", ("a",)),
        ("games[0].opponent", ("games", 0, "opponent")),
        ("a[0][12]", ("a", 0, 12)),
        (r"a\.b", ("a.b",)),
        (r"a.\e.b", ("a", "", "b")),
        (r"\\e", ("\\e",)),
        (r"\\0", ("\\0",)),
        (r"x\0", ("x\0",)),
        (r"\[0\]", ("[0]",)),
        ("a\nb c", ("a\nb c",)),
    ],
)
def test_paths_read_as_these_steps(text: str, steps: tuple[str | int, ...]) -> None:
    assert parse_path(text) == steps
    assert format_path(steps) == text


@pytest.mark.parametrize(
    "text",
    [
        ".",
        ".a",
        "a.",
        "a..b",
        "a[",
        "a[x]",
        "a[-1]",
        "a[01]",
        "a[0]b",
        "a]",
        "*",
        "a\\",
        "a\\x",
        r"a\e",
        "[0].",
        "a.[0]",
        "\0",
        "a[٣]",
    ],
)
def test_a_text_that_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no access path"):
        parse_path(text)


def test_lookup_finds_what_is_there() -> None:
    value = {"a": [{"": 1}], "b": None}
    assert lookup(value, ()) is value
    assert lookup(value, ("a", 0, "")) == 1
    assert lookup(value, ("b",)) is None


@pytest.mark.parametrize("steps", [("c",), ("a", 1), ("a", -1), ("a", "0"), ("b", "x"), (0,)])
def test_lookup_of_what_is_not_there_raises(steps: tuple[str | int, ...]) -> None:
    with pytest.raises(KeyError):
        lookup({"a": [{"": 1}], "b": None}, steps)

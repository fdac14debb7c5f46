"""Recorded calls: each comes back from its line, and what is no line says why."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.model.canonical import equal
from migrator.model.path import child
from migrator.model.recorded import (
    Append,
    Delete,
    Get,
    GetEntries,
    Line,
    Put,
    Update,
    kept,
    line_bytes,
    read_line,
)
from migrator.model.value import Record, Value
from migrator.testing import strategies

HEAD = {"at": 1.5, "cls": "Game", "key": "5d0c8a"}
PATHS = strategies.names().map(lambda name: child("", name))


@given(strategies.records(), strategies.values(), st.dictionaries(PATHS, strategies.values()))
def test_what_was_written_comes_back_with_its_kinds(
    value: Record, item: Value, set_: Record
) -> None:
    put = read_line(line_bytes(Put(**HEAD, value=value)))
    assert isinstance(put, Put)
    assert put.value is not None
    assert equal(put.value, value)
    append = read_line(line_bytes(Append(**HEAD, path="rounds", item=item)))
    assert isinstance(append, Append)
    assert equal(append.item, item)
    update = read_line(line_bytes(Update(**HEAD, set=set_, remove=("a.b",))))
    assert isinstance(update, Update)
    assert update.set is not None
    assert equal(update.set, set_)
    assert all(kept(line) for line in (put, append, update))


@pytest.mark.parametrize(
    "line",
    [
        Put(**HEAD, size=7012, lists={"rounds": 12}),
        Update(**HEAD, paths=("secondPlayer",)),
        Append(**HEAD, path="rounds"),
        Delete(**HEAD),
        Get(**HEAD),
        Get(**HEAD, found=False),
        GetEntries(**HEAD, paths=("rounds", "score")),
    ],
)
def test_a_call_without_values_comes_back(line: Line) -> None:
    text = line_bytes(line)
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    assert read_line(text) == line
    assert not kept(line)


def test_a_line_is_what_the_documentation_shows() -> None:
    line = Append(at=1767225600.25, cls="Game", key="5d0c8a", path="rounds")
    assert msgspec.json.decode(line_bytes(line)) == {
        "at": 1767225600.25, "call": "append", "class": "Game", "key": "5d0c8a", "path": "rounds",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("[]", "no JSON object"),
        ('{"at": NaN}', "NaN"),
        ('{"at": 1e400, "call": "get", "class": "Game", "key": "1"}', "1e400 is beyond any double"),
        ('{"at": 1, "class": "Game", "key": "1"}', "call is null, and none of put, update"),
        ('{"at": 1, "call": "pot", "class": "Game", "key": "1"}', 'call is "pot"'),
        ('{"at": 1, "call": "get", "class": "Game"}', "missing required field `key`"),
        ('{"at": 1, "call": "get", "class": "", "key": "1"}', "`class`"),
        ('{"at": -1, "call": "get", "class": "Game", "key": "1"}', "`at`"),
        ('{"at": 1, "call": "get", "class": "Game", "key": 1}', "Expected `str`, got `int`"),
        ('{"at": 1, "call": "get", "class": "Game", "key": "1", "x": 1}', "unknown field `x`"),
        ('{"at": 1, "call": "put", "class": "Game", "key": "1", "value": []}', "`value`"),
        ('{"at": 1, "call": "update", "class": "Game", "key": "1"}', "set and remove, or else"),
        (
            '{"at": 1, "call": "update", "class": "Game", "key": "1", "paths": ["a"], "set": {}}',
            "set and remove, or else paths",
        ),
        ('{"at": 1, "call": "append", "class": "Game", "key": "1", "path": "a["}', "access path"),
        (
            '{"at": 1, "call": "get_entries", "class": "Game", "key": "1", "paths": [""]}',
            "empty path",
        ),
        ('{"at": 1, "call": "delete", "class": "Game", "key": "1", "tags": []}', "tags is an obj"),
        (
            '{"at": 1, "call": "put", "class": "Game", "key": "1", "value": {"a": 1}, '
            '"tags": {"value.a": "reference"}}',
            "does not fit",
        ),
    ],
)  # fmt: skip
def test_what_is_no_line_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        read_line(text.encode())
    assert why in str(error.value)

"""JSON text: a value comes back, and the short ways give what the long ones do."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.model import json_text
from migrator.model.canonical import equal
from migrator.model.tags import Tags, lower
from migrator.model.value import Value
from migrator.testing import strategies

_DECODER = json.JSONDecoder(strict=False)


@given(strategies.values())
def test_a_value_is_plain_exactly_where_it_needs_no_tag(value: Value) -> None:
    tags: Tags = {}
    held = lower(value, json_text.native, "", tags)
    assert json_text.is_plain(value) == (held is value and not tags)


@given(strategies.values())
def test_a_value_comes_back_by_both_readers(value: Value) -> None:
    text, tags = json_text.dump(value)
    assert equal(json_text.load(text, tags), value)
    assert equal(json_text.observe(text, tags), value)


@given(st.text('{}[]",: \n\t1e-aN') | strategies.values().map(lambda x: json_text.dump(x)[0]))
def test_the_fast_reader_takes_and_refuses_what_the_decoder_does(text: str) -> None:
    read = json_text.reader(_DECODER)
    try:
        expected = _DECODER.decode(text)
    except json.JSONDecodeError:
        with pytest.raises(json.JSONDecodeError):
            read(text)
    else:
        assert repr(read(text)) == repr(expected)


@given(strategies.values())
def test_a_key_is_one_text_that_leads_back(value: Value) -> None:
    with suppress(*json_text.UNFIT):
        text = json_text.to_text(value)
        assert equal(json_text.from_text(text, json_text.load), value)
        assert "\0" not in text

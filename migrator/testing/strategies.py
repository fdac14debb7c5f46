"""Hypothesis strategies for the model: odd values, odd names, aggregates, representations.

Needs the extra ``migrator[testing]``. Everything that the model calls a value is generated,
preferring what stores get wrong: NaN, minus zero, NUL and lone surrogates, dates out of range.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from functools import cache

from hypothesis import strategies as st

from migrator.errors import Refused
from migrator.model import value as v
from migrator.model.block import Aggregate
from migrator.model.path import escape
from migrator.model.rules import Representation, representation
from migrator.model.value import Record, Value

_ODD_TEXTS = [
    "",
    "\0",
    "ab\0cd",
    "\\u0000x",
    "\ud800",
    "x\udfff",
    "e\u0301",
    "é",
    "null",
    "Game:2345",
    " a ",
    "\u2028",
    "😀",
    "'; DROP TABLE x; --",
    "a" * 300,
]
_ODD_NAMES = [
    "",
    ".",
    "a.b",
    "a",
    "b",
    "[0]",
    "a[0]",
    "*",
    "**",
    "\\",
    "\\e",
    "\\0",
    "e",
    "0",
    "$",
    "$set",
    "_id",
    "a b",
    " ",
    '"',
    "'",
    "`",
    "\0",
    "é",
    "e\u0301",
    "日本",
    "__tags__",
    "/",
    ":",
    "A",
    "\n",
    "]",
]
_ODD_DOUBLES = [
    0.0,
    -0.0,
    1.0,
    float("nan"),
    float("inf"),
    float("-inf"),
    5e-324,
    0.1,
    30.4,
    2.0**53,
    1.7976931348623157e308,
]
_ODD_INTEGERS = [
    0,
    1,
    -1,
    v.INT32_MAX,
    v.INT32_MIN,
    v.INT32_MAX + 1,
    v.INT64_MAX,
    v.INT64_MIN,
    v.INT64_MAX + 1,
    2**53 + 1,
    10**45 + 1,
    -(10**200),
]
_ODD_DECIMALS = [
    Decimal(text)
    for text in (
        *("0", "-0", "1", "1.0", "1.50", "1E+5", "1E-6000", "0E-10"),
        *("NaN", "-NaN", "sNaN", "Infinity", "-Infinity"),
        "12345678901234567890123456789012345678901234.5",
    )
]


@cache
def texts() -> st.SearchStrategy[str]:
    """Any text, lone surrogates and NUL included."""
    any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
    return st.one_of(st.sampled_from(_ODD_TEXTS), st.text("ab", max_size=3), any_text)


@cache
def names() -> st.SearchStrategy[str]:
    """Any name of a field."""
    return st.one_of(st.sampled_from(_ODD_NAMES), st.text("ab.[]\\*e0", max_size=4), texts())


@cache
def integers() -> st.SearchStrategy[Value]:
    """Whole numbers of every kind, small ones that are 64 bits wide included."""
    wide = st.integers(v.INT64_MIN, v.INT64_MAX).map(v.Int64)
    small = st.integers(-2, 2).map(v.Int64)
    plain = st.one_of(st.integers(), st.integers(-3, 3))
    return st.one_of(st.sampled_from(_ODD_INTEGERS), plain, wide, small)


@cache
def decimals() -> st.SearchStrategy[Decimal]:
    """Decimal numbers of any precision, exponents kept, NaN and infinities included."""
    built = st.builds(
        lambda sign, digits, exponent: Decimal((sign, tuple(digits), exponent)),
        st.integers(0, 1),
        st.lists(st.integers(0, 9), min_size=1, max_size=40),
        st.integers(-400, 400),
    )
    return st.one_of(st.sampled_from(_ODD_DECIMALS), built)


_NANOS = st.one_of(st.integers(-(2**63), 2**63), st.integers(-3, 3), st.integers(-(10**21), 10**21))


@cache
def moments() -> st.SearchStrategy[Value]:
    """Dates, times and timestamps, in and out of the range of ``datetime``."""
    return st.one_of(
        _NANOS.map(v.instant),
        _NANOS.map(v.local_timestamp),
        st.integers(-800_000, 4_000_000).map(v.day),
        st.integers(0, v.DAY_NANOS).map(v.time_of_day),
        st.datetimes(),
        st.datetimes(timezones=st.just(dt.UTC)),
        st.dates(),
        st.times(),
        st.builds(
            v.Interval, st.integers(-99, 99), st.integers(-99, 99), st.integers(-(10**12), 10**12)
        ),
    )


@cache
def identifiers() -> st.SearchStrategy[Value]:
    """What can identify an aggregate in most systems."""
    return st.one_of(
        texts(),
        integers(),
        st.uuids(),
        st.binary(min_size=12, max_size=12).map(v.ObjectId),
        st.binary(max_size=6),
    )


@cache
def scalars() -> st.SearchStrategy[Value]:
    """Values that hold no other value."""
    plain = texts()
    return st.one_of(
        st.none(),
        st.booleans(),
        integers(),
        st.one_of(st.sampled_from(_ODD_DOUBLES), st.floats()),
        decimals(),
        plain,
        st.binary(max_size=8),
        st.builds(v.Binary, st.integers(1, 255), st.binary(max_size=4)),
        moments(),
        st.uuids(),
        st.binary(min_size=12, max_size=12).map(v.ObjectId),
        st.builds(v.BsonTimestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
        st.builds(v.Regex, plain, st.sampled_from(["", "i", "imsx"])),
        st.builds(
            v.Opaque,
            st.sampled_from(["mongodb", "mysql"]),
            st.sampled_from(["minKey", "zero date"]),
            st.binary(max_size=4),
        ),
        references(),
    )


@cache
def references() -> st.SearchStrategy[v.Ref]:
    """References, by text and by other identifiers."""
    return st.builds(v.Ref, st.sampled_from(["Game", "Player", "Ünï"]), identifiers())


@cache
def values(max_leaves: int = 12) -> st.SearchStrategy[Value]:
    """Any value: scalars, and lists, records and sets of them to some depth."""

    def below(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
        return st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(names(), inner, max_size=4),
            st.lists(inner, max_size=3).map(v.Set),
        )

    return st.recursive(scalars(), below, max_leaves=max_leaves)


@cache
def records(max_leaves: int = 12) -> st.SearchStrategy[Record]:
    """Any record: the value of an aggregate. Short names are frequent, so that rules match."""
    name = st.one_of(st.sampled_from(["a", "b", "lines", "address"]), names())
    shaped = st.fixed_dictionaries(
        {},
        optional={
            "lines": st.lists(
                st.fixed_dictionaries({}, optional={"taxes": st.lists(scalars(), max_size=3)}),
                max_size=3,
            ),
            "address": st.dictionaries(names(), scalars(), max_size=3),
            "a": st.dictionaries(st.sampled_from("ab"), values(4), max_size=2),
        },
    )
    return st.one_of(st.dictionaries(name, values(max_leaves), max_size=5), shaped)


@cache
def aggregates() -> st.SearchStrategy[Aggregate]:
    """Any aggregate, some with a deadline."""
    deadline = st.one_of(st.none(), st.integers(0, 2**53))
    return st.builds(Aggregate, identifiers(), records(), deadline)


_PATTERNS = [
    "lines[*]",
    "lines[*].taxes[*]",
    "lines[*].taxes",
    "lines[*].*",
    "address",
    "address.*",
    "a.**",
    "a.b",
    "a.*",
    "a[*]",
    "a[*][*]",
    "*[*]",
    "*.a",
    "b",
    "b.**",
]


@st.composite
def representations(draw: st.DrawFn, cls: str = "X", given: Record | None = None) -> Representation:
    """A list of rules that is accepted: for any aggregate, or one whose fields are ``given``."""
    known = [escape(name) for name in (given or {})]
    own = [text for name in known for text in (name, f"{name}[*]", f"{name}.*", f"{name}.**")]
    patterns: Sequence[str] = draw(
        st.lists(st.sampled_from([*_PATTERNS, *own]), max_size=4, unique=True)
    )
    last = draw(st.sampled_from([f"/{cls}/*", f"/{cls}/*/*", f"/{cls}/*/**", "/*/*"]))
    rules: list[str] = []
    for text in [*(f"/{cls}/*/{pattern}" for pattern in patterns), last]:
        try:
            representation(cls, [*rules, text, "/*/*"] if text is not last else [*rules, text])
        except Refused:
            continue  # it could never match behind those that are drawn already
        rules.append(text)
    return representation(cls, rules)

"""Every kind of column of each system: read exactly, observed alike, written back alike."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from migrator import At, tables
from migrator.errors import DoesNotFit
from migrator.model.block import Block
from migrator.model.canonical import encode, equal
from migrator.model.value import (
    Instant,
    Int64,
    Interval,
    LocalTimestamp,
    LongDate,
    Opaque,
    Set,
    TimeOfDay,
)
from tests.stores.sql_servers import Base

UTC = dt.UTC


def pg(kind: str, text: str) -> Opaque:
    return Opaque("postgresql", kind, text.encode())


def my(kind: str, text: str) -> Opaque:
    return Opaque("mysql", kind, text.encode())


def nested(levels: int, of: type = list) -> Any:
    """So many lists or records in one another, around a number."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if of is list else {"a": value}
    return value


# column type, SQL literal, value
POSTGRESQL: list[tuple[str, str, Any]] = [
    ("smallint", "1", 1),
    ("integer", "-2147483648", -(2**31)),
    ("bigint", "1", Int64(1)),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("positive", "7", 7),
    ("numeric", "'NaN'", Decimal("NaN")),
    ("numeric", "'-Infinity'", Decimal("-Infinity")),
    (
        "numeric",
        "123456789012345678901234567890.1230",
        Decimal("123456789012345678901234567890.1230"),
    ),
    ("numeric(10,2)", "1.5", Decimal("1.50")),
    ("real", "0.1", 0.1),
    ("real", "16777216", 16777216.0),
    ("double precision", "'-0'", -0.0),
    ("double precision", "'NaN'", float("nan")),
    ("double precision", "'Infinity'", float("inf")),
    ("double precision", "0.1::float8 + 0.2::float8", 0.1 + 0.2),
    ("text", "'a\\u0000'", "a\\u0000"),
    ("text", "''", ""),
    ("varchar(5)", "'äö😀  '", "äö😀  "),
    ("char(4)", "'ab'", "ab  "),
    ("bytea", "'\\x00ff'", b"\0\xff"),
    ("date", "'infinity'", pg("date", "infinity")),
    ("date", "'0044-03-15 BC'", LongDate(-735160)),
    ("date", "'0009-12-04'", dt.date(9, 12, 4)),
    ("date", "'5874897-12-31'", LongDate(2145042905)),
    ("timestamp", "'-infinity'", pg("timestamp without time zone", "-infinity")),
    ("timestamp", "'2024-10-27 02:30:00.5'", dt.datetime(2024, 10, 27, 2, 30, 0, 500_000)),
    ("timestamp", "'0001-01-01 BC'", LocalTimestamp(-62167219200 * 10**9)),
    ("timestamp(3)", "'2024-01-01 00:00:00.123'", dt.datetime(2024, 1, 1, 0, 0, 0, 123_000)),
    ("timestamptz", "'2024-07-01 12:00+02'", dt.datetime(2024, 7, 1, 10, tzinfo=UTC)),
    ("timestamptz", "'20240-01-01 00:00+00'", Instant(576545472000 * 10**9)),
    ("time", "'24:00'", TimeOfDay(86400 * 10**9)),
    ("time", "'12:30:00.000001'", dt.time(12, 30, 0, 1)),
    ("timetz", "'12:00+02'", pg("time with time zone", "12:00:00+02")),
    ("interval", "'1 year -2 days 3:04:05.5'", Interval(12, -2, 11045_500_000_000)),
    ("interval", "'-1 month -00:00:00.000001'", Interval(-1, 0, -1000)),
    (
        "uuid",
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ),
    ("jsonb", "'null'", None),
    ("json", "'\"null\"'", "null"),
    ("json", '\'{"a":1,"a":2}\'', pg("json", '{"a":1,"a":2}')),
    (
        "jsonb",
        '\'{"a":1.50,"b":1.5,"c":[null,{}],"d":12345678901234567890123}\'',
        {"a": Decimal("1.50"), "b": 1.5, "c": [None, {}], "d": 12345678901234567890123},
    ),
    ("boolean", "true", True),
    ("int[]", "'{{1,2},{3,4}}'", [[1, 2], [3, 4]]),
    ("int[]", "'{}'", []),
    ("bigint[]", "'{5,NULL}'", [Int64(5), None]),
    ("bigint[]", "'[0:1]={1,2}'", pg("array", "[0:1]={1,2}")),
    ("text[]", '\'{"a,b",NULL,"NULL","q\\"\\\\",""}\'', ["a,b", None, "NULL", 'q"\\', ""]),
    ("numeric[]", "'{1.50,NaN}'", [Decimal("1.50"), Decimal("NaN")]),
    ("timestamptz[]", "'{2024-01-01 00:00+02}'", [dt.datetime(2023, 12, 31, 22, tzinfo=UTC)]),
    ("mood[]", "'{\"so, so\",sad}'", ["so, so", "sad"]),
    ("mood", "'so, so'", "so, so"),
    ("inet", "'10.0.0.0/8'", pg("inet", "10.0.0.0/8")),
    ("int4range", "'[1,5)'", pg("int4range", "[1,5)")),
    ("bit(3)", "'101'", pg("bit(3)", "101")),
    ("point", "'(1,2)'", pg("point", "(1,2)")),
    ("xml", "'<a/>'", pg("xml", "<a/>")),
    ("oid", "4000000000", 4000000000),
    ("real", "50331648", 50331648.0),
    ("real", "1e-45", 1e-45),
    ("real", "2::real ^ -96", 1.2621775e-29),
    ("real", "3.4028235e38", 3.4028235e38),
    ("bpchar", "'a  '", "a  "),
    ("name", f"'{'n' * 63}'", "n" * 63),
    ("interval year to month", "'1 year 2 months'", Interval(14)),
]

MYSQL: list[tuple[str, str, Any]] = [
    ("tinyint(1)", "2", 2),
    ("int unsigned", "4294967295", 4294967295),
    ("bigint", "1", Int64(1)),
    ("bigint unsigned", "18446744073709551615", 2**64 - 1),
    ("decimal(10,2)", "1.5", Decimal("1.50")),
    ("decimal(65,30)", "-1e-30", Decimal("-1e-30").quantize(Decimal("1e-30"))),
    ("float", "0.1", 0.1),
    ("float", "1234567.5", 1234567.5),
    ("double", "0.1e0 + 0.2e0", 0.1 + 0.2),
    ("double", "5e-324", 5e-324),
    ("double", "-1.7976931348623157e308", -1.7976931348623157e308),
    ("char(4)", "'ab'", "ab"),
    ("varchar(5)", "'äö😀  '", "äö😀  "),
    ("text", "'ab\\0cd'", "ab\0cd"),
    ("longtext", "repeat('x', 70000)", "x" * 70000),
    ("blob", "x'00ff'", b"\0\xff"),
    ("varbinary(4)", "x'00ff'", b"\0\xff"),
    ("date", "'0000-00-00'", my("date", "0000-00-00")),
    ("date", "'2024-00-10'", my("date", "2024-00-10")),
    ("date", "'0009-12-04'", dt.date(9, 12, 4)),
    ("date", "'2001-02-03'", dt.date(2001, 2, 3)),
    ("datetime", "'0000-00-00 00:00:00'", my("datetime", "0000-00-00 00:00:00")),
    ("datetime(6)", "'2024-10-27 02:30:00.000001'", dt.datetime(2024, 10, 27, 2, 30, 0, 1)),
    ("timestamp(3)", "'2024-07-01 12:00:00.5'", dt.datetime(2024, 7, 1, 12, 0, 0, 500_000, UTC)),
    ("time(6)", "'12:30:00.000001'", dt.time(12, 30, 0, 1)),
    ("time", "'-838:59:59'", Interval(0, 0, -(838 * 3600 + 59 * 60 + 59) * 10**9)),
    ("time", "'24:00:00'", Interval(0, 0, 86400 * 10**9)),
    ("year", "2024", 2024),
    ("bit(9)", "b'100000001'", 257),
    ("json", "'null'", None),
    ("json", '\'{"a": 1.50, "b": [true, "null"]}\'', {"a": Decimal("1.50"), "b": [True, "null"]}),
    ("enum('a','b')", "'b'", "b"),
    ("set('a','b','c')", "'c,a'", Set(["a", "c"])),
    ("set('a','b')", "''", Set()),
    (
        "uuid",
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ),
    ("point", "point(1,2)", None),
    ("inet6", "'::1'", my("inet6", "::1")),
    ("inet4", "'10.0.0.1'", my("inet4", "10.0.0.1")),
    ("float", "50331648", 50331648.0),
    ("float", "3.4028234663852886e38", 3.4028235e38),
    ("float(9,2)", "1.5", 1.5),
    ("double(9,2)", "1.5", 1.5),
    ("year", "0", 0),
]

SQLITE: list[tuple[str, str, Any]] = [
    ("INTEGER", "9007199254740993", 9007199254740993),
    ("INTEGER", "'abc'", "abc"),
    ("BIGINT", "1", Int64(1)),
    ("REAL", "1", 1.0),
    ("REAL", "9e999", float("inf")),
    ("NUMERIC(10,2)", "1.5", 1.5),
    ("NUMERIC(10,2)", "2.0", 2),
    ("TEXT", "'12'", "12"),
    ("TEXT", "CAST(x'610062' AS TEXT)", "a\0b"),
    ("TEXT", "CAST(x'61ff' AS TEXT)", Opaque("sqlite", "text", b"a\xff")),
    ("BLOB", "x'00ff'", b"\0\xff"),
    ("BLOB", "'text'", "text"),
    ("DATETIME", "'2009-01-01 00:00:00'", "2009-01-01 00:00:00"),
    ("BOOLEAN", "1", 1),
    ("DECIMAL TEXT", "'1.50'", Decimal("1.50")),
    ("TIMESTAMPTZ TEXT", "'2024-01-01T00:00:00+00:00'", dt.datetime(2024, 1, 1, tzinfo=UTC)),
    ("BOOLEAN NUMERIC", "0", False),
    ("JSON TEXT", "'{\"a\": [1, null]}'", {"a": [1, None]}),
    ("JSON TEXT", "'null'", None),
    ("", "1.5", 1.5),
]

# A number of more digits than Python reads in one.
LONG = pg("json", '{"a": ' + "1" * 5000 + "}")
# column type, values that it gives back, values that it would change or refuse
BOUNDS: dict[str, list[tuple[str, list[Any], list[Any]]]] = {
    "sqlite": [
        ("INTEGER", [2**63 - 1, "abc", "0x10", 1.5], [2**63, "1e5", " 5 ", 2.0, -0.0]),
        ("REAL", [1.5, float("inf")], ["5", 5, float("nan"), -0.0]),
        ("TEXT", ["5", "a\0", b"5"], [5, 5.0, "\ud800"]),
    ],
    "postgresql": [
        ("name", ["é" * 31, "n" * 63], ["é" * 32, "n" * 64]),
        ("name[]", [["n" * 63]], [["n" * 64]]),
        ("real", [1e-45, 50331648.0, 1.2621775e-29], [1.4013e-45, 50331650.0, 0.1 + 0.2]),
        ("char(2)", ["ab", "a "], ["a", "abc"]),
        ("varchar(2)", ["ab"], ["a  "]),
        ("numeric(3,2)", [Decimal("1.50")], [Decimal("1.5"), Decimal("10.00")]),
        ("json", [pg("json", '{"a":1,"a":2}')], [pg("json", "{"), pg("json", "NaN"), "a\0"]),
        ("json", [LONG, pg("json", '{"a":1,"a":' + "1" * 5000 + "}")], []),
        ("jsonb", [{"a": Decimal("1.10")}, LONG], [pg("json", '{"a":1,"a":2}'), 1e22, -0.0]),
        ("interval", [Interval(-1, 1, -1000)], [Interval(nanos=1)]),
        ("interval year", [Interval(24)], [Interval(25), Interval(0, 1), Interval(0, 0, 1000)]),
        ("interval month[]", [[Interval(25)]], [[Interval(0, 1)]]),
        ("interval month", [Interval(25)], [Interval(0, 1), Interval(0, 0, 1000)]),
        ("interval year to month", [Interval(25)], [Interval(0, 1)]),
        ("interval day", [Interval(1, 1)], [Interval(0, 0, 3600 * 10**9)]),
        ("interval day to hour", [Interval(1, 1, 3600 * 10**9)], [Interval(0, 0, 60 * 10**9)]),
        ("interval minute", [Interval(1, 1, 60 * 10**9)], [Interval(0, 0, 10**9)]),
        ("interval day to second", [Interval(1, 1, 1000)], []),
        ("interval second(0)", [Interval(1, 1, 10**9)], [Interval(0, 0, 10**6)]),
        (
            "timestamptz",
            [
                dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=offset, seconds=1)))
                for offset in (-23, 16, 23)
            ],
            [Instant(1)],
        ),
    ],
    "mysql": [
        ("year", [0, 1901, 2155], [1, 50, 99, 100, 1900, 2156, True]),
        ("float", [3.4028235e38, 50331648.0], [50331650.0, 1.4012e-45, 3.5e38]),
        ("float(7,2)", [1.23, -99999.99, 12345.67, -0.15, -1.1], [1.234, 123456.0, float("nan")]),
        ("double(7,2)", [1.23, -99999.99, 0.07, -0.15], [1.234, 123456.0, 99999.999, float("inf")]),
        ("json", [nested(31), nested(31, of=dict)], [nested(32), nested(32, of=dict)]),
        # What json_valid() takes for JSON is more than JSON, and stays as it is.
        ("json", [my("json", f'{{"a":1,"a":{more}}}') for more in ("2", "3.", "-", r'"\x"')], []),
        ("set('a','')", [Set(["a"]), Set()], [Set([""]), Set(["", "a"])]),
        ("enum('a','')", ["a", ""], ["A"]),
        ("varchar(4) CHARACTER SET utf8mb3", ["é\uffff"], ["\U0001f600"]),
        ("varchar(4) CHARACTER SET ucs2", ["é\uffff"], ["\U0001f600"]),
        ("text CHARACTER SET latin1", ["é€\x81"], ["ł", "\x80", "\U0001f600"]),
        ("char(4) CHARACTER SET ascii", ["a"], ["é"]),
        ("inet6", [my("inet6", "::1")], [my("inet4", "10.0.0.1")]),
    ],
}

CASES = {"postgresql": POSTGRESQL, "mysql": MYSQL, "sqlite": SQLITE}
BEFORE = {
    "postgresql": "CREATE TYPE mood AS ENUM ('sad', 'ok', 'so, so');"
    "CREATE DOMAIN positive AS integer CHECK (VALUE > 0);",
    "mysql": "",
    "sqlite": "",
}


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made = Base(request.param, tmp_path)
    yield made
    made.drop()


def _fill(base: Base) -> list[tuple[str, str, Any]]:
    cases = CASES[base.dialect]
    columns = ", ".join(f"c{i} {type_}" for i, (type_, _, _) in enumerate(cases))
    if base.dialect == "mysql":
        columns = ", ".join(
            f"c{i} {type_}" + (" NULL" if type_.startswith("timestamp") else "")
            for i, (type_, _, _) in enumerate(cases)
        )
    literals = ", ".join(literal for _, literal, _ in cases)
    base.run(
        BEFORE[base.dialect]
        + f"CREATE TABLE odd (id integer PRIMARY KEY, {columns});"
        + f"INSERT INTO odd VALUES (1, {literals});"
        + "INSERT INTO odd (id) VALUES (2);"
    )
    return cases


def test_each_value_is_read_as_what_it_is(base: Base) -> None:
    cases = _fill(base)
    collection = base.store().collection("Odd", At("shop", tables("odd")))
    full, nulls = collection.page(None, None, 10).blocks
    record: Any = full.entries[""]
    for i, (type_, _, value) in enumerate(cases):
        if type_ == "point" and base.dialect == "mysql":
            assert record[f"c{i}"].kind == "point"
            continue
        assert encode(record[f"c{i}"]) == encode(value), type_
    json = [f"c{i}" for i, (type_, _, _) in enumerate(cases) if type_.lower().startswith("json")]
    empty: Any = nulls.entries[""]
    assert all(name not in empty for name in json)  # SQL NULL is no JSON null (C05)
    assert all(empty[n] is None for n in record if n != "id" and n not in json)


def test_the_observer_sees_the_same(base: Base) -> None:
    _fill(base)
    collection = base.store().collection("Odd", At("shop", tables("odd")))
    seen = collection.observer().page(None, None, 10).blocks
    for left, right in zip(collection.page(None, None, 10).blocks, seen, strict=True):
        for name, value in left.entries[""].items():  # type: ignore[attr-defined]
            assert encode(value) == encode(right.entries[""][name]), name  # type: ignore[index]


def test_each_value_is_written_as_it_was(base: Base, tmp_path: Path) -> None:
    cases = _fill(base)
    target = Base(base.dialect, tmp_path)
    try:
        source = base.store().collection("Odd", At("shop", tables("odd")))
        copy = target.store("copy", {"shop": base}).collection(
            "Odd", At("copy", tables("odd", like="shop"))
        )
        copy.create()
        blocks = source.page(None, None, 10).blocks
        for i, (_, _, value) in enumerate(cases):
            if base.dialect == "sqlite" and isinstance(value, Opaque):
                blocks[0].entries[""].update({f"c{i}": None})  # type: ignore[attr-defined]
                base.run(f"UPDATE odd SET c{i} = NULL")
        copy.write(blocks)
        assert copy.write(blocks)
        texts = "SELECT odd::text FROM odd ORDER BY id"
        query = texts if base.dialect == "postgresql" else "SELECT * FROM odd ORDER BY id"
        assert repr(target.rows(query)) == repr(base.rows(query))
        again = copy.page(None, None, 10).blocks
        assert all(equal(a.entries, b.entries) for a, b in zip(blocks, again, strict=True))
    finally:
        target.drop()


def _misfit(do: Callable[[Block], object], block: Block) -> str:
    """Where a block does not fit; nothing where it does."""
    try:
        do(block)
    except DoesNotFit as error:
        return error.path
    return ""


def test_a_column_takes_what_it_gives_back_and_a_plan_is_told_the_rest(base: Base) -> None:
    bounds = BOUNDS[base.dialect]
    columns = ", ".join(f"c{number} {type_}" for number, (type_, _, _) in enumerate(bounds))
    base.run(f"CREATE TABLE odd (id integer PRIMARY KEY, {columns})")
    collection = base.store().collection("Odd", At("shop", tables("odd", nulls="absent")))
    fit = [(f"c{n}", value) for n, (_, taken, _) in enumerate(bounds) for value in taken]
    blocks = [
        Block(id, {"": {"id": id, name: value}}) for id, (name, value) in enumerate(fit, start=1)
    ]
    collection.write(blocks)
    for reader in (collection, collection.observer()):
        for block, found in zip(blocks, reader.read([b.id for b in blocks]), strict=True):
            assert found is not None
            assert equal(found.entries, block.entries), (block.entries, found.entries)
    for number, (type_, _, refused) in enumerate(bounds):
        for value in refused:
            block = Block(1, {"": {"id": 1, f"c{number}": value}})
            for do in (collection.size, lambda block: collection.write([block])):
                assert _misfit(do, block).startswith(f"c{number}"), (type_, value)
            assert collection.amend(1, {f"c{number}": value}, {}) is None, (type_, value)
    (first,) = collection.read([1])
    assert first is not None
    assert equal(first.entries, blocks[0].entries)


@pytest.mark.parametrize("base", ["sqlite", "mysql"], indirect=True)
def test_a_text_declared_as_json_takes_what_a_text_takes(base: Base) -> None:
    base.run("CREATE TABLE odd (id integer PRIMARY KEY, c text)")
    at = At("shop", tables("odd", columns={"c": "json"}))
    collection = base.store().collection("Odd", at)
    base.run("INSERT INTO odd VALUES (1, 'no {')")
    (first,) = collection.read([1])
    assert first is not None
    blocks = [first, Block(2, {"": {"id": 2, "c": nested(40)}})]
    assert [collection.size(block) for block in blocks]
    collection.write(blocks)
    for reader in (collection, collection.observer()):
        found = reader.read([1, 2])
        assert [equal(a.entries, b.entries) for a, b in zip(blocks, found, strict=True) if b] == [
            True,
            True,
        ]

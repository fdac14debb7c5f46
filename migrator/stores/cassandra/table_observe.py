"""The verifier's own reader of the layout ``table``.

It decodes with the driver's types, which the copier does not use, and takes tags off with the
model's second reader. What the driver can't say exactly (far timestamps, the empty value of a
number) is read here from the bytes, by other means than the copier's.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from cassandra import cqltypes

from migrator.model import value as v
from migrator.model.block import Block
from migrator.model.path import child
from migrator.model.value import Kind, Record, Value, kind_of
from migrator.model.witness import untag, witness
from migrator.stores.cassandra.columns_nested import Type, Types, parse_type
from migrator.stores.cassandra.table import TableReading
from migrator.stores.cassandra.table_lives import lives, written
from migrator.stores.cassandra.table_rows import Damaged
from migrator.stores.cassandra.table_spec import SIDE
from migrator.stores.cassandra.table_wire import Values

Marks = Mapping[str, Any]
_PROTOCOL = 5


class _Milliseconds(cqltypes.LongType):  # type: ignore[misc]
    """A timestamp as the number that it is."""


_SIMPLE: dict[str, Any] = {
    "ascii": cqltypes.AsciiType,
    "bigint": cqltypes.LongType,
    "blob": cqltypes.BytesType,
    "boolean": cqltypes.BooleanType,
    "date": cqltypes.SimpleDateType,
    "decimal": cqltypes.DecimalType,
    "double": cqltypes.DoubleType,
    "duration": cqltypes.DurationType,
    "float": cqltypes.FloatType,
    "inet": cqltypes.InetAddressType,
    "int": cqltypes.Int32Type,
    "json": cqltypes.UTF8Type,
    "smallint": cqltypes.ShortType,
    "text": cqltypes.UTF8Type,
    "time": cqltypes.TimeType,
    "timestamp": _Milliseconds,
    "timestamp local": _Milliseconds,
    "timeuuid": cqltypes.TimeUUIDType,
    "tinyint": cqltypes.ByteType,
    "uuid": cqltypes.UUIDType,
    "varint": cqltypes.IntegerType,
}


def _driver_type(type_: Type, types: Types) -> Any:
    """The driver's type for one of ours."""
    inner = [_driver_type(arg, types) for arg in type_.args]
    match type_.name:
        case "list":
            return cqltypes.ListType.apply_parameters(inner)
        case "set":
            # As a list: the driver's own set wants members that can be ordered.
            return cqltypes.ListType.apply_parameters(inner)
        case "map":
            return cqltypes.MapType.apply_parameters(inner)
        case "tuple":
            return cqltypes.TupleType.apply_parameters(inner)
    return _SIMPLE.get(type_.name)


def _load(type_: Type, types: Types, data: bytes) -> Any:
    """A value as the driver gives it; what is made of fields is taken apart here."""
    if type_.name in types:
        return _fields(type_, types, data)
    if any(_has_fields(arg, types) for arg in type_.args):
        return _parts(type_, types, data)
    if not data and type_.name in _SIMPLE and type_.name not in ("ascii", "text", "blob"):
        return v.Opaque("cassandra", type_.name.partition(" ")[0], b"")
    return _driver_type(type_, types).from_binary(data, _PROTOCOL)


def _has_fields(type_: Type, types: Types) -> bool:
    return type_.name in types or any(_has_fields(arg, types) for arg in type_.args)


def _split(data: bytes) -> list[bytes | None]:
    parts: list[bytes | None] = []
    while data:
        (size,) = struct.unpack(">i", data[:4])
        parts.append(data[4 : 4 + size] if size >= 0 else None)
        data = data[4 + max(0, size) :]
    return parts


def _fields(type_: Type, types: Types, data: bytes) -> dict[str, Any]:
    given = dict(zip(types[type_.name].items(), _split(data), strict=False))
    return {
        name: _load(parse_type(text), types, part)
        for (name, text), part in given.items()
        if part is not None
    }


def _parts(type_: Type, types: Types, data: bytes) -> Any:
    if type_.name == "tuple":
        parts = _split(data)
        return [
            None if part is None else _load(arg, types, part)
            for arg, part in zip(type_.args, parts + [None] * len(type_.args), strict=False)
        ]
    counted = [part for part in _split(data[4:]) if part is not None]
    if type_.name == "map":
        key, item = type_.args
        keys = [_load(key, types, part) for part in counted[::2]]
        return dict(zip(keys, (_load(item, types, part) for part in counted[1::2]), strict=True))
    return [_load(type_.args[0], types, part) for part in counted]


class TableObserver(TableReading):
    """Reads blocks by the driver's types."""

    def _decode(self, values: Values) -> Block:
        try:
            return self._observed(values)
        except (ValueError, TypeError, KeyError, struct.error, OverflowError) as error:
            raise Damaged(f"{type(error).__name__}: {error}") from error

    def _observed(self, values: Values) -> Block:
        shape = self._shape
        side = _side(values.get(SIDE))
        record: Record = {}
        told = side.get("") or {}
        parts = [
            self._value(name, values[name] or b"", {"": told[at]} if at in told else {})
            for at, name in ((f"[{i}]", name) for i, name in enumerate(shape.id))
        ]
        key = dict(zip(shape.id, parts, strict=True))
        for name in shape.fields:
            marks = side.get(name) or {}
            if name not in key:
                self._field(name, values.get(name), marks, record)
            elif marks.get("") != "absent":
                record[name] = key[name]
        rest = shape.spec.rest
        if rest is not None and (data := values.get(rest)) is not None:
            held = untag(json.loads(data.decode()), side.get(rest) or {})
            assert isinstance(held, dict)
            record.update(held)
        whole = [values[name] for name in shape.key.columns] if shape.located else None
        expires = self._expires(values, side, record)
        id = parts[0] if len(parts) == 1 else parts
        return Block(id, self._rules.partition(record), expires, whole)

    def _expires(self, values: Values, side: Mapping[str, Marks], record: Record) -> int | None:
        told = side.get("") or {}
        whole = told.get("")
        flat = iter(told.get("ends") or ())
        found = lives(
            self._shape,
            values,
            None if whole is None else int(whole[1]),
            {name: int(next(flat)) for name in flat},
        )
        name = self._shape.spec.deadlines
        if name is not None:
            moments: Record = {}
            for field, at in found.ends.items():
                if at > time.time_ns():
                    moments[field] = v.instant(at)
                elif field in record:
                    del record[field]
            record[name] = moments
        times = self._shape.spec.write_times
        if times is not None:
            stamps = written(self._shape, values)
            held = {n: stamps[n].to_bytes(8, "big", signed=True) for n in stamps if n in record}
            big = {n: cqltypes.LongType.from_binary(data, _PROTOCOL) for n, data in held.items()}
            record[times] = {n: _scalar("bigint", number) for n, number in big.items()}
        return found.expires

    def _field(self, name: str, data: bytes | None, marks: Marks, record: Record) -> None:
        shape, mark = self._shape, marks.get("")
        if data is not None:
            record[name] = self._value(name, data, marks)
            return
        column = shape.columns[name]
        if mark in ("empty", "empty set") and column.multicell:
            record[name] = v.Set() if mark == "empty set" else self._value(name, b"", marks)
        elif mark == "null" or (shape.spec.nulls and mark != "absent"):
            record[name] = None

    def _value(self, name: str, data: bytes, marks: Marks) -> Value:
        type_ = self._shape.columns[name].type
        types = self._shape.types
        if type_.name == "json":
            return untag(json.loads(data.decode()), marks)
        if not data and type_.multicell:
            held: Any = {} if type_.name in ("map", *types) else []
        else:
            held = _load(type_, types, data)
        return self._shown(type_, held, "", marks)

    def _shown(self, type_: Type, held: Any, path: str, marks: Marks) -> Value:
        """The model's value of the driver's, with its mark."""
        natural = self._natural(type_, held, path, marks)
        mark = marks.get(path)
        if mark == "set":
            return v.Set(natural) if type(natural) is list else natural
        if type(mark) is str and type(natural) is str:
            try:
                return witness(mark, natural)
            except (ValueError, TypeError, ArithmeticError):
                return natural
        if type(mark) is list:
            told = witness(*mark)
            return told if _agree(natural, told) else natural
        return natural

    def _natural(self, type_: Type, held: Any, path: str, marks: Marks) -> Value:
        if type(held) is v.Opaque:
            return held
        types = self._shape.types
        match type_.name:
            case "list":
                (item,) = type_.args
                return [self._shown(item, x, f"{path}[{i}]", marks) for i, x in enumerate(held)]
            case "set":
                return v.Set(self._shown(type_.args[0], x, "", {}) for x in held)
            case "tuple":
                return [
                    None if x is None else self._shown(arg, x, f"{path}[{i}]", marks)
                    for i, (arg, x) in enumerate(zip(type_.args, held, strict=False))
                ]
            case "map":
                key, item = type_.args
                named = {_named(self._shown(key, k, "", {})): x for k, x in held.items()}
                return {
                    name: self._shown(item, x, child(path, name), marks)
                    for name, x in named.items()
                }
        if type_.name in types:
            return self._record(types[type_.name], held, path, marks)
        return _scalar(type_.name, held)

    def _record(
        self, fields: Mapping[str, str], held: Mapping[str, Any], path: str, marks: Marks
    ) -> Record:
        record: Record = {}
        for name, text in fields.items():
            at = child(path, name)
            if name in held:
                record[name] = self._shown(parse_type(text), held[name], at, marks)
            elif marks.get(at) == "null" or (self._shape.spec.nulls and marks.get(at) != "absent"):
                record[name] = None
        return record


def _side(data: bytes | None) -> dict[str, Marks]:
    try:
        side = json.loads(data) if data else {}
    except ValueError:
        return {}
    fits = isinstance(side, dict) and all(isinstance(marks, dict) for marks in side.values())
    return side if fits else {}


def _scalar(name: str, held: Any) -> Value:
    match name:
        case "bigint":
            return v.Int64(held) if -(2**31) <= held < 2**31 else held
        case "date":
            return v.day(held.days_from_epoch)
        case "time":
            return v.time_of_day(held.nanosecond_time)
        case "timestamp":
            return v.instant(held * 1_000_000)
        case "timestamp local":
            return v.local_timestamp(held * 1_000_000)
        case "duration":
            return v.Interval(held.months, held.days, held.nanoseconds)
    return held


def _named(key: Value) -> str:
    """The name that a key of a map goes by; written down a second time, for this reader alone."""
    match kind_of(key):
        case Kind.TEXT:
            return str(key)
        case Kind.BOOLEAN:
            return "true" if key else "false"
        case Kind.DATE | Kind.TIME | Kind.TIMESTAMP | Kind.LOCAL_TIMESTAMP:
            words = {v.LongDate: "date days", v.TimeOfDay: "time ns", v.Instant: "timestamp ns",
                     v.LocalTimestamp: "local timestamp ns"}  # fmt: skip
            word = words.get(type(key))
            return f"{word} {v.nanos_of(key)}" if word else key.isoformat()  # type: ignore[attr-defined]
        case Kind.BYTES:
            import base64

            return base64.standard_b64encode(key).decode()  # type: ignore[arg-type]
        case Kind.INT64:
            return str(int(key))  # type: ignore[call-overload]
        case Kind.DOUBLE:
            return "nan" if key != key else repr(key)
        case Kind.INTERVAL:
            return f"P{key.months}M{key.days}D{key.nanos}N"  # type: ignore[attr-defined]
    return str(key)


def _agree(natural: Value, told: Value) -> bool:
    """Whether the bytes that lie there are near what their mark tells."""
    times = (Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP)
    if kind_of(natural) in times and kind_of(told) in times:
        return v.nanos_of(natural) == v.nanos_of(told) // 1_000_000 * 1_000_000
    if isinstance(natural, bytes):
        return isinstance(told, v.Binary | v.ObjectId) and told.data == natural
    numbers = (int, float, Decimal)
    return isinstance(natural, numbers) and isinstance(told, numbers) and natural == told

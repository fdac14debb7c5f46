"""Dates and times as the servers write them, read and written without loss.

Readers take the text of a server in ISO style; writers give text that every server takes.
Years go by the proleptic Gregorian calendar, year 0 being 1 BC.
"""

from __future__ import annotations

import datetime as dt
import re

from migrator.model import value as v
from migrator.model.value import Value

_STAMP = re.compile(
    r"(\d{4,})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?)?(\+00(?::00)?)?( BC)?"
)
_CLOCK = re.compile(r"(-?)(\d{1,4}):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_SPAN = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?"
    r"(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,9}))?S)?)?"
)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a day of any year. Raises ValueError where there is none."""
    # 400 years have the same number of days always, so Python's calendar serves for all years.
    cycles, within = divmod(year - 1, 400)
    return dt.date(within + 1, month, day).toordinal() - 719_163 + cycles * 146_097


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01."""
    cycles, within = divmod(days + 719_162, 146_097)
    date = dt.date.fromordinal(within + 1)
    return date.year + cycles * 400, date.month, date.day


def _nanos(fraction: str | None) -> int:
    return int(fraction.ljust(9, "0")) if fraction else 0


def _read_stamp(text: str) -> tuple[int, int]:
    found = _STAMP.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no date")
    year, month, day, hour, minute, second, fraction, _, era = found.groups()
    days = days_from_civil(1 - int(year) if era else int(year), int(month), int(day))
    seconds = (int(hour or 0) * 60 + int(minute or 0)) * 60 + int(second or 0)
    return days, seconds * v.NANOS + _nanos(fraction)


def read_date(text: str) -> Value:
    """A date of any year. Raises ValueError for what is none (a zero date, infinity)."""
    return v.day(_read_stamp(text)[0])


def read_local(text: str) -> Value:
    """A timestamp without zone."""
    days, nanos = _read_stamp(text)
    return v.local_timestamp(days * v.DAY_NANOS + nanos)


def read_instant(text: str) -> Value:
    """A timestamp of a session in UTC."""
    days, nanos = _read_stamp(text)
    return v.instant(days * v.DAY_NANOS + nanos)


def read_clock(text: str) -> int:
    """The nanoseconds of ``[-]H:MM:SS[.f]``."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    sign, hour, minute, second, fraction = found.groups()
    nanos = ((int(hour) * 60 + int(minute)) * 60 + int(second)) * v.NANOS + _nanos(fraction)
    return -nanos if sign else nanos


def read_span(text: str) -> v.Interval:
    """An ISO 8601 duration as PostgreSQL writes it, each part with a sign of its own."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no interval")
    year, month, day, hour, minute, sign, second, fraction = found.groups()
    seconds = int(second or 0) * v.NANOS + _nanos(fraction)
    clock = (int(hour or 0) * 60 + int(minute or 0)) * 60 * v.NANOS
    nanos = clock + (-seconds if sign else seconds)
    return v.Interval(int(year or 0) * 12 + int(month or 0), int(day or 0), nanos)


def write_date(days: int, *, era: bool = False) -> str:
    """``YYYY-MM-DD``; with ``era`` years before 1 as PostgreSQL writes them."""
    year, month, day = civil_from_days(days)
    if era and year < 1:
        return f"{1 - year:04}-{month:02}-{day:02} BC"
    return f"{year:04}-{month:02}-{day:02}"


def write_stamp(nanos: int, *, zone: str = "", era: bool = False) -> str:
    """``YYYY-MM-DD HH:MM:SS[.f]``, then the zone, then the era."""
    days, rest = divmod(nanos, v.DAY_NANOS)
    date, _, before = write_date(days, era=era).partition(" ")
    return f"{date} {write_clock(rest)}{zone}" + (f" {before}" if before else "")


def write_clock(nanos: int) -> str:
    """``[-]HH:MM:SS[.f]`` without trailing zeros in the fraction."""
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    seconds, fraction = divmod(nanos, v.NANOS)
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + (f".{fraction:09}".rstrip("0") if fraction else "")


def write_span(span: v.Interval) -> str:
    """An ISO 8601 duration whose parts PostgreSQL keeps apart."""
    sign, nanos = ("-", -span.nanos) if span.nanos < 0 else ("", span.nanos)
    seconds, fraction = divmod(nanos, v.NANOS)
    tail = f".{fraction:09}".rstrip("0") if fraction else ""
    return f"P{span.months}M{span.days}DT{sign}{seconds}{tail}S"

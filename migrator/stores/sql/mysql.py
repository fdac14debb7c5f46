"""What PyMySQL is told: dates, times and bits stay as the server sent them.

Its own decoders turn a TIME into a timedelta and give up on zero dates; the columns' readers
(``columns``) do that work. Numbers are decoded by the driver.
"""

from __future__ import annotations

from typing import Any

from pymysql import converters
from pymysql.constants import FIELD_TYPE

_RAW = (
    FIELD_TYPE.DATE,
    FIELD_TYPE.DATETIME,
    FIELD_TYPE.TIMESTAMP,
    FIELD_TYPE.TIME,
    FIELD_TYPE.BIT,
)

CONVERSIONS: dict[Any, Any] = {
    key: convert for key, convert in converters.conversions.items() if key not in _RAW
}

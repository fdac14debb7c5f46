"""What PyMySQL is told: dates, times and bits stay as the server sent them.

Its own decoders turn a TIME into a timedelta and give up on zero dates; the columns' readers
(``columns``) do that work. Numbers are decoded by the driver. And a session that commits by itself
is not asked to undo what it has not begun.
"""

from __future__ import annotations

from typing import Any

from pymysql import converters
from pymysql.constants import CLIENT, FIELD_TYPE, SERVER_STATUS
from sqlalchemy.engine import Engine

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


# Statements of one transaction go in one request (``together``); values stay parameters. That rows
# are counted as found is what SQLAlchemy asks for by itself, unless it is told something else.
FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS


def undo_seldom(engine: Engine) -> None:
    """Let an engine ask for a ROLLBACK only where the server has told of a transaction.

    It tells with each answer but an error's, and begins none by itself in these sessions. One whose
    connection is lost has to fail here, so that the pool drops it.
    """
    dialect: Any = engine.dialect
    undo = dialect.do_rollback

    def undo_what_began(connection: Any) -> None:
        begun = connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        if begun or not connection.open or not connection.get_autocommit():
            undo(connection)

    dialect.do_rollback = undo_what_began

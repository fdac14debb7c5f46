"""Several statements in one round trip, by the driver's own connection.

On PostgreSQL they go one behind the other, and the server passes over what follows one that
failed. On MariaDB and MySQL they are one text, of which the server leaves what follows an error.
So a COMMIT among them is carried out only where all before it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from migrator.stores.sql.options import Dialect
from migrator.stores.sql.rows import Row

Asked: TypeAlias = tuple[str, Any]
"""A statement, and what is bound in it; None for nothing."""


class Answer(NamedTuple):
    """The rows that a statement gives, and how many it gave or changed."""

    rows: Sequence[Row]
    number: int


BEGIN: dict[Dialect, str] = {
    "postgresql": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "mysql": "BEGIN",
}
_LONGEST = 1_000_000  # characters of one text: servers take 16 MB by default, some less


def is_able(dialect: Dialect) -> bool:
    """Whether several statements go at once: on PostgreSQL it takes a libpq of 14 or later."""
    if dialect == "postgresql":
        from psycopg import Pipeline

        return Pipeline.is_supported()
    return dialect == "mysql"


def whole(dialect: Dialect, asked: Sequence[Asked]) -> list[Asked]:
    """Statements that are one transaction where they are sent at once: on PostgreSQL those that
    no BEGIN precedes are."""
    if dialect == "postgresql":
        return list(asked)
    return [(BEGIN[dialect], None), *asked, ("COMMIT", None)]


def send(
    raw: Any,
    dialect: Dialect,
    asked: Sequence[Asked],
    meanwhile: Callable[[], object] | None = None,
) -> list[Answer]:
    """What each statement gives. ``meanwhile`` is done while the server is at work."""
    if dialect == "postgresql":
        from migrator.stores.sql import pipeline

        return pipeline.send(raw, asked, meanwhile)
    from migrator.stores.sql import answers_mysql

    with raw.cursor() as cursor:
        texts = list(_texts([cursor.mogrify(text, given) for text, given in asked]))
    answers = answers_mysql.ask(raw, texts[0], meanwhile)
    for text in texts[1:]:
        answers += answers_mysql.ask(raw, text)
    return answers


def _texts(statements: Sequence[str]) -> Iterator[str]:
    """As few texts as the statements fit in."""
    some: list[str] = []
    length = 0
    for statement in statements:
        if some and length + len(statement) > _LONGEST:
            yield "; ".join(some)
            some, length = [], 0
        some.append(statement)
        length += len(statement)
    yield "; ".join(some)


def prepare(raw: Any, dialect: Dialect) -> None:
    """Let the driver begin no transaction of its own; on PostgreSQL it is not asked to."""
    if dialect == "mysql" and not raw.get_autocommit():  # as a session of a journal leaves it
        raw.autocommit(True)


def undone(raw: Any, dialect: Dialect) -> bool:
    """End what is still open; False where a session can't be used again. On MariaDB and MySQL the
    pool does that."""
    if dialect == "postgresql":
        from psycopg import Error
        from psycopg.pq import TransactionStatus

        if raw.pgconn.transaction_status == TransactionStatus.IDLE:
            return True
        try:
            raw.rollback()
        except Error:
            return False
    return True

"""The answers of MariaDB and MySQL to a text of several statements, read past PyMySQL's results.

It makes an object of each packet, and describes each column of each answer anew: for a write of one
aggregate that takes as long as the server does. Here only rows are read, by its converters. The
connection stays its own: it sends, and reads the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from pymysql import err
from pymysql.connections import TEXT_TYPES
from pymysql.constants import CR, SERVER_STATUS
from pymysql.constants.COMMAND import COM_QUERY
from pymysql.converters import through
from pymysql.protocol import FieldDescriptorPacket

from migrator.stores.sql.mysql import CONVERSIONS
from migrator.stores.sql.rows import Row
from migrator.stores.sql.together import Answer

_Read: TypeAlias = Callable[[bytes], Any]
_OK, _NULL, _FILE, _EOF, _ERROR = 0, 251, 251, 254, 255
_SIZES = {252: 2, 253: 3, 254: 8}  # bytes of a length, by what announces it
_LONGEST = 0xFFFFFF  # bytes of a packet; what is longer goes on in the next
_BINARY = 63  # the character set of what is no text


def ask(raw: Any, text: str, meanwhile: Callable[[], object] | None = None) -> list[Answer]:
    """What each statement of a text gives; ``meanwhile`` is done before that is read. Raises the
    driver's errors; what follows an error was not carried out."""
    # As the driver does: up to 1.2 it puts bytes into a text so.
    raw._execute_command(COM_QUERY, text.encode(raw.encoding, "surrogateescape"))
    try:
        if meanwhile is not None:
            meanwhile()
    finally:
        answers = _answers(raw)
    return answers


def _answers(raw: Any) -> list[Answer]:
    packets = _Packets(raw)
    answers: list[Answer] = []
    more = SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS
    while more & SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS:
        answer, more = _answer(packets)
        answers.append(answer)
        raw.server_status = more
    return answers


class _Packets:
    """What the server sends, packet by packet."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        # Past the driver's ``_read_bytes``, which would be called twice for each packet.
        self._read = raw._rfile.read
        self._number = raw._next_seq_id - 1  # of what was sent, which may be several packets

    def next(self) -> bytes:
        """A packet. Raises the server's error, where it is one."""
        parts = []
        while True:
            try:
                head: bytes = self._read(4)
                if len(head) < 4:
                    raise self._lost("during query")
                self._number = (self._number + 1) % 256
                if head[3] != self._number:
                    raise self._lost(f"packet {head[3]} came instead of {self._number}")
                length = head[0] | head[1] << 8 | head[2] << 16
                data: bytes = self._read(length)
                if len(data) < length:
                    raise self._lost("during query")
            except OSError as error:
                raise self._lost(f"during query ({error})") from error
            except BaseException:
                self._raw._force_close()
                raise
            if length < _LONGEST:
                break
            parts.append(data)
        if parts:
            data = b"".join((*parts, data))
        if data[:1] == b"\xff":
            err.raise_mysql_exception(data)
        return data

    def _lost(self, why: str) -> Exception:
        self._raw._force_close()
        return err.OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server: {why}")


def _answer(packets: _Packets) -> tuple[Answer, int]:
    """What one statement gives, and the server's status after it."""
    head = packets.next()
    if head[0] == _OK:
        number, at = _number(head, 1)
        _, at = _number(head, at)
        return Answer((), number), _status(head, at)
    if head[0] == _FILE:
        raise packets._lost("it asks for a file of ours")
    width, _ = _number(head, 0)
    reads = _reads(tuple([packets.next() for _ in range(width)]))
    packets.next()  # the end of the columns
    rows: list[Row] = []
    while True:
        data = packets.next()
        if data[0] == _EOF and len(data) < 9:
            return Answer(rows, len(rows)), _status(data, 3)
        rows.append(_row(data, reads))


def _row(data: bytes, reads: Sequence[_Read | None]) -> Row:
    row: list[Any] = []
    at = 0
    for read in reads:
        length = data[at]
        at += 1
        if length == _NULL:
            row.append(None)
            continue
        if length > _NULL:
            size = _SIZES[length]
            length = int.from_bytes(data[at : at + size], "little")
            at += size
        held = data[at : at + length]
        at += length
        row.append(held if read is None else read(held))
    return tuple(row)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of the protocol, and where it ends."""
    size = _SIZES.get(data[at], 0)
    if not size:
        return data[at], at + 1
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _status(data: bytes, at: int) -> int:
    return data[at] | data[at + 1] << 8


@lru_cache(maxsize=1000)
def _reads(columns: tuple[bytes, ...]) -> Sequence[_Read | None]:
    """What makes a value of what arrives, by column; None where it stays as it is."""
    return [_read(FieldDescriptorPacket(data, "utf8")) for data in columns]


def _read(column: Any) -> _Read | None:
    """As PyMySQL does: text in the session's character set, all else but binaries in ASCII."""
    convert: Callable[[Any], Any] | None = CONVERSIONS.get(column.type_code)
    text = column.type_code in TEXT_TYPES
    if convert is int or convert is float:
        return convert
    if convert is None or convert is through:
        is_binary = text and column.charsetnr == _BINARY
        return None if is_binary else bytes.decode
    if text and column.charsetnr == _BINARY:
        return convert
    made = convert
    return lambda held: made(held.decode())
